"""A hive, and a person's repository beside it: what every story is played on, whoever keeps the hive."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from hivekeeper.clock import SystemClock
from hivekeeper.commands.plans import Submitted, submit_plan
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec
from hivekeeper.places import Places
from hivekeeper.store.ledger import ByPerson, Ledger, create_ledger, open_ledger
from tests.git import git

ME = ByPerson("ann")


class Repository:
    """A person's repository."""

    def __init__(self, path: Path, environment: Mapping[str, str] | None = None) -> None:
        self.path, self._environment = path, environment
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--template=", "--initial-branch=main")
        for name in ("hooks", "info"):  # as git's own templates have them, whose many files take time
            (path / ".git" / name).mkdir()
        self.commit({"README": "hello\n"}, "first")

    def git(self, *arguments: str) -> str:
        return git(self.path, *arguments, environment=self._environment)

    def commit(self, files: dict[str, str], message: str) -> None:
        for name, text in files.items():
            (self.path / name).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", message)

    def landed(self) -> list[str]:
        """The tasks on the integration branch, oldest first, as their trailers say."""
        return self.git("log", "--reverse", "--format=%(trailers:key=Hive-Task,valueonly)", "hive/main").split()

    def spec(self, *, verify: str | None = None, name: str = "app") -> RepoSpec:
        return RepoSpec(name, str(self.path), "main", verify)


class Stage:
    """A hive in `root`, and perhaps a repository `app` beside it, to be handed plans."""

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        self.root, self.app, self.places = root, root.parent / "app", Places(root)
        self._environment = environment

    def make_hive(self) -> None:
        self.places.hive.mkdir(parents=True, exist_ok=True)
        create_ledger(self.places.ledger)

    def make_repository(self) -> None:
        Repository(self.app, self._environment)

    def git(self, *arguments: str) -> str:
        return git(self.app, *arguments, environment=self._environment)

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Ledger]:
        ledger = open_ledger(self.places.ledger, SystemClock())
        try:
            yield ledger
        finally:
            ledger.close()

    def submit(self, *tasks: TaskSpec, repos: tuple[RepoSpec, ...] = (), convoy: str = "work") -> Submitted:
        with self.ledger() as ledger:
            with ledger.write(ME) as tx:
                submitted = submit_plan(tx, PlanSpec(convoy, tasks, repos))
            self.note_submitted(convoy)  # before the ledger is closed: that would sync what the commit did not
        return submitted

    def note_submitted(self, convoy: str) -> None:
        """Do what a person may do who was told that their plan is submitted."""
