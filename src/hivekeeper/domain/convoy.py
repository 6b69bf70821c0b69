"""What a convoy has come to, and which batch an attempt belongs to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hivekeeper.domain.attempt import MAX_INFRASTRUCTURE_TRIES, describe_ending
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.states import RunState, TaskState


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


@dataclass(frozen=True, slots=True)
class Intend:
    """The next run for the convoy as a whole."""

    kind: str


@dataclass(frozen=True, slots=True)
class Accept:
    """Its command passed."""

    at: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Its command did not pass, or could not be run."""

    why: str
    at: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A run is under way."""


Acceptance = Intend | Accept | Refuse | Wait


def decide_acceptance(runs: Sequence[RunRow], *, boot_id: str) -> Acceptance:
    """Decide what comes next for a convoy whose tasks are complete. `runs` are those since it became active."""
    if any(run.is_open for run in runs):
        return Wait()
    last = {run.kind: run for run in runs}
    trees, accept = last.get("trees"), last.get("accept")
    if accept is not None and accept.state is RunState.EXITED:
        if runs[-1].kind != "sweep":  # one that fails is left to the doctor: the verdict does not wait for it
            return Intend("sweep")
        at = accept.ended_at or accept.intended_at
        return Accept(at) if accept.succeeded else Refuse(f"it was not accepted: {describe_ending(accept)}", at)
    fresh = trees is not None and trees.succeeded and trees.boot_id == boot_id
    if fresh and runs[-1].kind == "trees":
        return Intend("accept")
    if sum(run.kind == "trees" for run in runs) < MAX_INFRASTRUCTURE_TRIES:
        return Intend("trees")  # lost, or not of this boot: nobody synced them
    why = f"its acceptance could not be tried: {describe_ending(runs[-1])}"
    return Refuse(why, runs[-1].ended_at or runs[-1].intended_at)


def decide_swarm(current: int, last_of_task: int | None) -> int:
    """Decide the batch of a task's next attempt: the current one, or a new one if it has been in that already."""
    if current in {0, last_of_task}:
        return current + 1
    return current
