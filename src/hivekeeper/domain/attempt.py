"""The verdict on an attempt whose runs have ended, and descriptions of how a run ended.

`domain/sequences.py` (WORK) has the order of the runs. The agent's work is saved before the attempt is judged, however
the agent ended. Nothing in a sandbox is synced to disk, so work that was not saved before the machine restarted is not
judged: it is left for a person.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.domain.report import Outcome
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.run import FINISHED, HELP, PERSON
from hivekeeper.domain.sequences import OUTPUTS_MISSING
from hivekeeper.domain.states import RunState
from hivekeeper.domain.steps import End, Failed, find_signal

FINISH_GRACE_S = 10.0  # for an agent to end by itself, after it said that it would
RESTARTED = "the machine restarted before its work was safe on disk"


@dataclass(frozen=True, slots=True)
class Judge:
    """The agent says it is done: check its work."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The attempt failed."""

    why: str


@dataclass(frozen=True, slots=True)
class LeaveUnknown:
    """It may have run, and running it again unasked might do harm."""

    why: str


_FAILURES = {
    "sandbox": "its sandbox could not be created",
    "setup": "its repository's setup failed",
    "stash": "the results of its setup could not be cached",
}


def describe_failure(failed: Failed) -> Fail:
    """Describe why an attempt failed before its agent started."""
    if failed.end is End.STALE:
        return Fail(f"{_FAILURES['sandbox']}: {RESTARTED}")
    return Fail(f"{_FAILURES[failed.run.kind]}: {describe_ending(failed.run)}")


def judge_attempt(
    task: TaskRow, runs: Sequence[RunRow], boot_id: str, *, is_finished: bool = False
) -> Judge | Fail | LeaveUnknown:
    """Judge an attempt whose runs have ended, by how its agent ended and whether its work was saved.

    An agent that `is_finished` has said so before it ended, so it does not matter how it ended.
    """
    last = {run.kind: run for run in runs}
    agent, snapshot = last["agent"], last.get("snapshot")
    ended_well = agent.ended_well or (is_finished and agent.state is RunState.EXITED)
    is_unknown = not ended_well and _may_have_run(task, agent)
    if snapshot is not None and not snapshot.succeeded and snapshot.exit_status != OUTPUTS_MISSING and not is_unknown:
        return Fail(f"its work could not be saved: {describe_ending(snapshot)}")
    saved_in = snapshot.boot_id if snapshot else boot_id
    if ended_well and (saved_in == agent.boot_id or not task.has_sandbox):
        if snapshot is not None and not snapshot.succeeded:
            return Fail(f"it ended with exit code 0 but {snapshot.reason}")
        return Judge()
    ending = RESTARTED if ended_well else describe_ending(agent)
    if is_unknown or (ended_well and not task.repo and not task.idempotent):
        return LeaveUnknown(f"it may have run: {agent.reason if agent.state is RunState.LOST else ending}")
    return Fail(ending)


def _may_have_run(task: TaskRow, agent: RunRow) -> bool:
    """Whether an agent may have had an effect outside of a repository, where repeating it may do harm.

    An agent that ended by itself reported how it went, and one that hit a limit of its own is meant to be retried. One
    that was lost or killed may have had its effect.
    """
    return not task.repo and not task.idempotent and (agent.state is RunState.LOST or _was_killed(agent))


def _was_killed(agent: RunRow) -> bool:
    """Whether an agent was killed by a signal or a person before it could report."""
    if agent.ended_by == "killed":
        return agent.kill_cause in (None, PERSON)
    return agent.ended_by == "exit" and find_signal(agent) is not None


def find_backup_problem(runs: Sequence[RunRow]) -> str | None:
    """Describe why an attempt's work is not in the second repository; None if it is, or if there is none."""
    backups = [run for run in runs if run.kind == "backup"]
    return describe_ending(backups[-1]) if backups and not backups[-1].succeeded else None


def get_last_save(runs: Sequence[RunRow]) -> str | None:
    """Return when a working agent's work was last saved, or the agent started; None if no save can be due."""
    saves = [run for run in runs if run.kind == "save"]
    agent = next((run for run in runs if run.kind == "agent" and run.state is RunState.RUNNING), None)
    if agent is None or any(run.is_open for run in saves):
        return None
    return saves[-1].intended_at if saves else agent.started_at or agent.intended_at


def is_saved(runs: Sequence[RunRow], *, since: str) -> bool | None:
    """Whether a working agent's work was saved after this moment; None if there is nothing to save."""
    agent = next((run for run in runs if run.kind == "agent" and run.state is RunState.RUNNING), None)
    if agent is None or agent.repo is None or (agent.started_at or "") > since:
        return None
    return any(run.kind == "save" and run.intended_at >= since and not run.is_open for run in runs)


@dataclass(frozen=True, slots=True)
class Dismissal:
    """An agent that is stopped when `FINISH_GRACE_S` have passed since a moment, and why."""

    agent: RunRow
    since: str
    why: str
    cause: str


def find_dismissal(agent: RunRow | None, attempt: AttemptRow | None, helpless_since: str | None) -> Dismissal | None:
    """Find whether an agent has said that it is finished, or that it waits for help, and has not ended."""
    if agent is None or attempt is None or agent.state is not RunState.RUNNING or agent.kill_requested_at:
        return None
    if attempt.finished_at:
        return Dismissal(agent, attempt.finished_at, "it has said that its work is finished", FINISHED)
    return Dismissal(agent, helpless_since, "it waits for help", HELP) if helpless_since else None


def decide_start(previous: AttemptRow | None, runs: Sequence[RunRow], saved: str | None) -> str | None:
    """Decide which commit an attempt starts from; None is what has landed.

    An attempt continues from a worker that was cut off. It starts over after a worker that said it was done and was
    not, or that had itself continued from another's work.
    """
    agents = [run for run in runs if run.kind == "agent"]
    if previous is None or previous.start is not None or previous.finished_at is not None:
        return None
    if not agents or agents[-1].ended_well:
        return None
    return None if agents[-1].ended_by == "disk" else saved  # it was larger than a worker's limit


def describe_ending(run: RunRow) -> str:
    """Describe how a run ended; an agent program's report says more than its exit code."""
    if run.state is RunState.LOST:
        return f"how it ended is unknown: {run.reason}"
    if run.outcome == Outcome.CRASHED and run.exit_status == 0 and run.words:
        return f"{Outcome.CRASHED.words}: {run.words}"  # its exit code says nothing
    if run.outcome is None or run.outcome in _DESCRIBED_BY_EXIT:
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
            return f"it was stopped: {run.reason or 'requested'}"
        case "could-not-start":
            return f"the command could not be started: {run.reason}"
        case other:
            return f"it ended by {other}"


# For these, the limit, signal or exit code says more than the outcome.
_DESCRIBED_BY_EXIT = (Outcome.KILLED, Outcome.CRASHED, Outcome.DONE)


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name of its own
        return f"signal {number}"
