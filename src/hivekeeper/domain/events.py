"""Everything that can happen, as small frozen values in the past tense.

A body says what happened; the envelope says who, why, when it happened and when it was written down. Bodies hold only
JSON values, so that the log can be read without this program. `REQUESTS` are the bodies a person may append; all the
others need the keeper's epoch.
"""

import hashlib
import json
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar


class Body:
    """What happened to `subject`."""

    __slots__ = ()
    kind: ClassVar[str]
    subject_field: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    @property
    def subject(self) -> str:
        """Name what it happened to."""
        return str(getattr(self, self.subject_field))


@dataclass(frozen=True, slots=True)
class Event:
    """A body in its envelope, as the ledger keeps it."""

    seq: int
    body: Body
    who: str
    why: str
    occurred_at: str
    recorded_at: str
    epoch: int
    hash: str


def _kind(name: str, subject: str) -> Any:  # noqa: ANN401 - a class decorator hands back the class it was given
    def register(cls: type[Body]) -> type[Body]:
        cls.kind, cls.subject_field = name, subject
        cls.names = tuple(each.name for each in fields(cls))  # type: ignore[arg-type]  # every body is a dataclass
        BODIES[name] = cls
        return cls

    return register


BODIES: dict[str, type[Body]] = {}


@_kind("lease.taken", "holder")
@dataclass(frozen=True, slots=True)
class LeaseTaken(Body):
    """A keeper took the lease and raised the epoch."""

    holder: str
    epoch: int
    pid: int
    start_ticks: int
    boot_id: str
    after: str


@_kind("lease.released", "holder")
@dataclass(frozen=True, slots=True)
class LeaseReleased(Body):
    """The holder itself gave the lease back."""

    holder: str


@_kind("convoy.submitted", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoySubmitted(Body):
    """A person handed in a plan under a new name."""

    convoy: str
    pipeline: str
    accept: str | None = None


@_kind("convoy.extended", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoyExtended(Body):
    """A person gave an existing convoy something more to do, so it is active again."""

    convoy: str


@_kind("convoy.completed", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoyCompleted(Body):
    """Every task of the convoy is COMPLETE."""

    convoy: str


@_kind("convoy.failed", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoyFailed(Body):
    """Nothing more can be done for the convoy without a person."""

    convoy: str


@_kind("convoy.archived", "convoy")
@dataclass(frozen=True, slots=True)
class ConvoyArchived(Body):
    """The convoy is put away; its ids can never be dispatched again."""

    convoy: str


@_kind("swarm.opened", "convoy")
@dataclass(frozen=True, slots=True)
class SwarmOpened(Body):
    """A new batch of attempts began."""

    convoy: str
    number: int


@_kind("swarm.closed", "convoy")
@dataclass(frozen=True, slots=True)
class SwarmClosed(Body):
    """Every attempt of the batch has settled and a later batch takes new ones."""

    convoy: str
    number: int


@_kind("repo.wanted", "repo")
@dataclass(frozen=True, slots=True)
class RepoWanted(Body):
    """A plan names a repository; its mirror is to be fetched (again)."""

    repo: str
    path: str
    branch: str
    verify: str | None
    fetch: int
    details: dict[str, Any] = field(default_factory=dict)


@_kind("repo.fetched", "repo")
@dataclass(frozen=True, slots=True)
class RepoFetched(Body):
    """The mirror holds the repository's branch, and the integration branch exists; `source` is the person's head."""

    repo: str
    integration: str
    source: str


@_kind("repo.fetch_failed", "repo")
@dataclass(frozen=True, slots=True)
class RepoFetchFailed(Body):
    """The mirror could not be fetched."""

    repo: str
    problem: str


@_kind("repo.publishing", "repo")
@dataclass(frozen=True, slots=True)
class RepoPublishing(Body):
    """What landed is being pushed to the person's repository."""

    repo: str
    commit: str
    number: int


@_kind("repo.published", "repo")
@dataclass(frozen=True, slots=True)
class RepoPublished(Body):
    """The person's repository holds this commit."""

    repo: str
    commit: str


@_kind("repo.publish_failed", "repo")
@dataclass(frozen=True, slots=True)
class RepoPublishFailed(Body):
    """The person's repository did not take the commit; it waits."""

    repo: str
    commit: str
    problem: str
    retry_at: str


@_kind("task.added", "task")
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


@_kind("task.cancelled", "task")
@dataclass(frozen=True, slots=True)
class TaskCancelled(Body):
    """The task will never run (again); a person may say so only while nothing of it runs."""

    task: str


@_kind("task.cancel_requested", "task")
@dataclass(frozen=True, slots=True)
class TaskCancelRequested(Body):
    """A person wants a running task stopped; the keeper ends what runs first."""

    task: str


@_kind("task.retry_requested", "task")
@dataclass(frozen=True, slots=True)
class TaskRetryRequested(Body):
    """A person wants a FAILED or UNKNOWN task tried again."""

    task: str
    attempts_allowed: int


@_kind("task.dispatched", "task")
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


@_kind("task.completed", "task")
@dataclass(frozen=True, slots=True)
class TaskCompleted(Body):
    """The task is done and proven."""

    task: str
    attempt: int
    commit: str | None
    output: str | None


@_kind("attempt.submitted", "task")
@dataclass(frozen=True, slots=True)
class AttemptSubmitted(Body):
    """The worker's change is kept in the mirror and waits in the merge queue."""

    task: str
    attempt: int
    repo: str
    commit: str
    priority: int


@_kind("attempt.failed", "task")
@dataclass(frozen=True, slots=True)
class AttemptFailed(Body):
    """The attempt came to nothing; the task goes into the next swarm or, at its limit, to a person."""

    task: str
    attempt: int
    final: bool


@_kind("attempt.unknown", "task")
@dataclass(frozen=True, slots=True)
class AttemptUnknown(Body):
    """The attempt may have run and must not be repeated unasked."""

    task: str
    attempt: int


@_kind("attempt.cancelled", "task")
@dataclass(frozen=True, slots=True)
class AttemptCancelled(Body):
    """The attempt was ended because a person cancelled its task."""

    task: str
    attempt: int


@_kind("attempt.swept", "task")
@dataclass(frozen=True, slots=True)
class AttemptSwept(Body):
    """The attempt's sandbox is removed; what was in it is kept elsewhere or there was nothing."""

    task: str
    attempt: int


@_kind("merge.verifying", "task")
@dataclass(frozen=True, slots=True)
class MergeVerifying(Body):
    """A candidate commit was made on the integration branch's head and goes through the gate."""

    task: str
    attempt: int
    round: int
    base: str
    candidate: str
    tree: str


@_kind("merge.landing", "task")
@dataclass(frozen=True, slots=True)
class MergeLanding(Body):
    """The candidate's tree passed; the integration branch is to move from base to candidate."""

    task: str
    attempt: int


@_kind("merge.requeued", "task")
@dataclass(frozen=True, slots=True)
class MergeRequeued(Body):
    """The candidate can no longer land as it is; another is made on today's head."""

    task: str
    attempt: int


@_kind("merge.landed", "task")
@dataclass(frozen=True, slots=True)
class MergeLanded(Body):
    """The integration branch holds the candidate."""

    task: str
    attempt: int
    repo: str
    commit: str


@_kind("merge.rejected", "task")
@dataclass(frozen=True, slots=True)
class MergeRejected(Body):
    """The change conflicts or its gate did not pass."""

    task: str
    attempt: int


@_kind("merge.withdrawn", "task")
@dataclass(frozen=True, slots=True)
class MergeWithdrawn(Body):
    """The task was cancelled before its change landed."""

    task: str
    attempt: int


@_kind("run.intended", "run")
@dataclass(frozen=True, slots=True)
class RunIntended(Body):
    """An effect is about to be made, exactly this one, by a process of this boot.

    `rooms` is what it may touch when it is a worker's; None is a command of the hive's own.
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


@_kind("run.started", "run")
@dataclass(frozen=True, slots=True)
class RunStarted(Body):
    """The run's wrapper holds the claim."""

    run: str
    pid: int
    start_ticks: int
    boot_id: str


@_kind("run.kill_requested", "run")
@dataclass(frozen=True, slots=True)
class RunKillRequested(Body):
    """The run's whole process tree is to end; the keeper ends it, whoever asked."""

    run: str


@_kind("run.exited", "run")
@dataclass(frozen=True, slots=True)
class RunExited(Body):
    """The run ended and its wrapper wrote down how."""

    run: str
    run_kind: str
    status: int
    ended_by: str
    output_bytes: int


@_kind("run.lost", "run")
@dataclass(frozen=True, slots=True)
class RunLost(Body):
    """The run may have run and nobody can say how it ended; nothing of it is alive."""

    run: str
    run_kind: str


REQUESTS: frozenset[type[Body]] = frozenset(
    {ConvoySubmitted, ConvoyExtended, ConvoyArchived, RepoWanted, TaskAdded, TaskCancelled, TaskCancelRequested,
     TaskRetryRequested, RunKillRequested}
)  # fmt: skip


encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode_body(body: Body) -> str:
    """Write a body's fields as JSON."""
    return encode_json({name: getattr(body, name) for name in body.names})


def decode_body(kind: str, data: str) -> Body:
    """Read a body back; an unknown kind is a KeyError, unknown fields a TypeError."""
    return BODIES[kind](**json.loads(data))


def chain_hash(previous: str, *fields_as_stored: str) -> str:
    """Bind an event to all before it. Lengths come first, so that no two field lists read alike."""
    lengths = ",".join([str(len(value)) for value in fields_as_stored])
    text = f"{previous}{lengths};{''.join(fields_as_stored)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
