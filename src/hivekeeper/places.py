"""Where everything of a hive lies on disk."""

import sys
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class Places:
    """A hive's directory; `root` holds hive.toml, everything else is under `.hive`."""

    root: Path

    def name(self, word: str) -> str:
        """Write a path as a name that another machine can resolve; any other word as it is.

        `{hive}` stands for `root`, `{package}` for this program's files and `{python}` for the interpreter that runs
        them. A word of somebody else's that begins with a brace is kept apart by a second one.
        """
        for mark, path in self._known:
            if word == path or word.startswith(f"{path}/"):
                return mark + word[len(path) :]
        return f"{{{word}" if word.startswith("{") else word

    def resolve(self, word: str) -> str:
        """Write a named path as this machine has it."""
        if word.startswith("{{"):
            return word[1:]
        return next((path + word[len(mark) :] for mark, path in self._known if word.startswith(mark)), word)

    @property
    def _known(self) -> tuple[tuple[str, str], ...]:
        return ("{hive}", str(self.root)), ("{package}", _PACKAGE), ("{python}", sys.executable)

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

    @property
    def isolation(self) -> Path:
        """What the self-test of the sandbox found."""
        return self.hive / "isolation.json"

    @property
    def seance(self) -> Path:
        """The index of what agents did, which can be made again."""
        return self.hive / "seance.db"

    @property
    def archive(self) -> Path:
        """The hive's own repository: the ledger as files."""
        return self.hive / "archive"

    @property
    def agents(self) -> Path:
        """The agents' own files: a directory for each."""
        return self.hive / "agents"

    def mirror(self, repo: str) -> Path:
        """Place the hive's own copy of a repository, with all that workers made: no worker can read it."""
        return self.hive / "repos" / f"{repo}.git"

    def public(self, repo: str) -> Path:
        """Place what has landed in a repository and its history, which is what workers may read."""
        return self.hive / "public" / f"{repo}.git"

    def cache(self, repo: str) -> Path:
        """Place what a repository's setup made, by the hash of its lock files."""
        return self.hive / "caches" / repo

    def prompt(self, digest: str) -> Path:
        """Place what a worker is told."""
        return self.hive / "prompts" / f"{digest}.md"

    def sandbox(self, task: str, attempt: int) -> Path:
        """Place a worker's sandbox: `work` is its clone, beside it `home` and `tmp`."""
        return self.hive / "sandboxes" / f"{task}.{attempt}"

    def mailbox(self, task: str, attempt: int) -> Path:
        """Place a worker's mailbox, in its sandbox."""
        return self.sandbox(task, attempt) / "mail"

    @property
    def worker_bin(self) -> Path:
        """Place the programs for workers: their PATH begins with it."""
        return Path(_PACKAGE) / "worker" / "bin"

    def kept(self, task: str, attempt: int) -> Path:
        """Place what an attempt without a repository left of its outputs."""
        return self.hive / "kept" / f"{task}.{attempt}"

    def session(self, task: str, attempt: int) -> Path:
        """Place what agent programs wrote down of an attempt's sessions."""
        return self.hive / "sessions" / f"{task}.{attempt}"

    def checkout(self, repo: str, number: int) -> Path:
        """Place a directory in which candidates of a repository are verified, one after the other."""
        return self.hive / "checkouts" / f"{repo}.{number}"

    def gate(self, task: str, attempt: int) -> Path:
        """Place a directory in which a conflict is settled: `work` is the merged tree, beside it `home` and `tmp`."""
        return self.hive / "gates" / f"{task}.{attempt}"
