"""The files of the archive: the log, the mail and every convoy's dispatch ledger.

They follow from the ledger up to an event, and from nothing else, so they can be made again at any time:

    log-00000001.jsonl              events 1 to 10,000, one a line as `hive log --json` shows them; and so on
    log.jsonl                       the events since the last full thousand
    mail/2026-11-19/000000042.json  a message as its receiver reads it, by the day and the event in which it was sent
    dispatch_ledger_CONVOY.json     a convoy, as `hive ledger --json` shows it
    completed/CONVOY.json           the same, once the convoy is complete or archived
    agents/NAME.json                an agent, its record, what it has learnt and its last sessions

A commit writes again what has changed and nothing else. git keeps every version of a file whole until it packs them,
so a file that grows with each commit must stay short: that is why a part of the log grows by a thousand events at once.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hivekeeper.domain import events as e
from hivekeeper.domain.mail import to_file
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.rows import AttemptRow, ConvoyRow
from hivekeeper.domain.states import ConvoyState
from hivekeeper.store import queries
from hivekeeper.store.agent_queries import list_agents
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_events
from hivekeeper.views.agents import show_agent
from hivekeeper.views.convoys import show_ledger
from hivekeeper.views.events import show_event

FORMAT = 2  # another number has every file written again
PART, STEP = 10_000, 1_000  # events of a part of the log, and by how many it grows
_PAGE = 1_000
_WRITES_MAIL = (e.MailAccepted, e.MailSent, e.MailSettled, e.MailRequeued)
_OF_SESSIONS = (
    *(e.TaskDispatched, e.TaskHandedOff, e.TaskCompleted),
    *(e.AttemptFailed, e.AttemptUnknown, e.AttemptCancelled),
)
_DONE = (ConvoyState.COMPLETE, ConvoyState.ARCHIVED)


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds; None removes it."""

    path: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """What is written: the ledger up to one event, of which the files have everything up to an earlier one (or 0).

    `tables` are as they were after the last event; `log` may know of later ones.
    """

    log: Connection
    tables: Connection
    after: int
    until: int

    def read(self, after: int, until: int) -> Iterator[e.Event]:
        """Read events in order, from the one after `after`."""
        while after < until and (page := read_events(self.log, after, min(_PAGE, until - after))):
            yield from page
            after = page[-1].seq


def list_contents(span: Span) -> Iterator[Content]:
    """List the files that differ between both ends of a span."""
    for section in SECTIONS:
        yield from section(span)


def _list_log(span: Span) -> Iterator[Content]:
    written, settled = count_settled(span.after), count_settled(span.until)
    for first in range(written - written % PART, settled, PART) if settled > written else ():
        yield Content(f"log-{first + 1:08}.jsonl", _write_lines(span, first, min(first + PART, settled)))
    yield Content("log.jsonl", _write_lines(span, settled, span.until))


def count_settled(until: int) -> int:
    """Count the events that are in parts; log.jsonl always has at least one."""
    return max(until - 1, 0) // STEP * STEP


def _write_lines(span: Span, after: int, until: int) -> str:
    lines = (json.dumps(show_event(event), ensure_ascii=False) for event in span.read(after, until))
    return "".join(f"{line}\n" for line in lines)


def _list_mail(span: Span) -> Iterator[Content]:
    if not span.after:
        yield from map(_show_mail, queries.list_rows(span.tables, MailRow, "seq"))
        return
    bodies = (event.body for event in span.read(span.after, span.until))
    written = dict.fromkeys(body.mail for body in bodies if isinstance(body, _WRITES_MAIL))
    yield from (_show_mail(row) for mail in written if (row := queries.find_mail(span.tables, mail)))


def _show_mail(row: MailRow) -> Content:
    number = row.id.rpartition("-")[2]  # of the event that it was made in; one that was requeued has a later `seq`
    return Content(f"mail/{row.sent_at[:10]}/{number:0>9}.json", _write_json(to_file(row)))


def _list_ledgers(span: Span) -> Iterator[Content]:
    if span.after:  # every event of a convoy is about the convoy itself or something beneath it
        subjects = (event.body.subject.partition("/")[0] for event in span.read(span.after, span.until))
        found = (queries.find_convoy(span.tables, name) for name in dict.fromkeys(subjects))
        convoys = [convoy for convoy in found if convoy is not None]
    else:
        convoys = queries.list_convoys(span.tables, archived=True)
    for convoy in convoys:
        yield from _show_ledger(span, convoy)


def _show_ledger(span: Span, convoy: ConvoyRow) -> Iterator[Content]:
    current, completed = f"dispatch_ledger_{convoy.name}.json", f"completed/{convoy.name}.json"
    old, new = (current, completed) if convoy.state in _DONE else (completed, current)
    # A heartbeat is not in the log: with it the same events would not make the same file.
    shown = show_ledger(span.tables, convoy) | {"last_coordinator_heartbeat": None}
    yield Content(new, _write_json(shown))
    if span.after:
        yield Content(old, None)


def _list_agents(span: Span) -> Iterator[Content]:
    """List the agents that something has happened to; at the start of a span all of them."""
    found = list_agents(span.tables)
    if span.after:
        bodies = [event.body for event in span.read(span.after, span.until)]
        attempts = {(body.task, body.attempt) for body in bodies if isinstance(body, _OF_SESSIONS)}
        rows = (queries.find(span.tables, AttemptRow, task=task, number=number) for task, number in attempts)
        renamed = {body.agent: body.name for body in bodies if isinstance(body, e.AgentRenamed)}
        changed = {body.subject for body in bodies if body.kind.startswith("agent.")} | {*renamed.values()}
        changed |= {row.agent for row in rows if row is not None and row.agent is not None}
        yield from (Content(f"agents/{name}.json", None) for name in renamed)
        found = [agent for agent in found if agent.name in changed]
    for agent in found:
        # What is at work, and what files hold, is not in the log.
        shown = show_agent(span.tables, agent) | {"state": None, "problems": []}
        yield Content(f"agents/{agent.name}.json", _write_json(shown))


def _write_json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


# What else the archive is to hold is one more function here: from the span alone, to files of its own.
SECTIONS: tuple[Callable[[Span], Iterator[Content]], ...] = (_list_log, _list_mail, _list_ledgers, _list_agents)
