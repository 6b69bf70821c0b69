"""Chooses what the free workers do next."""

from dataclasses import dataclass

from hivekeeper.commands.sessions import Budgets
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.domain.session import Hold
from hivekeeper.domain.states import TaskState
from hivekeeper.settings import Settings
from hivekeeper.store import queries
from hivekeeper.store.database import Connection


@dataclass(frozen=True, slots=True)
class Chosen:
    """Parked attempts to resume, tasks to dispatch, and budgets that are used up, each with the reason."""

    resumed: list[AttemptRow]
    ready: list[TaskRow]
    exhausted: list[tuple[Hold, str]]


def choose_tasks(connection: Connection, settings: Settings, free: int, *, now: str, branches: bool) -> Chosen:
    """Choose attempts for so many free workers, parked ones first, then new ones; branches need no worker."""
    budgets = Budgets(connection, settings.day, now=now)
    holds: dict[tuple[str, str], tuple[Hold, str]] = {}

    def is_affordable(task: TaskRow) -> bool:
        reached = budgets.find_exhausted(task) if task.runners and task.state is not TaskState.CANCELLING else None
        if reached:
            holds[reached[0].scope, reached[0].name] = reached
        return reached is None

    # A cancelled attempt takes no worker: its work is only saved.
    parked = queries.list_resumable(connection, max(free, 1), now=now, runners=settings.runners)
    resumed = [
        attempt for attempt, task in parked if (free > 0 or task.state is TaskState.CANCELLING) and is_affordable(task)
    ]
    free -= len(resumed)
    ready = _list_ready(connection, settings, free, now=now) if free > 0 else []
    ready = [task for task in ready if is_affordable(task)]
    if branches:
        known = {task.key for task in ready}
        ready += [task for task in queries.list_ready_branches(connection) if task.key not in known]
    return Chosen(resumed, ready, list(holds.values()))


def _list_ready(connection: Connection, settings: Settings, free: int, *, now: str) -> list[TaskRow]:
    """List ready tasks, of each agent only the first: it has one session at a time."""
    limit = free
    while True:
        found = queries.list_ready_tasks(connection, limit, now=now, runners=settings.runners)
        agents: dict[str, str] = {}
        for task in found:
            agents.setdefault(task.agent or task.key, task.key)
        ready = [task for task in found if agents[task.agent or task.key] == task.key]
        if len(ready) >= free or len(found) < limit:
            return ready[:free]
        limit *= 2
