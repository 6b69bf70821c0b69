"""How a query is written and its answer read: names of tables and conditions in its text, rows as their classes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, get_type_hints

from hivekeeper.domain.schema import TABLES, Table
from hivekeeper.domain.states import OPEN_ATTEMPTS, OPEN_MAIL, OPEN_MERGES, OPEN_RUNS, is_in
from hivekeeper.store.database import Connection, Parameters, load_sql

R = TypeVar("R")


@cache
def write_select(table: str, order: str, where: tuple[str, ...]) -> str:
    """Write the query of rows with these values."""
    condition = f" WHERE {' AND '.join(f'{name} = :{name}' for name in where)}" if where else ""
    # Names from our own declarations; every value is a bound parameter.
    return f"SELECT {list_columns(TABLES[table])} FROM {table}{condition}{f' ORDER BY {order}' if order else ''}"  # noqa: S608 - see above


def enclose(names: Iterable[str]) -> str:
    """Write names so that SQL can look one up: a comma before and after each."""
    return "".join(f",{name}" for name in names) + ","


def ask(connection: Connection, name: str, into: Callable[..., R], parameters: Parameters = ()) -> list[R]:
    """Ask the query of a file, and read its rows."""
    return [build(into, row) for row in connection.rows(read_sql(name), parameters)]


def build(into: Callable[..., R], row: Sequence[Any]) -> R:
    """Make a row of what SQLite answers."""
    position, state = _state_column(into)
    if state is None:
        return into(*row)
    return into(*row[:position], state(row[position]), *row[position + 1 :])


@cache
def _state_column(into: Any) -> tuple[int, type[StrEnum] | None]:  # noqa: ANN401 - any row class
    hints = get_type_hints(into)
    names = [field.name for field in fields(into)]
    return (names.index("state"), hints["state"]) if "state" in names else (0, None)


@cache
def read_sql(name: str) -> str:
    """Read the query of a file, with columns and conditions put in."""
    text = _FILES[name]
    for other, fragment in _FILES.items():
        if other.startswith("_"):
            text = text.replace(f"{{{other.removeprefix('_')}}}", fragment.partition("\n\n")[2].strip())
    open_states = {"attempt": OPEN_ATTEMPTS, "mail": OPEN_MAIL, "merge_entry": OPEN_MERGES, "run": OPEN_RUNS}
    for table, states in open_states.items():
        text = text.replace(f"{{is_open:{table}}}", is_in(states, f"{table}.state"))
    for each in TABLES.values():
        text = text.replace(f"{{{each.name}}}", list_columns(each))
    return text


def list_columns(table: Table) -> str:
    """Name the columns of a table for a query."""
    return ", ".join(f"{table.name}.{column}" for column in table.columns)


_FILES = load_sql()
