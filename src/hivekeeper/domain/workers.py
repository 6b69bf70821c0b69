"""What a worker is doing, in a word, and how long those at work will need for what is left.

A worker is one attempt from its dispatch until its sandbox is removed. It is never idle: who has no task is gone.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import fsum

from hivekeeper.domain.rows import MergeRow, RunRow, TaskRow
from hivekeeper.domain.run import Ended, Gone, Look
from hivekeeper.domain.states import MergeState, RunState, TaskState

MIN_SAMPLES = 3
_HOLDING_UP = (TaskState.FAILED, TaskState.UNKNOWN, TaskState.CANCELLING, TaskState.CANCELLED)


class WorkerState(StrEnum):
    """What a worker is doing; told from the tables and a look at the world each time, and kept nowhere."""

    SANDBOX = "making its sandbox"
    SETUP = "setting up"
    STARTING = "starting"
    WORKING = "working"
    WAITING = "waiting for the model"
    STALLED = "stalled"
    ZOMBIE = "zombie"
    ENDING = "being ended"
    KEEPING = "saving work"
    JUDGING = "checking the result"
    QUEUED = "in the merge queue"
    VERIFYING = "in the merge queue: verifying"
    LANDING = "in the merge queue: landing"
    CLEANUP = "cleaning up"
    PARKED = "parked"


def decide_worker(run: RunRow | None, look: Look | None, merge: MergeRow | None, silent_s: float | None) -> WorkerState:
    """Decide what a worker is doing. `run` is its open one, if any, and `look` what that looks like in the world."""
    if run is not None and run.state is RunState.RUNNING and isinstance(look, Gone):
        return WorkerState.ZOMBIE
    if merge is not None:
        waiting = {MergeState.VERIFYING: WorkerState.VERIFYING, MergeState.LANDING: WorkerState.LANDING}
        return waiting.get(merge.state, WorkerState.QUEUED)
    if run is None or isinstance(look, Ended):
        return WorkerState.JUDGING
    if run.kill_requested_at is not None:
        return WorkerState.ENDING
    match run.kind:
        case "sandbox":
            return WorkerState.SANDBOX
        case "setup" | "stash":
            return WorkerState.SETUP
        case "snapshot" | "backup":
            return WorkerState.KEEPING
        case _ if run.state is RunState.INTENDED:
            return WorkerState.STARTING
        case _ if run.waiting_since is not None:
            return WorkerState.WAITING
        case _:
            return WorkerState.STALLED if is_stalled(run, silent_s) else WorkerState.WORKING


def is_stalled(run: RunRow, silent_s: float | None) -> bool:
    """Tell whether a run has been silent for more than half of what it may be; never of one that may be for ever."""
    limit_s = json.loads(run.limits).get("silence_s")
    return limit_s is not None and silent_s is not None and silent_s > limit_s / 2


def count_startable(waits_for: Mapping[str, Sequence[TaskRow]]) -> int:
    """Count the waiting tasks, each with what it waits for, that will have their turn without a person's help."""
    followers: dict[str, list[str]] = {}
    for key, others in waits_for.items():
        for other in others:
            followers.setdefault(other.key, []).append(key)
    held_up = {key for key, others in waits_for.items() if any(other.state in _HOLDING_UP for other in others)}
    to_follow = list(held_up)
    for key in to_follow:  # it grows while we walk it
        more = [follower for follower in followers.get(key, ()) if follower not in held_up]
        held_up.update(more)
        to_follow.extend(more)
    return len(waits_for) - len(held_up)


def estimate_left_s(finished_s: Sequence[float], at_work_s: Sequence[float], waiting: int) -> float | None:
    """Estimate how long those at work now will need for everything left; None when there is too little to tell from.

    Every attempt is taken to last as long as the mean of the finished ones, and a free worker to have a task to take.
    """
    if len(finished_s) < MIN_SAMPLES or not at_work_s:
        return None
    mean_s = fsum(finished_s) / len(finished_s)
    rest_s = [max(mean_s - for_s, 0.0) for for_s in at_work_s]
    shared_s = (fsum(rest_s) + waiting * mean_s) / len(at_work_s)
    # Whoever is over the mean already may be done now or never: that is no basis for a word about the end.
    return max(shared_s, *rest_s, mean_s if waiting else 0.0) or None
