"""What happens to a repository: it is fetched, its queue stops, what landed is published, what it ships is trusted."""

from dataclasses import field
from typing import Any

from hivekeeper.domain.rows import RepoRow
from hivekeeper.domain.schema import AT, PERSON, SEQ, WHY, Body, event, field_of, moves, updates, upserts
from hivekeeper.domain.states import RepoState

_SENDING = {"publishing": field_of("commit")}


@event(
    "repo.wanted",
    "repo",
    upserts(
        RepoRow,
        "details",
        "path",
        "branch",
        "verify",
        state=RepoState.FETCHING,
        fetch_retry_at=None,
        fetches=field_of("fetch"),
        problem=None,
    ),
    by=PERSON,
)
class RepoWanted(Body):
    """A plan names a repository; its mirror is to be fetched (again)."""

    repo: str
    path: str
    branch: str
    verify: str | None
    fetch: int
    details: dict[str, Any] = field(default_factory=dict)


@event(
    "repo.fetched",
    "repo",
    moves(
        RepoRow,
        RepoState.READY,
        "integration",
        fetch_problem=None,
        fetch_failures=0,
        fetch_failed_at=None,
        fetch_retry_at=None,
    ),
    # Where both heads are one, the person has everything: nothing is left to publish.
    updates(RepoRow, when=lambda body: body.integration == body.source, published=field_of("integration")),
)
class RepoFetched(Body):
    """The mirror holds the repository's branch, and the integration branch exists; `source` is the person's head."""

    repo: str
    integration: str
    source: str


@event(
    "repo.fetch_failed",
    "repo",
    moves(
        RepoRow,
        RepoState.FAILED,
        "problem",
        fetch_problem=None,
        fetch_failures=0,
        fetch_failed_at=None,
        fetch_retry_at=None,
    ),
)
class RepoFetchFailed(Body):
    """The mirror could not be fetched."""

    repo: str
    problem: str


@event(
    "repo.fetch_delayed",
    "repo",
    updates(
        RepoRow,
        states=(RepoState.FETCHING,),
        fetch_problem=field_of("problem"),
        fetch_failures=field_of("failures"),
        fetch_failed_at=AT,
        fetch_retry_at=field_of("retry_at"),
        fetch_failed_run=field_of("run"),
    ),
)
class RepoFetchDelayed(Body):
    """The repository could not be read, for the `failures`th time in a row; it is tried again later."""

    repo: str
    problem: str
    failures: int
    retry_at: str
    run: str


@event(
    "repo.publishing",
    "repo",
    updates(RepoRow, where={"publishing": None}, publishing=field_of("commit")),
)
class RepoPublishing(Body):
    """What landed is being pushed to the person's repository."""

    repo: str
    commit: str


@event(
    "repo.published",
    "repo",
    updates(
        RepoRow, where=_SENDING, published=field_of("commit"), publishing=None, publish_problem=None, published_seq=SEQ
    ),
)
class RepoPublished(Body):
    """The person's repository holds this commit."""

    repo: str
    commit: str


@event(
    "repo.publish_failed",
    "repo",
    updates(
        RepoRow,
        where=_SENDING,
        publishing=None,
        publish_problem=field_of("problem"),
        publish_failed_at=AT,
        publish_retry_at=field_of("retry_at"),
    ),
)
class RepoPublishFailed(Body):
    """The person's repository did not take the commit; it waits."""

    repo: str
    commit: str
    problem: str
    retry_at: str


@event("repo.publish_due", "repo", updates(RepoRow, publish_problem=None))
class RepoPublishDue(Body):
    """What kept the person's repository from taking what landed may be gone; nothing is waited for any more."""

    repo: str


@event("repo.paused", "repo", updates(RepoRow, paused=1), by=PERSON)
class RepoPaused(Body):
    """A person wants nothing more to land for now."""

    repo: str


@event("repo.resumed", "repo", updates(RepoRow, paused=0, stopped=None, resumptions=SEQ), by=PERSON)
class RepoResumed(Body):
    """A person wants the queue to go on; what was verified before is verified again."""

    repo: str


@event("repo.stopped", "repo", updates(RepoRow, where={"stopped": None}, stopped=WHY))
class RepoStopped(Body):
    """The queue stands still: the integration branch itself does not pass, or nothing can be verified."""

    repo: str


@event("repo.recovered", "repo", updates(RepoRow, stopped=None))
class RepoRecovered(Body):
    """What stopped the queue is over."""

    repo: str


@event("repo.pinned", "repo", updates(RepoRow, pinned=field_of("digest"), pinned_files=field_of("files")), by=PERSON)
class RepoPinned(Body):
    """The agent configuration that a repository ships is this, by its hash, and is trusted."""

    repo: str
    digest: str
    files: list[str]
