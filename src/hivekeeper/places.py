"""Where everything of a hive lies on disk."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """A hive's directory; `root` holds hive.toml, everything else is under `.hive`."""

    root: Path

    @property
    def hive(self) -> Path:
        """The hive's own directory."""
        return self.root / ".hive"

    @property
    def ledger(self) -> Path:
        """The ledger's database."""
        return self.hive / "ledger.db"

    @property
    def keeper_lock(self) -> Path:
        """The kernel lock that dies with the coordinator."""
        return self.hive / "keeper.lock"

    @property
    def nudge(self) -> Path:
        """The socket that wakes the keeper."""
        return self.hive / "nudge.sock"

    @property
    def log(self) -> Path:
        """What a detached keeper says."""
        return self.hive / "keeper.log"

    @property
    def runs(self) -> Path:
        """One directory a run: claim, output, exit."""
        return self.hive / "runs"

    def mirror(self, repo: str) -> Path:
        """Place the hive's own copy of a repository."""
        return self.hive / "repos" / f"{repo}.git"

    def sandbox(self, task: str, attempt: int) -> Path:
        """Place a worker's clone."""
        return self.hive / "sandboxes" / f"{task}.{attempt}"

    def gate(self, task: str, attempt: int) -> Path:
        """Place a candidate laid out for its gate."""
        return self.hive / "gates" / f"{task}.{attempt}"
