"""What workers write: accepted once, handled at once if it is for the hive itself, or refused with a reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.commands.mail import (
    find_receiver,
    get_row,
    handle_mail,
    list_names,
    make_id,
    name_origin,
    name_worker,
)
from hivekeeper.commands.sessions import place_hold
from hivekeeper.domain import events as e
from hivekeeper.domain import protocol as p
from hivekeeper.domain.mail import Facts, Limits, Receiver, Refusal, Unreadable, find_refusal
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.domain.run import HELP
from hivekeeper.domain.session import Hold
from hivekeeper.domain.states import AttemptState, MailState
from hivekeeper.domain.waits import SLACK_S
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction

MAX_REFUSED = 100  # of an attempt, in the ledger; what is refused after them is set aside in its outbox and not counted
MAX_PROGRESS = 500
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A file in the outbox of an attempt; `head` is the commit that its clone is at, if that was asked."""

    task: TaskRow
    attempt: AttemptRow
    file: str
    digest: str
    said: p.Draft | Unreadable
    head: str | None = None

    @property
    def origin(self) -> str:
        """The attempt, as messages name it."""
        return name_origin(self.attempt.task, self.attempt.number)

    @property
    def sender(self) -> str:
        """The address of the worker."""
        return name_worker(self.task, self.attempt.worker)


def receive(tx: Transaction, protocol: Mapping[str, p.MessageType], limits: Limits, file: Outgoing) -> list[MailRow]:
    """Record what a worker wrote, once, and tell what became of it: a row for each receiver.

    The same file, or another with the id that its sender chose, is the same message.
    """
    given = file.said.given_id if isinstance(file.said, p.Draft) else None
    if known := queries.list_mail_of_file(tx.connection, file.origin, file.digest, file.file, given):
        return known
    is_full = queries.count_refused_mail(tx.connection, file.origin) >= MAX_REFUSED
    if isinstance(file.said, Unreadable):
        return [] if is_full else [_quarantine(tx, file, file.said)]
    said = file.said
    if said.receiver == p.ALL and _may_broadcast(protocol[said.type]):
        pairs = queries.list_open_attempts(tx.connection, AttemptState.WORKING)
        everyone = [
            (name_worker(task, attempt.worker), attempt) for attempt, task in pairs if task.key != file.task.key
        ]
        found: list[Receiver | str] = [Receiver(address, p.Role.WORKER, to.task, to.number) for address, to in everyone]
        found = found or ["nobody else is at work"]
    else:
        found = [find_receiver(tx.connection, said.receiver or _find_asker(tx, said), file.task.convoy)]
    received = (_receive(tx, protocol, limits, file, said, receiver, is_full=is_full) for receiver in found)
    return [row for row in received if row is not None]


def _may_broadcast(type_: p.MessageType) -> bool:
    return type_.may_broadcast and (p.Role.WORKER, p.Role.WORKER) in type_.routes


def _is_for(mail: MailRow, task: TaskRow) -> bool:
    """Whether a message was for the worker of a task, whichever it was then."""
    return mail.receiver not in p.ADDRESSES and mail.task == task.key


def _find_asker(tx: Transaction, said: p.Draft) -> str:
    """Find whom a reply without a receiver is for."""
    parent = queries.find_mail(tx.connection, said.in_reply_to) if said.in_reply_to else None
    return parent.sender if parent else ""


def _receive(  # noqa: PLR0913 - one a fact
    tx: Transaction,
    protocol: Mapping[str, p.MessageType],
    limits: Limits,
    file: Outgoing,
    said: p.Draft,
    found: Receiver | str,
    *,
    is_full: bool,
) -> MailRow | None:
    parent = queries.find_mail(tx.connection, said.in_reply_to) if said.in_reply_to else None
    if isinstance(found, str):
        receiver = Receiver(said.receiver, p.Role.WORKER)
        refusal: Refusal | None = Refusal(MailState.RETURNED, found)
    else:
        receiver = found
        refusal = find_refusal(_gather_facts(tx, protocol, file, said, receiver, parent), limits)
    if refusal is not None and is_full:
        return None
    mail = make_id(tx, receiver.task or file.task.key)
    thread, hops = (parent.thread, parent.hops + 1) if parent else (mail, 0)
    is_to_worker = receiver.role is p.Role.WORKER
    fields: dict[str, Any] = {
        "mail": mail,
        "type": said.type,
        "sender": file.sender,
        "receiver": receiver.address,
        "task": receiver.task if is_to_worker and refusal is None else file.task.key,
        "attempt": receiver.attempt if is_to_worker and refusal is None else file.attempt.number,
        "payload": said.payload,
        "thread": thread,
        "parent": parent.id if parent else None,
        "hops": hops,
        "expects_reply": protocol[said.type].expects_reply,
        "origin": file.origin,
        "file": file.file,
        "digest": file.digest,
        "given_id": said.given_id,
    }
    if refusal is not None:
        tx.record(e.MailSettled(outcome=refusal.state, **fields), why=refusal.reason)
        return get_row(tx, mail)
    if handled := _handle(tx, protocol[said.type], file, said, receiver.role):
        tx.record(e.MailSettled(outcome=MailState.HANDLED, **fields), why=handled)
    else:
        tx.record(e.MailAccepted(**fields))
        if receiver.role is not p.Role.WORKER:  # its inbox is the ledger
            tx.record(e.MailDelivered(mail))
    if parent is not None:
        handle_mail(tx, parent, f"answered by {mail}")
    return get_row(tx, mail)


def _gather_facts(
    tx: Transaction,
    protocol: Mapping[str, p.MessageType],
    file: Outgoing,
    said: p.Draft,
    receiver: Receiver,
    parent: MailRow | None,
) -> Facts:
    return Facts(
        protocol[said.type],
        file.sender,
        receiver,
        said.in_reply_to,
        parent,
        protocol.get(parent.type) if parent else None,
        is_own=receiver.task == file.task.key or receiver.address == file.sender,
        was_asked=parent is None or parent.receiver == file.sender or _is_for(parent, file.task),
        recent=_count_recent(tx, file.task, receiver) if parent is None else 0,
        replies=queries.count_replies(tx.connection, parent.id, file.sender) if parent else 0,
    )


def _count_recent(tx: Transaction, sender: TaskRow, receiver: Receiver) -> int:
    """Count the conversations of the last hour, whichever attempts and addresses they were between.

    A message from well ahead of now was sent while the clock was wrong.
    """
    task = queries.find_task(tx.connection, receiver.task) if receiver.task else None
    receivers = {receiver.address} | (list_names(tx.connection, task) if task else set())
    now_s = to_seconds(tx.now)
    since, until = to_text(now_s - _HOUR_S), to_text(now_s + SLACK_S)
    return queries.count_conversations(tx.connection, list_names(tx.connection, sender), receivers, since, until)


def _handle(tx: Transaction, type_: p.MessageType, file: Outgoing, said: p.Draft, to: p.Role) -> str:
    """Do what a message to the hive itself asks for; "" if it waits for a person."""
    task, number, text = file.task.key, file.attempt.number, _read_text(said.payload)
    now = queries.find(tx.connection, AttemptRow, task=task, number=number)
    is_at_work = now is not None and now.state is AttemptState.WORKING
    match type_.handled_as, to:
        case p.STATUS_UPDATE, _:
            if is_at_work:
                tx.record(e.AttemptProgressed(task, number, text[:MAX_PROGRESS]))
            return "shown as the worker's progress"
        case (p.TASK_COMPLETE | p.MERGE_READY) as what, _:
            if now is None or not is_at_work or now.finished_at is not None:
                return "its work was reported as finished before"
            commit = file.head if what == p.MERGE_READY else None
            is_unchanged = bool(said.payload.get("nothing_to_change"))
            tx.record(e.AttemptFinished(task, number, commit, is_unchanged), why=text)
            return "the work is finished, and will be checked"
        case p.HELP_REQUEST, _:
            if is_at_work and said.payload.get("blocking") and _has_session(tx, task, number):
                place_hold(tx, Hold("task", task, HELP, None, 1), why=text or "its worker asks for help")
            return ""
        case p.LESSON, _:
            return "kept for its agent when its change lands"
        case p.ACK, p.Role.QUEUE:
            return "noted"
        case _:
            return ""


def _has_session(tx: Transaction, task: str, number: int) -> bool:
    """Whether an agent program is at work, which can wait for an answer; a command cannot."""
    agents = [run for run in queries.list_runs_of_attempt(tx.connection, task, number) if run.kind == "agent"]
    return bool(agents) and agents[-1].runner is not None


def _read_text(payload: Mapping[str, Any]) -> str:
    return str(payload.get("text") or payload.get("summary") or "")


def _quarantine(tx: Transaction, file: Outgoing, said: Unreadable) -> MailRow:
    """Record a file that is no message, for a person to look at."""
    mail = make_id(tx, file.task.key)
    to_person, payload = p.Role.PERSON.value, {"raw": said.text}
    body = e.MailSettled(
        mail, "?", file.sender, to_person, file.task.key, file.attempt.number, payload, mail,
        origin=file.origin, file=file.file, digest=file.digest, outcome=MailState.QUARANTINED,
    )  # fmt: skip
    tx.record(body, why=said.reason)
    return get_row(tx, mail)
