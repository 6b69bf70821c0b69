"""How convoys end and are put away."""

from hivekeeper.domain import events as e
from hivekeeper.domain.convoy import Outcome
from hivekeeper.domain.rows import ConvoyRow, SwarmRow
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction


def end_convoy(
    tx: Transaction, convoy: str, outcome: Outcome, *, at: str, why: str = "some tasks need a person"
) -> bool:
    """Record what a convoy has come to, at the true end of its last task."""
    match outcome:
        case Outcome.ACTIVE:
            return False
        case Outcome.COMPLETE:
            tx.record(e.ConvoyCompleted(convoy), occurred_at=at)
        case Outcome.FAILED:
            tx.record(e.ConvoyFailed(convoy), why=why)
    return True


def close_swarm(tx: Transaction, swarm: SwarmRow) -> None:
    """Close a batch that is over."""
    tx.record(e.SwarmClosed(swarm.convoy, swarm.number))


def archive_convoy(tx: Transaction, convoy: ConvoyRow, *, why: str = "") -> bool:
    """Put an ended convoy away; its ids stay in the never-again set. False when it was already."""
    match convoy.state:
        case ConvoyState.ARCHIVED:
            return False
        case ConvoyState.ACTIVE:
            advice = f"Type: hive convoy show {convoy.name}"
            raise InputError(f"Convoy '{convoy.name}' is still under way.", advice=advice)
        case ConvoyState.COMPLETE | ConvoyState.FAILED:
            tx.record(e.ConvoyArchived(convoy.name), why=why)
    return True


def cancel_convoy(tx: Transaction, convoy: ConvoyRow, *, why: str = "") -> int:
    """Cancel every task of a convoy that is not complete; tell how many."""
    cancelled = 0
    for task in queries.list_tasks_of_convoy(tx.connection, convoy.name):
        if task.state is TaskState.IN_PROGRESS:
            tx.record(e.TaskCancelRequested(task.key), why=why or "its convoy was cancelled")
            cancelled += 1
        elif task.state in (TaskState.PENDING, TaskState.FAILED, TaskState.UNKNOWN):
            tx.record(e.TaskCancelled(task.key), why=why or "its convoy was cancelled")
            cancelled += 1
    return cancelled
