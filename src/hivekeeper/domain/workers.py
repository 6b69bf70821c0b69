"""What a worker is doing, and an estimate of how long the remaining work takes.

A worker is one attempt, from its dispatch until its sandbox is removed. It is never idle: without a task it is gone.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import fsum

from hivekeeper.domain.rows import MergeRow, RunRow, TaskRow
from hivekeeper.domain.run import Ended, Gone, Look
from hivekeeper.domain.states import MergeState, RunState, TaskState

MIN_SAMPLES = 3
_BLOCKING = (TaskState.FAILED, TaskState.UNKNOWN, TaskState.CANCELLING, TaskState.CANCELLED)


class WorkerState(StrEnum):
    """What a worker is doing, derived from the tables and its processes each time and stored nowhere."""

    SANDBOX = "making its sandbox"
    SETUP = "setting up"
    STARTING = "starting"
    WORKING = "working"
    WAITING = "waiting for the model"
    STALLED = "stalled"
    ZOMBIE = "zombie"
    STOPPING = "stopping"
    SAVING = "saving work"
    CHECKING = "checking the result"
    QUEUED = "in the merge queue"
    VERIFYING = "in the merge queue: verifying"
    LANDING = "in the merge queue: landing"
    CLEANUP = "cleaning up"
    PARKED = "parked"


def decide_worker(run: RunRow | None, look: Look | None, merge: MergeRow | None, silent_s: float | None) -> WorkerState:
    """Decide what a worker is doing. `run` is its open run, if any, and `look` what was found of it on this machine."""
    if run is not None and run.state is RunState.RUNNING and isinstance(look, Gone):
        return WorkerState.ZOMBIE
    if merge is not None:
        waiting = {MergeState.VERIFYING: WorkerState.VERIFYING, MergeState.LANDING: WorkerState.LANDING}
        return waiting.get(merge.state, WorkerState.QUEUED)
    if run is None or isinstance(look, Ended):
        return WorkerState.CHECKING
    if run.kill_requested_at is not None:
        return WorkerState.STOPPING
    match run.kind:
        case "sandbox":
            return WorkerState.SANDBOX
        case "setup" | "stash":
            return WorkerState.SETUP
        case "snapshot" | "backup":
            return WorkerState.SAVING
        case _ if run.state is RunState.INTENDED:
            return WorkerState.STARTING
        case _ if run.waiting_since is not None:
            return WorkerState.WAITING
        case _:
            return WorkerState.STALLED if is_stalled(run, silent_s) else WorkerState.WORKING


def is_stalled(run: RunRow, silent_s: float | None) -> bool:
    """Whether a run has been silent for more than half of its silence limit; never true without a limit."""
    limit_s = json.loads(run.limits).get("silence_s")
    return limit_s is not None and silent_s is not None and silent_s > limit_s / 2


def count_startable(waits_for: Mapping[str, Sequence[TaskRow]]) -> int:
    """Count the waiting tasks that can start without a person; `waits_for` maps each to its unfinished predecessors."""
    followers: dict[str, list[str]] = {}
    for key, others in waits_for.items():
        for other in others:
            followers.setdefault(other.key, []).append(key)
    blocked = {key for key, others in waits_for.items() if any(other.state in _BLOCKING for other in others)}
    to_follow = list(blocked)
    for key in to_follow:  # it grows while we walk it
        more = [follower for follower in followers.get(key, ()) if follower not in blocked]
        blocked.update(more)
        to_follow.extend(more)
    return len(waits_for) - len(blocked)


def estimate_left_s(finished_s: Sequence[float], at_work_s: Sequence[float], waiting: int) -> float | None:
    """Estimate how long the present workers need for the remaining work; None without enough samples.

    Assumes that every attempt takes as long as the mean of the finished ones, and that a free worker finds a task.
    """
    if len(finished_s) < MIN_SAMPLES or not at_work_s:
        return None
    mean_s = fsum(finished_s) / len(finished_s)
    rest_s = [max(mean_s - for_s, 0.0) for for_s in at_work_s]
    shared_s = (fsum(rest_s) + waiting * mean_s) / len(at_work_s)
    # Once every attempt is past the mean, there is nothing left to estimate from.
    return max(shared_s, *rest_s, mean_s if waiting else 0.0) or None
