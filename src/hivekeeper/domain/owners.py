"""Owners of sequences, and the names of their runs. The names are for people; nothing parses them."""

from dataclasses import dataclass
from enum import StrEnum

from hivekeeper.domain.gate import Gate
from hivekeeper.domain.rows import ConvoyRow, MergeRow, RepoRow
from hivekeeper.domain.steps import Start


class OwnerKind(StrEnum):
    """What may own a sequence of runs."""

    ATTEMPT = "attempt"
    ENTRY = "entry"
    TREE = "tree"
    CONVOY = "convoy"
    REPO = "repo"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a sequence of runs; each `round` has its own. `task`, `attempt` and `repo` are what it works for."""

    kind: OwnerKind
    name: str
    round: int
    task: str | None = None
    attempt: int | None = None
    repo: str | None = None

    def name_run(self, start: Start, slot: int | None = None) -> str:
        """Name a run, and its directory. User-chosen names cannot start with an underscore, so names never collide."""
        kind = start.kind if start.number == 1 else f"{start.kind}-{start.number}"
        match self.kind:
            case OwnerKind.ATTEMPT:
                return f"{self.name}.{self.round}.{kind}"
            case OwnerKind.ENTRY:
                return f"{self.name}.{kind}-{self.round}"
            case OwnerKind.TREE:
                return f"_gates/{self.name}.{start.try_number}.{slot}.{start.kind}"
            case OwnerKind.CONVOY:
                return f"{self.name}/_{kind}.{self.round}"
            case OwnerKind.REPO:
                return f"_repos/{self.name}.{self.round}.{kind}"


def attempt_owner(task: str, number: int, repo: str | None) -> Owner:
    """Return the owner of an attempt's runs, including those that resolve a conflict of its change."""
    return Owner(OwnerKind.ATTEMPT, task, number, task, number, repo)


def landing_owner(entry: MergeRow) -> Owner:
    """Return the owner of the landing of an entry's candidate."""
    return Owner(OwnerKind.ENTRY, entry.key, entry.round, entry.task, entry.attempt, entry.repo)


def tree_owner(gate: Gate, tree: str) -> Owner:
    """Return the owner of the verification of a tree; the same tree and gate always have the same owner."""
    return Owner(OwnerKind.TREE, f"{name_tree(gate.repo.name, tree)}-{gate.digest[:12]}", 1, repo=gate.repo.name)


def name_tree(repo: str, tree: str) -> str:
    """Name a tree, whatever its gate."""
    return f"{repo}/{tree[:20]}"


def convoy_owner(convoy: ConvoyRow) -> Owner:
    """Return the owner of the acceptance of a convoy, one for each time it was opened."""
    return Owner(OwnerKind.CONVOY, convoy.name, convoy.opened_seq)


def fetch_owner(repo: RepoRow) -> Owner:
    """Return the owner of a fetch of a repository, one for each request."""
    return Owner(OwnerKind.REPO, repo.name, repo.fetches, repo=repo.name)


def publish_owner(repo: RepoRow) -> Owner:
    """Return the owner of the publishing of what landed, with all tries until one succeeds."""
    return Owner(OwnerKind.REPO, repo.name, repo.published_seq, repo=repo.name)
