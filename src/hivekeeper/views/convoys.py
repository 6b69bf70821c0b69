"""Convoys: the dispatch ledger in its published schema, the card, and the list."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.domain.names import find_nearest
from hivekeeper.domain.rows import AttemptRow, ConvoyRow, RepoRow, TaskRow
from hivekeeper.domain.states import AttemptState, ConvoyState, TaskState
from hivekeeper.domain.workers import count_startable, estimate_left_s
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection


def get_convoy(connection: Connection, name: str | None) -> ConvoyRow:
    """Get the convoy a person means; without a name the only one there is, or the only one under way."""
    if name is None:
        return _get_only(queries.list_convoys(connection))
    found = queries.find_convoy(connection, name)
    if found is None:
        names = [convoy.name for convoy in queries.list_convoys(connection, archived=True)]
        hint = find_nearest(name, names)
        advice = f"Did you mean '{hint}'?" if hint else "Type: hive convoy ls"
        raise InputError(f"There is no convoy '{name}'.", advice=advice)
    return found


def _get_only(convoys: Sequence[ConvoyRow]) -> ConvoyRow:
    active = [convoy for convoy in convoys if convoy.state is ConvoyState.ACTIVE]
    for found in (convoys, active):
        if len(found) == 1:
            return found[0]
    if not convoys:
        raise InputError("There is no convoy.", advice="One comes with a plan: hive run PLAN.yaml")
    names = ", ".join(convoy.name for convoy in convoys)
    raise InputError(f"There are {len(convoys)} convoys.", advice=f"Name one: {names}")


def show_ledger(connection: Connection, convoy: ConvoyRow) -> dict[str, Any]:
    """Show a convoy as a dispatch ledger: what was dispatched, when, and what state it is in."""
    beat = queries.find_heartbeat(connection)
    tasks = queries.list_tasks_of_convoy(connection, convoy.name)
    workers = {attempt.task: attempt.worker for attempt in list_attempts(connection, tasks)}
    complete = all(task.state is TaskState.COMPLETE for task in tasks)
    return {
        "pipeline_id": convoy.pipeline,
        "convoy": convoy.name,
        "state": convoy.state.value,
        "coordinator_started": convoy.submitted_at,
        "last_coordinator_heartbeat": beat.at if beat else None,
        "tasks": [
            {
                "task_id": task.id,
                "status": task.state.value,
                "dispatched_at": task.dispatched_at,
                "completed_at": task.completed_at,
                "output_path": task.output_path,
                "attempt": task.attempts,
                "worker": workers.get(task.key),
                "commit": task.commit_id,
                "reason": task.reason or None,
            }
            for task in tasks
        ],
        "pipeline_completed": convoy.ended_at if complete else None,
        "archived_at": convoy.archived_at,
    }


def list_convoys(connection: Connection, *, archived: bool) -> list[dict[str, Any]]:
    """List convoys with how far they are."""
    return [summarise(connection, convoy) for convoy in queries.list_convoys(connection, archived=archived)]


def summarise(connection: Connection, convoy: ConvoyRow) -> dict[str, Any]:
    """Show how far a convoy is."""
    counts = queries.count_tasks_by_state(connection, convoy.name)
    return {
        "convoy": convoy.name,
        "pipeline_id": convoy.pipeline,
        "state": convoy.state.value,
        "tasks": sum(counts.values()),
        "complete": counts.get(TaskState.COMPLETE, 0),
        "counts": {state.value: count for state, count in counts.items()},
        "submitted_at": convoy.submitted_at,
        "ended_at": convoy.ended_at,
        "workers": convoy.workers,
    }


def list_unpublished(connection: Connection, convoy: str) -> list[RepoRow]:
    """List the repositories of a convoy's tasks that have not taken everything that landed."""
    used = {task.repo for task in queries.list_tasks_of_convoy(connection, convoy)}
    return [repo for repo in queries.list_repos(connection) if repo.name in used and repo.awaits_publishing]


def show_convoy(
    connection: Connection, convoy: ConvoyRow, *, now: str | None = None, keeper_is_alive: bool = True
) -> dict[str, Any]:
    """Show a convoy's card: how far it is, where, in which batches, what failed, what waits; and its end, by `now`."""
    tasks = queries.list_tasks_of_convoy(connection, convoy.name)
    attempts = list_attempts(connection, tasks)
    failures = Counter(attempt.task for attempt in attempts if _is_failure(attempt))
    waits_for = list_waits(connection, tasks)
    expected_end = estimate_end(tasks, waits_for, now=now) if now is not None and keeper_is_alive else None
    until = convoy.ended_at or now
    return {
        **summarise(connection, convoy),
        "elapsed_s": to_seconds(until) - to_seconds(convoy.submitted_at) if until else None,
        "expected_end": expected_end,
        "left_s": to_seconds(expected_end) - to_seconds(now) if expected_end and now else None,
        "keeper_is_alive": keeper_is_alive,
        "repos": _show_repos(tasks),
        "swarms": [
            _show_swarm(tally, [attempt for attempt in attempts if attempt.swarm == tally.swarm.number])
            for tally in queries.list_swarms(connection, convoy.name)
        ],
        "failed_attempts": failures.total(),
        "task_list": [
            {
                "task": task.id,
                "title": task.title,
                "state": task.state.value,
                "repo": task.repo,
                "attempts": task.attempts,
                "attempts_allowed": task.attempts_allowed,
                "failed_attempts": failures[task.key],
                "waits_for": [{"task": other.id, "state": other.state.value} for other in waits_for.get(task.key, ())],
                "commit": task.commit_id,
                "reason": task.reason or None,
            }
            for task in tasks
        ],
    }


def list_attempts(connection: Connection, tasks: Sequence[TaskRow]) -> list[AttemptRow]:
    """List every try at these tasks."""
    tried = (task for task in tasks if task.attempts)
    return [attempt for task in tried for attempt in queries.list_attempts_of_task(connection, task.key)]


def list_waits(connection: Connection, tasks: Sequence[TaskRow]) -> dict[str, list[TaskRow]]:
    """List, for each task that waits for its turn, the tasks that must be complete first and are not."""
    pending = (task.key for task in tasks if task.state is TaskState.PENDING)
    return {key: queries.list_unfinished_predecessors(connection, key) for key in pending}


def estimate_end(tasks: Sequence[TaskRow], waits_for: Mapping[str, Sequence[TaskRow]], *, now: str) -> str | None:
    """Estimate when these tasks will be done if each takes as long as those that are; None when nobody can tell."""
    finished_s = [
        to_seconds(task.completed_at) - to_seconds(task.dispatched_at)
        for task in tasks
        if task.completed_at and task.dispatched_at
    ]
    at_work_s = [
        to_seconds(now) - to_seconds(task.dispatched_at)
        for task in tasks
        if task.state is TaskState.IN_PROGRESS and task.dispatched_at
    ]
    left_s = estimate_left_s(finished_s, at_work_s, count_startable(waits_for))
    return None if left_s is None else to_text(to_seconds(now) + left_s)


def _show_repos(tasks: Sequence[TaskRow]) -> list[dict[str, Any]]:
    return [
        {
            "repo": repo,
            "tasks": sum(task.repo == repo for task in tasks),
            "complete": sum(task.repo == repo and task.state is TaskState.COMPLETE for task in tasks),
        }
        for repo in dict.fromkeys(task.repo for task in tasks)
    ]


def _show_swarm(tally: queries.SwarmTally, attempts: Sequence[AttemptRow]) -> dict[str, Any]:
    return {
        "swarm": tally.swarm.number,
        "state": tally.swarm.state.value,
        "first_worker": tally.first_worker,
        "last_worker": tally.last_worker,
        "attempts": tally.attempts,
        "complete": tally.succeeded,
        "working": tally.working,
        "failed": [
            {
                "task": attempt.task.partition("/")[2],
                "worker": attempt.worker,
                "attempt": attempt.number,
                "state": attempt.state.value,
                "reason": attempt.reason,
            }
            for attempt in sorted(attempts, key=lambda attempt: attempt.worker)
            if _is_failure(attempt)
        ],
    }


def _is_failure(attempt: AttemptRow) -> bool:
    return attempt.state in (AttemptState.FAILED, AttemptState.UNKNOWN)
