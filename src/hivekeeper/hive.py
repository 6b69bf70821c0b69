"""An open hive: its paths, its ledger, its settings, and which process is its keeper.

A read opens the ledger without the settings: parsing them takes longer than reading.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hivekeeper.clock import Clock, SystemClock
from hivekeeper.domain.hive_rows import LeaseRow
from hivekeeper.domain.lease import KeeperState, decide_keeper
from hivekeeper.errors import HiveError, InputError
from hivekeeper.git.neighbours import is_same
from hivekeeper.nudges import nudge
from hivekeeper.places import Places
from hivekeeper.runs.wrapper import read_boot_id, read_start_ticks
from hivekeeper.settings import Settings
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Ledger, open_ledger, read_head


@dataclass(frozen=True, slots=True)
class Hive:
    """An open hive: its paths, settings and ledger."""

    places: Places
    settings: Settings
    ledger: Ledger

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()


@dataclass(frozen=True, slots=True)
class Records:
    """An open hive without its settings."""

    places: Places
    ledger: Ledger


def find_root(start: Path) -> Path:
    """Find the hive that a directory belongs to, there or above."""
    for directory in (start, *start.parents):
        if (directory / ".hive").is_dir():
            return directory
    raise InputError(f"There is no hive in {start} or above it.", advice="Create one here: hive init")


def open_hive(root: Path, clock: Clock | None = None) -> Hive:
    """Open a hive; wrong settings and a ledger that must not be used are refused. Every commit wakes its keeper."""
    from hivekeeper.config.settings import load_settings  # noqa: PLC0415 - reads need no parser

    settings = load_settings(root)
    records = open_records(root, clock)
    return Hive(records.places, settings, records.ledger)


def open_records(root: Path, clock: Clock | None = None) -> Records:
    """Open a hive's ledger alone; one that must not be used is refused. Every commit wakes its keeper."""
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
    except HiveError:  # another user's, or newer: it is there, and more cannot be told
        return True
    with closing(ledger), ledger.read() as connection:
        known = [repo.path for repo in queries.list_repos(connection) if repo.branch == branch]
        return read_head(connection).hive == name and any(is_same(path, other) for other in known)


def find_living_holder(connection: Connection) -> LeaseRow | None:
    """Find the hive's keeper, if it is a living process of this boot; touches no lock."""
    lease = queries.find_lease(connection)
    if lease is None or lease.released_at is not None or lease.boot_id != read_boot_id():
        return None
    return lease if read_start_ticks(lease.pid) == lease.start_ticks else None


def is_kept(connection: Connection) -> bool:
    """Tell whether the hive's keeper is running."""
    return find_living_holder(connection) is not None


def find_keeper_state(connection: Connection, clock: Clock, abandoned_after_s: float) -> KeeperState:
    """Find the state of the hive's keeper, by its process and its heartbeat."""
    living, beat = find_living_holder(connection), queries.find_heartbeat(connection)
    return decide_keeper(living, beat, monotonic_s=clock.monotonic(), abandoned_after_s=abandoned_after_s)
