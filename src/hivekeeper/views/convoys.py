"""Convoys: the dispatch ledger in its published schema, the card, and the list."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.domain.names import advise
from hivekeeper.domain.rows import AttemptRow, ConvoyRow, RepoRow, TaskRow
from hivekeeper.domain.states import OPEN_ATTEMPTS, AttemptState, ConvoyState, TaskState
from hivekeeper.domain.workers import count_startable, estimate_left_s
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.views.rows import pick


def get_convoy(connection: Connection, name: str | None) -> ConvoyRow:
    """Get a convoy by name; without one the only convoy, or the only ACTIVE one."""
    if name is None:
        return _get_only(queries.list_convoys(connection))
    found = queries.find_convoy(connection, name)
    if found is None:
        names = [convoy.name for convoy in queries.list_convoys(connection, archived=True)]
        raise InputError(f"There is no convoy '{name}'.", advice=advise(name, names, "Type: hive convoy ls"))
    return found


def _get_only(convoys: Sequence[ConvoyRow]) -> ConvoyRow:
    active = [convoy for convoy in convoys if convoy.state is ConvoyState.ACTIVE]
    for found in (convoys, active):
        if len(found) == 1:
            return found[0]
    if not convoys:
        raise InputError("There is no convoy.", advice="Submit a plan: hive run PLAN.yaml")
    names = ", ".join(convoy.name for convoy in convoys)
    raise InputError(f"There are {len(convoys)} convoys.", advice=f"Name one: {names}")


def show_ledger(connection: Connection, convoy: ConvoyRow) -> dict[str, Any]:
    """Show a convoy as a dispatch ledger: what was dispatched, when, and what state it is in."""
    beat = queries.find_heartbeat(connection)
    tasks = queries.list_tasks_of_convoy(connection, convoy.name)
    workers = {attempt.task: attempt.worker for attempt in _list_attempts(connection, convoy)}
    complete = all(task.state is TaskState.COMPLETE for task in tasks)
    return {
        **pick(convoy, "state", pipeline_id="pipeline", convoy="name"),
        "coordinator_started": convoy.submitted_at,
        "last_coordinator_heartbeat": beat.at if beat else None,
        "tasks": [
            {
                **pick(task, "dispatched_at", "completed_at", "output_path", task_id="id", status="state"),
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
    """List convoys and their progress."""
    return [summarise(connection, convoy) for convoy in queries.list_convoys(connection, archived=archived)]


def summarise(connection: Connection, convoy: ConvoyRow) -> dict[str, Any]:
    """Show a convoy's progress."""
    counts = queries.count_tasks_by_state(connection, convoy.name)
    return {
        **pick(convoy, "state", "submitted_at", "ended_at", "workers", convoy="name", pipeline_id="pipeline"),
        "tasks": sum(counts.values()),
        "complete": counts.get(TaskState.COMPLETE, 0),
        "counts": counts,
    }


def list_unpublished(connection: Connection, convoy: str) -> list[RepoRow]:
    """List the repositories of a convoy's tasks that lack something that landed."""
    used = {task.repo for task in queries.list_tasks_of_convoy(connection, convoy)}
    return [repo for repo in queries.list_repos(connection) if repo.name in used and repo.awaits_publishing]


def show_convoy(
    connection: Connection, convoy: ConvoyRow, *, now: str | None = None, keeper_is_alive: bool = True
) -> dict[str, Any]:
    """Show a convoy's card: progress, repositories, swarms, failures, what waits, and by `now` its expected end."""
    tasks = queries.list_tasks_of_convoy(connection, convoy.name)
    attempts = _list_attempts(connection, convoy)
    failures = Counter(attempt.task for attempt in attempts if attempt.state in _FAILED)
    progress = {attempt.task: attempt.progress for attempt in attempts if attempt.state in OPEN_ATTEMPTS}
    waits = list_waits(connection, convoy.name, tasks)
    expected_end = estimate_end(tasks, waits, now=now) if now is not None and keeper_is_alive else None
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
                **pick(task, "title", "state", "repo", "attempts", "attempts_allowed", task="id", commit="commit_id"),
                "failed_attempts": failures[task.key],
                "waits_for": [pick(other, "state", task="id") for other in waits.get(task.key, ())],
                "reason": task.reason or None,
                "progress": progress.get(task.key) or None,
            }
            for task in tasks
        ],
    }


def _list_attempts(connection: Connection, convoy: ConvoyRow) -> list[AttemptRow]:
    return queries.list_rows(connection, AttemptRow, "task, number", convoy=convoy.name)


def list_waits(connection: Connection, convoy: str, tasks: Iterable[TaskRow]) -> dict[str, list[TaskRow]]:
    """List, for each task of a convoy that is PENDING, the tasks that must be complete first and are not."""
    known = {task.key: task for task in tasks}
    waits: dict[str, list[TaskRow]] = {task.key: [] for task in known.values() if task.state is TaskState.PENDING}
    for edge in queries.list_edges(connection, convoy):
        if edge.task in waits and (other := known[edge.after]).state is not TaskState.COMPLETE:
            waits[edge.task].append(other)
    return waits


def estimate_end(tasks: Sequence[TaskRow], waits: Mapping[str, Sequence[TaskRow]], *, now: str) -> str | None:
    """Estimate when these tasks will be done if each takes as long as those that are; None if too few are."""
    began = [(task, to_seconds(task.dispatched_at)) for task in tasks if task.dispatched_at]
    finished_s = [to_seconds(task.completed_at) - began_s for task, began_s in began if task.completed_at]
    at_work_s = [to_seconds(now) - began_s for task, began_s in began if task.state is TaskState.IN_PROGRESS]
    left_s = estimate_left_s(finished_s, at_work_s, count_startable(waits))
    return None if left_s is None else to_text(to_seconds(now) + left_s)


def _show_repos(tasks: Sequence[TaskRow]) -> list[dict[str, Any]]:
    totals = Counter(task.repo for task in tasks)
    complete = Counter(task.repo for task in tasks if task.state is TaskState.COMPLETE)
    return [{"repo": repo, "tasks": number, "complete": complete[repo]} for repo, number in totals.items()]


def _show_swarm(tally: queries.SwarmTally, attempts: Sequence[AttemptRow]) -> dict[str, Any]:
    failed = sorted((each for each in attempts if each.state in _FAILED), key=lambda attempt: attempt.worker)
    return {
        **pick(tally.swarm, "state", swarm="number"),
        **pick(tally, "first_worker", "last_worker", "attempts", "working", complete="succeeded"),
        "failed": [
            {"task": each.task.partition("/")[2], **pick(each, "worker", "state", "reason", attempt="number")}
            for each in failed
        ],
    }


_FAILED = (AttemptState.FAILED, AttemptState.UNKNOWN)
