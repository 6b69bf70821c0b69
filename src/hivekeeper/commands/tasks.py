"""A person's wishes about one task."""

from hivekeeper.commands.mail import write_to_next
from hivekeeper.domain import events as e
from hivekeeper.domain.rows import TaskRow
from hivekeeper.domain.run import DOWN
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


def retry_task(tx: Transaction, task: TaskRow, *, why: str = "", note: str = "") -> bool:
    """Try a task that failed, may have run or was cancelled once more, and tell its worker a note.

    False when it is already under way.
    """
    match task.state:
        case TaskState.PENDING | TaskState.IN_PROGRESS | TaskState.CANCELLING:
            if note:
                what = f"Task '{task.id}' is {task.state}: a note comes with another try."
                raise InputError(what, advice=f"{_advise_telling(task)}. See why it is: hive task why {task.key}")
            return False
        case TaskState.COMPLETE:
            what = f"Task '{task.id}' is {task.state}; what is done never runs again."
            advice = f"Add a new one: hive task add {task.convoy} NEW-ID --command '...'"
            raise InputError(what, advice=advice)
        case TaskState.FAILED | TaskState.UNKNOWN | TaskState.CANCELLED:
            convoy = queries.find_convoy(tx.connection, task.convoy)
            if convoy and convoy.state is ConvoyState.ARCHIVED:
                raise InputError(f"Convoy '{task.convoy}' is archived; its tasks never run again.")
            allowed = max(task.attempts + 1, task.attempts_allowed)
            tx.record(e.TaskRetryRequested(task.key, allowed), why=why or "a person asked for another try")
            if convoy and convoy.state is not ConvoyState.ACTIVE:
                tx.record(e.ConvoyExtended(task.convoy))
            if note:
                write_to_next(tx, task, note)
    return True


def rearm_stopped(tx: Transaction, *, why: str) -> None:
    """Have tasks tried again whose last attempt failed for nothing but that all workers were ended."""
    for task in queries.list_tasks_in_state(tx.connection, TaskState.FAILED):
        runs = queries.list_runs_of_attempt(tx.connection, task.key, task.attempts)
        agent = next((run for run in reversed(runs) if run.kind == "agent"), None)
        convoy = queries.find_convoy(tx.connection, task.convoy)
        is_open = convoy is not None and convoy.state is not ConvoyState.ARCHIVED
        if is_open and agent is not None and agent.ended_by == "killed" and agent.kill_cause == DOWN:
            retry_task(tx, task, why=why)


def _advise_telling(task: TaskRow) -> str:
    if task.state is TaskState.PENDING:
        return f"Say it in the task: hive task edit {task.key}"
    return f"Tell its worker: hive worker tell {task.key} '...'"


def edit_task(tx: Transaction, task: TaskRow, *, command: str = "", prompt: str = "", why: str = "") -> bool:
    """Change the command or the prompt of a task that nobody works on; False when it is that already."""
    if bool(command.strip()) == bool(prompt.strip()):
        raise InputError("What is the task to be now?", advice="Give exactly one of --command and --prompt.")
    is_prompt = bool(task.runners)
    if task.branch is not None or is_prompt != bool(prompt):
        has = "is a branch" if task.branch is not None else f"has a {'prompt' if is_prompt else 'command'}"
        advice = f"Add a new one: hive task add {task.convoy} NEW-ID --{'prompt' if prompt else 'command'} '...'"
        raise InputError(f"Task '{task.id}' {has}, and stays one.", advice=advice)
    if task.state in (TaskState.IN_PROGRESS, TaskState.CANCELLING, TaskState.COMPLETE):
        advice = f"Type: hive task why {task.key}"
        raise InputError(f"Task '{task.id}' is {task.state}; only one that nobody works on is edited.", advice=advice)
    before = queries.find_prompt(tx.connection, task.key) if is_prompt else task.command
    if before == (prompt or command):
        return False
    tx.record(e.TaskEdited(task.key, command, prompt), why=why)
    return True
