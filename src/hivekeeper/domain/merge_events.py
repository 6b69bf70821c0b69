"""Everything that can happen to an entry of a merge queue."""

from dataclasses import dataclass, field

from hivekeeper.domain.body import Body, kind


@kind("merge.verifying", "task")
@dataclass(frozen=True, slots=True)
class MergeVerifying(Body):
    """A candidate commit was made, on the integration branch's head or on a candidate before it; `tier` says how."""

    task: str
    attempt: int
    round: int
    base: str
    candidate: str
    tree: str
    tier: str = "clean"


@kind("merge.landing", "task")
@dataclass(frozen=True, slots=True)
class MergeLanding(Body):
    """The candidate's tree passed; the integration branch is to move from base to candidate."""

    task: str
    attempt: int


@kind("merge.requeued", "task")
@dataclass(frozen=True, slots=True)
class MergeRequeued(Body):
    """The candidate can no longer land as it is; another is made on today's head."""

    task: str
    attempt: int


@kind("merge.failed", "task")
@dataclass(frozen=True, slots=True)
class MergeFailed(Body):
    """The candidate failed with everything before it landed; it is tried alone once more before it is refused."""

    task: str
    attempt: int
    run: str


@kind("merge.flaked", "task")
@dataclass(frozen=True, slots=True)
class MergeFlaked(Body):
    """What had failed passed when it was tried again: its gate is not to be relied on."""

    task: str
    attempt: int
    run: str


@kind("merge.held", "task")
@dataclass(frozen=True, slots=True)
class MergeHeld(Body):
    """The change may not land unless a person says so."""

    task: str
    attempt: int


@kind("merge.approved", "task")
@dataclass(frozen=True, slots=True)
class MergeApproved(Body):
    """A person says that the change may land, if it passes."""

    task: str
    attempt: int


@kind("merge.prioritized", "task")
@dataclass(frozen=True, slots=True)
class MergePrioritized(Body):
    """A person gave an entry another place in the queue."""

    task: str
    attempt: int
    priority: int


@kind("merge.resolved", "task")
@dataclass(frozen=True, slots=True)
class MergeResolved(Body):
    """A conflict was settled by a run: the commit merges the change with what had landed; `lost` is what it lacks."""

    task: str
    attempt: int
    commit: str
    tier: str
    lost: list[str]


@kind("merge.landed", "task")
@dataclass(frozen=True, slots=True)
class MergeLanded(Body):
    """The integration branch holds the candidate; `learned` are hunks of conflicts and how they were settled in it.

    `head` is where the branch was by then: a landing that is noted late, because its keeper died, has others on top.
    """

    task: str
    attempt: int
    repo: str
    commit: str
    learned: dict[str, str] = field(default_factory=dict)
    head: str | None = None  # events of older versions have none: nothing was on top


@kind("merge.rejected", "task")
@dataclass(frozen=True, slots=True)
class MergeRejected(Body):
    """The change conflicts or its gate did not pass."""

    task: str
    attempt: int


@kind("merge.withdrawn", "task")
@dataclass(frozen=True, slots=True)
class MergeWithdrawn(Body):
    """The task was cancelled before its change landed."""

    task: str
    attempt: int
