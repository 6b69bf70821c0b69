"""Tables and events, each declared once: what a row is, what an event says, and what it does to which row.

    @table("hold", key={"scope": "scope", "name": "name", "cause": "cause"}, of_convoy=False)
    class HoldRow: ...

    @event("hold.lifted", "name", updates(HoldRow, lifted=1, strikes=0), by=PERSON)
    class HoldLifted(Body): ...

The columns of a table, its place in replay, the body's encoding, the projection and the list of requests all follow
from the declaration. A column or field that does not exist is an error when the module is imported.

An event's changes are told by `project`: one pure function, used by the live tables and by every replay alike. A change
names the states its row may come from, and the store refuses a change that meets no row; so no illegal transition can
be written, whoever forgot to check.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, dataclass_transform

from hivekeeper.domain.states import sources_of

Value = str | int | None
Row = Mapping[str, Value]
R = TypeVar("R")
B = TypeVar("B", bound="Body")

PERSON, KEEPER = "person", "keeper"


class Body:
    """What happened to `subject`."""

    __slots__ = ()
    kind: ClassVar[str]
    subject_field: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    @property
    def subject(self) -> str:
        """Name what it happened to."""
        return str(getattr(self, self.subject_field))


@dataclass(frozen=True, slots=True)
class Event:
    """A body in its envelope, as the ledger keeps it."""

    seq: int
    body: Body
    who: str
    why: str
    occurred_at: str
    recorded_at: str
    epoch: int
    hash: str


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    table: str
    row: Row


@dataclass(frozen=True, slots=True)
class Update:
    """New values for the row with this key, if it is in one of these states (any, when there are none).

    A key may name more than identifies the row: what must be so for the change to be allowed. If it `may_be_many`, the
    key is that of any number of rows, also of none.
    """

    table: str
    key: Row
    values: Row
    states: tuple[StrEnum, ...] = ()
    may_be_many: bool = False


@dataclass(frozen=True, slots=True)
class Upsert:
    """A row that may already be there."""

    table: str
    key: Row
    values: Row


Change = Insert | Update | Upsert
Project = Callable[[Event], Iterable[Change]]

encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


# --- tables ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the ledger, and how its rows are told apart.

    `key` says which field of an event names each key column, or which number it always is. The first columns of a
    row are its key. In tables of convoys the first column is a convoy, or begins with one: `convoy/task`. One that is
    not projected holds observations: overwritten, never in the log, never replayed.
    """

    name: str
    row: type
    key: Mapping[str, str | int]
    of_convoy: bool
    is_projected: bool
    references: Mapping[str, str]
    constraints: tuple[str, ...]
    indexes: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Name its columns, in their order."""
        return tuple(each.name for each in fields(self.row))


TABLES: dict[str, Table] = {}
_TABLE_OF: dict[type, Table] = {}


@dataclass_transform(frozen_default=True)
def table(  # noqa: PLR0913 - what a table is made of
    name: str,
    *,
    key: Mapping[str, str | int],
    of_convoy: bool = True,
    is_projected: bool = True,
    references: Mapping[str, str] = MappingProxyType({}),
    constraints: Iterable[str] = (),
    indexes: Iterable[str] = (),
) -> Callable[[type[R]], type[R]]:
    """Declare a table by its row: a column a field, in that order; `references` tells which hold another's key."""

    def declare(cls: type[R]) -> type[R]:
        row = dataclass(frozen=True, slots=True)(cls)
        declared = Table(
            name, row, dict(key), of_convoy, is_projected, dict(references), tuple(constraints), tuple(indexes)
        )
        if declared.columns[: len(key)] != tuple(key):
            raise TypeError(f"{cls.__name__}: its first fields must be its key, {', '.join(key)}")
        TABLES[name] = _TABLE_OF[row] = declared
        return row

    return declare


def list_tables() -> list[Table]:
    """List every table, each after those that its rows refer to; the order of imports does not count."""
    listed: dict[str, Table] = {}

    def add(each: Table) -> None:
        for other in each.references.values():
            if other != each.name:
                add(TABLES[other])
        listed.setdefault(each.name, each)

    for name in sorted(TABLES):
        add(TABLES[name])
    return list(listed.values())


def get_table(row: type) -> Table:
    """Give the table that a row was declared for."""
    return _TABLE_OF[row]


# --- events ---------------------------------------------------------------------------------------------------------

BODIES: dict[str, type[Body]] = {}
REQUESTS: set[type[Body]] = set()
_PROJECT: dict[str, tuple[Project, ...]] = {}


@dataclass(frozen=True, slots=True)
class Take:
    """Where a change takes a value from: something of the event; `field` is the body's field, if it is one."""

    read: Callable[[Event], Any]
    field: str = ""


AT = Take(lambda event: event.occurred_at)
WHY = Take(lambda event: event.why)
WHO = Take(lambda event: event.who)
SEQ = Take(lambda event: event.seq)


def field_of(name: str) -> Take:
    """Take a field of another name than the column's."""
    return Take(lambda event: getattr(event.body, name), name)


def made(make: Callable[[Any], Any]) -> Take:
    """Make a value from the body."""
    return Take(lambda event: make(event.body))


Source = Value | StrEnum | Take
Bind = Callable[[type[Body]], Project]


@dataclass_transform(frozen_default=True)
def event(name: str, subject: str, *does: Bind, by: str = KEEPER) -> Callable[[type[B]], type[B]]:
    """Declare an event by its body: which of its fields names the subject, what it does, and who may append it."""

    def declare(cls: type[B]) -> type[B]:
        body = dataclass(frozen=True, slots=True)(cls)
        body.kind, body.subject_field = name, subject
        body.names = tuple(each.name for each in fields(body))  # type: ignore[arg-type]  # it is a dataclass
        _check_field(body, subject)
        _PROJECT[name] = tuple(bind(body) for bind in does)
        BODIES[name] = body
        if by == PERSON:
            REQUESTS.add(body)
        return body

    return declare


def project(event: Event) -> tuple[Change, ...]:
    """Tell what an event changes in the tables."""
    return tuple(change for changes in _PROJECT[event.body.kind] for change in changes(event))


def inserts(row: type, **values: Source) -> Bind:
    """Make a row: fields of the body that are called like columns are copied, the rest are given or have defaults."""

    def bind(body: type[Body]) -> Project:
        into = get_table(row)
        taken = _take_key(into)
        for column in fields(into.row):
            if column.name in values:
                taken[column.name] = values[column.name]
            elif column.name in body.names and column.name not in taken:
                taken[column.name] = field_of(column.name)
            elif column.name not in taken and not _has_default(column):
                raise TypeError(f"{body.__name__}: nothing says what {into.name}.{column.name} is")
        read = _compile(into, body, taken)
        return lambda event: (Insert(into.name, read(event)),)

    return bind


def updates(
    row: type,
    *copies: str,
    states: tuple[StrEnum, ...] = (),
    where: Mapping[str, Source] | None = None,
    when: Callable[[Any], bool] | None = None,
    **values: Source,
) -> Bind:
    """Change a row: `copies` are fields called like their columns; `where` must be so too, for it to be allowed.

    Nothing is changed unless `when` says so of the body.
    """

    def bind(body: type[Body]) -> Project:
        into = get_table(row)
        key = _compile(into, body, {**_take_key(into), **(where or {})})
        read = _compile(into, body, {**{name: field_of(name) for name in copies}, **values})

        def change(event: Event) -> tuple[Change, ...]:
            if when is not None and not when(event.body):
                return ()
            return (Update(into.name, key(event), read(event), states),)

        return change

    return bind


def updates_all(row: type, key: Mapping[str, str], where: Mapping[str, Source] | None = None, **values: Source) -> Bind:
    """Change however many rows there are with these values; `key` names columns, and the field of each."""

    def bind(body: type[Body]) -> Project:
        into = get_table(row)
        found_by = {column: field_of(name) for column, name in key.items()}
        find, read = _compile(into, body, {**found_by, **(where or {})}), _compile(into, body, values)
        return lambda event: (Update(into.name, find(event), read(event), may_be_many=True),)

    return bind


def moves(
    row: type,
    state: StrEnum,
    *copies: str,
    where: Mapping[str, Source] | None = None,
    sources: tuple[StrEnum, ...] = (),
    **values: Source,
) -> Bind:
    """Move a row into a state, from those that the table of transitions leads there from, or only from `sources`."""
    given: dict[str, Any] = {**values, "state": state}
    return updates(row, *copies, states=sources or sources_of(state), where=where, **given)


def upserts(row: type, *copies: str, **values: Source) -> Bind:
    """Make a row, or change the one that is there."""

    def bind(body: type[Body]) -> Project:
        into = get_table(row)
        key = _compile(into, body, _take_key(into))
        read = _compile(into, body, {**{name: field_of(name) for name in copies}, **values})
        return lambda event: (Upsert(into.name, key(event), read(event)),)

    return bind


def inserts_each(row: type, make: Callable[[Any], Iterable[Row]]) -> Bind:
    """Make as many rows as there are; `make` tells them from the body."""

    def bind(body: type[Body]) -> Project:
        del body
        into = get_table(row)
        return lambda event: [Insert(into.name, values) for values in make(event.body)]

    return bind


def upserts_each(row: type, make: Callable[[Any], Iterable[Row]]) -> Bind:
    """Make as many rows as there are, or change those that are there; `make` tells them from the body."""

    def bind(body: type[Body]) -> Project:
        del body
        into = get_table(row)
        keys = into.key.keys()

        def change(event: Event) -> list[Change]:
            rows = list(make(event.body))
            key_of = [{name: one[name] for name in keys} for one in rows]
            rest = [{name: value for name, value in one.items() if name not in keys} for one in rows]
            return [Upsert(into.name, key, values) for key, values in zip(key_of, rest, strict=True)]

        return change

    return bind


def _take_key(into: Table) -> dict[str, Source]:
    def take(said: str | int) -> Source:
        return said if isinstance(said, int) else field_of(said)

    return {column: take(said) for column, said in into.key.items()}


def _compile(into: Table, body: type[Body], taken: Mapping[str, Source]) -> Callable[[Event], Row]:
    """Check names once, so that reading an event is nothing but reading."""
    for column, source in taken.items():
        if column not in into.columns:
            raise TypeError(f"{body.__name__}: there is no column {into.name}.{column}")
        if isinstance(source, Take) and source.field:
            _check_field(body, source.field)
    fixed = {column: _plain(source) for column, source in taken.items() if not isinstance(source, Take)}
    read = [(column, source.read) for column, source in taken.items() if isinstance(source, Take)]
    return lambda event: {**fixed, **{column: _plain(take(event)) for column, take in read}}


def _plain(value: Any) -> Value:  # noqa: ANN401 - whatever a body holds
    """Write a value as a column can hold it."""
    match value:
        case None | str() if not isinstance(value, StrEnum):
            return value
        case StrEnum():
            return value.value
        case bool() | int():
            return int(value)
        case _:
            return encode_json(value)


def _check_field(body: type[Body], name: str) -> None:
    if name not in body.names:
        raise TypeError(f"{body.__name__} has no field {name}")


def _has_default(column: Field[Any]) -> bool:
    return column.default is not MISSING


# --- the log --------------------------------------------------------------------------------------------------------


def encode_body(body: Body) -> str:
    """Write a body's fields as JSON."""
    return encode_json({name: getattr(body, name) for name in body.names})


def decode_body(kind: str, data: str) -> Body:
    """Read a body back; an unknown kind is a KeyError, unknown fields a TypeError."""
    return BODIES[kind](**json.loads(data))


def chain_hash(previous: str, *fields_as_stored: str) -> str:
    """Bind an event to all before it. Lengths come first, so that no two field lists read alike."""
    lengths = ",".join([str(len(value)) for value in fields_as_stored])
    text = f"{previous}{lengths};{''.join(fields_as_stored)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
