"""States, schema, events and queries say the same thing in four places; here they are held against each other."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, get_type_hints

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivekeeper.domain.events import BODIES, REQUESTS, Body, Event, decode_body, encode_body
from hivekeeper.domain.schema import Change, Insert, Update, Upsert, project
from hivekeeper.domain.states import (
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
)
from hivekeeper.store.database import load_sql
from hivekeeper.store.replay import PROJECTED_TABLES
from hivekeeper.store.schema import make_ddl
from tests.architecture.sources import read_package

MACHINES: Mapping[str, type[StrEnum]] = {
    "repo": RepoState,
    "convoy": ConvoyState,
    "swarm": SwarmState,
    "task": TaskState,
    "attempt": AttemptState,
    "mail": MailState,
    "merge_entry": MergeState,
    "run": RunState,
}
KINDS = sorted(BODIES)
Kind = TypeVar("Kind", Insert, Update, Upsert)


@pytest.mark.parametrize("table", sorted(MACHINES))
def test_the_schema_allows_exactly_the_states_of_the_machine(table: str) -> None:
    found = re.search(r"\bstate TEXT NOT NULL\s+CHECK \(state IN \(([^)]*)\)\)", _schema()[table])
    assert found, f"table {table} does not constrain its state"
    assert re.findall(r"'(\w+)'", found[1]) == [state.value for state in MACHINES[table]]


def test_every_table_with_a_state_has_a_machine_and_every_machine_a_table() -> None:
    assert {table for table in _schema() if "state" in _columns(table)} == set(MACHINES)
    assert set(TRANSITIONS) == set(MACHINES.values())


def test_a_machine_says_of_every_state_what_may_follow() -> None:
    for machine, table in TRANSITIONS.items():
        assert set(table) == set(machine)
        assert all(type(target) is machine for targets in table.values() for target in targets)


@pytest.mark.parametrize("table", sorted(MACHINES))
def test_every_state_can_be_reached_from_where_rows_begin(table: str) -> None:
    machine = MACHINES[table]
    reached = {machine(str(change.row["state"])) for change in _changes(Insert) if change.table == table}
    reached |= {machine(str(change.values["state"])) for change in _changes(Upsert) if change.table == table}
    assert reached, f"no event makes a row of {table}"
    todo = list(reached)
    while todo:
        new = set(TRANSITIONS[machine][todo.pop()]) - reached
        reached |= new
        todo.extend(new)
    assert reached == set(machine)


@pytest.mark.parametrize("table", sorted(MACHINES))
def test_every_edge_of_a_machine_is_walked_by_some_event(table: str) -> None:
    """An edge nobody walks is a promise nobody keeps."""
    walked = defaultdict(set)
    for change in _changes(Update):
        if change.table == table and "state" in change.values:
            for source in change.states:
                walked[source].add(change.values["state"])
    for made in _changes(Upsert):
        if made.table == table:
            for source in MACHINES[table]:
                walked[source].add(made.values["state"])
    missing = [
        f"{source} -> {target}"
        for source, targets in TRANSITIONS[MACHINES[table]].items()
        for target in targets
        if target not in walked[source]
    ]
    assert missing == []


def test_an_event_moves_a_row_only_along_its_machine() -> None:
    for change in _changes(Update):
        if "state" in change.values:
            target = MACHINES[change.table](str(change.values["state"]))
            assert change.states, f"{change} may come from anywhere"
            for source in change.states:
                assert may_move(source, target), f"{change.table}: {source} -> {target}"
    for made in _changes(Upsert):
        if "state" in made.values:
            machine = MACHINES[made.table]
            target = machine(str(made.values["state"]))
            assert all(may_move(source, target) for source in machine if source is not target), made.table


def test_nothing_leads_out_of_a_terminal_state() -> None:
    """S2: what is COMPLETE, CANCELLED, ARCHIVED, LANDED stays so, whichever event comes."""
    for change in _changes(Update):
        if "state" in change.values:
            assert not any(is_terminal(source) for source in change.states), change


def test_every_body_is_registered_under_its_kind() -> None:
    bases = {"Body", "Message"}
    written = {
        cls.name
        for source in read_package()
        if source.name.startswith("domain/events/")
        for cls in source.find(ast.ClassDef)
        if any(isinstance(base, ast.Name) and base.id in bases for base in cls.bases)
    }
    assert written - bases == {cls.__name__ for cls in BODIES.values()}
    assert all(kind == cls.kind for kind, cls in BODIES.items())
    assert set(BODIES.values()) >= REQUESTS


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=25)
def test_a_body_comes_back_from_the_log_as_it_went_in(kind: str, data: st.DataObject) -> None:
    body = data.draw(_bodies(BODIES[kind]))
    assert decode_body(kind, encode_body(body)) == body


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_has_a_projection_into_columns_that_exist(kind: str) -> None:
    for body in _samples(BODIES[kind]):
        changes = project(_event(body))
        assert changes, f"{kind} changes nothing"
        for change in changes:
            assert change.table in PROJECTED_TABLES
            match change:
                case Insert(table, row):
                    assert set(row) <= _columns(table), table
                case Update(table, key, values, _) | Upsert(table, key, values):
                    assert {*key, *values} <= _columns(table), table


def test_a_query_begins_with_a_sentence() -> None:
    found = [name for name, text in load_sql().items() if not re.match(r"-- [A-Z](?:.*\n-- )*.*\.\n", text)]
    assert found == []


def list_queries() -> list[str]:
    """Name the files of whole queries; the others are conditions that several of them share."""
    return [name for name in load_sql() if not name.startswith("_")]


ASKING = ("store/queries.py", "store/agent_queries.py", "store/excerpt_queries.py")


def test_every_query_file_is_used_by_the_function_of_its_name() -> None:
    sources = [source for source in read_package() if source.name in ASKING]
    used = {
        function.name: {
            node.value for node in ast.walk(function) if isinstance(node, ast.Constant) and node.value in load_sql()
        }
        for source in sources
        for function in source.find(ast.FunctionDef)
        if not function.name.startswith("_")
    }
    assert {name: files for name, files in used.items() if files} == {name: {name} for name in list_queries()}


def test_every_query_is_asked_by_somebody() -> None:
    rest = [source for source in read_package() if source.name not in ASKING]
    asked = {node.attr for source in rest for node in source.find(ast.Attribute)}
    asked |= {alias.name for source in rest for node in source.find(ast.ImportFrom) for alias in node.names}
    asked |= {node.id for source in read_package() if source.name == ASKING[1] for node in source.find(ast.Name)}
    names = {
        function.name
        for source in read_package()
        if source.name in ASKING
        for function in source.find(ast.FunctionDef)
        if not function.name.startswith("_")
    }
    assert names - asked == set()


@cache
def _database() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(make_ddl())
    return connection


@cache
def _schema() -> dict[str, str]:
    rows = _database().execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    return {str(name): str(sql) for name, sql in rows}


@cache
def _columns(table: str) -> frozenset[str]:
    return frozenset(str(row[1]) for row in _database().execute(f"PRAGMA table_info({table})").fetchall())


def _event(body: Body) -> Event:
    at = "2026-11-15T21:25:35.123456Z"
    return Event(1, body, "a test", "because", at, at, 1, "0" * 64)


@cache
def _all_changes() -> tuple[Change, ...]:
    bodies = (body for kind in KINDS for body in _samples(BODIES[kind]))
    return tuple(change for body in bodies for change in project(_event(body)))


def _changes(kind: type[Kind]) -> Iterator[Kind]:
    return (change for change in _all_changes() if isinstance(change, kind))


def _samples(cls: type[Body]) -> Iterator[Body]:
    """Make a body in every way its projection may tell apart: flags up and down, optional fields with and without."""
    plain: dict[Any, list[Any]] = {
        str: ["name"],
        int: [1],
        bool: [True, False],
        str | None: ["name", None],
        int | None: [1, None],
        list[str]: [["name"]],
        dict[str, str]: [{}],
        dict[str, Any]: [{}],
        dict[str, list[str]] | None: [{}, None],
    }
    made: list[dict[str, Any]] = [{}]
    for name, hint in _hints(cls).items():
        of_hint = ["HANDLED", "QUARANTINED", "RETURNED", "DROPPED"] if name == "outcome" else plain[hint]
        made = [{**values, name: value} for values in made for value in of_hint]
    return (cls(**values) for values in made)


def _bodies(cls: type[Body]) -> st.SearchStrategy[Body]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
    known: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(),
        int: st.integers(),
        bool: st.booleans(),
        str | None: st.none() | st.text(),
        int | None: st.none() | st.integers(),
        list[str]: st.lists(st.text()),
        dict[str, str]: st.dictionaries(st.text(), st.text()),
        dict[str, Any]: st.dictionaries(st.text(), values),
        dict[str, list[str]] | None: st.none() | st.dictionaries(st.text(), st.lists(st.text())),
    }
    return st.builds(cls, **{name: known[hint] for name, hint in _hints(cls).items()})


def _hints(cls: type[Body]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}  # type: ignore[arg-type]  # every body is a dataclass
