"""The life of an attempt, from dispatch to verdict, as the keeper records it."""

from hivekeeper.domain import events as e
from hivekeeper.domain.convoy import decide_swarm
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction


def dispatch_task(tx: Transaction, task: TaskRow) -> int:
    """Give a task to a new worker in the convoy's current batch; tell the attempt's number."""
    convoy = queries.find_convoy(tx.connection, task.convoy)
    assert convoy is not None
    last_swarm = queries.find_last_swarm_of_task(tx.connection, task.key) if task.attempts else None
    swarm = decide_swarm(convoy.swarms, last_swarm)
    if swarm > convoy.swarms:
        tx.record(e.SwarmOpened(task.convoy, swarm))
    attempt = task.attempts + 1
    sandbox = task.repo is not None
    tx.record(e.TaskDispatched(task.key, task.convoy, attempt, swarm, convoy.workers + 1, sandbox))
    return attempt


def complete_task(
    tx: Transaction, task: TaskRow, attempt: int, *, at: str, commit: str | None = None, output: str | None = None
) -> None:
    """Record that a task is done, at its true end."""
    tx.record(e.TaskCompleted(task.key, attempt, commit, output), occurred_at=at)


def fail_attempt(tx: Transaction, task: TaskRow, attempt: AttemptRow, *, why: str, at: str) -> None:
    """Record that an attempt came to nothing: the task is tried again or, at its limit, waits for a person."""
    final = attempt.number >= task.attempts_allowed
    tx.record(e.AttemptFailed(task.key, attempt.number, final), why=why, occurred_at=at)


def leave_unknown(tx: Transaction, task: TaskRow, attempt: AttemptRow, *, why: str) -> None:
    """Record that an attempt may have run."""
    tx.record(e.AttemptUnknown(task.key, attempt.number), why=why)


def submit_attempt(tx: Transaction, task: TaskRow, attempt: AttemptRow, commit: str, *, at: str) -> None:
    """Put what an attempt made into the merge queue."""
    assert task.repo is not None
    tx.record(e.AttemptSubmitted(task.key, attempt.number, task.repo, commit, task.priority), occurred_at=at)


def cancel_attempt(tx: Transaction, task: TaskRow, attempt: AttemptRow) -> None:
    """Record that a cancelled task's attempt has ended, and with it the task."""
    tx.record(e.AttemptCancelled(task.key, attempt.number), why=task.reason)
    tx.record(e.TaskCancelled(task.key), why=task.reason)


def sweep_attempt(tx: Transaction, attempt: AttemptRow) -> None:
    """Record that an attempt's sandbox is gone."""
    tx.record(e.AttemptSwept(attempt.task, attempt.number))
