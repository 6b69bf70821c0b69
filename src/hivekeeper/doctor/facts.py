"""What the ledger says, and what is on this machine: gathered once, judged by the checks.

The order makes the two comparable while a keeper works: directories and processes are listed first, so whatever has an
intent by then is in the ledger when it is read; processes are listed again after it, so one that belongs to a run that
had ended by then is truly left over.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hivekeeper.clock import Clock, to_seconds
from hivekeeper.domain.hive_rows import HeartbeatRow, HoldRow, LeaseRow
from hivekeeper.domain.rows import AttemptRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.run import Alive, Look, Unclaimed
from hivekeeper.domain.states import OPEN_ATTEMPTS, TaskState
from hivekeeper.hive import find_living_holder
from hivekeeper.places import Places
from hivekeeper.runs.local import LocalRuns
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Head, read_head
from hivekeeper.store.sqlite import reading_only
from hivekeeper.views.workers import find_claim

AttemptKey = tuple[str, int]
_EVERY = -1  # SQLite's word for no limit
_MARKER = b"HIVE_RUN="
_GATES = "_gates"  # whose runs lie one level deeper, by repository (domain.owners)


@dataclass(frozen=True, slots=True)
class Known:
    """An attempt and its runs, oldest first."""

    attempt: AttemptRow
    runs: tuple[RunRow, ...]

    def find_success(self, kind: str) -> RunRow | None:
        """Find the last run of a kind that succeeded."""
        return next((run for run in reversed(self.runs) if run.kind == kind and run.succeeded), None)


@dataclass(frozen=True, slots=True)
class Records:
    """What the ledger says, at one moment; `keeper` is the living keeper, unless that is us."""

    head: Head
    lease: LeaseRow | None
    heartbeat: HeartbeatRow | None
    keeper: LeaseRow | None
    repos: tuple[RepoRow, ...]
    holds: tuple[HoldRow, ...]
    complete: tuple[TaskRow, ...]
    open_runs: tuple[RunRow, ...]
    attempts: Mapping[AttemptKey, Known]
    runs: Mapping[str, RunRow | None]


@dataclass(frozen=True, slots=True)
class Facts:
    """Records and machine together.

    `laid_out` has sandboxes and gates on disk, `run_directories` runs by id, `stored` what is among the
    mirrors and the public repositories.
    """

    places: Places
    records: Records
    now_s: float
    monotonic_s: float
    boot_id: str
    run_directories: tuple[str, ...]
    laid_out: Mapping[Path, AttemptKey]
    stored: tuple[Path, ...]
    looks: Mapping[str, Look]
    processes: Mapping[str, tuple[int, ...]]

    @property
    def may_run(self) -> str | None:
        """A run or process of this hive that may be running or start by itself; None if there is none."""
        for run in self.records.open_runs:
            look = self.looks[run.id]
            if isinstance(look, Alive) or (isinstance(look, Unclaimed) and run.boot_id == self.boot_id):
                return run.id
        return next(iter(self.processes), None)


def gather(places: Places, clock: Clock, *, is_keeper: bool = False) -> Facts:
    """Read the machine, then the ledger, then what is still alive; if `is_keeper`, the lease is our own."""
    directories, laid_out = tuple(_list_run_directories(places.runs)), dict(_list_laid_out(places))
    stored = (*_list_paths(places.hive / "repos"), *_list_paths(places.hive / "public"))
    before = _list_marked()
    with reading_only(places.ledger) as connection:
        marker = f"{read_head(connection).hive}/"
        keeper = None if is_keeper else find_living_holder(connection)
        ours = {name.removeprefix(marker) for name in before if name.startswith(marker)}
        records = _read(connection, keeper, {*directories, *ours}, set(laid_out.values()))
    after = _list_marked()
    with closing(LocalRuns(places.runs, records.head.hive)) as runs:
        looks = {run.id: runs.look(run.id, find_claim(run)) for run in records.open_runs}
    return Facts(
        places=places,
        records=records,
        now_s=to_seconds(clock.now()),
        monotonic_s=clock.monotonic(),
        boot_id=read_boot_id(),
        run_directories=directories,
        laid_out=laid_out,
        stored=stored,
        looks=looks,
        processes={run: pids for run in sorted(ours) if (pids := _both(before, after, marker + run))},
    )


def _read(connection: Connection, keeper: LeaseRow | None, run_ids: set[str], found: set[AttemptKey]) -> Records:
    opened = [queries.list_open_attempts(connection, state) for state in OPEN_ATTEMPTS]
    rows = {(row.task, row.number): row for pairs in opened for row, _ in pairs}
    rows |= {(row.task, row.number): row for row in queries.list_removable_sandboxes(connection, _EVERY)}
    for task in {task for task, _ in found if task.isprintable()}:
        rows |= {(row.task, row.number): row for row in queries.list_attempts_of_task(connection, task)}
    return Records(
        head=read_head(connection),
        lease=queries.find_lease(connection),
        heartbeat=queries.find_heartbeat(connection),
        keeper=keeper,
        repos=tuple(queries.list_repos(connection)),
        holds=tuple(hold for hold in queries.list_holds(connection) if not hold.lifted),
        complete=tuple(queries.list_tasks_in_state(connection, TaskState.COMPLETE)),
        open_runs=tuple(queries.list_open_runs(connection)),
        attempts={
            key: Known(row, tuple(queries.list_runs_of_attempt(connection, row.task, row.number)))
            for key, row in rows.items()
        },
        # A name that is not text was never one of ours, and cannot be looked up.
        runs={run: queries.find_run(connection, run) if run.isprintable() else None for run in run_ids},
    )


def list_attempts(places: Places, tasks: Iterable[str]) -> list[AttemptRow]:
    """List the attempts at these tasks, as the ledger is now."""
    with reading_only(places.ledger) as connection:
        known = (queries.list_attempts_of_task(connection, task) for task in tasks if task.isprintable())
        return [row for rows in known for row in rows]


def is_moving(places: Places, repo: str) -> bool:
    """Tell whether a run that moves a repository's branches may be running, as the ledger is now."""
    with reading_only(places.ledger) as connection:
        return any(run.repo == repo and run.kind in ("fetch", "land") for run in queries.list_open_runs(connection))


def _list_run_directories(runs: Path) -> Iterator[str]:
    for group in list_directories(runs):
        if group.name == _GATES:
            of_repos = ((repo.name, list_directory(repo.path)) for repo in list_directories(group.path))
            yield from (f"{_GATES}/{repo}/{run.name}" for repo, found in of_repos for run in found)
        else:
            yield from (f"{group.name}/{run.name}" for run in list_directory(group.path))


def _list_laid_out(places: Places) -> Iterator[tuple[Path, AttemptKey]]:
    for kind in (places.hive / "sandboxes", places.hive / "gates"):
        for convoy in list_directories(kind):
            for found in list_directories(convoy.path):
                task, _, number = found.name.rpartition(".")
                yield Path(found.path), (f"{convoy.name}/{task}", int(number) if number.isdecimal() else 0)


def list_directory(path: Path | str) -> list["os.DirEntry[str]"]:
    """List a directory in the order of names; one that is not there has nothing in it."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _list_paths(path: Path) -> list[Path]:
    return [Path(entry.path) for entry in list_directory(path)]


def list_directories(path: Path | str) -> list["os.DirEntry[str]"]:
    """List the directories in a directory, without links, which may lead anywhere."""
    return [entry for entry in list_directory(path) if entry.is_dir(follow_symlinks=False)]


def _list_marked() -> dict[str, set[int]]:
    """List the living processes that carry the marker of a run, of any hive, by marker."""
    found: dict[str, set[int]] = {}
    for pid in (int(entry.name) for entry in list_directory("/proc") if entry.name.isdecimal()):
        if (marker := find_marker(pid)) is not None and pid != os.getpid():
            found.setdefault(marker, set()).add(pid)
    return found


def find_marker(pid: int) -> str | None:
    """Find the run that a process belongs to, by its environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()  # of one that is dead it is empty
    except OSError:  # gone meanwhile, or another user's
        return None
    values = (entry.removeprefix(_MARKER) for entry in environment.split(b"\0") if entry.startswith(_MARKER))
    return next((os.fsdecode(value) for value in values), None)


def _both(before: Mapping[str, set[int]], after: Mapping[str, set[int]], marker: str) -> tuple[int, ...]:
    return tuple(sorted(before.get(marker, set()) & after.get(marker, set())))
