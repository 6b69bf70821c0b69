"""What follows from the runs of an attempt: the next run, or a verdict on the attempt.

An attempt on a repository is three kinds of run in a row: `sandbox` makes the clone, `agent` works in it, `snapshot`
keeps what it made, whatever the agent's end was. An attempt without a repository is the `agent` alone.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.domain.rows import RunRow, TaskRow
from hivekeeper.domain.states import RunState

MAX_INFRASTRUCTURE_TRIES = 3


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


def decide_step(task: TaskRow, runs: Sequence[RunRow]) -> Step:
    """Decide what comes next for an attempt that works. `runs` are in the order they were intended."""
    for kind in ("sandbox", "agent", "snapshot") if task.repo else ("agent",):
        tries = [run for run in runs if run.kind == kind]
        if not tries:
            return Intend(kind, 1)
        last = tries[-1]
        if last.is_open:
            return WaitForRun()
        if kind == "agent":
            # Whatever became of it, what it made is kept first.
            continue
        if last.state is RunState.LOST and len(tries) < MAX_INFRASTRUCTURE_TRIES:
            return Intend(kind, len(tries) + 1)
        if not last.succeeded:
            what = "its sandbox could not be made" if kind == "sandbox" else "what it left could not be kept"
            return Fail(f"{what}: {describe_ending(last)}")
    agent = [run for run in runs if run.kind == "agent"][-1]
    if agent.succeeded:
        return Judge()
    if agent.state is RunState.LOST and not task.repo and not task.idempotent:
        return LeaveUnknown(f"it may have run: {agent.reason}")
    return Fail(describe_ending(agent))


def describe_ending(run: RunRow) -> str:
    """Say in words how a run ended."""
    if run.state is RunState.LOST:
        return f"nobody knows how it ended: {run.reason}"
    said = f", saying: {run.reason}" if run.reason else ""
    match run.ended_by:
        case "exit" if (run.exit_status or 0) < 0:
            return f"the command was killed by {signal.Signals(-(run.exit_status or 0)).name}{said}"
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
