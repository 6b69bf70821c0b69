"""Messages: written by the hive or a person, delivered with a session, handled when its work ends, or returned."""

from typing import Any

from hivekeeper.domain import events as e
from hivekeeper.domain.merge import PRIORITY_MERGE
from hivekeeper.domain.rows import AttemptRow, MailRow, RunRow, TaskRow
from hivekeeper.domain.runner import Reach, Runner
from hivekeeper.domain.states import MailState, RunState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction


def name_worker(task: TaskRow, worker: int) -> str:
    """Name the address of a task's worker: its agent's name where the plan gives one, else its number in the convoy."""
    return task.agent or f"{task.convoy}.worker-{worker}"


def send_mail(
    tx: Transaction, kind: str, sender: str, task: TaskRow, attempt: AttemptRow, payload: dict[str, Any]
) -> None:
    """Record a message from a part of the hive to a task's worker, or to its successor."""
    receiver, number = name_worker(task, attempt.worker), attempt.number
    tx.record(e.MailAccepted(_make_id(tx, task.key), kind, sender, receiver, task.key, number, payload))


def write_to_next(tx: Transaction, task: TaskRow, text: str) -> None:
    """Record a message from a person to whoever tries a task next."""
    attempts = queries.list_attempts_of_task(tx.connection, task.key)
    receiver = name_worker(task, attempts[-1].worker) if attempts else task.key
    tx.record(e.MailSent(_make_id(tx, task.key), receiver, task.key, task.attempts, text))


def write_to_worker(tx: Transaction, task: TaskRow, attempt: AttemptRow, runner: Runner | None, text: str) -> None:
    """Record a message from a person to a session that is running; refused where it could not be delivered."""
    runs = queries.list_runs_of_attempt(tx.connection, attempt.task, attempt.number)
    if not any(run.kind == "agent" and run.state is RunState.RUNNING for run in runs):
        what = f"Worker {attempt.worker} has no agent running for {attempt.task} just now."
        raise InputError(what, advice="See what it does: hive worker ls")
    if runner is None or runner.reach is Reach.NONE:
        who = f"'{runner.name}'" if runner else "A command"
        what = f"{who} cannot be told anything while it works."
        raise InputError(what, advice=f"End it, and say it in the task: hive worker kill {attempt.task}")
    receiver = name_worker(task, attempt.worker)
    tx.record(e.MailSent(_make_id(tx, attempt.task), receiver, attempt.task, attempt.number, text))


def deliver_mail(tx: Transaction, mail: MailRow, run: RunRow) -> None:
    """Record that a run which was given a message has started."""
    tx.record(e.MailDelivered(mail.id, mail.task, run.id), occurred_at=run.started_at)


def end_mail_of_attempt(tx: Transaction, task: str, attempt: int) -> None:
    """Record that an attempt's session has ended: what was delivered to it is handled, and no hotfix concerns it."""
    for mail in queries.list_open_mail(tx.connection, task):
        if mail.state is MailState.DELIVERED:
            tx.record(e.MailHandled(mail.id, task), why="the attempt that read it has ended")
        elif mail.type == PRIORITY_MERGE and mail.attempt == attempt:
            tx.record(e.MailReturned(mail.id, task), why="its worker had ended")


def return_mail(tx: Transaction, task: str, why: str) -> None:
    """Record that nobody will read what is left for a task."""
    for mail in queries.list_open_mail(tx.connection, task):
        body = e.MailHandled if mail.state is MailState.DELIVERED else e.MailReturned
        tx.record(body(mail.id, task), why=why)


def _make_id(tx: Transaction, task: str) -> str:
    return f"{task}.mail-{tx.head.seq + 1}"
