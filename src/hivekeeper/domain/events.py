"""Everything that can happen, as small frozen values in the past tense.

A body says what happened; the envelope says who, why, when it happened and when it was written down. Bodies hold only
JSON values, so that the log can be read without this program. `REQUESTS` are the bodies a person may append; all the
others need the keeper's epoch.
"""

from dataclasses import dataclass, field
from typing import Any

from hivekeeper.domain.body import BODIES, Body, Event, chain_hash, decode_body, encode_body, encode_json, kind
from hivekeeper.domain.merge_events import (
    MergeApproved,
    MergeFailed,
    MergeFlaked,
    MergeHeld,
    MergeLanded,
    MergeLanding,
    MergePrioritized,
    MergeRejected,
    MergeRequeued,
    MergeResolved,
    MergeVerifying,
    MergeWithdrawn,
)
from hivekeeper.domain.repo_events import RepoFetchDelayed, RepoPublishDue
from hivekeeper.domain.runner_events import (
    AttemptParked,
    AttemptResumed,
    BudgetRaised,
    HoldLifted,
    HoldPlaced,
    RepoPinned,
    RunReported,
    RunWaiting,
    WorkerTold,
)

# What is defined beside this module and known by its name.
__all__ = [
    "BODIES",
    "AttemptParked",
    "AttemptResumed",
    "Body",
    "BudgetRaised",
    "Event",
    "HoldLifted",
    "HoldPlaced",
    "MergeApproved",
    "MergeFailed",
    "MergeFlaked",
    "MergeHeld",
    "MergeLanded",
    "MergeLanding",
    "MergePrioritized",
    "MergeRejected",
    "MergeRequeued",
    "MergeResolved",
    "MergeVerifying",
    "MergeWithdrawn",
    "RepoFetchDelayed",
    "RepoPinned",
    "RepoPublishDue",
    "RunReported",
    "RunWaiting",
    "WorkerTold",
    "chain_hash",
    "decode_body",
    "encode_body",
    "encode_json",
]


@kind("lease.taken", "holder")
@dataclass(frozen=True, slots=True)
class LeaseTaken(Body):
    """A keeper took the lease and raised the epoch."""

    holder: str
    epoch: int
    pid: int
    start_ticks: int
    boot_id: str
    after: str


@kind("lease.released", "holder")
@dataclass(frozen=True, slots=True)
class LeaseReleased(Body):
    """The holder itself gave the lease back."""

    holder: str


@kind("convoy.submitted", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoySubmitted(Body):
    """A person handed in a plan under a new name."""

    convoy: str
    pipeline: str
    accept: str | None = None
    budget: dict[str, Any] = field(default_factory=dict)


@kind("convoy.extended", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoyExtended(Body):
    """A person gave an existing convoy something more to do, so it is active again."""

    convoy: str


@kind("convoy.completed", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoyCompleted(Body):
    """Every task of the convoy is COMPLETE, or was cancelled by a person."""

    convoy: str


@kind("convoy.failed", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoyFailed(Body):
    """Nothing more can be done for the convoy without a person."""

    convoy: str


@kind("convoy.archived", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoyArchived(Body):
    """The convoy is put away; its ids can never be dispatched again."""

    convoy: str


@kind("convoy.defaults_set", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoyDefaultsSet(Body):
    """The plan says what holds for tasks that do not say it themselves; also for those added to the convoy later."""

    convoy: str
    defaults: dict[str, Any]


@kind("swarm.opened", "convoy")
@dataclass(frozen=True, slots=True)
class SwarmOpened(Body):
    """A new batch of attempts began."""

    convoy: str
    number: int


@kind("swarm.closed", "convoy")
@dataclass(frozen=True, slots=True)
class SwarmClosed(Body):
    """Every attempt of the batch has settled and a later batch takes new ones."""

    convoy: str
    number: int


@kind("repo.wanted", "repo")
@dataclass(frozen=True, slots=True)
class RepoWanted(Body):
    """A plan names a repository; its mirror is to be fetched (again)."""

    repo: str
    path: str
    branch: str
    verify: str | None
    fetch: int
    details: dict[str, Any] = field(default_factory=dict)


@kind("repo.fetched", "repo")
@dataclass(frozen=True, slots=True)
class RepoFetched(Body):
    """The mirror holds the repository's branch, and the integration branch exists; `source` is the person's head."""

    repo: str
    integration: str
    source: str


@kind("repo.fetch_failed", "repo")
@dataclass(frozen=True, slots=True)
class RepoFetchFailed(Body):
    """The mirror could not be fetched."""

    repo: str
    problem: str


@kind("repo.publishing", "repo")
@dataclass(frozen=True, slots=True)
class RepoPublishing(Body):
    """What landed is being pushed to the person's repository."""

    repo: str
    commit: str
    number: int


@kind("repo.published", "repo")
@dataclass(frozen=True, slots=True)
class RepoPublished(Body):
    """The person's repository holds this commit."""

    repo: str
    commit: str


@kind("repo.publish_failed", "repo")
@dataclass(frozen=True, slots=True)
class RepoPublishFailed(Body):
    """The person's repository did not take the commit; it waits."""

    repo: str
    commit: str
    problem: str
    retry_at: str


@kind("repo.paused", "repo")
@dataclass(frozen=True, slots=True)
class RepoPaused(Body):
    """A person wants nothing more to land for now."""

    repo: str


@kind("repo.resumed", "repo")
@dataclass(frozen=True, slots=True)
class RepoResumed(Body):
    """A person wants the queue to go on; what was verified before is verified again."""

    repo: str


@kind("repo.stopped", "repo")
@dataclass(frozen=True, slots=True)
class RepoStopped(Body):
    """The queue stands still: the integration branch itself does not pass, or nothing can be verified."""

    repo: str


@kind("repo.recovered", "repo")
@dataclass(frozen=True, slots=True)
class RepoRecovered(Body):
    """What stopped the queue is over."""

    repo: str


@kind("message.sent", "task")
@dataclass(frozen=True, slots=True)
class MessageSent(Body):
    """The hive has something to say to whoever works on a task: `type` is REWORK_REQUEST or PRIORITY_MERGE."""

    message: str
    type: str
    task: str
    attempt: int
    body: dict[str, Any]


@kind("task.added", "task")
@dataclass(frozen=True, slots=True)
class TaskAdded(Body):
    """A person asked for a task."""

    task: str
    convoy: str
    id: str
    title: str
    command: str
    repo: str | None
    after: list[str]
    verify: str | None
    priority: int
    attempts_allowed: int
    output: str | None
    idempotent: bool
    limits: dict[str, Any]
    prompt: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@kind("task.cancelled", "task")
@dataclass(frozen=True, slots=True)
class TaskCancelled(Body):
    """The task will not run, unless a person revives it; a person may cancel only while nothing of it runs."""

    task: str


@kind("task.cancel_requested", "task")
@dataclass(frozen=True, slots=True)
class TaskCancelRequested(Body):
    """A person wants a running task stopped; the keeper ends what runs first."""

    task: str


@kind("task.retry_requested", "task")
@dataclass(frozen=True, slots=True)
class TaskRetryRequested(Body):
    """A person wants a FAILED, UNKNOWN or CANCELLED task tried again."""

    task: str
    attempts_allowed: int


@kind("task.edited", "task")
@dataclass(frozen=True, slots=True)
class TaskEdited(Body):
    """A person changed what a task nobody works on is told; this is all of it, `command` or `prompt`."""

    task: str
    command: str
    prompt: str


@kind("task.dispatched", "task")
@dataclass(frozen=True, slots=True)
class TaskDispatched(Body):
    """A worker was given the task; everything it will do is intended by runs of this attempt.

    `start` is the commit of a predecessor that it goes on from; None is the integration branch.
    """

    task: str
    convoy: str
    attempt: int
    swarm: int
    worker: int
    sandbox: bool
    start: str | None = None


@kind("task.completed", "task")
@dataclass(frozen=True, slots=True)
class TaskCompleted(Body):
    """The task is done and proven."""

    task: str
    attempt: int
    commit: str | None
    output: str | None


@kind("attempt.submitted", "task")
@dataclass(frozen=True, slots=True)
class AttemptSubmitted(Body):
    """The worker's change is kept in the mirror and waits in the merge queue."""

    task: str
    attempt: int
    repo: str
    commit: str
    priority: int


@kind("attempt.failed", "task")
@dataclass(frozen=True, slots=True)
class AttemptFailed(Body):
    """The attempt came to nothing; the task goes into the next swarm or, at its limit, to a person."""

    task: str
    attempt: int
    final: bool


@kind("attempt.unknown", "task")
@dataclass(frozen=True, slots=True)
class AttemptUnknown(Body):
    """The attempt may have run and must not be repeated unasked."""

    task: str
    attempt: int


@kind("attempt.cancelled", "task")
@dataclass(frozen=True, slots=True)
class AttemptCancelled(Body):
    """The attempt was ended because a person cancelled its task."""

    task: str
    attempt: int


@kind("attempt.swept", "task")
@dataclass(frozen=True, slots=True)
class AttemptSwept(Body):
    """The attempt's sandbox is removed; what was in it is kept elsewhere or there was nothing."""

    task: str
    attempt: int


@kind("run.intended", "run")
@dataclass(frozen=True, slots=True)
class RunIntended(Body):
    """An effect is about to be made, exactly this one, by a process of this boot.

    `rooms` is what it may touch when it is a worker's; None is a command of the hive's own. `runner` is the agent
    program that is started, and `session` its conversation, where that is known beforehand.
    """

    run: str
    run_kind: str
    task: str | None
    attempt: int | None
    repo: str | None
    argv: list[str]
    directory: str
    environment: dict[str, str]
    limits: dict[str, Any]
    boot_id: str
    rooms: dict[str, list[str]] | None = None
    runner: str | None = None
    session: str | None = None


@kind("run.started", "run")
@dataclass(frozen=True, slots=True)
class RunStarted(Body):
    """The run's wrapper holds the claim."""

    run: str
    pid: int
    start_ticks: int
    boot_id: str


@kind("run.kill_requested", "run")
@dataclass(frozen=True, slots=True)
class RunKillRequested(Body):
    """The run's whole process tree is to end; the keeper ends it, whoever asked, and `cause` is for what."""

    run: str
    cause: str = "person"


@kind("run.exited", "run")
@dataclass(frozen=True, slots=True)
class RunExited(Body):
    """The run ended and its wrapper wrote down how."""

    run: str
    run_kind: str
    status: int
    ended_by: str
    output_bytes: int


@kind("run.lost", "run")
@dataclass(frozen=True, slots=True)
class RunLost(Body):
    """The run may have run and nobody can say how it ended; nothing of it is alive."""

    run: str
    run_kind: str


REQUESTS: frozenset[type[Body]] = frozenset(
    {ConvoySubmitted, ConvoyExtended, ConvoyArchived, ConvoyDefaultsSet, RepoWanted, TaskAdded, TaskCancelled,
     TaskCancelRequested, TaskRetryRequested, TaskEdited, RunKillRequested, MergeApproved, MergePrioritized,
     RepoPaused, RepoResumed, WorkerTold, HoldLifted, BudgetRaised, RepoPinned}
)  # fmt: skip
