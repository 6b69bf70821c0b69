"""One task and its story."""

from typing import Any

from hivekeeper.domain.admission import Held, may_start, need_of_task
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.names import find_nearest, task_key
from hivekeeper.domain.rows import TaskRow
from hivekeeper.domain.states import AttemptState, TaskState
from hivekeeper.domain.why import Facts, explain
from hivekeeper.errors import InputError
from hivekeeper.runs.local import Outputs
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.views.convoys import get_convoy
from hivekeeper.views.failures import show_failure


def get_task(connection: Connection, name: str) -> TaskRow:
    """Get the task a person means by CONVOY/ID or by ID alone."""
    convoy, slash, task_id = name.rpartition("/")
    if slash:
        found = queries.find_task(connection, task_key(convoy, task_id))
        matches = [found] if found else []
    else:
        matches = queries.list_tasks_by_id(connection, name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        known = ", ".join(task.key for task in matches)
        raise InputError(f"There are {len(matches)} tasks called '{name}'.", advice=f"Name one: {known}")
    keys = [t.key for c in queries.list_convoys(connection) for t in queries.list_tasks_of_convoy(connection, c.name)]
    hint = find_nearest(name, [key if slash else key.partition("/")[2] for key in keys])
    advice = f"Did you mean '{hint}'?" if hint else "Type: hive convoy ls"
    raise InputError(f"There is no task '{name}'.", advice=advice)


def list_tasks(connection: Connection, convoy: str | None, state: TaskState | None) -> list[dict[str, Any]]:
    """List tasks of one convoy, or of all that are in sight."""
    names = [get_convoy(connection, convoy).name] if convoy else [c.name for c in queries.list_convoys(connection)]
    found = (task for name in names for task in queries.list_tasks_of_convoy(connection, name))
    return [
        {
            "task": task.key,
            "state": task.state.value,
            "attempts": task.attempts,
            "attempts_allowed": task.attempts_allowed,
            "repo": task.repo,
            "title": task.title,
            "commit": task.commit_id,
            "why": task.reason or None,
        }
        for task in found
        if state in (None, task.state)
    ]


def show_why(connection: Connection, task: TaskRow, *, keeper_is_alive: bool, now: str = "") -> str:
    """Say in one sentence why a task is not done yet."""
    attempts = queries.list_attempts_of_task(connection, task.key)
    attempt = attempts[-1] if attempts and task.state is TaskState.IN_PROGRESS else None
    submitted = attempt is not None and attempt.state is AttemptState.SUBMITTED
    merge = queries.find_merge(connection, task.key, attempt.number) if attempt and submitted else None
    ahead = 0
    if merge is not None:
        queue = [entry for entry in queries.list_open_merges(connection) if entry.repo == merge.repo]
        ahead = next((i for i, entry in enumerate(queue) if entry.task == task.key), 0)
    facts = Facts(
        task=task,
        waits_for=queries.list_unfinished_predecessors(connection, task.key),
        attempt=attempt,
        runs=queries.list_runs_of_attempt(connection, task.key, attempt.number) if attempt else [],
        merge=merge,
        ahead_in_queue=ahead,
        repo=queries.find_repo(connection, task.repo) if task.repo else None,
        keeper_is_alive=keeper_is_alive,
        hold=_find_hold(connection, task, now),
    )
    return explain(facts)


def waits_for_person(connection: Connection, convoy: str, *, now: str) -> bool:
    """Tell whether nothing of a convoy can go on until a person does something."""
    ended = (TaskState.COMPLETE, TaskState.FAILED, TaskState.UNKNOWN, TaskState.CANCELLED)
    tasks = [task for task in queries.list_tasks_of_convoy(connection, convoy) if task.state not in ended]
    entries = {entry.task: entry for entry in queries.list_open_merges(connection)}
    stopped = {repo.name for repo in queries.list_repos(connection) if repo.stopped or repo.paused}

    def is_stuck(task: TaskRow) -> bool:
        if (entry := entries.get(task.key)) is not None:
            return bool(entry.held) or entry.repo in stopped
        hold = _find_hold(connection, task, now)
        return hold is not None and hold.until is None

    stuck = {task.key for task in tasks if is_stuck(task)}
    # Whoever waits for one that is stuck, or ended otherwise than well, is stuck too.
    pending = {
        task.key: queries.list_unfinished_predecessors(connection, task.key)
        for task in tasks
        if task.state is TaskState.PENDING and task.key not in stuck
    }
    while found := {key for key, others in pending.items() if any(o.key in stuck or o.state in ended for o in others)}:
        stuck |= found
        pending = {key: others for key, others in pending.items() if key not in found}
    return bool(tasks) and len(stuck) == len(tasks)


def _find_hold(connection: Connection, task: TaskRow, now: str) -> HoldRow | None:
    """Find what holds a prompt up: what it belongs to, or everybody who may take it."""
    waiting = task.state in (TaskState.PENDING, TaskState.IN_PROGRESS)
    holds = queries.list_holds(connection) if task.runners and waiting else []
    admitted = may_start(need_of_task(task), holds, now) if holds else None
    return admitted.hold if isinstance(admitted, Held) else None


def show_task(
    connection: Connection, task: TaskRow, *, keeper_is_alive: bool, now: str = "", outputs: Outputs | None = None
) -> dict[str, Any]:
    """Show a task, every attempt at it and every run of each; `outputs` is what runs have written."""
    attempts = []
    for attempt in queries.list_attempts_of_task(connection, task.key):
        runs = [
            {
                "run": run.id,
                "kind": run.kind,
                "state": run.state.value,
                "started_at": run.started_at,
                "ended_at": run.ended_at,
                "exit_status": run.exit_status,
                "ending": None if run.is_open else describe_ending(run),
            }
            for run in queries.list_runs_of_attempt(connection, task.key, attempt.number)
        ]
        attempts.append(
            {
                "attempt": attempt.number,
                "worker": attempt.worker,
                "swarm": attempt.swarm,
                "state": attempt.state.value,
                "started_at": attempt.started_at,
                "ended_at": attempt.ended_at,
                "reason": attempt.reason,
                "commit": attempt.commit_id,
                "runs": runs,
            }
        )
    return {
        "task": task.key,
        "title": task.title,
        "command": task.command,
        "repo": task.repo,
        "verify": task.verify,
        "state": task.state.value,
        "why": show_why(connection, task, keeper_is_alive=keeper_is_alive, now=now),
        "failure": show_failure(connection, task, outputs),
        "after": [key.partition("/")[2] for key in queries.list_predecessors(connection, task.key)],
        "priority": task.priority,
        "attempts": attempts,
        "attempts_allowed": task.attempts_allowed,
        "dispatched_at": task.dispatched_at,
        "completed_at": task.completed_at,
        "commit": task.commit_id,
        "output_path": task.output_path,
    }
