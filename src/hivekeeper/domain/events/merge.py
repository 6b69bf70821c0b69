"""What happens to an entry of a merge queue."""

from hivekeeper.domain.rows import MergeRow, RepoRow
from hivekeeper.domain.schema import (
    AT,
    PERSON,
    WHY,
    Body,
    event,
    field_of,
    made,
    moves,
    updates,
)
from hivekeeper.domain.states import MergeState

_WAITING = (MergeState.QUEUED, MergeState.VERIFYING)


@event(
    "merge.verifying",
    "task",
    moves(
        MergeRow,
        MergeState.VERIFYING,
        "tier",
        "round",
        "base",
        "candidate",
        "tree",
        where={"round": made(lambda body: body.round - 1)},  # once for each round
    ),
)
class MergeVerifying(Body):
    """A candidate commit was made, on the integration branch's head or on a candidate before it; `tier` says how."""

    task: str
    attempt: int
    round: int
    base: str
    candidate: str
    tree: str
    tier: str = "clean"


@event("merge.landing", "task", moves(MergeRow, MergeState.LANDING))
class MergeLanding(Body):
    """The candidate's tree passed; the integration branch is to move from base to candidate."""

    task: str
    attempt: int


@event("merge.requeued", "task", moves(MergeRow, MergeState.QUEUED, reason=WHY))
class MergeRequeued(Body):
    """The candidate can no longer land as it is; another is made on today's head."""

    task: str
    attempt: int


@event("merge.failed", "task", moves(MergeRow, MergeState.QUEUED, failures=1, failed_run=field_of("run"), reason=WHY))
class MergeFailed(Body):
    """The candidate failed with everything before it landed; it is tried alone once more before it is refused."""

    task: str
    attempt: int
    run: str


@event("merge.flaked", "task", updates(MergeRow, states=_WAITING, failures=0, failed_run=None, flakes=1))
class MergeFlaked(Body):
    """What had failed passed when it was tried again: its gate is not to be relied on."""

    task: str
    attempt: int
    run: str


@event("merge.held", "task", updates(MergeRow, states=_WAITING, where={"held": None}, held=WHY))
class MergeHeld(Body):
    """The change may not land unless a person says so."""

    task: str
    attempt: int


@event("merge.approved", "task", updates(MergeRow, states=_WAITING, held=None, approved=1), by=PERSON)
class MergeApproved(Body):
    """A person says that the change may land, if it passes."""

    task: str
    attempt: int


@event("merge.prioritized", "task", updates(MergeRow, "priority", states=_WAITING), by=PERSON)
class MergePrioritized(Body):
    """A person gave an entry another place in the queue."""

    task: str
    attempt: int
    priority: int


@event(
    "merge.conflicted",
    "task",
    updates(
        MergeRow,
        states=_WAITING,
        conflict_ours=field_of("ours"),
        conflict_tree=field_of("tree"),
        conflict_paths=field_of("paths"),
    ),
)
class MergeConflicted(Body):
    """A conflict with what had landed is to be settled by a run: `tree` has its markers, in `paths`."""

    task: str
    attempt: int
    ours: str
    tree: str
    paths: list[str]


@event("merge.resolved", "task", updates(MergeRow, "tier", states=_WAITING, resolved=field_of("commit"), reason=WHY))
class MergeResolved(Body):
    """A conflict was settled by a run: the commit merges the change with what had landed; `lost` is what it lacks."""

    task: str
    attempt: int
    commit: str
    tier: str
    lost: list[str]


@event(
    "merge.landed",
    "task",
    moves(MergeRow, MergeState.LANDED, ended_at=AT, reason=""),
    updates(RepoRow, integration=made(lambda body: body.head or body.commit)),
)
class MergeLanded(Body):
    """The integration branch holds the candidate.

    `head` is where the branch was by then: a landing that is noted late, because its keeper died, has others on top.
    """

    task: str
    attempt: int
    repo: str
    commit: str
    head: str | None = None  # nothing was on top


@event("merge.rejected", "task", moves(MergeRow, MergeState.REJECTED, ended_at=AT, reason=WHY))
class MergeRejected(Body):
    """The change conflicts or its gate did not pass."""

    task: str
    attempt: int


@event("merge.withdrawn", "task", moves(MergeRow, MergeState.WITHDRAWN, ended_at=AT, reason=WHY))
class MergeWithdrawn(Body):
    """The task was cancelled before its change landed."""

    task: str
    attempt: int
