"""A person's wishes about one task."""

from hivekeeper.domain import events as e
from hivekeeper.domain.rows import TaskRow
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction


def cancel_task(tx: Transaction, task: TaskRow, *, why: str = "") -> bool:
    """Cancel a task: at once when nothing of it runs, else when the keeper has ended it. False when it was already."""
    match task.state:
        case TaskState.CANCELLED | TaskState.CANCELLING:
            return False
        case TaskState.COMPLETE:
            raise InputError(f"Task '{task.id}' is already complete.", advice="To undo it, revert its commit.")
        case TaskState.IN_PROGRESS:
            tx.record(e.TaskCancelRequested(task.key), why=why or "cancelled by a person")
        case TaskState.PENDING | TaskState.FAILED | TaskState.UNKNOWN:
            tx.record(e.TaskCancelled(task.key), why=why or "cancelled by a person")
    return True


def retry_task(tx: Transaction, task: TaskRow, *, why: str = "") -> bool:
    """Try a FAILED or UNKNOWN task once more. False when it is already under way."""
    match task.state:
        case TaskState.PENDING | TaskState.IN_PROGRESS | TaskState.CANCELLING:
            return False
        case TaskState.COMPLETE | TaskState.CANCELLED:
            what = f"Task '{task.id}' is {task.state}; what is done or cancelled never runs again."
            advice = f"Add a new one: hive task add {task.convoy} NEW-ID --command '...'"
            raise InputError(what, advice=advice)
        case TaskState.FAILED | TaskState.UNKNOWN:
            convoy = queries.find_convoy(tx.connection, task.convoy)
            if convoy and convoy.state is ConvoyState.ARCHIVED:
                raise InputError(f"Convoy '{task.convoy}' is archived; its tasks never run again.")
            allowed = max(task.attempts + 1, task.attempts_allowed)
            tx.record(e.TaskRetryRequested(task.key, allowed), why=why or "a person asked for another try")
            if convoy and convoy.state is not ConvoyState.ACTIVE:
                tx.record(e.ConvoyExtended(task.convoy))
    return True
