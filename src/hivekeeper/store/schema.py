"""The schema of a new ledger: the log from `schema.sql`, and a table for each row that is declared."""

from dataclasses import MISSING, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from hivekeeper.domain import agent_rows, hive_rows, mail_row, rows  # noqa: F401 - they declare the tables
from hivekeeper.domain.schema import Table, list_tables
from hivekeeper.domain.states import is_in

SCHEMA: Final = 3  # higher whenever the statements change, so that no ledger is taken for one of another form


@cache
def make_ddl() -> str:
    """Write the statements that make an empty ledger."""
    log = Path(__file__).with_name("schema.sql").read_text("utf-8")
    return "\n".join([log, *map(_create, list_tables())])


def _create(table: Table) -> str:
    hints = get_type_hints(table.row)
    columns = [f"{column.name} {_type(column.name, hints[column.name])}" for column in fields(table.row)]
    for place, column in enumerate(fields(table.row)):
        if column.default is not MISSING and column.default is not None:
            default = f"'{column.default}'" if isinstance(column.default, str) else column.default
            columns[place] += f" DEFAULT {default}"
    keys = [f"FOREIGN KEY ({column}) REFERENCES {other}" for column, other in table.references.items()]
    parts = [*columns, f"PRIMARY KEY ({', '.join(table.key)})", *keys, *table.constraints]
    body = ",\n  ".join(parts)
    indexes = "".join(f"CREATE INDEX {index};\n" for index in table.indexes)
    return f"CREATE TABLE {table.name} (\n  {body}\n);\n{indexes}"


def _type(name: str, hint: Any) -> str:  # noqa: ANN401 - a type
    options = [option for option in get_args(hint) or (hint,) if option is not NoneType]
    null = "" if NoneType in get_args(hint) else " NOT NULL"
    (kind,) = options
    if issubclass(kind, StrEnum):
        return f"TEXT{null} CHECK ({is_in(kind, name)})"
    return f"{'INTEGER' if issubclass(kind, int) else 'TEXT'}{null}"
