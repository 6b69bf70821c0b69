"""The ledger: every change of state is an event, appended in one total order and bound to all before it.

Rules:
1. A write transaction moves the head row first; the move fails if the head is not where it was seen or the epoch is
   not the writer's. That one statement is the order, the absence of gaps, the hash chain and the fence. (A batch
   moves it to its first event and, last of all, to its last one.)
2. The event row follows, then the row changes that `project` says. All or nothing, durable when `write` returns.
3. The keeper writes with its epoch. A person appends requests only.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, assert_never

from hivekeeper.clock import Clock, SystemClock
from hivekeeper.domain.events import REQUESTS, Body, Event, LeaseTaken, chain_hash, decode_body, encode_body
from hivekeeper.domain.schema import Change, Insert, Update, Upsert, project
from hivekeeper.errors import DamagedLedgerError, HiveError, IllegalTransitionError, InputError, StaleEpochError
from hivekeeper.store.database import Connection, Database
from hivekeeper.store.sqlite import (
    SqliteDatabase,
    check_identity,
    create_database,
    reading_only,
)

GENESIS = "0" * 64
CHECKED_AT_START = 1000


@dataclass(frozen=True, slots=True)
class ByKeeper:
    """May write anything, as long as nobody has raised the epoch since."""

    who: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ByPerson:
    """May append requests."""

    who: str


@dataclass(frozen=True, slots=True)
class BySuccessor:
    """Holds the lock file and is about to raise the epoch; may write `LeaseTaken` and nothing else."""

    who: str


Authority = ByKeeper | ByPerson | BySuccessor


@dataclass(frozen=True, slots=True)
class Head:
    """Where the log ends."""

    seq: int
    hash: str
    epoch: int
    hive: str


class Transaction:
    """An open write transaction: reads see what it wrote; nothing of it is visible outside until it is left."""

    def __init__(self, connection: Connection, head: Head, authority: Authority, clock: Clock) -> None:
        self.connection = connection
        self.head = head
        self.recorded: list[Body] = []
        self._moved_to = head
        self._refused: BaseException | None = None
        self._authority = authority
        self._clock = clock

    @property
    def now(self) -> str:
        """Tell the time to use for what happens in this transaction."""
        return self._clock.now()

    def record(self, body: Body, *, why: str = "", occurred_at: str | None = None) -> Event:
        """Append an event and apply it to the tables; a refusal undoes the whole transaction, caught or not."""
        try:
            return self._record(body, why, occurred_at)
        except BaseException as error:
            self._refused = error
            if isinstance(error, UnicodeError | OverflowError):
                what = f"{body.kind} of {body.subject!r} holds text or a number that cannot be kept: {error}."
                raise InputError(what, advice="Nothing was written.") from error
            raise

    def _record(self, body: Body, why: str, occurred_at: str | None) -> Event:
        self._check_authority(body)
        now = self._clock.now()
        head = self.head
        epoch = body.epoch if isinstance(body, LeaseTaken) else head.epoch
        data, kind, subject = encode_body(body), body.kind, body.subject
        occurred_at, seq, who = occurred_at or now, head.seq + 1, self._authority.who
        digest = chain_hash(head.hash, str(seq), kind, subject, data, who, why, occurred_at, now, str(epoch))
        if not self.recorded or epoch != head.epoch:
            self._move_head(seq, digest, epoch, head)
        self.connection.run(_ADD_EVENT, (seq, kind, subject, data, who, why, occurred_at, now, epoch, digest))
        event = Event(seq, body, who, why, occurred_at, now, epoch, digest)
        apply_changes(self.connection, project(event))
        self.head = Head(seq, digest, epoch, head.hive)
        self.recorded.append(body)
        return event

    def seal(self) -> None:
        """Bring the head, which the first event moved, to the last one."""
        if self._refused is not None:
            raise IllegalTransitionError(f"A refused event undoes its whole transaction: {self._refused}")
        if len(self.recorded) > 1 and self._moved_to.seq != self.head.seq:
            self._move_head(self.head.seq, self.head.hash, self.head.epoch, self._moved_to)

    def _move_head(self, seq: int, digest: str, epoch: int, seen: Head) -> None:
        if self.connection.run(_MOVE_HEAD, (seq, digest, epoch, seen.seq, seen.epoch)) != 1:
            what = "The head of the ledger is not where this transaction saw it."
            raise DamagedLedgerError(what, advice="Something else writes this file. Type: hive status")
        self._moved_to = Head(seq, digest, epoch, seen.hive)

    def beat(self, *, boot_id: str, monotonic_s: float, problems: str = "{}") -> None:
        """Overwrite the keeper's heartbeat; an observation, so a row and not an event."""
        values = (self.head.epoch, self._clock.now(), boot_id, int(monotonic_s * 1000), problems)
        self.connection.run(_BEAT, values)

    def keep_file(self, agent: str, file: str, text: str, problem: str = "") -> None:
        """Note what a file of an agent holds; an observation, so a row and not an event."""
        self.connection.run(_KEEP_FILE, (agent, file, text, problem))

    def save_checkpoint(self, data: str) -> None:
        """Save the state at this event as a checkpoint, as the keeper; a cache, so a row and not an event."""
        if not isinstance(self._authority, ByKeeper):
            raise HiveError(f"{self._authority.who} is not allowed to save a checkpoint; only the keeper is.")
        self.connection.run(_PUT_CHECKPOINT, (self.head.seq, self._clock.now(), data))

    def delete_checkpoint(self, seq: int) -> None:
        """Delete a checkpoint, as the keeper; the log has everything that was in it."""
        if not isinstance(self._authority, ByKeeper):
            raise HiveError(f"{self._authority.who} is not allowed to delete a checkpoint; only the keeper is.")
        self.connection.run("DELETE FROM checkpoint WHERE seq = ?", (seq,))

    def move_cursor(self, name: str, seq: int) -> None:
        """Note how far a reader of the log has come; never backwards. An observation, so a row and not an event."""
        self.connection.run(_MOVE_CURSOR, (name, min(seq, self.head.seq), self._clock.now()))

    def _check_authority(self, body: Body) -> None:
        match self._authority:
            case ByKeeper():
                allowed = not isinstance(body, LeaseTaken)
            case ByPerson():
                allowed = type(body) in REQUESTS
            case BySuccessor():
                allowed = isinstance(body, LeaseTaken) and body.epoch == self.head.epoch + 1
            case _:
                assert_never(self._authority)
        if not allowed:
            raise HiveError(f"{self._authority.who} may not write {body.kind}: that is another's.")


class Ledger:
    """An open ledger."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self.clock = clock
        self.on_commit: list[Callable[[Sequence[Body]], None]] = []

    @contextmanager
    def write(self, authority: Authority) -> Iterator[Transaction]:
        """Hold the one write door; the fence is checked before anything is decided and again at every append."""
        with self._database.writing() as connection:
            head = read_head(connection)
            if isinstance(authority, ByKeeper) and authority.epoch != head.epoch:
                what = f"Epoch {authority.epoch} has ended: a newer keeper holds epoch {head.epoch}."
                raise StaleEpochError(what, advice="This keeper stops; the work goes on under its successor.")
            transaction = Transaction(connection, head, authority, self.clock)
            yield transaction
            transaction.seal()
        if transaction.recorded:
            for notify in self.on_commit:
                notify(transaction.recorded)

    def read(self) -> AbstractContextManager[Connection]:
        """Open a consistent view of the tables."""
        return self._database.reading()

    def version(self) -> int:
        """Tell a number that differs once another process or thread has committed."""
        return self._database.version()

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


def create_ledger(path: Path) -> None:
    """Make a new ledger with a name of its own; an existing one is left as it is, an interrupted one finished."""
    create_database(path)
    with reading_only(path) as connection:
        check_identity(connection, path)
        if connection.rows("SELECT 1 FROM head"):
            return
    with closing(SqliteDatabase(path)) as database, database.writing() as connection:
        connection.run(
            "INSERT INTO head (id, seq, hash, epoch, hive) VALUES (1, 0, ?, 0, ?) ON CONFLICT (id) DO NOTHING",
            (GENESIS, secrets.token_hex(6)),
        )


def open_ledger(path: Path, clock: Clock | None = None) -> Ledger:
    """Open a ledger after checking identity, schema, head and the last thousand events; refuse it otherwise.

    All checks read through a connection that cannot write, so that a refused ledger stays as it was found.
    """
    with reading_only(path) as connection:
        check_identity(connection, path)
        check_tail(connection, CHECKED_AT_START)
    return Ledger(SqliteDatabase(path), clock or SystemClock())


def read_head(connection: Connection) -> Head:
    """Read where the log ends."""
    rows = connection.rows("SELECT seq, hash, epoch, hive FROM head WHERE id = 1")
    if not rows:
        raise DamagedLedgerError("The ledger has no head row.", advice="Its creation was interrupted. Type: hive init")
    return Head(*rows[0])


def check_tail(connection: Connection, count: int) -> None:
    """Check that the head is the last event and that the last `count` events are an unbroken chain."""
    head = read_head(connection)
    first = max(1, head.seq - count + 1)
    previous = GENESIS
    if first > 1:
        before = connection.rows("SELECT hash FROM event WHERE seq = ?", (first - 1,))
        previous = before[0][0] if before else "missing"
    expected, last_epoch = first, 0
    for row in connection.rows(_EVENTS_FROM, (first,)):
        seq, kind, subject, data, who, why, occurred_at, recorded_at, epoch, digest = row
        fields = (kind, subject, data, who, why, occurred_at, recorded_at, str(epoch))
        if seq != expected or chain_hash(previous, str(seq), *fields) != digest:
            raise _damaged(expected)
        previous, expected, last_epoch = digest, seq + 1, epoch
    if (expected, previous, last_epoch) != (head.seq + 1, head.hash, head.epoch):
        raise _damaged(expected)


def _damaged(seq: int) -> DamagedLedgerError:
    what = f"The ledger's chain is broken at event {seq}: something other than Hivekeeper modified the file."
    return DamagedLedgerError(what, advice="Nothing was written. Restore the last good copy of the .hive folder.")


def read_events(connection: Connection, after: int, limit: int) -> list[Event]:
    """Read events in order, from the one after `after`."""
    rows = connection.rows(_EVENTS_FROM + " LIMIT ?", (after + 1, limit))
    return [to_event(row) for row in rows]


def to_event(row: tuple[Any, ...]) -> Event:
    """Make an event of its row."""
    seq, kind, _subject, data, who, why, occurred_at, recorded_at, epoch, digest = row
    return Event(seq, decode_body(kind, data), who, why, occurred_at, recorded_at, epoch, digest)


def apply_changes(connection: Connection, changes: Sequence[Change]) -> None:
    """Bring the tables to what an event says; a change that meets no row is an illegal transition."""
    for change in changes:
        match change:
            case Insert(table, row):
                connection.run(_insert_sql(table, tuple(row)), tuple(row.values()))
            case Upsert(table, key, values):
                sql = _upsert_sql(table, tuple(key), tuple(values))
                connection.run(sql, (*key.values(), *values.values()))
            case Update(table, key, values, states, may_be_many):
                empty = tuple(name for name, value in key.items() if value is None)
                sql = _update_sql(table, tuple(key), empty, tuple(values), len(states))
                found_by = [value for value in key.values() if value is not None]
                if connection.run(sql, (*values.values(), *found_by, *states)) != 1 and not may_be_many:
                    what = f"{table} {'/'.join(map(str, key.values()))} is not in a state that allows {dict(values)}"
                    raise IllegalTransitionError(what)


_MOVE_HEAD = "UPDATE head SET seq = ?, hash = ?, epoch = ? WHERE id = 1 AND seq = ? AND epoch = ?"
_EVENT_COLUMNS = "seq, kind, subject, data, who, why, occurred_at, recorded_at, epoch, hash"
_ADD_EVENT = f"INSERT INTO event ({_EVENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EVENTS_FROM = f"SELECT {_EVENT_COLUMNS} FROM event WHERE seq >= ? ORDER BY seq"
_BEAT = """INSERT INTO heartbeat (id, epoch, at, boot_id, monotonic_ms, problems) VALUES (1, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, at = excluded.at, boot_id = excluded.boot_id,
monotonic_ms = excluded.monotonic_ms, problems = excluded.problems"""
_KEEP_FILE = """INSERT INTO agent_file (agent, file, text, problem) VALUES (?, ?, ?, ?)
ON CONFLICT (agent, file) DO UPDATE SET text = excluded.text, problem = excluded.problem"""
_PUT_CHECKPOINT = "INSERT INTO checkpoint (seq, recorded_at, data) VALUES (?, ?, ?) ON CONFLICT (seq) DO NOTHING"
_MOVE_CURSOR = """INSERT INTO cursor (name, seq, moved_at) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, moved_at = excluded.moved_at WHERE cursor.seq < excluded.seq"""


# Table and column names below come from `project` alone, never from outside.
@cache
def _insert_sql(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


@cache
def _upsert_sql(table: str, key: tuple[str, ...], columns: tuple[str, ...]) -> str:
    updates = ", ".join(f"{name} = excluded.{name}" for name in columns)
    return f"{_insert_sql(table, key + columns)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {updates}"


@cache
def _update_sql(table: str, key: tuple[str, ...], empty: tuple[str, ...], columns: tuple[str, ...], states: int) -> str:
    wanted = [f"{name} IS NULL" if name in empty else f"{name} = ?" for name in key]
    if states:
        wanted.append(f"state IN ({', '.join('?' * states)})")
    return f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in columns)} WHERE {' AND '.join(wanted)}"
