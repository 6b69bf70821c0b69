"""Brings the index up to date: follows the ledger from where the index is, and reads what the attempts it names left.

Rules:
1. An attempt is read when one of its sessions has ended, when its change was judged, and when it ends; a command that
   did what it should is not, because nothing about it is worth asking.
2. A document is written again only when there is more of it, so doing all of this again changes nothing. How far the
   index has come is noted after everything up to there was written.
3. It is done in steps, between which nothing is held but the index.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO

from hivekeeper.domain import events as e
from hivekeeper.domain.events import Event
from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.domain.rows import AttemptRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.runner import Runner
from hivekeeper.domain.states import AttemptState
from hivekeeper.errors import UnavailableError
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror
from hivekeeper.places import Places
from hivekeeper.runs.local import Outputs
from hivekeeper.seance.logs import list_patterns, open_logs
from hivekeeper.seance.readers import read_log
from hivekeeper.seance.record import DOCUMENT, read_record
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.excerpts import ExcerptIndex
from hivekeeper.store.ledger import read_events, read_head

Key = tuple[str, int]
PAGE = 1000
MAX_EVENTS = 5000  # of a task
MAX_PATHS = 500
_ENDS = ("agent", "snapshot", "remove")
_JUDGED = (
    e.AttemptFailed, e.AttemptUnknown, e.AttemptCancelled, e.AttemptParked, e.TaskCompleted, e.MergeFailed
)  # fmt: skip
_WELL = (AttemptState.WORKING, AttemptState.SUBMITTED, AttemptState.SUCCEEDED)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where everything is read from."""

    read_ledger: Callable[[], AbstractContextManager[Connection]]
    places: Places
    outputs: Outputs
    runners: Mapping[str, Runner]


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger says of an attempt."""

    task: TaskRow
    attempt: AttemptRow
    runs: tuple[RunRow, ...]
    failed_run: RunRow | None
    repo: RepoRow | None
    record: tuple[Excerpt, ...]

    @property
    def key(self) -> Key:
        """Name the attempt."""
        return self.attempt.task, self.attempt.number


def collect(sources: Sources, open_index: Callable[[], ExcerptIndex], after: int) -> Generator[tuple[int, int]]:
    """Collect everything since an event; it yields now and then up to which event it has come, and what it wrote.

    The index is opened when there is something to write.
    """
    while True:
        with sources.read_ledger() as connection:
            page = read_events(connection, after, PAGE)
            known = [each for key in find_touched(connection, page) if (each := find_known(connection, *key))]
        if not page:
            return
        for each in known:
            for _ in _collect_attempt(sources, open_index(), each):
                yield after, 0
        after = page[-1].seq
        if known or len(page) == PAGE:
            open_index().note_progress(after)
        yield after, len(known)


def find_touched(connection: Connection, page: Sequence[Event]) -> list[Key]:
    """Find the attempts that a page of events says something about."""
    touched: dict[Key, None] = {}
    for event in page:
        match event.body:
            case e.RunExited(run=name, run_kind=kind) | e.RunLost(run=name, run_kind=kind) if kind in _ENDS:
                run = queries.find_run(connection, name)
                if run is not None and run.task is not None and run.attempt is not None:
                    touched[run.task, run.attempt] = None
            case e.RunReported(run=name):
                run = queries.find_run(connection, name)
                if run is not None and run.task is not None and run.attempt is not None:
                    touched[run.task, run.attempt] = None
            case body if isinstance(body, _JUDGED):
                touched[body.task, body.attempt] = None
    return list(touched)


def find_known(connection: Connection, task: str, number: int) -> Known | None:
    """Find what the ledger says of an attempt; None if nothing of it is worth asking."""
    row, attempt = queries.find_task(connection, task), queries.find(connection, AttemptRow, task=task, number=number)
    if row is None or attempt is None or row.branch is not None:
        return None
    runs = tuple(queries.list_runs_of_attempt(connection, task, number))
    if attempt.agent is None and not any(run.runner for run in runs) and attempt.state in _WELL:
        return None
    until = read_head(connection).seq
    events = queries.list_events_about(connection, task, after=0, until=until, limit=MAX_EVENTS)
    entry = queries.find_merge(connection, task, number)
    return Known(
        row,
        attempt,
        runs,
        queries.find_run(connection, entry.failed_run) if entry and entry.failed_run else None,
        queries.find_repo(connection, row.repo) if row.repo else None,
        tuple(read_record(task, number, events, runs)),
    )


def _collect_attempt(sources: Sources, index: ExcerptIndex, known: Known) -> Iterator[int]:
    stamps = {document.name: document.stamp for document in index.list_documents([known.key])}
    if known.record and stamps.get(DOCUMENT) != (stamp := f"{len(known.record)}.{known.record[-1].position}"):
        yield from index.put(*known.key, DOCUMENT, stamp, known.record)
    patterns = list_patterns(known.task, known.runs, sources.runners)
    with open_logs(sources.places, known.attempt, patterns) as logs:
        for log in logs if not any(run.kind == "agent" and run.is_open for run in known.runs) else ():
            if log.size > int(stamps.get(log.document, -1)):
                yield from index.put(*known.key, log.document, str(log.size), log.read())
    for run, name in list_outputs(known, has_logs=bool(logs)):
        yield from _collect_output(sources, index, known, run, name, int(stamps.get(name, -1)))
    yield from _collect_changes(sources, index, known, stamps.get("changes", ""))


def list_outputs(known: Known, *, has_logs: bool) -> Iterator[tuple[RunRow, str]]:
    """List the runs whose output says something; what a program wrote in its log, it did not say anywhere else."""
    runs = (run for run in known.runs if run.kind in ("agent", "setup") and not (has_logs and run.runner))
    for run in (*runs, *filter(None, (known.failed_run,))):
        if not run.is_open and (run.kind == "agent" or not run.succeeded):
            yield run, f"{run.id}/output"


def _collect_output(
    sources: Sources, index: ExcerptIndex, known: Known, run: RunRow, name: str, size: int
) -> Iterator[int]:
    file = sources.outputs.open_output(run.id)
    if file is None:
        return
    with file:
        if (now := os.fstat(file.fileno()).st_size) > max(size, 0):
            yield from index.put(*known.key, name, str(now), read_output(run, file))


def read_output(run: RunRow, file: BinaryIO) -> Iterator[Excerpt]:
    """Read what a run printed: of one that failed, it is what went wrong."""
    for excerpt in read_log("output", file):
        is_words = excerpt.role in (Role.SAID, Role.ANSWERED) and not run.runner
        role = (Role.ANSWERED if run.succeeded else Role.ERROR) if is_words else excerpt.role
        yield Excerpt(role, excerpt.text, excerpt.position, excerpt.at)


def _collect_changes(sources: Sources, index: ExcerptIndex, known: Known, stamp: str) -> Iterator[int]:
    found = find_changes(sources.places, known)
    if found is not None and found[0] != stamp:
        yield from index.put(*known.key, "changes", found[0], [found[1]])


def find_changes(places: Places, known: Known) -> tuple[str, Excerpt] | None:
    """Find which paths an attempt has changed, and the commit that they are in; None if it left none."""
    commit, paths = _find_changed(places, known)
    return (commit, Excerpt(Role.CHANGED, describe_paths(paths), 0, known.attempt.ended_at or "")) if paths else None


def list_changed(places: Places, known: Known) -> Sequence[str]:
    """List the paths that an attempt has changed."""
    return [_show(path) for path in _find_changed(places, known)[1]]


def _find_changed(places: Places, known: Known) -> tuple[str, Sequence[str]]:
    if known.repo is None or not any(run.kind == "snapshot" and run.succeeded for run in known.runs):
        return "", ()
    mirror = Mirror(places.mirror(known.repo.name))
    try:
        commit = mirror.find_commit(orders.attempt_ref(*known.key))
        paths = mirror.list_brought(orders.integration_ref(known.repo.branch), commit) if commit else ()
    except (UnavailableError, OSError):
        return "", ()
    return commit or "", paths or ()


def describe_paths(paths: Sequence[str]) -> str:
    """Write which paths were changed."""
    more = f"\n… and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else ""
    count = f"{len(paths)} path{'s' if len(paths) > 1 else ''}"
    return f"{count} changed:\n" + "\n".join(map(_show, paths[:MAX_PATHS])) + more


def _show(path: str) -> str:
    return path if path.isprintable() else ascii(path)
