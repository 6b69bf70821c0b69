"""Workers: what each is doing, and how a person names one."""

import os
from collections.abc import Sequence
from typing import Any

from hivekeeper.clock import to_seconds
from hivekeeper.domain.rows import AttemptRow, MergeRow, RunRow
from hivekeeper.domain.run import Claim, Ended, Look
from hivekeeper.domain.states import OPEN_ATTEMPTS, AttemptState, RunState
from hivekeeper.domain.workers import WorkerState, decide_worker
from hivekeeper.errors import InputError
from hivekeeper.runs.local import Outputs, Runs
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.views.rows import pick
from hivekeeper.views.tasks import get_task

_MAX_CLEANUPS = 100
_MAX_DIGITS = 10


def list_workers(connection: Connection, runs: Runs, *, now: str) -> list[dict[str, Any]]:
    """List the workers, longest at work first, each with its current run."""
    merges = {(entry.task, entry.attempt): entry for entry in queries.list_open_merges(connection)}
    shown = []
    for attempt in queries.list_removable_sandboxes(connection, _MAX_CLEANUPS):
        since = attempt.ended_at or attempt.started_at
        shown.append(_show_worker(attempt, "", WorkerState.CLEANUP, since, now))
    for state in OPEN_ATTEMPTS:
        of_attempts = queries.list_runs_of_open_attempts(connection, state)
        for attempt, task in queries.list_open_attempts(connection, state):
            merge, ours = (
                merges.get((attempt.task, attempt.number)),
                of_attempts.get((attempt.task, attempt.number), []),
            )
            run = next((run for run in reversed(ours) if run.is_open and run.kind != "save"), None)
            look = runs.look(run.id, find_claim(run)) if run else None
            wrote_at_s, size = _look_at_output(run, runs) if run else (None, None)
            silent_s = None if wrote_at_s is None else max(0.0, to_seconds(now) - wrote_at_s)
            is_parked = state is AttemptState.PARKED
            doing = WorkerState.PARKED if is_parked else decide_worker(run, look, merge, silent_s)
            since = _find_begin(run, look, merge, ours) or attempt.started_at
            worker = _show_worker(attempt, task.title, doing, since, now)
            on_run = {"silent_s": silent_s, "run": run and run.id, "pid": run and run.pid, "output_bytes": size}
            shown.append({**worker, **on_run})
    return sorted(shown, key=lambda row: (row["started_at"], row["task"]))


def _show_worker(attempt: AttemptRow, title: str, state: WorkerState, since: str, now: str) -> dict[str, Any]:
    return {
        **pick(attempt, "worker", "task", "started_at", "progress", attempt="number"),
        "title": title,
        "state": state,
        "since": since,
        "for_s": max(0.0, to_seconds(now) - to_seconds(since)),
        **dict.fromkeys(("silent_s", "run", "pid", "output_bytes")),
    }


def _find_begin(run: RunRow | None, look: Look | None, merge: MergeRow | None, runs: Sequence[RunRow]) -> str | None:
    """Find since when a worker has been doing what it does."""
    if isinstance(look, Ended):
        return look.ending.at
    if run is not None:
        return run.started_at or run.intended_at
    return merge.queued_at if merge else max((run.ended_at for run in runs if run.ended_at), default=None)


def find_claim(run: RunRow) -> Claim | None:
    """Find the claim that the ledger has of a run, in case the run's own directory has lost it."""
    if run.state is not RunState.RUNNING:
        return None
    return Claim(run.pid or 0, run.start_ticks or 0, run.boot_id, run.started_at or run.intended_at)


def _look_at_output(run: RunRow, outputs: Outputs) -> tuple[float | None, int | None]:
    """Look when a run last wrote output, or was started, and how much it has written."""
    if run.started_at is None:
        return None, None
    file = outputs.open_output(run.id)
    if file is None:
        return to_seconds(run.started_at), 0
    with file:
        found = os.fstat(file.fileno())
    return found.st_mtime, found.st_size


def get_worker(connection: Connection, name: str) -> AttemptRow:
    """Get the attempt at work by its worker's number, by CONVOY/ID or by the task's ID alone."""
    if found := _list_at_work(connection, name):
        return _get_only(name, found)
    if _is_number(connection, name):
        raise InputError(f"Worker {name} is not running.", advice="Type: hive worker ls")
    task = get_task(connection, name)
    raise InputError(f"No worker is at work on {task.key}.", advice=f"Type: hive task why {task.key}")


def get_attempt(connection: Connection, name: str, number: int | None) -> AttemptRow:
    """Get an attempt, at work or ended: the worker's, the numbered one, or the task's last."""
    if number is None and (found := _list_at_work(connection, name)):
        return _get_only(name, found)
    if number is None and _is_number(connection, name):
        in_sight = {convoy.name for convoy in queries.list_convoys(connection)}
        rows = queries.list_rows(connection, AttemptRow, "task, number", worker=int(name))
        if not (ended := [attempt for attempt in rows if attempt.convoy in in_sight]):
            raise InputError(f"There is no worker {name}, and there was none.", advice="Type: hive worker ls")
        return _get_only(name, ended)
    task = get_task(connection, name)
    attempts = queries.list_attempts_of_task(connection, task.key)
    if not attempts:
        raise InputError(f"{task.key} has had no worker yet.", advice=f"Type: hive task why {task.key}")
    if number is not None and not 1 <= number <= len(attempts):
        raise InputError(f"{task.key} has no attempt {number}.", advice=f"Type a number from 1 to {len(attempts)}.")
    return attempts[(number or len(attempts)) - 1]


def _is_number(connection: Connection, name: str) -> bool:
    """Tell whether a name is a worker's number and no task's id."""
    return name.isdecimal() and len(name) < _MAX_DIGITS and not queries.list_tasks_by_id(connection, name)


def _list_at_work(connection: Connection, name: str) -> list[AttemptRow]:
    pairs = (pair for state in OPEN_ATTEMPTS for pair in queries.list_open_attempts(connection, state))
    return [attempt for attempt, task in pairs if name in (task.key, task.id, str(attempt.worker))]


def _get_only(name: str, found: Sequence[AttemptRow]) -> AttemptRow:
    # Two convoys may each have a worker of that number, and a task's id may be a number; a key is unique.
    if len(found) > 1:
        known = ", ".join(f"{attempt.task} (worker {attempt.worker})" for attempt in found)
        raise InputError(f"'{name}' may mean {len(found)} workers.", advice=f"Name its task: {known}")
    return found[0]


def find_agent_run(connection: Connection, attempt: AttemptRow) -> RunRow | None:
    """Find the run of an attempt's agent, the latest if there were several; None before there is one."""
    runs = queries.list_runs_of_attempt(connection, attempt.task, attempt.number)
    return next((run for run in reversed(runs) if run.kind == "agent"), None)
