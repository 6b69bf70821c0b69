"""Workers: who is at work, what each is doing, and which one a person means."""

import os
from collections.abc import Sequence
from typing import Any

from hivekeeper.clock import to_seconds
from hivekeeper.domain.rows import AttemptRow, MergeRow, RunRow, TaskRow
from hivekeeper.domain.run import Claim, Ended, Look
from hivekeeper.domain.states import AttemptState, RunState
from hivekeeper.domain.workers import WorkerState, decide_worker
from hivekeeper.errors import InputError
from hivekeeper.runs.local import Outputs, Runs
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.views.convoys import list_attempts
from hivekeeper.views.tasks import get_task

_MOST_CLEANUPS = 100
_AT_WORK = (AttemptState.WORKING, AttemptState.PARKED, AttemptState.SUBMITTED)


def list_workers(connection: Connection, runs: Runs, *, now: str) -> list[dict[str, Any]]:
    """List the workers at work, longest first, each with a look at its present run."""
    merges = {(entry.task, entry.attempt): entry for entry in queries.list_open_merges(connection)}
    shown = [_show_cleanup(attempt, now) for attempt in queries.list_removable_sandboxes(connection, _MOST_CLEANUPS)]
    for state in _AT_WORK:
        of_attempts = queries.list_runs_of_open_attempts(connection, state)
        for attempt, task in queries.list_open_attempts(connection, state):
            key = (attempt.task, attempt.number)
            under_way = (run for run in reversed(of_attempts.get(key, [])) if run.is_open and run.kind != "save")
            run = next(under_way, None)
            look = runs.look(run.id, find_claim(run)) if run else None
            said_at_s, size = _listen(run, runs) if run else (None, None)
            silent_s = None if said_at_s is None else max(0.0, to_seconds(now) - said_at_s)
            since = _find_begin(run, look, merges.get(key), of_attempts.get(key, [])) or attempt.started_at
            shown.append(
                {
                    "worker": attempt.worker,
                    "task": task.key,
                    "title": task.title,
                    "attempt": attempt.number,
                    "state": (
                        WorkerState.PARKED
                        if state is AttemptState.PARKED
                        else decide_worker(run, look, merges.get(key), silent_s)
                    ).value,
                    "since": since,
                    "for_s": max(0.0, to_seconds(now) - to_seconds(since)),
                    "silent_s": silent_s,
                    "run": run.id if run else None,
                    "pid": run.pid if run else None,
                    "output_bytes": size,
                    "started_at": attempt.started_at,
                }
            )
    return sorted(shown, key=lambda row: (row["started_at"], row["task"]))


def _show_cleanup(attempt: AttemptRow, now: str) -> dict[str, Any]:
    since = attempt.ended_at or attempt.started_at
    return {
        "worker": attempt.worker,
        "task": attempt.task,
        "title": "",
        "attempt": attempt.number,
        "state": WorkerState.CLEANUP.value,
        "since": since,
        "for_s": max(0.0, to_seconds(now) - to_seconds(since)),
        "silent_s": None,
        "run": None,
        "pid": None,
        "output_bytes": None,
        "started_at": attempt.started_at,
    }


def _find_begin(run: RunRow | None, look: Look | None, merge: MergeRow | None, runs: Sequence[RunRow]) -> str | None:
    """Find since when a worker does what it does."""
    if isinstance(look, Ended):
        return look.ending.at
    if run is not None:
        return run.started_at or run.intended_at
    return merge.queued_at if merge else max((run.ended_at for run in runs if run.ended_at), default=None)


def find_claim(run: RunRow) -> Claim | None:
    """Find the claim the ledger knows of a run, should the run's own directory have lost it."""
    if run.state is not RunState.RUNNING:
        return None
    return Claim(run.pid or 0, run.start_ticks or 0, run.boot_id, run.started_at or run.intended_at)


def _listen(run: RunRow, outputs: Outputs) -> tuple[float | None, int | None]:
    """Tell when a run last said something, or began to say nothing, and how much it has said."""
    if run.started_at is None:
        return None, None
    file = outputs.open_output(run.id)
    if file is None:
        return to_seconds(run.started_at), 0
    with file:
        found = os.fstat(file.fileno())
    return found.st_mtime, found.st_size


def get_worker(connection: Connection, name: str) -> AttemptRow:
    """Get the attempt at work that a person means by the worker's number, by CONVOY/ID or by the task's ID alone."""
    found = _list_at_work(connection, name)
    if found:
        return _get_only(name, found)
    if name.isdecimal() and not queries.list_tasks_by_id(connection, name):
        raise InputError(f"There is no worker {name} at work.", advice="Type: hive worker ls")
    task = get_task(connection, name)
    raise InputError(f"Nobody works on {task.key} just now.", advice=f"Type: hive task why {task.key}")


def get_attempt(connection: Connection, name: str, number: int | None) -> AttemptRow:
    """Get the attempt, at work or ended, that a person means: the worker's, the numbered one, or the task's last."""
    if number is None and (found := _list_at_work(connection, name)):
        return _get_only(name, found)
    if number is None and name.isdecimal() and not queries.list_tasks_by_id(connection, name):
        ended = [
            attempt
            for convoy in queries.list_convoys(connection)
            for attempt in list_attempts(connection, queries.list_tasks_of_convoy(connection, convoy.name))
            if attempt.worker == int(name)
        ]
        if not ended:
            raise InputError(f"There is no worker {name}, and there was none.", advice="Type: hive worker ls")
        return _get_only(name, ended)
    task = get_task(connection, name)
    attempts = queries.list_attempts_of_task(connection, task.key)
    if not attempts:
        raise InputError(f"Nobody has worked on {task.key} yet.", advice=f"Type: hive task why {task.key}")
    if number is not None and not 1 <= number <= len(attempts):
        raise InputError(f"{task.key} has no attempt {number}.", advice=f"Type a number from 1 to {len(attempts)}.")
    return attempts[(number or len(attempts)) - 1]


def _list_at_work(connection: Connection, name: str) -> list[AttemptRow]:
    return [
        attempt
        for state in _AT_WORK
        for attempt, task in queries.list_open_attempts(connection, state)
        if name in _names(attempt, task)
    ]


def _names(attempt: AttemptRow, task: TaskRow) -> tuple[str, str, str]:
    return task.key, task.id, str(attempt.worker)


def _get_only(name: str, found: Sequence[AttemptRow]) -> AttemptRow:
    # The number of a worker of one convoy may be that of another convoy's, or a task's id; a key is no one else's.
    if len(found) > 1:
        known = ", ".join(f"{attempt.task} (worker {attempt.worker})" for attempt in found)
        raise InputError(f"'{name}' may mean {len(found)} workers.", advice=f"Name its task: {known}")
    return found[0]


def find_agent_run(connection: Connection, attempt: AttemptRow) -> RunRow | None:
    """Find the run of an attempt's agent, the latest if there were several; None before there is one."""
    runs = queries.list_runs_of_attempt(connection, attempt.task, attempt.number)
    return next((run for run in reversed(runs) if run.kind == "agent"), None)
