"""What the runs of an attempt add up to once they are over, and what is to be said of how a run ended.

Which run comes next is in `domain/sequences.py` (WORK). Whatever became of the agent, what it made is kept before the
attempt is judged. Nothing in a sandbox is synced to disk, so what an agent had made and nobody had kept before the
machine restarted is not judged: a person finds it.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.domain.report import Outcome
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.run import PERSON
from hivekeeper.domain.sequences import OUTPUTS_MISSING
from hivekeeper.domain.states import RunState
from hivekeeper.domain.steps import End, Failed, find_signal

RESTARTED = "the machine restarted before what it made was safe on disk"


@dataclass(frozen=True, slots=True)
class Judge:
    """The agent said it is done: look at what it made."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The attempt came to nothing."""

    why: str


@dataclass(frozen=True, slots=True)
class LeaveUnknown:
    """It may have run, and repeating it unasked might do harm."""

    why: str


_FAILURES = {
    "sandbox": "its sandbox could not be made",
    "setup": "its repository's setup failed",
    "stash": "what its setup made could not be kept",
}


def describe_failure(failed: Failed) -> Fail:
    """Say why an attempt never came to its agent."""
    if failed.end is End.STALE:
        return Fail(f"{_FAILURES['sandbox']}: {RESTARTED}")
    return Fail(f"{_FAILURES[failed.run.kind]}: {describe_ending(failed.run)}")


def judge_attempt(task: TaskRow, runs: Sequence[RunRow], boot_id: str) -> Judge | Fail | LeaveUnknown:
    """Judge an attempt whose runs are over, by how its agent ended and whether what it made was kept."""
    last = {run.kind: run for run in runs}
    agent, snapshot = last["agent"], last.get("snapshot")
    is_unknown = _may_have_run(task, agent)
    if snapshot is not None and not snapshot.succeeded and snapshot.exit_status != OUTPUTS_MISSING and not is_unknown:
        return Fail(f"what it left could not be kept: {describe_ending(snapshot)}")
    kept = snapshot.boot_id if snapshot else boot_id
    if agent.ended_well and (kept == agent.boot_id or not task.has_sandbox):
        if snapshot is not None and not snapshot.succeeded:
            return Fail(f"it ended with exit code 0 but {snapshot.reason}")
        return Judge()
    ending = RESTARTED if agent.ended_well else describe_ending(agent)
    if is_unknown or (agent.ended_well and not task.repo and not task.idempotent):
        return LeaveUnknown(f"it may have run: {agent.reason if agent.state is RunState.LOST else ending}")
    return Fail(ending)


def _may_have_run(task: TaskRow, agent: RunRow) -> bool:
    """Tell whether nobody can say what an agent did outside of a repository, where repeating may do harm.

    One that ended by itself said how it went, and one that ran into a limit of its own was meant to be tried again. One
    that was lost or killed, by whomever, may have had its effect.
    """
    return not task.repo and not task.idempotent and (agent.state is RunState.LOST or _was_killed(agent))


def _was_killed(agent: RunRow) -> bool:
    """Tell whether an agent was ended by a signal or a person, before it could say how it went."""
    if agent.ended_by == "killed":
        return agent.kill_cause in (None, PERSON)
    return agent.ended_by == "exit" and find_signal(agent) is not None


def find_unpushed(runs: Sequence[RunRow]) -> str | None:
    """Tell why what an attempt made is in no second repository; None when it is, or none was wanted."""
    backups = [run for run in runs if run.kind == "backup"]
    return describe_ending(backups[-1]) if backups and not backups[-1].succeeded else None


def find_unsaved_since(runs: Sequence[RunRow]) -> str | None:
    """Tell since when what a working agent makes was not kept; None where nothing is made, or it is being kept."""
    saves = [run for run in runs if run.kind == "save"]
    agent = next((run for run in runs if run.kind == "agent" and run.state is RunState.RUNNING), None)
    if agent is None or any(run.is_open for run in saves):
        return None
    return saves[-1].intended_at if saves else agent.started_at or agent.intended_at


def is_saved(runs: Sequence[RunRow], *, since: str) -> bool | None:
    """Tell whether what a working agent has made was kept after this moment; None where there is nothing to keep."""
    agent = next((run for run in runs if run.kind == "agent" and run.state is RunState.RUNNING), None)
    if agent is None or agent.repo is None or (agent.started_at or "") > since:
        return None
    return any(run.kind == "save" and run.intended_at >= since and not run.is_open for run in runs)


def decide_start(previous: AttemptRow | None, runs: Sequence[RunRow], kept: str | None) -> str | None:
    """Decide which commit an attempt goes on from; None is what has landed.

    A worker that was cut off left something worth going on from. One that said it was done and was not, or that went on
    from another's work and was cut off too, did not.
    """
    agents = [run for run in runs if run.kind == "agent"]
    if previous is None or previous.start is not None or not agents or agents[-1].ended_well:
        return None
    return None if agents[-1].ended_by == "disk" else kept  # there was more of it than a worker may have


def describe_ending(run: RunRow) -> str:
    """Say in words how a run ended; an agent program says more than its exit code."""
    if run.state is RunState.LOST:
        return f"nobody knows how it ended: {run.reason}"
    if run.outcome == Outcome.CRASHED and run.exit_status == 0 and run.words:
        return f"{Outcome.CRASHED.words}: {run.words}"  # its exit code says nothing
    if run.outcome is None or run.outcome in _TOLD_BY_THE_RUN:
        return _describe_exit(run)
    return f"{Outcome(run.outcome).words}{f': {run.words}' if run.words else ''}"


def _describe_exit(run: RunRow) -> str:
    said = f"; last output: {run.reason}" if run.reason else ""
    match run.ended_by:
        case "exit" if number := find_signal(run):
            return f"the command was killed by {_name_signal(number)}{said}"
        case "exit":
            return f"exit code {run.exit_status}{said}"
        case "wall":
            return "it ran longer than its time limit and was stopped"
        case "silence":
            return "it said nothing for longer than its silence limit and was stopped"
        case "output":
            return "it wrote more output than its limit and was stopped"
        case "memory":
            return "it used more memory than its limit and was stopped"
        case "processes":
            return "it started more processes than its limit and was stopped"
        case "disk":
            return "it wrote more to disk than its limit and was stopped"
        case "killed":
            return f"it was stopped: {run.reason or 'asked for'}"
        case "could-not-start":
            return f"the command could not be started: {run.reason}"
        case other:
            return f"it ended by {other}"


# Of these its limits, its signal or its exit code say more.
_TOLD_BY_THE_RUN = (Outcome.KILLED, Outcome.CRASHED, Outcome.DONE)


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name of its own
        return f"signal {number}"
