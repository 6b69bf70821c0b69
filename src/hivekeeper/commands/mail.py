"""The life of a message: sent, delivered, handled, or returned when nobody can read it any more."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hivekeeper.commands.sessions import lift_hold
from hivekeeper.domain import events as e
from hivekeeper.domain import protocol as p
from hivekeeper.domain.mail import Receiver
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.names import find_nearest
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.run import HELP
from hivekeeper.domain.states import OPEN_TASKS, MailState, TaskState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

_ACTED_ON = (p.TASK_COMPLETE, p.MERGE_READY, p.STATUS_UPDATE)
_MAX_DIGITS = 9
_NO_TASK = "_hive"  # what begins the ids of messages that are about no task


def make_id(tx: Transaction, task: str | None) -> str:
    """Make the id of the next message."""
    return f"{task or _NO_TASK}/mail-{tx.head.seq + 1}"


def name_worker(task: TaskRow, worker: int) -> str:
    """Name the address of a task's worker: its agent's name where the plan gives one, else its number in the convoy."""
    return task.agent or _number_worker(task, worker)


def _number_worker(task: TaskRow, worker: int) -> str:
    return f"{task.convoy}.worker-{worker}"


def list_names(connection: Connection, task: TaskRow) -> set[str]:
    """List the addresses that mean whoever works on a task, now or in an earlier attempt."""
    attempts = queries.list_attempts_of_task(connection, task.key)
    return {task.key, task.agent or task.key, *(_number_worker(task, attempt.worker) for attempt in attempts)}


def name_origin(task: str, attempt: int) -> str:
    """Name an attempt as the origin of messages."""
    return f"{task}.{attempt}"


def find_receiver(connection: Connection, address: str, convoy: str = "") -> Receiver | str:
    """Find who an address means; a sentence says why it means nobody.

    It is an address of the hive, an agent's name, `CONVOY.worker-N`, `worker-N` if only one is meant, or a task.
    """
    if not address:
        return "it names no receiver, and replies to no message that there is"
    if address == p.ALL:
        return "only types with broadcast = true may be sent to all, by workers"
    if role := p.ADDRESSES.get(address):
        return Receiver(role.value, role)
    if sessions := queries.list_sessions_of_agent(connection, address):
        return Receiver(address, p.Role.WORKER, sessions[0].task, sessions[0].number)
    if tasks := queries.list_tasks_of_agent(connection, address):
        if any(task.state in OPEN_TASKS for task in tasks):
            return Receiver(address, p.Role.WORKER)  # it waits for the agent's next session
        return f"all tasks of {address} have ended"
    attempts = _list_workers(connection, address, convoy)
    if len(attempts) > 1:
        return f"'{address}' may mean {', '.join(f'{each.convoy}.{address}' for each in attempts)}"
    task = queries.find_task(connection, attempts[0].task if attempts else address)
    if task is None and len(by_id := _list_tasks(connection, address, convoy)) > 1:
        return f"'{address}' may mean {', '.join(each.key for each in by_id)}"
    task = task or next(iter(by_id), None)
    if task is None:
        meant = find_nearest(address, queries.list_addresses(connection))
        return f"there is no receiver '{address}'" + (f"; did you mean '{meant}'?" if meant else "")
    if task.state not in (TaskState.PENDING, TaskState.IN_PROGRESS):
        return f"{task.key} has ended: it is {task.state}"
    named = name_worker(task, attempts[0].worker) if attempts else task.agent or task.key
    return Receiver(named, p.Role.WORKER, task.key, task.attempts)


def _list_tasks(connection: Connection, name: str, convoy: str) -> list[TaskRow]:
    """List the tasks that an id may mean: those of this convoy, or else those that have not ended."""
    found = queries.list_tasks_by_id(connection, name)
    return [each for each in found if each.convoy == convoy] or [each for each in found if each.state in OPEN_TASKS]


def _list_workers(connection: Connection, address: str, convoy: str) -> list[AttemptRow]:
    """List the attempts that `CONVOY.worker-N` or `worker-N` may mean; for the latter, this convoy comes first."""
    of, mark, number = address.rpartition("worker-")
    if not mark or not number.isdecimal() or len(number) > _MAX_DIGITS or (of and not of.endswith(".")):
        return []
    if not of:
        found = queries.list_open_workers(connection, int(number))
        if found:
            return [each for each in found if each.convoy == convoy] or found
    of_convoy = of.removesuffix(".") or convoy
    return queries.list_rows(connection, AttemptRow, "number", convoy=of_convoy, worker=int(number))


def send_mail(
    tx: Transaction, kind: str, sender: str, task: TaskRow, attempt: AttemptRow, payload: dict[str, Any]
) -> None:
    """Record a message from a part of the hive to a task's worker, or to its successor."""
    mail, receiver = make_id(tx, task.key), name_worker(task, attempt.worker)
    asks = p.PROTOCOL[kind].expects_reply
    body = e.MailAccepted(
        mail, kind, sender, receiver, task.key, attempt.number, payload, thread=mail, expects_reply=asks
    )
    tx.record(body)


def write_to_next(tx: Transaction, task: TaskRow, text: str) -> None:
    """Record a message from a person to whoever tries a task next."""
    attempts = queries.list_attempts_of_task(tx.connection, task.key)
    address = name_worker(task, attempts[-1].worker) if attempts else task.key
    _send(tx, p.PROTOCOL[p.INFORM], Receiver(address, p.Role.WORKER, task.key, task.attempts), {"text": text})


def send_handoff(tx: Transaction, task: TaskRow, agent: str | None, payload: dict[str, Any]) -> None:
    """Record what the next session of a task is told by whoever handed it off."""
    attempts = queries.list_attempts_of_task(tx.connection, task.key)
    address = agent or (name_worker(task, attempts[-1].worker) if attempts else task.key)
    _send(tx, p.PROTOCOL[p.HANDOFF], Receiver(address, p.Role.WORKER, task.key, task.attempts), payload)


def send_as_person(
    tx: Transaction, protocol: Mapping[str, p.MessageType], type_: str, address: str, payload: dict[str, Any]
) -> MailRow:
    """Record a message from a person; one that could reach nobody is refused."""
    known = _get_type(protocol, type_, payload)
    found = find_receiver(tx.connection, address)
    if isinstance(found, str):
        raise InputError(f"The message was not sent: {found}.", advice="To see who is at work: hive worker ls")
    if (p.Role.PERSON, found.role) not in known.routes:
        allowed = [each.name for each in protocol.values() if (p.Role.PERSON, found.role) in each.routes]
        what = f"You cannot send a message of type {known.name} to {found.address}."
        advice = (
            f"You can send it: {', '.join(allowed)}." if allowed else "Nobody but workers and the hive write to it."
        )
        raise InputError(what, advice=advice)
    return _send(tx, known, found, payload)


def reply_as_person(
    tx: Transaction,
    protocol: Mapping[str, p.MessageType],
    mail: MailRow,
    payload: dict[str, Any],
    type_: str = p.INFORM,
) -> MailRow:
    """Record a person's reply to a message that was sent to them or to the hive; a task that waits for it continues."""
    known = _get_type(protocol, type_, payload)
    if mail.receiver not in p.ADDRESSES or not mail.expects_reply:
        what = f"{mail.id} is of type {mail.type}, to {mail.receiver}: it does not expect a reply."
        raise InputError(what, advice=f"To write to its sender: hive mail send {mail.sender} '...'")
    found = find_receiver(tx.connection, mail.origin_task or mail.sender)
    if isinstance(found, str):
        raise InputError(f"The reply was not sent: {found}.", advice=f"To close the request: hive mail done {mail.id}")
    sent = _send(tx, known, replace(found, address=mail.sender), payload, mail)
    close_mail(tx, protocol, mail, f"answered by {sent.id}")
    return sent


def _get_type(protocol: Mapping[str, p.MessageType], name: str, payload: Mapping[str, Any]) -> p.MessageType:
    if (known := protocol.get(name)) is None:
        meant = find_nearest(name, protocol)
        advice = f"Did you mean '{meant}'?" if meant else f"The types are {', '.join(protocol)}."
        raise InputError(f"Unknown message type '{name}'.", advice=advice)
    if problem := p.check_payload(known, payload):
        raise InputError(f"Invalid {known.name} message: {problem}.", advice="Nothing was sent.")
    return known


def _send(
    tx: Transaction, type_: p.MessageType, to: Receiver, payload: dict[str, Any], parent: MailRow | None = None
) -> MailRow:
    mail = make_id(tx, to.task or (parent.task if parent else None))
    thread, of, hops = (parent.thread, parent.id, parent.hops + 1) if parent else (mail, None, 0)
    asks = type_.expects_reply
    tx.record(e.MailSent(mail, type_.name, to.address, to.task, to.attempt, payload, thread, of, hops, asks))
    return get_row(tx, mail)


def get_row(tx: Transaction, mail: str) -> MailRow:
    """Get a message that this transaction has written."""
    row = queries.find_mail(tx.connection, mail)
    assert row is not None
    return row


def close_mail(tx: Transaction, protocol: Mapping[str, p.MessageType], mail: MailRow, why: str) -> bool:
    """Record that a person has dealt with a message; False when it was settled before.

    A task that waits for it continues, unless it asked for more.
    """
    now = queries.find_mail(tx.connection, mail.id)
    if now is None or not now.is_open:
        return False
    tx.record(e.MailClosed(mail.id), why=why)
    if _is_waited_for(protocol, mail):
        others = _list_asked(tx.connection, mail.origin_task)
        if not any(_is_waited_for(protocol, each) for each in others):
            lift_hold(tx, "task", mail.origin_task, cause=HELP, why=why)
    return True


def close_help(tx: Transaction, protocol: Mapping[str, p.MessageType], task: TaskRow, why: str) -> None:
    """Record that a person has dealt with what a task's workers asked for, so that it does not wait for that."""
    for mail in _list_asked(tx.connection, task.key):
        if _is_help(protocol, mail):
            close_mail(tx, protocol, mail, why)
    lift_hold(tx, "task", task.key, cause=HELP, why=why)


def _list_asked(connection: Connection, task: str) -> list[MailRow]:
    """List the open messages of a task's workers to the hive and to people."""
    return [mail for mail in queries.list_open_mail_of_task(connection, task) if mail.receiver in p.ADDRESSES]


def _is_help(protocol: Mapping[str, p.MessageType], mail: MailRow) -> bool:
    known = protocol.get(mail.type)
    return known is not None and known.handled_as == p.HELP_REQUEST


def _is_waited_for(protocol: Mapping[str, p.MessageType], mail: MailRow) -> bool:
    """Whether a task waits for what it asked; by a type that is not known any more it may have asked for help."""
    may_be_help = mail.type not in protocol or _is_help(protocol, mail)
    return may_be_help and mail.origin != "" and bool(mail.get_payload().get("blocking"))


def requeue_mail(tx: Transaction, protocol: Mapping[str, p.MessageType], mail: MailRow, draft: p.Draft) -> MailRow:
    """Record that a quarantined message is delivered after all, as a person has mended it."""
    if mail.state is not MailState.QUARANTINED:
        said = mail.state.value.lower()
        raise InputError(f"{mail.id} is {said}, not quarantined.", advice="Type: hive mail quarantine ls")
    drop, found = f"To throw it away: hive mail quarantine drop {mail.id}", find_receiver(tx.connection, draft.receiver)
    if isinstance(found, str):
        raise InputError(f"It was not requeued: {found}.", advice=drop)
    if (p.Role.WORKER, found.role) not in protocol[draft.type].routes:
        raise InputError(f"A worker cannot send {draft.type} to {found.address}.", advice=drop)
    type_ = protocol[draft.type]
    if type_.handled_as in _ACTED_ON:
        raise InputError(f"{draft.type} is acted on when it is sent, and cannot be requeued.", advice=drop)
    task, attempt = (found.task, found.attempt) if found.role is p.Role.WORKER else (mail.task, mail.attempt)
    asks = type_.expects_reply
    body = e.MailRequeued(mail.id, draft.type, found.address, task, attempt, draft.payload, expects_reply=asks)
    tx.record(body, why="requeued by a person")
    return get_row(tx, mail.id)


def drop_mail(tx: Transaction, mail: MailRow, why: str) -> bool:
    """Record that a person threw a quarantined message away; False when it was not quarantined."""
    now = queries.find_mail(tx.connection, mail.id)
    if now is None or now.state is not MailState.QUARANTINED:
        return False
    tx.record(e.MailDropped(mail.id), why=why or "thrown away by a person")
    return True


def deliver_mail(tx: Transaction, mail: MailRow, run: RunRow | None = None) -> None:
    """Record that a message is where its receiver reads it: in its inbox, or with a run that has started."""
    now = queries.find_mail(tx.connection, mail.id)
    if now is not None and now.is_open and (now.state is MailState.ACCEPTED or (run and now.delivered_run is None)):
        tx.record(e.MailDelivered(mail.id, run.id if run else None), occurred_at=run.started_at if run else None)


def handle_mail(tx: Transaction, mail: MailRow, why: str) -> None:
    """Record that a message's receiver has dealt with it; of a rebase only the clone itself is evidence."""
    now = queries.find_mail(tx.connection, mail.id)
    if now is not None and now.is_open and not now.must_rebase:
        tx.record(e.MailHandled(mail.id), why=why)


def note_rebased(tx: Transaction, mail: MailRow) -> None:
    """Record that a worker's clone contains the hotfix that a message is about."""
    now = queries.find_mail(tx.connection, mail.id)
    if now is not None and now.is_open:
        tx.record(e.MailHandled(mail.id), why="its clone contains the hotfix")


def assign_mail(tx: Transaction, task: TaskRow, attempt: int) -> None:
    """Record that what waited for a task's agent is for its worker now."""
    for mail in queries.list_mail_for_agent(tx.connection, task.agent) if task.agent else ():
        tx.record(e.MailAssigned(mail.id, task.key, attempt))


def end_mail_of_attempt(tx: Transaction, task: TaskRow, attempt: AttemptRow, *, is_reported: bool) -> None:
    """Record that an attempt has ended: what its sessions were given is handled, and the next one gets the rest.

    If it `is_reported` and its worker has not said that it is done, that is recorded in its name.
    """
    for mail in queries.list_open_mail_of_task(tx.connection, task.key):
        if mail.receiver in p.ADDRESSES:
            if mail.expects_reply and mail.origin == name_origin(task.key, attempt.number):
                tx.record(e.MailHandled(mail.id), why="the attempt that asked has ended")
            continue
        if (mail.attempt or 0) > attempt.number:
            continue
        if mail.delivered_run is not None:
            tx.record(e.MailHandled(mail.id), why="the attempt that read it has ended")
        elif mail.type == p.PRIORITY_MERGE:
            tx.record(e.MailReturned(mail.id), why="its worker had ended")
        elif mail.state is MailState.DELIVERED:
            tx.record(e.MailForwarded(mail.id), why="its worker ended before it read it")
    lift_hold(tx, "task", task.key, cause=HELP, why="the attempt that asked for help has ended")
    if is_reported and attempt.finished_at is None:
        mail_id, number, sender = make_id(tx, task.key), attempt.number, name_worker(task, attempt.worker)
        body = e.MailSettled(
            mail_id, p.TASK_COMPLETE, sender, p.Role.QUEUE.value, task.key, number,
            {"task_id": task.id}, mail_id, origin=name_origin(task.key, number),
            outcome=MailState.HANDLED,
        )  # fmt: skip
        tx.record(body, why="recorded by the hive: the worker ended without a message")


def return_stale(tx: Transaction, mail: MailRow) -> None:
    """Record that a message waits for a task that has ended, or for an agent without another task."""
    now = queries.find_mail(tx.connection, mail.id)
    if now is not None and now.state is MailState.ACCEPTED and now.task == mail.task:
        why = "its task has ended" if mail.task else f"all tasks of {mail.receiver} have ended"
        tx.record(e.MailReturned(mail.id), why=why)


def return_mail(tx: Transaction, task: str, why: str) -> None:
    """Record that nobody will read what is left for a task, nor answer it; what a person is told stays."""
    for mail in queries.list_open_mail_of_task(tx.connection, task):
        if mail.delivered_run is not None or (mail.receiver in p.ADDRESSES and mail.expects_reply):
            tx.record(e.MailHandled(mail.id), why=why)
        elif mail.receiver not in p.ADDRESSES:
            tx.record(e.MailReturned(mail.id), why=why)
