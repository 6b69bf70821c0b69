"""What a convoy has come to, and which batch an attempt belongs to."""

from collections.abc import Mapping
from enum import StrEnum

from hivekeeper.domain.states import TaskState


class Outcome(StrEnum):
    """What a convoy has come to."""

    GOING_ON = "GOING_ON"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"


def decide_outcome(counts: Mapping[TaskState, int], ready: int) -> Outcome:
    """Decide whether a convoy has ended. `ready` counts its PENDING tasks that nothing settled keeps from starting.

    What a person cancelled is no failure: the convoy is complete without it. A task that waits for one that failed, was
    cancelled or is unknown can never start by itself; when nothing else is left, the convoy has failed and says so
    instead of waiting for ever.
    """
    if counts.keys() <= {TaskState.COMPLETE, TaskState.CANCELLED}:
        return Outcome.COMPLETE
    if counts.get(TaskState.IN_PROGRESS, 0) or counts.get(TaskState.CANCELLING, 0) or ready:
        return Outcome.GOING_ON
    return Outcome.FAILED


def decide_swarm(current: int, last_of_task: int | None) -> int:
    """Decide the batch of a task's next attempt: the current one, or a new one if it has been in that already."""
    if current in {0, last_of_task}:
        return current + 1
    return current
