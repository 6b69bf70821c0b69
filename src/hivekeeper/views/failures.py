"""The last lines of what failed, and where its whole output is."""

import os
from shlex import join
from typing import Any

from hivekeeper.domain.rows import RunRow, TaskRow
from hivekeeper.domain.states import AttemptState, MergeState
from hivekeeper.runs.local import Outputs
from hivekeeper.store import queries
from hivekeeper.store.database import Connection

_MOST_LINES = 5
_MOST_READ = 16 * 1024
_LONGEST_LINE = 200
_READABLE = ("sandbox", "setup", "agent", "snapshot", "resolve")


def show_failure(connection: Connection, task: TaskRow, outputs: Outputs | None) -> dict[str, Any] | None:
    """Show the last lines of what failed in a task's last attempt; None where nothing did, or nothing was said.

    What an agent program says is for programs: of it only the place is told.
    """
    run = _find_failed(connection, task) if outputs is not None and task.attempts else None
    if run is None or outputs is None or (file := outputs.open_output(run.id)) is None:
        return None
    with file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _MOST_READ))
        words = file.read(_MOST_READ).decode("utf-8", "replace")
    lines = [line.rstrip()[:_LONGEST_LINE] for line in words.splitlines() if line.strip()]
    if not lines:
        return None
    path = outputs.name_output(run.id)
    last = [] if run.runner else lines[-_MOST_LINES:]
    return {"run": run.id, "kind": run.kind, "lines": last, "path": path, "type": join(("less", path))}


def _find_failed(connection: Connection, task: TaskRow) -> RunRow | None:
    attempts = queries.list_attempts_of_task(connection, task.key)
    if attempts[-1].state not in (AttemptState.FAILED, AttemptState.UNKNOWN):
        return None
    number = attempts[-1].number
    entry = queries.find_merge(connection, task.key, number)
    if entry is not None and entry.state is MergeState.REJECTED and entry.failed_run:
        return queries.find_run(connection, entry.failed_run)
    runs = [run for run in queries.list_runs_of_attempt(connection, task.key, number) if run.kind in _READABLE]
    failed = next((run for run in reversed(runs) if not run.is_open and not run.succeeded), None)
    return failed or next((run for run in reversed(runs) if run.kind == "agent"), None)
