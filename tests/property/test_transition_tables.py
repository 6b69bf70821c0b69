"""The tables of transitions, walked: whatever sequence of events is taken, rows move along listed edges and no others.

`tests/architecture/test_states.py` reads the projection's changes, `tests/store/test_transitions.py` tries single
events from every situation; here whole sequences run over real tables, and `apply_changes` itself is tried on
every edge.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import product

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivekeeper.domain import events as e
from hivekeeper.domain.events import BODIES, Body, Event
from hivekeeper.domain.schema import Row, Update, Value, project
from hivekeeper.domain.states import (
    OPEN_MAIL,
    TRANSITIONS,
    AttemptState,
    ConvoyState,
    MailState,
    MergeState,
    RepoState,
    RunState,
    SwarmState,
    TaskState,
    is_terminal,
    may_move,
    sources_of,
)
from hivekeeper.errors import IllegalTransitionError
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import apply_changes
from hivekeeper.store.sqlite import in_memory
from tests.budget import SEED
from tests.property.budget import PATIENCE, tries

pytestmark = PATIENCE

AT = "2026-11-15T21:25:35.123456Z"
C, TASK, OTHER, RUN, REPO, MAIL = "c", "c/a", "c/b", "c/a.1.agent", "r", "c/a.mail-1"

# For each table the key of one row, and what the schema wants of that row in a state.
Table = tuple[type[StrEnum], Row, Callable[[StrEnum], dict[str, Value]]]
TABLES: dict[str, Table] = {
    "run": (RunState, {"id": RUN}, lambda s: {
        "kind": "agent", "argv": "[]", "directory": "/", "environment": "{}", "limits": "{}", "boot_id": "b",
        "intended_at": AT, "pid": 1,
        "exit_status": 0 if s is RunState.EXITED else None, "ended_at": AT if is_terminal(s) else None}),
    "task": (TaskState, {"key": TASK}, lambda s: {
        "convoy": C, "id": "a", "title": "", "command": "true", "priority": 0, "attempts_planned": 1,
        "attempts_allowed": 1, "idempotent": 0, "limits": "{}", "position": 1, "added_at": AT, "dispatched_at": AT,
        "completed_at": AT if s is TaskState.COMPLETE else None}),
    "attempt": (AttemptState, {"task": TASK, "number": 1}, lambda s: {
        "convoy": C, "swarm": 1, "worker": 1, "sandbox": "NONE", "started_at": AT,
        "ended_at": AT if is_terminal(s) else None}),
    "merge_entry": (MergeState, {"task": TASK, "attempt": 1}, lambda s: {
        "repo": REPO, "commit_id": "1", "priority": 0, "position": 1, "base": "2", "candidate": "3", "queued_at": AT,
        "ended_at": AT if is_terminal(s) else None}),
    "mail": (MailState, {"id": MAIL}, lambda s: {
        "type": "inform", "sender": "person", "receiver": "c.worker-1", "task": TASK, "attempt": 1, "payload": "{}",
        "sent_at": AT, "delivered_at": AT if s in (MailState.DELIVERED, MailState.HANDLED) else None,
        "ended_at": None if s in OPEN_MAIL else AT}),
    "convoy": (ConvoyState, {"name": C}, lambda s: {
        "pipeline": "p", "submitted_at": AT, "ended_at": None if s is ConvoyState.ACTIVE else AT,
        "archived_at": AT if s is ConvoyState.ARCHIVED else None}),
    "swarm": (SwarmState, {"convoy": C, "number": 1}, lambda s: {
        "opened_at": AT, "closed_at": AT if s is SwarmState.CLOSED else None}),
    "repo": (RepoState, {"name": REPO}, lambda s: {
        "path": "/", "branch": "main", "fetches": 1, "integration": "1",
        "problem": "?" if s is RepoState.FAILED else None}),
}  # fmt: skip
# Into a state where rows only begin no event leads, and a change without sources would mean: from anywhere.
EDGES = [
    (table, source, target)
    for table, (machine, _, _) in TABLES.items()
    for source, target in product(machine, repeat=2)
    if sources_of(target)
]
MOST_SITUATIONS = 2000


@pytest.fixture(scope="module")
def tables() -> Iterator[Connection]:
    """Empty tables; what a test does to them is undone."""
    with in_memory() as connection:
        connection.run("PRAGMA defer_foreign_keys = ON")
        yield connection


@contextmanager
def undone(connection: Connection) -> Iterator[None]:
    """Leave the tables as they were."""
    connection.run("SAVEPOINT here")
    try:
        yield
    finally:
        connection.run("ROLLBACK TO here")
        connection.run("RELEASE here")


def put(connection: Connection, table: str, state: str, values: Row) -> None:
    row = {**TABLES[table][1], **values, "state": state}
    sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608 - our own names
    connection.run(sql, tuple(row.values()))


def get_state(connection: Connection, table: str) -> str | None:
    key = TABLES[table][1]
    sql = f"SELECT state FROM {table} WHERE {' AND '.join(f'{name} = ?' for name in key)}"  # noqa: S608 - our own names
    rows = connection.rows(sql, tuple(key.values()))
    return str(rows[0][0]) if rows else None


@pytest.mark.parametrize(("table", "source", "target"), EDGES, ids=str)
def test_a_row_moves_along_an_edge_that_is_listed_and_along_no_other(
    tables: Connection, table: str, source: StrEnum, target: StrEnum
) -> None:
    _, key, values_in = TABLES[table]
    with undone(tables):
        put(tables, table, source.value, values_in(source))
        change = Update(table, key, {**values_in(target), "state": target.value}, sources_of(target))
        if may_move(source, target):
            apply_changes(tables, (change,))
        else:
            with pytest.raises(IllegalTransitionError):
                apply_changes(tables, (change,))
        assert get_state(tables, table) == (target if may_move(source, target) else source)


@pytest.mark.parametrize("table", TABLES)
@given(word=st.sampled_from([state.value for machine in TRANSITIONS for state in machine]) | st.text(max_size=9))
@tries(60)
def test_the_schema_keeps_a_row_in_a_state_of_its_machine_and_in_no_other(
    tables: Connection, table: str, word: str
) -> None:
    machine, _, values_in = TABLES[table]
    known = word in {state.value for state in machine}
    values = values_in(machine(word) if known else next(iter(machine)))
    with undone(tables):
        if known:
            put(tables, table, word, values)
        else:
            with pytest.raises(apsw.ConstraintError):
                put(tables, table, word, values)


@pytest.mark.parametrize("table", TABLES)
@given(data=st.data())
@tries(30)
def test_no_event_leads_out_of_a_state_where_nothing_follows(
    tables: Connection, table: str, data: st.DataObject
) -> None:
    machine = TABLES[table][0]
    last = [state for state in machine if is_terminal(state)]
    with undone(tables):
        for other, (others, _, values) in TABLES.items():
            state = data.draw(st.sampled_from(last if other == table and last else list(others)))
            put(tables, other, state.value, values(state))
        before = get_state(tables, table)
        for number, body in enumerate(ABOUT_THEM):
            attempt(tables, body, number)
            assert not last or get_state(tables, table) == before, body


def event(body: Body, number: int) -> Event:
    return Event(number, body, "a test", "because", AT, AT, 1, "0" * 64)


def attempt(connection: Connection, body: Body, number: int) -> bool:
    """Apply an event as the ledger does: the whole of it or nothing."""
    connection.run("SAVEPOINT one")
    try:
        apply_changes(connection, project(event(body, number)))
    except (IllegalTransitionError, apsw.ConstraintError):
        connection.run("ROLLBACK TO one")
        return False
    finally:
        connection.run("RELEASE one")
    return True


def bodies_of_an_attempt(number: int) -> list[Body]:
    attempts = ("attempt.failed", "attempt.unknown", "attempt.cancelled", "attempt.swept", "attempt.parked",
                "attempt.resumed", "merge.landing",
                "merge.requeued", "merge.rejected", "merge.withdrawn")  # fmt: skip
    more = {"attempt.failed": [{"final": True}, {"final": False}]}
    return [
        e.TaskDispatched(TASK, C, number, number, number, sandbox=True),
        e.TaskCompleted(TASK, number, None, None),
        e.AttemptSubmitted(TASK, number, REPO, "1", 0),
        e.MergeVerifying(TASK, number, 1, "1", "2", "3"),
        e.MergeLanded(TASK, number, REPO, "2"),
        e.SwarmOpened(C, number),
        e.SwarmClosed(C, number),
        *(BODIES[kind](task=TASK, attempt=number, **rest) for kind in attempts for rest in more.get(kind, [{}])),  # type: ignore[call-arg]  # every body is a dataclass
    ]


ABOUT_THEM: list[Body] = [
    e.ConvoySubmitted(C, "p"),
    *(BODIES[f"convoy.{what}"](convoy=C) for what in ("extended", "completed", "failed", "archived")),  # type: ignore[call-arg]  # every body is a dataclass
    e.RepoWanted(REPO, "/", "main", None, 1),
    e.RepoFetched(REPO, "1", "1"),
    e.RepoFetchFailed(REPO, "?"),
    e.RepoFetchDelayed(REPO, "?", 1, AT, "run"),
    e.RepoPublishing(REPO, "1"),
    e.RepoPublished(REPO, "1"),
    e.RepoPublishFailed(REPO, "1", "?", AT),
    e.RepoPublishDue(REPO),
    e.TaskAdded(TASK, C, "a", "", "true", REPO, [], None, 0, 2, None, idempotent=False, limits={}),
    e.TaskCancelled(TASK),
    e.TaskCancelRequested(TASK),
    e.TaskRetryRequested(TASK, 3),
    e.RunIntended(RUN, "agent", TASK, 1, REPO, [], "/", {}, {}, "b"),
    e.RunStarted(RUN, 1, 1, "b"),
    e.RunKillRequested(RUN),
    e.RunExited(RUN, "agent", 0, "exit", 0),
    e.RunLost(RUN, "agent"),
    e.MailSent(MAIL, "inform", "c.worker-1", TASK, 1, {"text": "hello"}, MAIL),
    e.MailAccepted(MAIL, "inform", "c.worker-1", "c.worker-2", TASK, 1, {}, MAIL),
    *(
        e.MailSettled(MAIL, "?", "c.worker-1", "person", TASK, 1, {}, MAIL, outcome=outcome)
        for outcome in ("HANDLED", "QUARANTINED", "RETURNED", "DROPPED")
    ),
    e.MailDelivered(MAIL, RUN),
    e.MailAssigned(MAIL, TASK, 1),
    e.MailForwarded(MAIL),
    e.MailHandled(MAIL),
    e.MailClosed(MAIL),
    e.MailReturned(MAIL),
    e.MailRequeued(MAIL, "inform", "c.worker-1", TASK, 1, {}),
    e.MailDropped(MAIL),
    e.AttemptProgressed(TASK, 1, "half done"),
    e.AttemptFinished(TASK, 1),
    *bodies_of_an_attempt(1),
    *bodies_of_an_attempt(2),
]


def states_of(connection: Connection) -> dict[tuple[str, ...], str]:
    """Read every row's state, whichever table it is in."""
    found = {}
    for table, (_, key, _) in TABLES.items():
        for *names, state in connection.rows(f"SELECT {', '.join(key)}, state FROM {table}"):  # noqa: S608 - our own names
            found[(table, *map(str, names))] = str(state)
    return found


OPENING = [
    body for body in ABOUT_THEM if body.kind in ("convoy.submitted", "repo.wanted", "task.added", "swarm.opened")
]
DEADLY = ("convoy.archived", "convoy.completed", "convoy.failed", "task.cancelled", "attempt.cancelled", "run.lost")
# Oftener than others what more can follow on; else few sequences come far.
LIVELY = [body for body in ABOUT_THEM if body.kind not in DEADLY] * 5 + ABOUT_THEM


@given(bodies=st.lists(st.sampled_from(LIVELY), min_size=100, max_size=200))
@tries(100)
def test_whatever_sequence_of_events_is_taken_every_row_moves_along_its_table(bodies: list[Body]) -> None:
    with in_memory() as connection:
        before: dict[tuple[str, ...], str] = {}
        for number, body in enumerate([*OPENING, *bodies], start=1):
            taken = attempt(connection, body, number)
            after = states_of(connection)
            assert taken or after == before, "a refused event has left something"
            assert before.keys() <= after.keys(), "a row has vanished"
            for row, state in after.items():
                source, machine = before.get(row, state), TABLES[row[0]][0]
                assert source == state or may_move(machine(source), machine(state)), (body, row, source, state)
            before = after


def test_every_edge_that_is_listed_is_walked_by_some_event() -> None:
    """An edge along which no event leads is a state nobody comes to, or an event that nobody made."""
    listed = {(table, source.value, target.value) for table, source, target in EDGES if may_move(source, target)}
    walked, chance = set[tuple[str, str, str]](), random.Random(SEED)  # noqa: S311 - a choice, not a secret
    with in_memory() as connection:
        connection.run("PRAGMA defer_foreign_keys = ON")
        for _ in range(MOST_SITUATIONS):
            if not (missing := sorted(listed - walked)):
                return
            table, source, _ = chance.choice(missing)
            with undone(connection):
                for other, (machine, _, values) in TABLES.items():
                    if other == table or chance.random() < 0.7:  # a row that is not there yet can be made by an event
                        state = machine(source) if other == table else chance.choice(list(machine))
                        put(connection, other, state.value, values(state))
                walked |= list_moves(connection)
    assert sorted(listed - walked) == []


def list_moves(connection: Connection) -> set[tuple[str, str, str]]:
    """Try every event in a situation; list the edges along which they lead."""
    before, moves = states_of(connection), set()
    for body in ABOUT_THEM:
        with undone(connection):
            if attempt(connection, body, 1):
                moves |= {(row[0], before[row], state) for row, state in states_of(connection).items() if row in before}
    return moves
