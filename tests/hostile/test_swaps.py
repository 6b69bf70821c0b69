"""A worker swaps directories for links under our eyes: nothing outside of its sandbox is ever read for it."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.commands.runs import kill_worker
from hivekeeper.domain.plan import Limits, TaskSpec
from hivekeeper.domain.states import RunState
from hivekeeper.git.clone import hash_file
from hivekeeper.sandbox.collect import OUTPUTS_MISSING
from hivekeeper.sandbox.isolation import Level
from hivekeeper.sandbox.orders import collect_outputs
from tests.hostile.conftest import Person, Theatre, open_theatre, require
from tests.stage import ME

CANARY = "PRIVATE-KEY-OF-THE-PERSON"
ROUNDS = 10_000
SAVES = 12

# Exchanges a directory and a link to the secret one, as fast as it can, in the tree and among git's own objects.
SWAPPER = f"""
import ctypes, itertools, os, pathlib, sys
libc, here, secret, done = ctypes.CDLL(None), pathlib.Path(), sys.argv[1], pathlib.Path("rounds")
pairs = []
for number in range(8):
    for name in (f"a{{number:02}}", f"z{{number:02}}", f"ignored/b{{number:02}}"):
        (here / name).mkdir(parents=True)
        (here / name / "key").write_text("harmless")
        (here / f"{{name}}.link").symlink_to(secret)
        pairs.append((name, f"{{name}}.link"))
(here / ".gitignore").write_text("ignored/\\n")
for rounds in itertools.count():
    for first, second in pairs:
        libc.renameat2(-100, first.encode(), -100, second.encode(), 2)
    if rounds == {ROUNDS}:
        done.write_text("done")
"""


def swap(theatre: Theatre, person: Person, secret: Path) -> None:
    """Have a worker swap for many rounds while what it makes is saved again and again, then end it."""
    command = f"python3=$(command -v python3) && exec $python3 -c {shlex.quote(SWAPPER)} {shlex.quote(str(secret))}"
    limits = Limits(wall_s=300.0, grace_s=0.2)
    theatre.submit(TaskSpec("A", command, repo="app", attempts=1, limits=limits), repos=(person.spec(),))
    rounds = theatre.hive.places.sandbox("work/A", 1) / "work" / "rounds"

    def is_saved() -> bool:
        saves = [run for run in theatre.runs("A") if run.kind == "save" and run.state is RunState.EXITED]
        return rounds.exists() and len(saves) >= SAVES

    theatre.wait(is_saved)
    with theatre.hive.ledger.write(ME) as tx:
        kill_worker(tx, theatre.attempts("A")[-1])
    theatre.wait(theatre.is_over)


def read_everything(repository: Path) -> str:
    """Read every object of a repository, reachable or not, and what is packed in them."""
    argv = ("git", f"--git-dir={repository}", "cat-file", "--batch-all-objects", "--batch")
    return subprocess.run(argv, check=True, capture_output=True).stdout.decode("latin-1")


@pytest.mark.parametrize("level", [Level.NAMESPACES, Level.LANDLOCK])
def test_a_directory_swapped_for_a_link_brings_nothing_from_outside_the_sandbox(tmp_path: Path, level: Level) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text(CANARY)
    person = Person(tmp_path / "app")
    settings = f'[sandbox]\nlevel = "{level}"\nsnapshot_every = "0.05s"\n'
    with open_theatre(tmp_path / "hive", settings) as theatre:
        require(level, theatre)
        swap(theatre, person, secret)
        places = theatre.hive.places
        kept = read_everything(places.mirror("app")) + read_everything(places.public("app"))
        assert "harmless" in kept, "what it made is kept"
        assert CANARY not in kept


@pytest.fixture
def swapped(tmp_path: Path) -> Iterator[Path]:
    """Give a directory in which a process left behind swaps directories for links without end."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text(CANARY)
    work = tmp_path / "work"
    work.mkdir()
    argv = (sys.executable, "-c", SWAPPER, str(tmp_path / "secret"))
    swapper = subprocess.Popen(argv, cwd=work)
    while not (work / ".gitignore").exists():
        assert swapper.poll() is None
    try:
        yield work
    finally:
        swapper.kill()
        swapper.wait()


def test_an_output_swapped_for_a_link_brings_nothing_from_outside_the_sandbox(swapped: Path, tmp_path: Path) -> None:
    outputs = ("a00", "ignored", "z07/key")
    for number in range(40):
        argv = collect_outputs(swapped, tmp_path / "kept", tmp_path / "target" / str(number), outputs)
        subprocess.run(argv, check=False, capture_output=True)
    found = [path for place in ("kept", "target") for path in (tmp_path / place).rglob("key")]
    assert found, "now and then all of it is collected"
    assert {path.read_text() for path in found} == {"harmless"}


def test_an_output_is_never_put_behind_a_link_that_another_worker_swaps_in(swapped: Path, tmp_path: Path) -> None:
    work, secret = tmp_path / "other", tmp_path / "secret"
    (work / "a00").mkdir(parents=True)
    (work / "a00" / "key").write_text("harmful")
    (secret / "docs").mkdir()
    (secret / "docs" / "old").write_text(CANARY)
    (work / "a00" / "docs").mkdir()
    (work / "a00" / "docs" / "new").write_text("harmful")
    ended = set()
    for _ in range(60):
        argv = collect_outputs(work, tmp_path / "kept", swapped, ("a00/key", "a00/docs"))
        ended.add(subprocess.run(argv, check=False, capture_output=True).returncode)
    assert 0 in ended, "now and then the directory was there"
    found = {path.relative_to(secret).as_posix(): path.read_text() for path in secret.rglob("*") if path.is_file()}
    assert found == {"key": CANARY, "docs/old": CANARY}


def test_an_output_behind_a_link_that_is_there_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "work" / "build").mkdir(parents=True)
    (tmp_path / "work" / "build" / "docs").write_text("new")
    (tmp_path / "outside").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "build").symlink_to(tmp_path / "outside")
    argv = collect_outputs(tmp_path / "work", tmp_path / "kept", tmp_path / "target", ("build/docs",))
    ended = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert ended.returncode == OUTPUTS_MISSING
    assert ended.stdout.strip() == "build, where docs belongs, is a link or no directory"
    assert not list((tmp_path / "outside").iterdir())
    assert (tmp_path / "kept" / "build" / "docs").read_text() == "new"


def test_a_changed_file_is_never_looked_for_behind_a_link(swapped: Path, tmp_path: Path) -> None:
    seen = {hash_file(swapped, "a00/key") for _ in range(20_000)}
    secret = hash_file(tmp_path / "secret", "key")
    assert None in seen, "the link was there"
    assert len(seen) == 2
    assert secret not in seen
