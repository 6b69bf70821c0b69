"""What can happen to a repository that cannot be reached, or comes back."""

from dataclasses import dataclass

from hivekeeper.domain.body import Body, kind


@kind("repo.fetch_delayed", "repo")
@dataclass(frozen=True, slots=True)
class RepoFetchDelayed(Body):
    """The repository could not be read, for the `failures`th time in a row; it is tried again later."""

    repo: str
    problem: str
    failures: int
    retry_at: str


@kind("repo.publish_due", "repo")
@dataclass(frozen=True, slots=True)
class RepoPublishDue(Body):
    """What kept the person's repository from taking what landed may be gone; nothing is waited for any more."""

    repo: str
