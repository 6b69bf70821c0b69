"""The ledger itself: identity, the whole chain, the tables against the log, the file, the pragmas.

Each look opens the file anew, read-only, and one that cannot be finished does not keep the others from being taken.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from hivekeeper.doctor.findings import MEND, Check, DropCheckpoint, Finding, Level, Say
from hivekeeper.errors import HiveError, LedgerRefusedError
from hivekeeper.store import queries
from hivekeeper.store.chain import ChainAudit, audit_chain
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
    """Look at a ledger from its identity to its last row."""
    identity = list(_trying(Check.LEDGER, lambda: check_what_it_is(path)))
    yield from identity
    if any(finding.level is Level.FAIL for finding in identity):
        return  # not ours, or not to be read by us: nothing else here would mean anything
    is_current = all(finding.level is Level.OK for finding in identity)
    log = list(_trying(Check.LOG, lambda: check_log(path, say)))
    yield from log
    if is_current and all(finding.level is Level.OK for finding in log):
        yield from _trying(Check.TABLES, lambda: check_tables(path, say))
    yield from _trying(Check.FILE, lambda: check_file(path, say))
    yield from _trying(Check.PRAGMAS, lambda: check_pragmas(path))
    yield from check_wal(path)


def check_what_it_is(path: Path) -> Iterator[Finding]:
    """Tell whether it is a hive's ledger, and of which schema."""
    with reading_only(path) as connection:
        check_identity(connection, path)
        head, schema = read_head(connection), read_schema(connection)
    what = f"hive {head.hive}, schema {schema}, {head.seq} events, epoch {head.epoch}"
    yield Finding(Check.LEDGER, Level.OK, what)


def check_log(path: Path, say: Say) -> Iterator[Finding]:
    """Follow the hash chain from the first event to the head."""
    with reading_only(path) as connection:
        audit = audit_chain(connection, lambda seq, last: say(f"the log: {seq} of {last} events"))
    yield from _judge_chain(audit)


def _judge_chain(audit: ChainAudit) -> Iterator[Finding]:
    for sentence in audit.breaks:
        yield Finding(Check.LOG, Level.FAIL, f"The chain is broken: {sentence}.", RESTORE)
    for kind, count in audit.unknown.items():
        what = f"{count} events are of the kind {kind!r}, which this Hivekeeper does not know."
        yield Finding(Check.LOG, Level.FAIL, what, "If a newer Hivekeeper wrote them, update. Otherwise: " + RESTORE)
    if not audit.breaks and not audit.unknown:
        yield Finding(Check.LOG, Level.OK, f"{audit.events} events, an unbroken chain")


def check_tables(path: Path, say: Say) -> Iterator[Finding]:
    """Replay the log into fresh tables; hold the live ones against them, and on the way every state put by."""
    wrong: list[int] = []
    with reading_only(path) as connection, rebuilt(connection, until=0) as again:
        last = read_head(connection).seq

        def tell(seq: int) -> None:
            say(f"the tables: {seq} of {last} events replayed")

        for put_by in queries.list_checkpoints(connection):
            replay_on(connection, again, min(put_by, last), say=tell)
            if not is_checkpoint_right(connection, again, put_by):
                wrong.append(put_by)
        replay_on(connection, again, last, say=tell)
        differences = list_differences(connection, again)
    for seq in wrong:
        what = f"The checkpoint at event {seq} cannot be read, or is not what the log says; the past may look wrong."
        yield Finding(Check.TABLES, Level.WARN, what, MEND, DropCheckpoint(seq))
    for sentence in differences:
        yield Finding(Check.TABLES, Level.FAIL, f"The tables are not what the log says: {sentence}", RESTORE)
    if not differences:
        yield Finding(Check.TABLES, Level.OK, "the tables are what the log says")


def check_file(path: Path, say: Say) -> Iterator[Finding]:
    """Have SQLite look at its own file."""
    say("the file")
    with reading_only(path) as connection:
        problems = list_file_problems(connection)
    for problem in problems:
        yield Finding(Check.FILE, Level.FAIL, f"SQLite finds {path.name} damaged: {problem}.", RESTORE)
    if not problems:
        yield Finding(Check.FILE, Level.OK, "SQLite finds nothing wrong with the file")


def check_pragmas(path: Path) -> Iterator[Finding]:
    """Tell whether SQLite takes the settings a writer asks for."""
    problems = list_pragma_problems(path)
    for problem in problems:
        advice = "Something else has opened this file, or its disk cannot hold a ledger. Keep it on a local disk."
        yield Finding(Check.PRAGMAS, Level.FAIL, f"{path.name}: {problem}.", advice)
    if not problems:
        yield Finding(Check.PRAGMAS, Level.OK, "SQLite takes every setting the ledger needs")


def check_wal(path: Path) -> Iterator[Finding]:
    """Tell whether SQLite's own log is written back as it should be."""
    wal = path.with_name(f"{path.name}-wal")
    try:
        size = wal.stat().st_size
    except FileNotFoundError:  # whoever closes the ledger last removes it
        size = 0
    if size > LARGEST_WAL_BYTES:
        what = f"{wal.name} has grown to {size >> 20} MiB: somebody has been reading the ledger for very long."
        yield Finding(Check.WAL, Level.WARN, what, "End whatever reads it, then type: hive down; hive up --detach")
    else:
        yield Finding(Check.WAL, Level.OK, f"{wal.name}: {size >> 10} KiB")


def _trying(check: Check, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look()
    except LedgerRefusedError as error:
        yield Finding(check, Level.FAIL, error.what, error.advice)
    except HiveError as error:  # the disk or the system, not the ledger
        yield Finding(Check.DIRECTORY, Level.FAIL, error.what, error.advice)
