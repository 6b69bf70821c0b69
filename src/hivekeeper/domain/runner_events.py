"""What happens to sessions of agent programs: reports, limits, budgets, messages, and what they may obey."""

from dataclasses import dataclass

from hivekeeper.domain.body import Body, kind


@kind("run.reported", "run")
@dataclass(frozen=True, slots=True)
class RunReported(Body):
    """What an agent program itself said of its session was read: how that ended and what it used."""

    run: str
    outcome: str
    session: str
    tokens_in: int
    tokens_out: int
    microusd: int
    retry_at: str | None


@kind("run.waiting", "run")
@dataclass(frozen=True, slots=True)
class RunWaiting(Body):
    """An agent program has waited for its model for longer than usual, since this moment; None: it goes on."""

    run: str
    since: str | None


@kind("attempt.parked", "task")
@dataclass(frozen=True, slots=True)
class AttemptParked(Body):
    """The attempt waits, its room as it is and its worker free, until nothing holds it up any more."""

    task: str
    attempt: int


@kind("attempt.resumed", "task")
@dataclass(frozen=True, slots=True)
class AttemptResumed(Body):
    """A parked attempt goes on where it was."""

    task: str
    attempt: int


@kind("worker.told", "task")
@dataclass(frozen=True, slots=True)
class WorkerTold(Body):
    """A person has something to say to whoever works on a task."""

    message: str
    task: str
    attempt: int
    text: str


@kind("hold.placed", "name")
@dataclass(frozen=True, slots=True)
class HoldPlaced(Body):
    """Nothing of this kind begins: `scope` is runner, task, convoy, repo or day. None as `until` waits for a person."""

    scope: str
    name: str
    cause: str
    until: str | None
    strikes: int


@kind("hold.lifted", "name")
@dataclass(frozen=True, slots=True)
class HoldLifted(Body):
    """What was held up may go on."""

    scope: str
    name: str


@kind("budget.raised", "name")
@dataclass(frozen=True, slots=True)
class BudgetRaised(Body):
    """A person allows a task, a convoy or a day this much in all."""

    scope: str
    name: str
    tokens: int | None
    microusd: int | None


@kind("repo.pinned", "repo")
@dataclass(frozen=True, slots=True)
class RepoPinned(Body):
    """The agent configuration that a repository ships is this, by its hash, and is trusted."""

    repo: str
    digest: str
    files: list[str]
