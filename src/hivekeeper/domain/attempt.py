"""What follows from the runs of an attempt: the next run, or a verdict on the attempt.

An attempt on a repository is several kinds of run in a row: `sandbox` makes the clone, `setup` makes it ready, `stash`
keeps what setup made for others, `agent` works, `snapshot` keeps what it made, whatever the agent's end was, and
`backup` pushes that to a second repository. An attempt that promises outputs has a `sandbox` and a `snapshot` that
collects them; any other is the `agent` alone. While an agent works, what it has made is kept now and then by `save`.

Nothing in a sandbox is synced to disk, so nothing in it is believed after the machine has restarted: a clone made
before is made again, and what an agent had made but nobody had kept is kept for a person and not judged.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.domain.report import Outcome
from hivekeeper.domain.rows import AttemptRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.run import PERSON
from hivekeeper.domain.states import RunState

MAX_INFRASTRUCTURE_TRIES = 3
NOT_AS_PROMISED = 3  # how a snapshot says that it went well and what was promised is not there
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


def list_kinds(task: TaskRow, repo: RepoRow | None, start: str | None) -> tuple[str, ...]:
    """List the kinds of run an attempt takes, in their order."""
    if not task.has_sandbox:
        return ("agent",)
    if repo is None:
        return ("sandbox", "agent", "snapshot")
    setup = ("setup",) if repo.setup else ()
    # What a predecessor's tree makes of a setup is not for others.
    stash = ("stash",) if repo.setup and repo.keep and start is None else ()
    return ("sandbox", *setup, *stash, "agent", "snapshot", *(("backup",) if repo.backup else ()))


_FAILURES = {
    "sandbox": "its sandbox could not be made",
    "setup": "its repository's setup failed",
    "stash": "what its setup made could not be kept",
    "snapshot": "what it left could not be kept",
}


def decide_step(task: TaskRow, runs: Sequence[RunRow], kinds: Sequence[str], *, boot_id: str) -> Step:
    """Decide what comes next for an attempt that works, in this boot. `runs` are in the order they were intended."""
    counted = {kind: sum(run.kind == kind for run in runs) for kind in kinds}
    begun = bool(counted["agent"])
    # A clone that is made anew is made ready anew.
    first = max((place for place, run in enumerate(runs) if run.kind == "sandbox"), default=0)
    last = {run.kind: run for run in (runs if begun else runs[first:])}
    # Where an agent has been, what made its sandbox ready is over, known or not.
    for kind in kinds[kinds.index("agent") :] if begun else kinds:
        run = last.get(kind)
        if run is None:
            return Intend(kind, counted[kind] + 1)
        if run.is_open:
            return WaitForRun()
        spoilt = not begun and run.boot_id != boot_id
        if kind == "agent" or (run.succeeded and not spoilt):
            continue  # whatever became of the agent, what it made is kept first
        if run.exit_status == NOT_AS_PROMISED and kind == "snapshot":
            break
        # Lost, or git was killed under it: repeating harms nobody. A person's own command has said what is wrong.
        again = "sandbox" if spoilt else kind
        final = kind == "setup" and run.state is RunState.EXITED and not spoilt
        if not final and counted[again] < MAX_INFRASTRUCTURE_TRIES:
            return Intend(again, counted[again] + 1)
        if kind != "backup" and not (begun and _may_have_run(task, last["agent"])):  # kept here is kept
            return Fail(f"{_FAILURES[again]}: {RESTARTED if run.succeeded else describe_ending(run)}")
    return _judge(task, last["agent"], last.get("snapshot"), boot_id)


def _may_have_run(task: TaskRow, agent: RunRow) -> bool:
    """Tell whether nobody can say what an agent did outside of a repository, where repeating may do harm.

    One that ended by itself said how it went, and one that ran into a limit of its own was meant to be tried again. One
    that was lost or killed, by whomever, may have had its effect.
    """
    return not task.repo and not task.idempotent and (agent.state is RunState.LOST or _was_killed(agent))


# Of a command that died of these a shell, and the sandbox, say 128 and the number. Others are left out because programs
# end like that by themselves: git with 129, and 141 for what stopped reading from a pipe.
_FATAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL,
          signal.SIGSEGV, signal.SIGTERM)  # fmt: skip


def _was_killed(agent: RunRow) -> bool:
    """Tell whether an agent was ended by a signal or a person, before it could say how it went."""
    if agent.ended_by == "killed":
        return agent.kill_cause in (None, PERSON)
    return agent.ended_by == "exit" and _find_signal(agent) is not None


def _find_signal(run: RunRow) -> int | None:
    """Find the signal that a command died of."""
    status = run.exit_status or 0
    return -status if status < 0 else status - 128 if status - 128 in _FATAL else None


def _judge(task: TaskRow, agent: RunRow, snapshot: RunRow | None, boot_id: str) -> Step:
    kept = snapshot.boot_id if snapshot else boot_id
    if agent.ended_well and (kept == agent.boot_id or not task.has_sandbox):
        if snapshot is not None and not snapshot.succeeded:
            return Fail(f"it ended with exit code 0 but {snapshot.reason}")
        return Judge()
    ending = RESTARTED if agent.ended_well else describe_ending(agent)
    if _may_have_run(task, agent) or (agent.ended_well and not task.repo and not task.idempotent):
        return LeaveUnknown(f"it may have run: {agent.reason if agent.state is RunState.LOST else ending}")
    return Fail(ending)


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
        case "exit" if number := _find_signal(run):
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
