"""Messages as people and programs are shown them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.domain import protocol as p
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.names import name_some
from hivekeeper.domain.rows import AttemptRow, RunRow
from hivekeeper.domain.runner import Reach, Runner
from hivekeeper.domain.states import AttemptState, MailState, RunState
from hivekeeper.domain.wording import agree
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.views.tasks import get_task

REBASE_WITHIN_S = 600.0
_MAX_SHOWN, _MAX_LOOKED_AT = 5, 100
_MAX_GIST = 160
_PAGE = 5000


def show_mail(row: MailRow) -> dict[str, Any]:
    """Show a message, and its gist in one line."""
    payload = row.get_payload()
    if row.type == p.PRIORITY_MERGE:
        touched = ", ".join(payload.get("touched", ()))
        gist = f"rebase: the hotfix changes {touched}" if touched else "a hotfix has landed"
    else:
        gist = _find_gist(payload)
    return {**asdict(row), "payload": payload, "gist": gist}


def _find_gist(payload: Mapping[str, Any]) -> str:
    said = payload.get("text") or payload.get("summary") or payload.get("why") or payload.get("raw") or ""
    return str(said).strip().partition("\n")[0]


def search_mail(connection: Connection, words: str, *, limit: int, **conditions: Any) -> list[MailRow]:  # noqa: ANN401 - as list_mail_matching has them
    """Search the text of messages, newest first; case does not matter."""
    if words.isascii() and json.dumps(words) == f'"{words}"':  # then it stands in the payload as it is typed
        return queries.list_mail_matching(connection, limit=limit, words=words, **conditions)
    found, before, wanted = list[MailRow](), None, words.casefold()
    while len(found) < limit:
        page = queries.list_mail_matching(connection, limit=_PAGE, before=before, **conditions)
        found += (row for row in page if any(wanted in text.casefold() for text in _list_texts(row.get_payload())))
        if len(page) < _PAGE:
            break
        before = page[-1].seq
    return found[:limit]


def _list_texts(said: object) -> Iterator[str]:
    match said:
        case dict():
            for value in said.values():
                yield from _list_texts(value)
        case list():
            for value in said:
                yield from _list_texts(value)
        case _:
            yield str(said)


def get_mail(connection: Connection, mail: str) -> MailRow:
    """Get the message with this id."""
    row = queries.find_mail(connection, mail)
    if row is None:
        raise InputError(f"There is no message '{mail}'.", advice="Type: hive mail ls")
    return row


def show_thread(connection: Connection, name: str) -> list[dict[str, Any]]:
    """Show the conversation of a message, or everything that was said about a task, oldest first."""
    if (row := queries.find_mail(connection, name)) is not None:
        return [show_mail(each) for each in queries.list_rows(connection, MailRow, "seq", thread=row.thread)]
    task = get_task(connection, name)
    return [show_mail(row) for row in reversed(queries.list_mail_matching(connection, limit=-1, task=task.key))]


def list_inbox(connection: Connection) -> list[MailRow]:
    """List open messages to the hive's own addresses, which a person reads, oldest first."""
    return [row for row in queries.list_open_mail(connection) if row.receiver in p.ADDRESSES]


def find_reader(connection: Connection, mail: MailRow) -> RunRow | None:
    """Find the agent that is at work and will read a message; None if nobody is, or its work is finished."""
    key, number = mail.task or "", mail.attempt or 0
    attempt = queries.find(connection, AttemptRow, task=key, number=number)
    if attempt is None or attempt.state is not AttemptState.WORKING or attempt.finished_at is not None:
        return None
    agents = [run for run in queries.list_runs_of_attempt(connection, key, number) if run.kind == "agent"]
    return agents[-1] if agents and agents[-1].state is RunState.RUNNING else None


def say_when(reader: RunRow | None, runners: Mapping[str, Runner], *, is_urgent: bool = False) -> str:
    """Say when a message reaches its receiver."""
    if reader is None:
        return "it gets it when it works next"
    runner = runners.get(reader.runner or "")
    if runner is None or runner.reach is Reach.NONE:
        return "it finds it in its inbox"
    if is_urgent:
        return "its current turn is interrupted for it"
    return "it gets it while it works" if runner.reach is Reach.SESSION else "it gets it after its current turn"


def list_mail_needs(connection: Connection, reply_within_s: float, *, now: str) -> Iterator[tuple[str, str]]:
    """List the messages that need a person, each with the command."""
    inbox = [row for row in list_inbox(connection) if row.type != p.SEANCE]  # the keeper answers that
    for row in inbox:
        if row.expects_reply:
            kind = "asks for help" if row.type == p.HELP_REQUEST else f"asks ({row.type})"
            waits = " and waits" if row.get_payload().get("blocking") else ""
            gist = str(show_mail(row)["gist"])
            said = gist if len(gist) <= _MAX_GIST else f"{gist[: _MAX_GIST - 1]}…"
            yield f"{row.sender} {kind}{waits}: {said}", f"hive mail reply {row.id} '...'"
    if unread := [row for row in inbox if not row.expects_reply]:
        senders = name_some(list(dict.fromkeys(row.sender for row in unread)))
        yield f"There is mail for you from {senders}.", "hive mail inbox"
    quarantined = queries.list_set_aside_mail(connection, MailState.QUARANTINED, _MAX_SHOWN)
    if quarantined:
        senders = name_some(list(dict.fromkeys(row.sender for row in quarantined)))
        messages = agree(len(quarantined), "A message", "Messages")
        yield f"{messages} from {senders} could not be read.", "hive mail quarantine ls"
    before = to_text(to_seconds(now) - reply_within_s)
    for row in queries.list_unanswered(connection, before)[:_MAX_SHOWN]:
        if row.receiver not in p.ADDRESSES and row.type != p.PRIORITY_MERGE:
            what = f"{row.sender} has had no reply from {row.receiver} since {row.sent_at}."
            yield what, f"hive mail thread {row.id}"
    yield from _list_late_rebases(connection, to_text(to_seconds(now) - REBASE_WITHIN_S))
    yield from _list_stopped(connection)


def _list_late_rebases(connection: Connection, before: str) -> Iterator[tuple[str, str]]:
    for row in queries.list_open_mail(connection):
        if row.type == p.PRIORITY_MERGE and row.sent_at < before:
            commit = str(row.get_payload().get("commit"))[:12]
            late = f"rebased onto the hotfix {commit}" if row.must_rebase else f"acknowledged the hotfix {commit}"
            yield f"{row.receiver} ({row.task}) has not {late} since {row.sent_at}.", f"hive worker log {row.task}"


def _list_stopped(connection: Connection) -> Iterator[tuple[str, str]]:
    """List what was dropped because there was too much of it, once for each pair, while their task is open."""
    told = set[tuple[str, str]]()
    for row in queries.list_set_aside_mail(connection, MailState.DROPPED, _MAX_LOOKED_AT):
        if (row.sender, row.receiver) not in told and len(told) < _MAX_SHOWN:
            told.add((row.sender, row.receiver))
            what = f"A message from {row.sender} to {row.receiver} was dropped: {row.reason}."
            yield what, f"hive mail thread {row.id}"
