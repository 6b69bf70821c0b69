"""The one door to SQLite: opening, refusing, pragmas, schema, transactions.

Nothing in this process may `open()` the database file: closing any descriptor of it would drop SQLite's locks.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import apsw

from hivekeeper.errors import (
    DamagedLedgerError,
    ForeignLedgerError,
    HiveError,
    NewerLedgerError,
    OlderLedgerError,
    UnavailableError,
    UnreadableLedgerError,
)
from hivekeeper.store.database import Parameters
from hivekeeper.store.schema import SCHEMA, make_ddl
from hivekeeper.store.turnstile import Turnstile

APPLICATION_ID: Final = 0x48495645  # "HIVE"

DATABASE_MAGIC: Final = b"SQLite format 3\0"
MAX_VALUE: Final = 4 << 20  # of a database of somebody else's
MAX_STEPS: Final = 200_000_000

_PATIENCE_MS: Final = 20_000
_STEPS_A_LOOK: Final = 100_000
_RESTORE: Final = "Nothing was written. Restore the last good copy of the .hive folder."
# Each is set, read back and compared: a pragma that fails without a word left a database in rollback mode (measured).
_WRITE_PRAGMAS: Final[Mapping[str, str | int]] = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: with NORMAL a power cut loses acknowledged completions
    "foreign_keys": 1,
    "busy_timeout": _PATIENCE_MS,  # a backstop: the turnstile keeps writers apart, checkpoints may be in the way
    "wal_autocheckpoint": 4000,  # 16 MB of log between write-backs: few of them, and a log overwritten in place
    "trusted_schema": 0,
    "cache_size": -8000,  # 8 MB: the pages a busy hive writes to stay in memory
}
# What is lost of an index in a power cut is collected again.
_INDEX_PRAGMAS: Final[Mapping[str, str | int]] = {
    **_WRITE_PRAGMAS,
    "synchronous": 1,
    "foreign_keys": 0,
    "journal_size_limit": 16 << 20,  # a long document makes a long log, which is cut again
}
_READ_PRAGMAS: Final[Mapping[str, str | int]] = {"busy_timeout": _PATIENCE_MS, "trusted_schema": 0, "query_only": 1}


# Whatever a statement may raise, for those who must not know the driver.
StatementError: Final = apsw.Error


class SqliteConnection:
    """An apsw connection behind the small protocol the ledger knows."""

    def __init__(self, raw: apsw.Connection) -> None:
        self.raw = raw

    def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        return self.raw.execute(sql, parameters).fetchall()

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        self.raw.execute(sql, parameters)
        return self.raw.changes()


class SqliteDatabase:
    """A ledger file: one write connection behind the turnstile, one read connection a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._readers = threading.local()
        self._open_readers: list[apsw.Connection] = []
        with _explained(path):
            self._turnstile = Turnstile(path.with_suffix(".lock"))
            try:
                self._writer = SqliteConnection(_connect(path, apsw.SQLITE_OPEN_READWRITE, _WRITE_PRAGMAS))
            except BaseException:
                self._turnstile.close()
                raise

    @contextmanager
    def reading(self) -> Iterator[SqliteConnection]:
        with _explained(self._path, (apsw.Error,)):  # a caller's own OSError is none of the ledger's
            connection = self._reader()
            if connection.raw.in_transaction:  # a read inside a read sees the same moment
                yield connection
                return
            connection.raw.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.raw.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[SqliteConnection]:
        with self._turnstile:
            try:
                self._writer.raw.execute("BEGIN IMMEDIATE")
                before = self._writer.raw.total_changes()
                try:
                    yield self._writer
                except BaseException:
                    self._roll_back()
                    raise
                # A transaction that changed nothing must not cost a sync of the disk.
                changed = self._writer.raw.total_changes() != before
                try:
                    self._writer.raw.execute("COMMIT" if changed else "ROLLBACK")
                except BaseException:
                    self._roll_back()
                    raise
            except apsw.Error as error:
                raise _explain(error, self._path) from error

    def _roll_back(self) -> None:
        if self._writer.raw.in_transaction:  # SQLite has already rolled back after some I/O errors
            self._writer.raw.execute("ROLLBACK")

    def version(self) -> int:
        with _explained(self._path):
            return int(self._reader().rows("PRAGMA data_version")[0][0])

    def close(self) -> None:
        for reader in self._open_readers:
            reader.close()
        self._writer.raw.close()
        self._turnstile.close()

    def _reader(self) -> SqliteConnection:
        found: SqliteConnection | None = getattr(self._readers, "connection", None)
        if found is None:
            raw = _connect(self._path, apsw.SQLITE_OPEN_READONLY, _READ_PRAGMAS)
            self._open_readers.append(raw)
            found = self._readers.connection = SqliteConnection(raw)
        return found


def create_database(path: Path) -> None:
    """Make an empty ledger; a second call, also after a crash half way, ends with the same."""
    with _explained(path), closing(Turnstile(path.with_suffix(".lock"))) as turnstile, turnstile:
        if path.exists() and not _journal(path).exists():
            with reading_only(path) as connection:
                if not _is_unfinished(connection, path):
                    return
        raw = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, {})
        try:
            if _is_unfinished(SqliteConnection(raw), path):
                for name, wanted in _WRITE_PRAGMAS.items():
                    _set_pragma(raw, name, wanted)
                _make_schema(raw)
        finally:
            raw.close()
        _sync_directory(path.parent)


def _is_unfinished(connection: SqliteConnection, path: Path) -> bool:
    """Tell whether a file is a ledger whose creation has not come to its end; somebody else's database is refused."""
    if _pragma(connection.raw, "application_id") == APPLICATION_ID:
        return False
    if _schema_version(connection.raw) == 0 and not connection.rows("SELECT 1 FROM sqlite_master"):
        return True
    raise _foreign(path)


@contextmanager
def reading_only(path: Path) -> Iterator[SqliteConnection]:
    """Look at one moment of a file that may be anything, through a connection that cannot write a byte of it."""
    with _explained(path):
        if path.is_dir() or not path.exists():
            what = f"There is no ledger at {path}" + (", but a directory." if path.is_dir() else ".")
            raise UnreadableLedgerError(what, advice="If it was moved, move it back; for a new hive type: hive init")
        try:
            raw = _connect(path, apsw.SQLITE_OPEN_READONLY, _READ_PRAGMAS)
        except (apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError) as error:
            what = f"The ledger {path} cannot be read: {error}."
            raise UnreadableLedgerError(what, advice="Check its permissions and who owns it.") from error
        try:
            raw.execute("BEGIN")
            yield SqliteConnection(raw)
        except apsw.ReadOnlyError as error:
            if not _journal(path).exists():
                raise
            raise DamagedLedgerError(f"The creation of {path} was interrupted.", advice="Type: hive init") from error
        except (apsw.SQLError, ValueError, TypeError) as error:  # tables or values are not what we once put in
            advice = "Nothing was written. Restore the last good copy of the .hive folder."
            raise DamagedLedgerError(
                f"{path} contains data that Hivekeeper did not write: {error}.", advice=advice
            ) from error
        finally:
            raw.close()


def open_index(path: Path, ddl: str, version: int, *, read_only: bool) -> SqliteConnection:
    """Open a database that can be made again; a writer does so where it is missing, of another version or damaged.

    A reader of one that nobody writes leaves nothing beside it.
    """
    if read_only:
        if path.with_name(f"{path.name}-wal").exists():
            return SqliteConnection(_connect(path, apsw.SQLITE_OPEN_READONLY, _READ_PRAGMAS))
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return SqliteConnection(_connect(f"{path.as_uri()}?immutable=1", flags, _READ_PRAGMAS))
    try:
        return _open_index(path, ddl, version)
    except (apsw.NotADBError, apsw.CorruptError, _OtherVersionError):
        remove_database(path)
        return _open_index(path, ddl, version)


def remove_database(path: Path) -> None:
    """Remove a database that can be made again, with what SQLite has beside it."""
    for suffix in ("-wal", "-shm", ""):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)


class _OtherVersionError(Exception):
    """It was made by another version."""


def _open_index(path: Path, ddl: str, version: int) -> SqliteConnection:
    raw = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, _INDEX_PRAGMAS)
    try:
        raw.execute("BEGIN IMMEDIATE")
        if not raw.execute("SELECT 1 FROM sqlite_master").fetchall():
            raw.execute(ddl)
            raw.execute(f"PRAGMA user_version = {version}")
        raw.execute("COMMIT")
        if _schema_version(raw) == version:
            return SqliteConnection(raw)
    except BaseException:
        raw.close()
        raise
    raw.close()
    raise _OtherVersionError


@contextmanager
def reading_foreign(path: Path) -> Iterator[Callable[[str], Iterator[tuple[Any, ...]]]]:
    """Ask a database of somebody else's, row by row: nothing in its schema is trusted, and it cannot take for ever.

    Whatever is wrong with it is a StatementError. A query's rows must be read before the next one is asked.
    """
    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOFOLLOW)
    left = MAX_STEPS // _STEPS_A_LOOK

    def is_too_long() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    try:
        raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        raw.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
        raw.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        raw.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE)
        raw.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        for name, wanted in {"trusted_schema": 0, "query_only": 1, "cell_size_check": 1, "mmap_size": 0}.items():
            raw.execute(f"PRAGMA {name} = {wanted}").fetchall()
        raw.set_progress_handler(is_too_long, _STEPS_A_LOOK)
        yield lambda sql: iter(raw.execute(sql))
    finally:
        raw.close()


@contextmanager
def in_memory() -> Iterator[SqliteConnection]:
    """Open empty tables of today's schema that live in memory and end with the block; a replay fills them."""
    raw = _connect(Path(":memory:"), apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, {"foreign_keys": 1})
    try:
        _make_schema(raw)
        raw.execute("BEGIN")
        yield SqliteConnection(raw)
    finally:
        raw.close()


def _journal(path: Path) -> Path:
    """Name the journal SQLite keeps before a ledger is in WAL mode, that is, only while one is being created."""
    return path.with_name(f"{path.name}-journal")


def check_identity(connection: SqliteConnection, path: Path) -> None:
    """Refuse what is not a ledger of ours, or of a time to come."""
    application, version = _pragma(connection.raw, "application_id"), _schema_version(connection.raw)
    if application == 0 and version == 0 and not connection.rows("SELECT 1 FROM sqlite_master"):
        what = f"The ledger at {path} is empty: its creation was interrupted."
        raise DamagedLedgerError(what, advice="Type: hive init")
    if application != APPLICATION_ID:
        raise _foreign(path)
    if version > SCHEMA:
        what = f"The ledger at {path} has schema {version}; this Hivekeeper knows up to {SCHEMA}."
        raise NewerLedgerError(what, advice="Update Hivekeeper: in its directory, git pull && uv tool install .")
    if 0 < version < SCHEMA:
        what = f"The ledger at {path} was made by an older, unreleased Hivekeeper (schema {version}, now {SCHEMA})."
        hive = path.parent
        advice = f"What has landed is in your repositories. To start again: mv {hive} {hive}.old && hive init"
        raise OlderLedgerError(what, advice=advice)
    if version < SCHEMA:
        raise DamagedLedgerError(f"The ledger at {path} says that it has schema {version}.", advice=_RESTORE)


def _foreign(path: Path) -> ForeignLedgerError:
    what = f"{path} is a database, but not a hive's ledger."
    return ForeignLedgerError(what, advice="Move it away, or choose another directory for this hive.")


def _make_schema(raw: apsw.Connection) -> None:
    raw.execute("BEGIN IMMEDIATE")
    try:
        raw.execute(make_ddl())
        raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raw.execute(f"PRAGMA user_version = {SCHEMA}")
        raw.execute("COMMIT")
    except BaseException:
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        raise


def _connect(path: Path | str, flags: int, pragmas: Mapping[str, str | int]) -> apsw.Connection:
    raw = apsw.Connection(str(path), flags=flags, statementcachesize=200)
    try:
        raw.set_busy_timeout(_PATIENCE_MS)  # first of all: who closes last locks everybody out for a moment
        for name, wanted in pragmas.items():
            _set_pragma(raw, name, wanted)
    except BaseException:
        raw.close()
        raise
    return raw


def _set_pragma(raw: apsw.Connection, name: str, wanted: str | int) -> None:
    raw.execute(f"PRAGMA {name} = {wanted}").fetchall()
    got = _pragma(raw, name)
    if got != wanted:
        what = f"SQLite ignored PRAGMA {name} = {wanted} on {raw.filename}; it says {got}."
        raise UnavailableError(what, advice="The file system may not support what the ledger needs.")


def _pragma(raw: apsw.Connection, name: str) -> str | int:
    value = raw.execute(f"PRAGMA {name}").fetchall()[0][0]
    return value if isinstance(value, int) else str(value)


def _schema_version(raw: apsw.Connection) -> int:
    return int(_pragma(raw, "user_version"))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _has_no_space(directory: Path) -> bool:
    try:
        return os.statvfs(directory).f_bavail == 0
    except OSError:
        return False


@contextmanager
def _explained(path: Path, kinds: tuple[type[Exception], ...] = (apsw.Error, OSError)) -> Iterator[None]:
    """Say in our words what SQLite or the system complain about."""
    try:
        yield
    except kinds as error:
        raise _explain(error, path) from error


def _explain(error: Exception, path: Path) -> HiveError:
    full = UnavailableError(f"The disk of {path} is full.", advice="Free some space; nothing was half written.")
    match error:
        case apsw.FullError():
            return full
        case apsw.IOError() | OSError() if _has_no_space(path.parent):
            return full  # SQLite says no more than "disk I/O error" when its index of the log cannot grow
        case apsw.NotADBError():
            what = f"{path} is not a database."
            return UnreadableLedgerError(what, advice="Restore it from a backup, or move it away and type: hive init")
        case apsw.CorruptError():
            return DamagedLedgerError(f"SQLite finds {path} damaged: {error}.", advice=_RESTORE)
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | PermissionError():
            what = f"{path} cannot be opened for writing: {error}."
            return UnavailableError(what, advice="Check the permissions of the directory and who owns it.")
        case apsw.ConstraintError():
            return DamagedLedgerError(
                f"The ledger's schema refused a change: {error}.", advice="This is a bug in Hivekeeper."
            )
        case _:
            return UnavailableError(f"The ledger at {path} could not be used: {error}.")


def read_schema(connection: SqliteConnection) -> int:
    """Tell which schema a ledger has."""
    return _schema_version(connection.raw)


def list_file_problems(connection: SqliteConnection) -> list[str]:
    """Have SQLite read every page, index and reference of the file; a sentence for each thing that is wrong."""
    pages = [str(row[0]) for row in connection.rows("PRAGMA integrity_check") if row[0] != "ok"]
    broken = connection.rows("PRAGMA foreign_key_check")
    return pages + [f"row {row} of {table} refers to a {parent} that is not there" for table, row, parent, _ in broken]


def list_pragma_problems(path: Path) -> list[str]:
    """Tell whether the file is in WAL mode, and which of a writer's other pragmas SQLite does not take.

    Those are set here, on a connection of our own that cannot write: what a writer's connection has, no other can see.
    """
    with _explained(path):
        raw = _connect(path, apsw.SQLITE_OPEN_READONLY, {})
        try:
            for name, wanted in _WRITE_PRAGMAS.items():
                if name != "journal_mode":  # the one that is kept in the file
                    raw.execute(f"PRAGMA {name} = {wanted}").fetchall()
            found = {name: _pragma(raw, name) for name in _WRITE_PRAGMAS}
        finally:
            raw.close()
    wrong = [(name, wanted) for name, wanted in _WRITE_PRAGMAS.items() if found[name] != wanted]
    return [f"{name} is {found[name]} and must be {wanted}" for name, wanted in wrong]
