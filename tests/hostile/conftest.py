"""A hive with nothing open beside it, a keeper running as it does at night, a person in the middle of something."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hivekeeper.domain.plan import Limits, RepoSpec, TaskSpec
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.hive import open_hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.sandbox.isolation import Level
from hivekeeper.views.status import list_needs
from tests.needs import need
from tests.scenarios.conftest import Scene
from tests.stage import Repository

LONGEST_S = 60.0
GOOD = "GOOD"
PATIENT = Limits(wall_s=20.0, grace_s=0.2)


@dataclass(frozen=True, slots=True)
class Deed:
    """What one bad task does, and how its one attempt must end, in words; none where what it made is to land."""

    id: str
    command: str
    ends: str = ""
    limits: Limits = PATIENT
    repo: str | None = "app"
    outputs: tuple[str, ...] = ()

    def spec(self) -> TaskSpec:
        return TaskSpec(
            self.id, self.command, repo=self.repo, attempts=1, limits=self.limits, outputs=self.outputs, title=self.id
        )


# What it does is what a task ought to do.
GOOD_DEED = Deed(GOOD, "echo good > good; git add good; git commit -qm good")


class Person(Repository):
    """Somebody's repository, with staged, modified, untracked and ignored files, on a branch of their own."""

    def make_dirty(self) -> None:
        self.commit({"kept": "1\n", "piped": "2\n", "swapped": "3\n", ".gitignore": "ignored\n"}, "second")
        self.git("checkout", "--quiet", "-b", "mine")
        self.git("config", "mine.setting", "as it was")
        for name, text in {"staged": "s\n", "kept": "2\n", "untracked": "u\n", "ignored": "i\n"}.items():
            (self.path / name).write_text(text)
        self.git("add", "staged")

    def look(self) -> dict[str, bytes]:
        """Read all of it but objects and the branch that is the hive's to publish."""
        git = self.path if (self.path / "HEAD").exists() else self.path / ".git"
        left_out = [git / "objects", git / "refs" / "heads" / "hive", git / "logs" / "refs" / "heads" / "hive"]
        found: dict[str, bytes] = {}
        for directory, names, files in os.walk(self.path):
            names[:] = [name for name in names if Path(directory, name) not in left_out]
            for path in (Path(directory, name) for name in files):
                content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
                found[str(path)] = b"%o " % path.lstat().st_mode + content
        return found

    def changed(self) -> list[str]:
        """List what the hive's branch has otherwise than main, each with a letter for how."""
        return self.git("diff", "--name-status", "--no-renames", "main", "hive/main").splitlines()


class Theatre(Scene):
    """A hive under attack: its keeper has a thread a loop, and what a worker may touch is what the defaults say."""

    def __init__(self, root: Path, settings: str = "") -> None:
        super().__init__(root)
        (root / "hive.toml").write_text(settings)
        self.hive.close()
        self.hive = open_hive(root, self.clock)

    def start(self, *, workers: int = 4) -> Keeper:
        self.keeper = Keeper(self.hive, workers=workers)
        self.keeper.start()
        return self.keeper

    def wait(self, condition: Callable[[], bool]) -> None:
        keeper = self.keeper or self.start()
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            assert time.monotonic() < deadline, f"it did not come to that in time: {keeper.problems} {self.states()}"
            keeper.wait_for_commit(0.1)

    def play(self, *tasks: TaskSpec, repos: tuple[RepoSpec, ...] = (), convoy: str = "work") -> None:
        """Keep a convoy to its end."""
        self.submit(*tasks, repos=repos, convoy=convoy)
        self.wait(lambda: self.is_over(convoy))

    def is_over(self, convoy: str = "work") -> bool:
        return self.convoy(convoy).state is not ConvoyState.ACTIVE and self.is_quiet()

    def ending(self, task: str) -> str:
        """Tell how a task ended, in words; nothing when well."""
        found = self.task(task)
        return "" if found.state is TaskState.COMPLETE else found.reason or found.state.value

    def needs(self) -> list[str]:
        """List what status tells a person to look at."""
        with self.hive.ledger.read() as connection:
            return [need["what"] for need in list_needs(connection, keeper_is_alive=True)]

    def level(self) -> Level:
        return (self.keeper or self.start()).find_isolation().level

    def assert_unimpressed(self) -> None:
        """Hold against the keeper that a pass failed, or that a sandbox was not as it should be at once."""
        assert self.keeper is not None
        assert self.keeper.problems == {}
        runs = [run for task in self.states() for run in self.runs(task) if run.kind == "sandbox"]
        assert [f"{run.id}: {run.reason}" for run in runs if not run.succeeded] == []


@contextmanager
def open_theatre(root: Path, settings: str = "") -> Iterator[Theatre]:
    theatre = Theatre(root, settings)
    try:
        yield theatre
    finally:
        theatre.end()
        # What is nested too deep for Python would stay for ever, and stop whoever clears up after tests.
        subprocess.run(("rm", "-rf", "--", str(root)), check=True)


@dataclass(frozen=True, slots=True)
class Played:
    """A convoy of bad tasks that is over: its hive, the person's repository, and what that looked like before."""

    theatre: Theatre
    person: Person
    before: dict[str, bytes]

    def show(self, path: str, task: str, attempt: int = 1) -> str:
        """Show a file of what an attempt left, as the mirror has it."""
        mirror = str(self.theatre.hive.places.mirror("app"))
        return self.person.git("--git-dir", mirror, "show", f"refs/hive/attempts/work/{task}/{attempt}:{path}")


@contextmanager
def play(directory: Path, deeds: Sequence[Deed], settings: str = "") -> Iterator[Played]:
    """Keep bad tasks and a good one in one hive, over a repository whose person is in the middle of something."""
    person = Person(directory / "app")
    person.make_dirty()
    before = person.look()
    with open_theatre(directory / "hive", settings) as theatre:
        specs = [deed.spec() for deed in (*deeds, GOOD_DEED)]
        doomed = Person(directory / "doomed").spec(name="doomed")  # for deeds that would leave nothing for the others
        theatre.play(*specs, repos=(person.spec(), doomed))
        yield Played(theatre, person, before)


def by_id(deed: Deed) -> str:
    return deed.id


def require(level: Level, theatre: Theatre) -> None:
    if theatre.level() is not level:
        why = (theatre.keeper or theatre.start()).find_isolation().why
        need(condition=False, why=f"this machine keeps workers apart by {theatre.level()} only: {why}")
