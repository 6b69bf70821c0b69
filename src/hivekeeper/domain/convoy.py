"""Decides how a convoy stands, and which swarm an attempt belongs to."""

from collections.abc import Mapping
from enum import StrEnum

from hivekeeper.domain.states import TaskState


class Outcome(StrEnum):
    """How a convoy stands."""

    ACTIVE = "ACTIVE"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"


def decide_outcome(counts: Mapping[TaskState, int], ready: int) -> Outcome:
    """Decide whether a convoy has ended. `ready` counts its PENDING tasks that can still start without a person.

    A cancelled task is not a failure: the convoy completes without it. A task that waits for a FAILED, UNKNOWN or
    CANCELLED one cannot start by itself; when only such tasks are left, the convoy has failed.
    """
    if counts.keys() <= {TaskState.COMPLETE, TaskState.CANCELLED}:
        return Outcome.COMPLETE
    if counts.get(TaskState.IN_PROGRESS, 0) or counts.get(TaskState.CANCELLING, 0) or ready:
        return Outcome.ACTIVE
    return Outcome.FAILED


def decide_swarm(current: int, last_of_task: int | None) -> int:
    """Decide the swarm of a task's next attempt: the current one, or a new one if the task was in it already."""
    if current in {0, last_of_task}:
        return current + 1
    return current
