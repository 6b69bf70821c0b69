"""Whose runs are whose: the owner of a sequence, and the names of its runs, which are for people and never parsed."""

from dataclasses import dataclass
from enum import StrEnum

from hivekeeper.domain.gate import Gate
from hivekeeper.domain.rows import ConvoyRow, MergeRow, RepoRow
from hivekeeper.domain.steps import Start


class OwnerKind(StrEnum):
    """What may own runs that follow one another."""

    ATTEMPT = "attempt"
    ENTRY = "entry"
    TREE = "tree"
    CONVOY = "convoy"
    REPO = "repo"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose runs they are; a new `round` begins its sequence anew. `task`, `attempt` and `repo` are whom they serve."""

    kind: OwnerKind
    name: str
    round: int
    task: str | None = None
    attempt: int | None = None
    repo: str | None = None

    def name_run(self, start: Start, slot: int | None = None) -> str:
        """Name a run, and its directory. No name of a person's begins with an underscore, so no two kinds meet."""
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
    """Own an attempt's runs, and those that settle a conflict of what it made."""
    return Owner(OwnerKind.ATTEMPT, task, number, task, number, repo)


def landing_owner(entry: MergeRow) -> Owner:
    """Own the landing of an entry's candidate."""
    return Owner(OwnerKind.ENTRY, entry.key, entry.round, entry.task, entry.attempt, entry.repo)


def tree_owner(gate: Gate, tree: str) -> Owner:
    """Own the verification of a tree: the same tree and gate have one owner, whoever asks."""
    return Owner(OwnerKind.TREE, f"{name_tree(gate.repo.name, tree)}-{gate.digest[:12]}", 1, repo=gate.repo.name)


def name_tree(repo: str, tree: str) -> str:
    """Name a tree, whatever its gate."""
    return f"{repo}/{tree[:20]}"


def convoy_owner(convoy: ConvoyRow) -> Owner:
    """Own the acceptance of a convoy, once for each time it was opened."""
    return Owner(OwnerKind.CONVOY, convoy.name, convoy.opened_seq)


def fetch_owner(repo: RepoRow) -> Owner:
    """Own a fetch of a repository, once for each time it was wanted."""
    return Owner(OwnerKind.REPO, repo.name, repo.fetches, repo=repo.name)


def publish_owner(repo: RepoRow) -> Owner:
    """Own the publishing of what landed, with all its tries until it succeeds."""
    return Owner(OwnerKind.REPO, repo.name, repo.published_seq, repo=repo.name)
