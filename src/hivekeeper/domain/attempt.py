"""What follows from the runs of an attempt: the next run, or a verdict on the attempt.

An attempt on a repository is three kinds of run in a row: `sandbox` makes the clone, `agent` works in it, `snapshot`
keeps what it made, whatever the agent's end was. An attempt without a repository is the `agent` alone.

Nothing in a sandbox is synced to disk, so nothing in it is believed after the machine has restarted: a clone made
before is made again, and what an agent had made but nobody had kept is kept for a person and not judged.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.domain.rows import RunRow, TaskRow
from hivekeeper.domain.states import RunState

MAX_INFRASTRUCTURE_TRIES = 3
RESTARTED = "the machine restarted before what it made was safe on disk"


@dataclass(frozen=True, slots=True)
class Intend:
    """The next run, by kind; `number` counts those of this kind."""

    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class Judge:
    """All runs are over and the agent said it is done: look at what it made."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The attempt came to nothing."""

    why: str


@dataclass(frozen=True, slots=True)
class LeaveUnknown:
    """It may have run, and repeating it unasked might do harm."""

    why: str


@dataclass(frozen=True, slots=True)
class WaitForRun:
    """A run is under way."""


Step = Intend | Judge | Fail | LeaveUnknown | WaitForRun


def decide_step(task: TaskRow, runs: Sequence[RunRow], *, boot_id: str) -> Step:
    """Decide what comes next for an attempt that works, in this boot. `runs` are in the order they were intended."""
    tries = {kind: [run for run in runs if run.kind == kind] for kind in ("sandbox", "agent", "snapshot")}
    for kind in ("sandbox", "agent", "snapshot") if task.repo else ("agent",):
        if not tries[kind]:
            return Intend(kind, 1)
        last = tries[kind][-1]
        if last.is_open:
            return WaitForRun()
        if kind == "agent":
            # Whatever became of it, what it made is kept first.
            continue
        spoilt = kind == "sandbox" and last.boot_id != boot_id and not tries["agent"]
        if (not last.succeeded or spoilt) and len(tries[kind]) < MAX_INFRASTRUCTURE_TRIES:
            return Intend(kind, len(tries[kind]) + 1)  # lost, or git was killed under it: repeating harms nobody
        if not last.succeeded or spoilt:
            what = "its sandbox could not be made" if kind == "sandbox" else "what it left could not be kept"
            return Fail(f"{what}: {RESTARTED if last.succeeded else describe_ending(last)}")
    agent = tries["agent"][-1]
    kept = tries["snapshot"][-1].boot_id if task.repo else boot_id
    if agent.succeeded and (kept == agent.boot_id or not (task.repo or task.output)):
        return Judge()
    if (agent.state is RunState.LOST or agent.succeeded) and not task.repo and not task.idempotent:
        return LeaveUnknown(f"it may have run: {RESTARTED if agent.succeeded else agent.reason}")
    return Fail(RESTARTED if agent.succeeded else describe_ending(agent))


def describe_ending(run: RunRow) -> str:
    """Say in words how a run ended."""
    if run.state is RunState.LOST:
        return f"nobody knows how it ended: {run.reason}"
    said = f", saying: {run.reason}" if run.reason else ""
    match run.ended_by:
        case "exit" if (run.exit_status or 0) < 0:
            return f"the command was killed by {_name_signal(-(run.exit_status or 0))}{said}"
        case "exit":
            return f"the command ended with exit code {run.exit_status}{said}"
        case "wall":
            return "it ran longer than its time limit and was stopped"
        case "silence":
            return "it said nothing for longer than its silence limit and was stopped"
        case "output":
            return "it wrote more output than its limit and was stopped"
        case "memory":
            return "it used more memory than its limit and was stopped"
        case "killed":
            return f"it was stopped: {run.reason or 'asked for'}"
        case "could-not-start":
            return f"the command could not be started: {run.reason}"
        case other:
            return f"it ended by {other}"


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name of its own
        return f"signal {number}"
