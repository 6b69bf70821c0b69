"""What the tests of the store share: a clock that ticks, ledgers on disk, whole-chain checks, bodies of every kind.

The whole log is checked here row by row through a connection of our own, not by the ledger's look at its tail.
"""

import hashlib
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import apsw

from hivekeeper.clock import Clock, to_text
from hivekeeper.commands.leases import take_lease
from hivekeeper.domain.events import BODIES, Body, chain_hash
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import (
    ByKeeper,
    ByPerson,
    BySuccessor,
    Head,
    Ledger,
    create_ledger,
    open_ledger,
    read_head,
)
from hivekeeper.store.replay import PROJECTED_TABLES, rebuilt

PERSON = ByPerson("ann")
BOOT = "11111111-2222-3333-4444-555555555555"
COMMIT = "a" * 40

Dump = dict[str, list[tuple[Any, ...]]]


class TickingClock:
    """Every look at it is a millisecond later than the last."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._start = start
        self.looks = 0

    def now(self) -> str:
        self.looks += 1
        return to_text(self._start + self.looks / 1000)

    def monotonic(self) -> float:
        return 1000.0 + self.looks / 1000


@contextmanager
def new_ledger(directory: Path, clock: Clock | None = None) -> Iterator[Ledger]:
    """Make and open a ledger, and close it whatever happens."""
    path = directory / "ledger.db"
    create_ledger(path)
    with opened(path, clock) as ledger:
        yield ledger


@contextmanager
def opened(path: Path, clock: Clock | None = None) -> Iterator[Ledger]:
    """Open a ledger and close it whatever happens."""
    ledger = open_ledger(path, clock)
    try:
        yield ledger
    finally:
        ledger.close()


def seize(ledger: Ledger, holder: str = "keeper 1 on here") -> ByKeeper:
    """Become the keeper, without the kernel's lock."""
    with ledger.write(BySuccessor(holder)) as tx:
        return take_lease(tx, holder=holder, pid=1, start_ticks=1, boot_id=BOOT, why="")


def head_of(ledger: Ledger) -> Head:
    """Read where the log ends."""
    with ledger.read() as connection:
        return read_head(connection)


def dump_tables(connection: Connection) -> Dump:
    """Read every projected table, row by row in a fixed order."""
    # Names from our own code, no text of anybody's.
    return {table: sorted(connection.rows(f"SELECT * FROM {table}"), key=repr) for table in PROJECTED_TABLES}  # noqa: S608


def dump(ledger: Ledger) -> Dump:
    """Read every projected table of a ledger."""
    with ledger.read() as connection:
        return dump_tables(connection)


def dump_all(ledger: Ledger) -> tuple[Head, Dump, list[tuple[Any, ...]]]:
    """Read everything there is: head, tables, log, heartbeat."""
    with ledger.read() as connection:
        rest = connection.rows("SELECT * FROM event ORDER BY seq") + connection.rows("SELECT * FROM heartbeat")
        return read_head(connection), dump_tables(connection), rest


def rebuild(ledger: Ledger) -> Dump:
    """Apply every event of the log, as read back from it, to empty tables."""
    with ledger.read() as connection, rebuilt(connection) as again:
        return dump_tables(again)


def assert_whole(path: Path) -> int:
    """Check the whole log with our own eyes, and the file with SQLite's; tell how many events there are."""
    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        raw.execute("BEGIN")
        events = raw.execute(
            "SELECT seq, kind, subject, data, who, why, occurred_at, recorded_at, epoch, hash FROM event ORDER BY seq"
        ).fetchall()
        head = raw.execute("SELECT seq, hash, epoch FROM head").fetchall()
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        raw.close()
    previous: str = "0" * 64
    epoch: object = 0
    for expected, (seq, *columns, digest) in enumerate(events, start=1):
        assert seq == expected, f"event {expected} is missing"
        previous = chain_hash(previous, str(seq), *map(str, columns))
        assert digest == previous, f"the chain breaks at {seq}"
        epoch = columns[-1]
    assert head == [(len(events), previous, epoch)]
    return len(events)


def fingerprint(path: Path) -> dict[str, str]:
    """Tell the bytes of a ledger and of its log of changes; only when nothing has them open."""
    files = [file for file in (path, Path(f"{path}-wal")) if file.is_file() and file.stat().st_size]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def sample_bodies() -> dict[str, Body]:
    """Make one body of every kind, of simple values."""
    return {kind: cls(**{name: _sample(hint) for name, hint in _hints(cls).items()}) for kind, cls in BODIES.items()}


def say(kind: str, **values: object) -> Body:
    """Make a body of a kind, with simple values for whatever is not told."""
    sample = sample_bodies()[kind]
    return BODIES[kind](**{**{name: getattr(sample, name) for name in _hints(BODIES[kind])}, **values})


def _hints(cls: type[Body]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}  # type: ignore[arg-type]  # all are dataclasses


def _sample(hint: Any) -> Any:  # noqa: ANN401 - a value of whatever type a body's field has
    if get_origin(hint) in (types.UnionType, Union):
        hint = get_args(hint)[0]
    hint = get_origin(hint) or hint
    return {str: "x", int: 1, bool: False, list: [], dict: {}}[hint]


def count_descriptors() -> int:
    """Count this process's open files."""
    return len(list(Path("/proc/self/fd").iterdir()))


# Whatever the seed, random histories come to these: work that goes well, is given up, cancelled, merged, kept and put
# away. That every kind of event is shown is asked in test_replay.py, of histories that are written down.
COMMON_KINDS = {
    "convoy.submitted", "convoy.archived", "task.dispatched", "task.completed", "task.cancelled", "run.intended",
    "run.started", "run.exited", "run.lost", "merge.verifying", "merge.landed", "repo.published", "lease.taken",
}  # fmt: skip


def tamper(path: Path, *statements: str, **values: str | int) -> None:
    """Change a ledger behind the hive's back."""
    raw = apsw.Connection(str(path))
    try:
        for statement in statements:
            raw.execute(statement, values)
    finally:
        raw.close()
