"""Tasks: the list, one with its attempts, and why one is not done."""

from collections.abc import Sequence
from typing import Any

from hivekeeper.domain.admission import Held, may_start, need_of_task
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.names import advise, task_key
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.states import OPEN_TASKS, AttemptState, TaskState
from hivekeeper.domain.why import Facts, explain
from hivekeeper.errors import InputError
from hivekeeper.runs.local import Outputs
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.views.convoys import get_convoy, list_waits
from hivekeeper.views.failures import show_failure
from hivekeeper.views.rows import pick


def get_task(connection: Connection, name: str) -> TaskRow:
    """Get a task by CONVOY/ID or by ID alone."""
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
    names = [key if slash else key.partition("/")[2] for key in keys]
    raise InputError(f"There is no task '{name}'.", advice=advise(name, names, "Type: hive convoy ls"))


def list_tasks(connection: Connection, convoy: str | None, state: TaskState | None) -> list[dict[str, Any]]:
    """List the tasks of one convoy, or of all that are not archived."""
    names = [get_convoy(connection, convoy).name] if convoy else [c.name for c in queries.list_convoys(connection)]
    found = (task for name in names for task in queries.list_tasks_of_convoy(connection, name))
    fields = ("state", "attempts", "attempts_allowed", "repo", "title")
    return [
        {**pick(task, *fields, task="key", commit="commit_id"), "why": task.reason or None}
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
        hold=_find_hold(task, queries.list_holds(connection), now),
    )
    return explain(facts) + _describe_agent(attempts[-1:])


def _describe_agent(last: Sequence[AttemptRow]) -> str:
    """Say who works, or worked last, on a task, and why that agent."""
    return "".join(f" Agent: {each.agent} ({each.chosen})." for each in last if each.chosen)


def waits_for_person(connection: Connection, convoy: str, *, now: str) -> bool:
    """Tell whether nothing of a convoy can go on until a person does something."""
    every = queries.list_tasks_of_convoy(connection, convoy)
    tasks = [task for task in every if task.state in OPEN_TASKS]
    entries = {entry.task: entry for entry in queries.list_open_merges(connection)}
    stopped = {repo.name for repo in queries.list_repos(connection) if repo.stopped or repo.paused}
    holds = queries.list_holds(connection)

    def is_stuck(task: TaskRow) -> bool:
        if (entry := entries.get(task.key)) is not None:
            return bool(entry.held) or entry.repo in stopped
        hold = _find_hold(task, holds, now)
        return hold is not None and hold.until is None

    stuck = {task.key for task in tasks if is_stuck(task)}
    # A task that waits for one that is stuck, or that ended otherwise than well, is stuck too.
    waits = {key: others for key, others in list_waits(connection, convoy, every).items() if key not in stuck}
    while found := {
        key
        for key, others in waits.items()
        if any(each.key in stuck or each.state not in OPEN_TASKS for each in others)
    }:
        stuck |= found
        waits = {key: others for key, others in waits.items() if key not in found}
    return bool(tasks) and len(stuck) == len(tasks)


def _find_hold(task: TaskRow, holds: Sequence[HoldRow], now: str) -> HoldRow | None:
    """Find what a prompt waits for: a hold on what it belongs to, or on every runner that may take it."""
    if not holds or not task.runners or task.state not in (TaskState.PENDING, TaskState.IN_PROGRESS):
        return None
    admitted = may_start(need_of_task(task), holds, now)
    return admitted.hold if isinstance(admitted, Held) else None


def show_task(
    connection: Connection, task: TaskRow, *, keeper_is_alive: bool, now: str = "", outputs: Outputs | None = None
) -> dict[str, Any]:
    """Show a task, its attempts and their runs; `outputs` is what runs have written."""
    fields = ("title", "command", "repo", "verify", "state", "priority", "attempts_allowed", "dispatched_at")
    return {
        **pick(task, *fields, "completed_at", "output_path", task="key", commit="commit_id"),
        "why": show_why(connection, task, keeper_is_alive=keeper_is_alive, now=now),
        "failure": show_failure(connection, task, outputs),
        "after": [key.partition("/")[2] for key in queries.list_predecessors(connection, task.key)],
        "attempts": [
            _show_attempt(attempt, queries.list_runs_of_attempt(connection, task.key, attempt.number))
            for attempt in queries.list_attempts_of_task(connection, task.key)
        ],
    }


def _show_attempt(attempt: AttemptRow, runs: Sequence[RunRow]) -> dict[str, Any]:
    fields = ("worker", "swarm", "state", "started_at", "ended_at", "reason")
    shown = [
        {
            **pick(run, "kind", "state", "started_at", "ended_at", "exit_status", run="id"),
            "ending": None if run.is_open else describe_ending(run),
        }
        for run in runs
    ]
    return {**pick(attempt, *fields, attempt="number", commit="commit_id"), "runs": shown}
