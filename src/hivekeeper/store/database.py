"""What the ledger needs of a database, small enough that SQLite and PostgreSQL can both be it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

Parameters = Mapping[str, str | int | None] | Sequence[str | int | None]


class Connection(Protocol):
    """A connection inside a transaction."""

    def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Run a query and fetch everything it answers."""
        ...

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement and tell how many rows it changed."""
        ...


class Database(Protocol):
    """One database; writers are strictly one after another, within this process and between processes."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Open a consistent view."""
        ...

    def writing(self) -> AbstractContextManager[Connection]:
        """Hold the write lock; durable when left normally, undone when left by an exception."""
        ...

    def version(self) -> int:
        """Tell a number that differs once another connection has committed."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


_HERE = Path(__file__).parent


def load_sql() -> dict[str, str]:
    """Read every `sql/verb_noun.sql`, by its name."""
    return {path.stem: path.read_text("utf-8") for path in sorted((_HERE / "sql").glob("*.sql"))}
