"""An opened hive: where it lies, its ledger, its settings, and which process keeps it.

Whoever only reads opens the ledger without the settings: parsing them takes longer than the reading.
"""

from dataclasses import dataclass
from pathlib import Path

from hivekeeper.clock import Clock, SystemClock
from hivekeeper.domain.hive_rows import LeaseRow
from hivekeeper.errors import HiveError, InputError
from hivekeeper.nudges import nudge
from hivekeeper.places import Places
from hivekeeper.runs.wrapper import read_boot_id, read_start_ticks
from hivekeeper.settings import Settings
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Ledger, open_ledger, read_head


@dataclass(frozen=True, slots=True)
class Hive:
    """An open hive: where it lies, how it is set, what it knows."""

    places: Places
    settings: Settings
    ledger: Ledger

    def close(self) -> None:
        """Let go of the ledger."""
        self.ledger.close()


@dataclass(frozen=True, slots=True)
class Records:
    """What a hive knows, without its settings."""

    places: Places
    ledger: Ledger


def find_root(start: Path) -> Path:
    """Find the hive a directory belongs to, here or above."""
    for directory in (start, *start.parents):
        if (directory / ".hive").is_dir():
            return directory
    raise InputError(f"There is no hive in {start} or above it.", advice="Make one here: hive init")


def open_hive(root: Path, clock: Clock | None = None) -> Hive:
    """Open a hive, refusing wrong settings and a ledger that must not be used; whoever writes wakes its keeper."""
    from hivekeeper.config.settings import load_settings  # noqa: PLC0415 - reads need no parser

    settings = load_settings(root)
    records = open_records(root, clock)
    return Hive(records.places, settings, records.ledger)


def open_records(root: Path, clock: Clock | None = None) -> Records:
    """Open a hive's ledger alone, refusing one that must not be used; whoever writes wakes its keeper."""
    places = Places(root.resolve())
    ledger = open_ledger(places.ledger, clock or SystemClock())
    ledger.on_commit.append(lambda _bodies: nudge(places.nudge))
    return Records(places, ledger)


def works_on(root: Path, name: str, path: str, branch: str) -> bool:
    """Tell whether a hive of this name is in a directory and has tasks on this branch of a repository."""
    places = Places(root)
    if not places.ledger.is_file():
        return False
    try:
        ledger = open_ledger(places.ledger, SystemClock())
    except HiveError:  # of another user, or newer: it is there, and that is all anybody can tell
        return True
    try:
        with ledger.read() as connection:
            known = [(repo.path, repo.branch) for repo in queries.list_repos(connection)]
            return read_head(connection).hive == name and (path, branch) in known
    finally:
        ledger.close()


def find_living_holder(connection: Connection) -> LeaseRow | None:
    """Find the process that keeps this hive, if it is one of this boot and alive; touches no lock."""
    lease = queries.find_lease(connection)
    if lease is None or lease.released_at is not None or lease.boot_id != read_boot_id():
        return None
    return lease if read_start_ticks(lease.pid) == lease.start_ticks else None
