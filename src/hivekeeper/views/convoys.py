"""Convoys: the dispatch ledger in its published schema, the card, and the list."""

from typing import Any

from hivekeeper.domain.names import find_nearest
from hivekeeper.domain.rows import ConvoyRow
from hivekeeper.domain.states import TaskState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection


def get_convoy(connection: Connection, name: str) -> ConvoyRow:
    """Get the convoy a person means."""
    found = queries.find_convoy(connection, name)
    if found is None:
        names = [convoy.name for convoy in queries.list_convoys(connection, archived=True)]
        hint = find_nearest(name, names)
        advice = f"Did you mean '{hint}'?" if hint else "Type: hive convoy ls"
        raise InputError(f"There is no convoy '{name}'.", advice=advice)
    return found


def show_ledger(connection: Connection, convoy: ConvoyRow) -> dict[str, Any]:
    """Show a convoy as a dispatch ledger: what was dispatched, when, and what state it is in."""
    beat = queries.find_heartbeat(connection)
    tasks = queries.list_tasks_of_convoy(connection, convoy.name)
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


def show_convoy(connection: Connection, convoy: ConvoyRow) -> dict[str, Any]:
    """Show a convoy's card: how far it is, its batches, its tasks."""
    swarms = [
        {
            "swarm": tally.swarm.number,
            "state": tally.swarm.state.value,
            "first_worker": tally.first_worker,
            "last_worker": tally.last_worker,
            "attempts": tally.attempts,
            "complete": tally.succeeded,
            "working": tally.working,
        }
        for tally in queries.list_swarms(connection, convoy.name)
    ]
    tasks = [
        {
            "task": task.id,
            "state": task.state.value,
            "repo": task.repo,
            "attempts": task.attempts,
            "commit": task.commit_id,
            "reason": task.reason or None,
        }
        for task in queries.list_tasks_of_convoy(connection, convoy.name)
    ]
    return {**summarise(connection, convoy), "swarms": swarms, "task_list": tasks}
