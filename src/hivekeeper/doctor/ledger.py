"""The ledger itself: identity, the whole chain, the tables against the log, the file, the pragmas.

Each check opens the file again, read-only; if one fails to finish, the others still run.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from hivekeeper.doctor.findings import REPAIR, Check, DropCheckpoint, Finding, Level, Say, fail, ok, or_ok, warn
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import HiveError, LedgerRefusedError
from hivekeeper.store import queries
from hivekeeper.store.chain import audit_chain
from hivekeeper.store.ledger import read_head
from hivekeeper.store.replay import is_checkpoint_right, list_differences, rebuilt, replay_on
from hivekeeper.store.sqlite import (
    check_identity,
    list_file_problems,
    list_pragma_problems,
    read_schema,
    reading_only,
)

RESTORE = "Restore the last good copy of the .hive folder. Until then type nothing that writes."
LARGEST_WAL_BYTES = 64 << 20


def check_ledger(path: Path, say: Say) -> Iterator[Finding]:
    """Check a ledger from its identity to its last row."""
    identity = list(_trying(Check.LEDGER, lambda: check_what_it_is(path)))
    yield from identity
    if any(finding.level is Level.FAIL for finding in identity):
        return  # not a hive's, or not readable: no other check would mean anything
    is_current = all(finding.level is Level.OK for finding in identity)
    log = list(_trying(Check.LOG, lambda: check_log(path, say)))
    yield from log
    if is_current and all(finding.level is Level.OK for finding in log):
        yield from _trying(Check.TABLES, lambda: check_tables(path, say))
    yield from _trying(Check.FILE, lambda: check_file(path, say))
    yield from _trying(Check.PRAGMAS, lambda: check_pragmas(path))
    yield from check_wal(path)


def check_what_it_is(path: Path) -> Iterator[Finding]:
    """Check whether it is a hive's ledger, and which schema it has."""
    with reading_only(path) as connection:
        check_identity(connection, path)
        head, schema = read_head(connection), read_schema(connection)
    what = f"hive {head.hive}, schema {schema}, {say_count(head.seq, 'event')}, epoch {head.epoch}"
    yield ok(Check.LEDGER, what)


def check_log(path: Path, say: Say) -> Iterator[Finding]:
    """Follow the hash chain from the first event to the head."""
    with reading_only(path) as connection:
        audit = audit_chain(connection, lambda seq, last: say(f"the log: {seq:,} of {say_count(last, 'event')}"))
    found = [fail(Check.LOG, f"The chain is broken: {sentence}.", RESTORE) for sentence in audit.breaks]
    for kind, count in audit.unknown.items():
        what = f"Of the kind {kind!r}, which this Hivekeeper does not know: {say_count(count, 'event')}."
        found.append(fail(Check.LOG, what, "If written by a newer Hivekeeper, update. Otherwise: " + RESTORE))
    return or_ok(found, Check.LOG, f"{say_count(audit.events, 'event')}, an unbroken chain")


def check_tables(path: Path, say: Say) -> Iterator[Finding]:
    """Replay the log into fresh tables, and compare them with the live ones and with every checkpoint."""
    wrong: list[int] = []
    with reading_only(path) as connection, rebuilt(connection, until=0) as again:
        last = read_head(connection).seq

        def tell(seq: int) -> None:
            say(f"the tables: {seq:,} of {say_count(last, 'event')} replayed")

        for checkpoint in queries.list_checkpoints(connection):
            replay_on(connection, again, min(checkpoint, last), say=tell)
            if not is_checkpoint_right(connection, again, checkpoint):
                wrong.append(checkpoint)
        replay_on(connection, again, last, say=tell)
        differences = list_differences(connection, again)
    for seq in wrong:
        what = f"The checkpoint at event {seq} cannot be read or differs from the log; the past may look wrong."
        yield warn(Check.TABLES, what, REPAIR, DropCheckpoint(seq))
    found = (fail(Check.TABLES, f"The tables differ from the log: {sentence}", RESTORE) for sentence in differences)
    yield from or_ok(found, Check.TABLES, "the tables match the log")


def check_file(path: Path, say: Say) -> Iterator[Finding]:
    """Have SQLite check its own file."""
    say("the file")
    with reading_only(path) as connection:
        problems = list_file_problems(connection)
    found = (fail(Check.FILE, f"SQLite finds {path.name} damaged: {problem}.", RESTORE) for problem in problems)
    return or_ok(found, Check.FILE, "SQLite finds nothing wrong with the file")


def check_pragmas(path: Path) -> Iterator[Finding]:
    """Check whether SQLite accepts the settings a writer needs."""
    advice = "Something else has opened this file, or its disk cannot hold a ledger. Keep it on a local disk."
    found = (fail(Check.PRAGMAS, f"{path.name}: {problem}.", advice) for problem in list_pragma_problems(path))
    return or_ok(found, Check.PRAGMAS, "SQLite accepts every setting the ledger needs")


def check_wal(path: Path) -> Iterator[Finding]:
    """Check whether SQLite's own log is written back."""
    wal = path.with_name(f"{path.name}-wal")
    try:
        size = wal.stat().st_size
    except FileNotFoundError:  # the last to close the ledger removes it
        size = 0
    if size > LARGEST_WAL_BYTES:
        what = f"{wal.name} has grown to {size >> 20} MiB: a process has been reading the ledger for very long."
        yield warn(Check.WAL, what, "End that process, then type: hive down; hive up --detach")
    else:
        yield ok(Check.WAL, f"{wal.name}: {size >> 10} KiB")


def _trying(check: Check, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look()
    except LedgerRefusedError as error:
        yield fail(check, error.what, error.advice)
    except HiveError as error:  # the disk or the system, not the ledger
        yield fail(Check.DIRECTORY, error.what, error.advice)
