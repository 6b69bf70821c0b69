"""A git that is killed in the archive before any of its changing calls: the next commit goes through, unaided."""

import fcntl
import shutil
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.commands.plans import add_task
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.errors import HiveError
from hivekeeper.git import archive as git_archive
from hivekeeper.git.archive import LOCKED_FOR_S
from tests.archives import commit, get_tip, list_archive_problems
from tests.budget import SOAK, TALLY, sample, shuffle
from tests.crash.gitshim import GitShim
from tests.crash.tracing import Fault, count_points
from tests.stage import ME, Stage

POINTS = 6  # of each git, for one commit
Struck = tuple[str, Fault]
pytestmark = pytest.mark.timeout(120 + SOAK * 3600)


class World:
    """A hive with an archive, put back before each strike; something has happened that is not committed yet."""

    def __init__(self, directory: Path) -> None:
        self.stage = Stage(directory / "hive")
        self.places, self.shim = self.stage.places, GitShim(directory / "shim")
        self._copy = directory / "copy"
        self.stage.make_hive()
        self.stage.submit(TaskSpec("a", "true"))
        with self.stage.ledger() as ledger:
            commit(ledger, self.places)
            with ledger.write(ME) as tx:
                add_task(tx, "work", TaskSpec("b", "true"))
        shutil.copytree(self.places.hive, self._copy, symlinks=True)

    def put_back(self) -> None:
        shutil.rmtree(self.places.hive)
        shutil.copytree(self._copy, self.places.hive, symlinks=True)

    def act(self, who: str) -> None:
        """Commit, as the hive or as a person does in the archive."""
        if who == "person":
            (self.places.archive / "log.jsonl").write_text("a person's\n")
            subprocess.run(("git", "commit", "--quiet", "-am", "mine"), cwd=self.places.archive, check=False)
            return
        with self.stage.ledger() as ledger, suppress(HiveError):
            commit(ledger, self.places)

    def list_points(self, who: str) -> list[Struck]:
        self.put_back()
        with self.shim.installed(record=True):
            self.act(who)
        found = [(name, fault) for name, log in self.shim.read_every_log() for fault in count_points(log)]
        return list(dict.fromkeys(found))

    def strike(self, who: str, point: Struck) -> bool:
        """Kill a git; tell whether it died."""
        self.put_back()
        with self.shim.installed(strike=point[0], fault=point[1]):
            self.act(who)
        return self.shim.has_fired(point[1])

    def list_problems(self, *, later_s: float) -> list[str]:
        """Commit, in one try, and judge what has come of it."""
        with self.stage.ledger() as ledger:
            try:
                commit(ledger, self.places, now=to_text(to_seconds(ledger.clock.now()) + later_s))
            except HiveError as error:
                return [f"wedged: {error}"]
            return list_archive_problems(ledger, self.places)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("who", ["hive", "person"])
def test_whenever_git_is_killed_the_next_commit_succeeds(world: World, who: str) -> None:
    """After a git of ours that is so at once; after a person's, once its locks are old."""
    listed = world.list_points(who)
    assert {name.partition(".")[0] for name, _ in listed} >= (
        {"fast-import", "read-tree"} if who == "hive" else {"commit"}
    )
    wrong, struck = [], Counter[str]()
    for point in sample(listed, POINTS):
        if world.strike(who, point):
            struck[point[0]] += 1
            problems = world.list_problems(later_s=0.0 if who == "hive" else LOCKED_FOR_S + 1)
            wrong += [f"{point[0]} {point[1]}: {problem}" for problem in problems]
    TALLY[f"gits killed in the archive ({who}'s)"] += struck.total()
    assert wrong == []
    assert struck.total() >= min(len(listed), POINTS) // 2


def test_to_remove_the_lock_of_the_index_alone_would_not_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    points = shuffle(world.list_points("person"))
    monkeypatch.setattr(git_archive, "_list_locks", lambda git: [git / "index.lock"])
    wedged = (point for point in points if world.strike("person", point) and is_wedged(world))
    assert next(wedged, None)


def is_wedged(world: World) -> bool:
    return any(problem.startswith("wedged") for problem in world.list_problems(later_s=LOCKED_FOR_S + 1))


LOCKS = ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock", "refs/heads/main.lock")


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_a_persons_git_may_hold_is_left_until_it_is_old(world: World, name: str) -> None:
    lock = world.places.archive / ".git" / name
    lock.touch()
    world.list_problems(later_s=LOCKED_FOR_S - 1)
    assert lock.exists()
    assert world.list_problems(later_s=LOCKED_FOR_S + 1) == []
    assert not lock.exists()


def test_nothing_is_removed_while_a_git_of_ours_lives(world: World) -> None:
    """A git that outlived its keeper, as one whose disk is slow: it inherited the lock that the keeper held."""
    lock, place = world.places.archive / ".git" / "index.lock", world.places.hive / "archive.lock"
    lock.touch()
    with place.open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        git = subprocess.Popen(("sleep", "300"), pass_fds=(held.fileno(),))
    try:
        assert "A git still writes" in str(world.list_problems(later_s=LOCKED_FOR_S + 1))
        assert lock.exists()
    finally:
        git.kill()
        git.wait()
    assert world.list_problems(later_s=LOCKED_FOR_S + 1) == []


def test_after_a_restart_of_the_machine_no_lock_is_anybodys(world: World) -> None:
    lock = world.places.archive / ".git" / "index.lock"
    lock.touch()
    (world.places.hive / "archive.lock").write_text("an earlier boot done\n")
    assert world.list_problems(later_s=0.0) == []
    assert not lock.exists()


def test_an_archive_that_a_power_cut_tore_is_made_again(world: World) -> None:
    (world.places.hive / "archive.lock").write_text("an earlier boot open\n")
    tree = get_tip(world.places).tree
    (world.places.archive / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    (world.places.archive / ".git" / "index").write_bytes(bytes(100))
    assert world.list_problems(later_s=0.0) == []
