"""Shortage of disk, descriptors and processes: a run that could not start is asked for again, and then runs once."""

import contextlib
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hivekeeper.domain.run import Alive, Ended, Gone, Unclaimed
from hivekeeper.errors import HiveError
from tests.needs import need_program, small_disk
from tests.runs.conftest import Bench, find_nursery, list_children, list_descriptors, poll_until, stays


@pytest.fixture
def scarce(tmp_path: Path, clean_end: None) -> Iterator[Bench]:
    """A bench whose run directories are on a file system of a few pages."""
    with small_disk(tmp_path / "runs", "size=64k", "nr_inodes=64"):
        bench = Bench(tmp_path)
        yield bench
        bench.close()


def fill(bench: Bench) -> Path:
    """Leave no space on the disk."""
    path = bench.root / "ballast"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return path


def fill_inodes(bench: Bench) -> Path:
    """Leave space but no name on the disk."""
    path = bench.root / "ballast"
    path.mkdir()
    with contextlib.suppress(OSError):
        for index in range(1000):
            (path / str(index)).touch()
    return path


def ask_until_ended(bench: Bench, run: str, script: str) -> Ended:
    """Ask as the executor does, again and again while nobody has claimed the run."""
    deadline = time.monotonic() + 10.0
    while isinstance(bench.runs.look(run), Unclaimed):
        assert time.monotonic() < deadline, "it was never claimed"
        with contextlib.suppress(HiveError):
            bench.shell(run, script)
        stays(lambda: isinstance(bench.runs.look(run), Unclaimed), 0.1)
    return bench.wait_ended(run)


@pytest.mark.parametrize("exhaust", [fill, fill_inodes])
def test_a_run_that_found_no_space_for_its_claim_runs_when_there_is(
    scarce: Bench, exhaust: Callable[[Bench], Path]
) -> None:
    bench = scarce
    ballast = exhaust(bench)
    for _ in range(3):
        bench.shell("r", "echo >> marks; exit 3")
        assert stays(lambda: bench.runs.look("r") == Unclaimed(), 0.15)
    if ballast.is_dir():
        shutil.rmtree(ballast)
    else:
        ballast.unlink()
    assert ask_until_ended(bench, "r", "echo >> marks; exit 3").ending.status == 3
    assert len(bench.wait_mark("marks")) == 1
    assert sorted(path.name for path in (bench.root / "r").iterdir()) == ["claim", "exit"], "no drafts are left"
    assert "Z" not in list_children(find_nursery()).values()


def test_a_full_disk_costs_words_and_delays_the_ending_but_loses_no_run(scarce: Bench) -> None:
    bench = scarce
    bench.shell("r", "echo before; while [ ! -e full ]; do sleep 0.02; done; echo after; echo >> said; exit 3")
    bench.wait_alive("r")
    poll_until(lambda: bench.runs.read_output("r") == "before\n", "its first word")
    ballast = fill(bench)
    (bench.place / "full").touch()
    bench.wait_mark("said")
    assert stays(lambda: isinstance(bench.runs.look("r"), Alive), 0.3)
    ballast.unlink()
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (3, "exit")
    assert bench.runs.read_output("r").startswith("before\n")


def test_a_flood_on_a_full_disk_is_still_ended_by_its_limits(scarce: Bench) -> None:
    bench = scarce
    bench.shell("r", "echo >> begun; exec yes", wall_s=0.5, grace_s=0.1)
    bench.wait_mark("begun")
    poll_until(lambda: not bench.find_marked("r") and isinstance(bench.runs.look("r"), Alive | Ended), "its end")
    (bench.root / "r" / "output").unlink(missing_ok=True)
    assert bench.wait_ended("r").ending.ended_by == "wall"


def test_forbidding_on_a_full_disk_is_never_more_than_a_hive_error(scarce: Bench) -> None:
    ballast = fill(scarce)
    with contextlib.suppress(HiveError):
        scarce.runs.forbid("r")
    ballast.unlink()
    scarce.runs.forbid("r")
    assert not isinstance(scarce.runs.look("r"), Unclaimed)


@contextlib.contextmanager
def limited(pid: int, what: int, soft: int) -> Iterator[None]:
    """Lower a limit of a process for a while."""
    before = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (soft, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, what, before)


def test_a_nursery_without_descriptors_starts_the_run_when_it_has_some(bench: Bench) -> None:
    bench.shell("busy", "while [ ! -e go ]; do sleep 0.02; done; exit 2")
    bench.wait_alive("busy")
    nursery = find_nursery()
    with limited(nursery, resource.RLIMIT_NOFILE, 4):
        bench.shell("r", "echo >> marks; exit 3")
        assert stays(lambda: bench.runs.look("r") == Unclaimed(), 0.15)
    assert ask_until_ended(bench, "r", "echo >> marks; exit 3").ending.status == 3
    (bench.place / "go").touch()
    assert bench.wait_ended("busy").ending.status == 2
    assert len(bench.wait_mark("marks")) == 1


def test_a_nursery_without_descriptors_goes_on_living(bench: Bench) -> None:
    bench.shell("busy", "exec sleep 60")
    bench.wait_alive("busy")
    nursery = find_nursery()
    with limited(nursery, resource.RLIMIT_NOFILE, 4):
        bench.shell("r", "exit 3")
        assert stays(lambda: list_children(os.getpid()).get(nursery, "Z") != "Z", 0.15)


@pytest.mark.parametrize("spare", range(1, 7))
def test_a_wrapper_without_descriptors_says_that_it_could_not_start_the_run(bench: Bench, spare: int) -> None:
    """After the claim nothing may end in silence: a run that surely never began must not count as lost."""
    first = bench.finish_and_rest("first", "true")
    used = max(list_descriptors(first.claim.pid))
    with limited(first.claim.pid, resource.RLIMIT_NOFILE, used + spare):
        bench.shell("r", "exit 3")
        poll_until(lambda: not isinstance(bench.runs.look("r"), Unclaimed) or spare == 1, "a claim")
        poll_until(lambda: not isinstance(bench.runs.look("r"), Alive), "a settled run")
    look = ask_until_ended(bench, "r", "exit 3") if spare == 1 else bench.runs.look("r")
    assert isinstance(look, Ended)
    assert (look.ending.ended_by, look.ending.status) in (("could-not-start", 75), ("exit", 3))


def test_a_keeper_without_descriptors_is_never_more_than_a_hive_error_and_recovers(bench: Bench) -> None:
    bench.shell("r", "while [ ! -e go ]; do sleep 0.02; done; exit 3")
    poll_until((bench.root / "r" / "claim").exists, "a claim")
    problems = []
    other = bench.open()
    asks: dict[str, Callable[[], object]] = {
        "look": lambda: other.look("r"),
        "read_output": lambda: other.read_output("r"),
        "start": lambda: other.start(bench.order("s", ["sh", "-c", "echo >> marks; exit 4"])),
        "stop": lambda: other.stop("nobody"),
        "forbid": lambda: other.forbid("nobody"),
    }
    with limited(os.getpid(), resource.RLIMIT_NOFILE, max(list_descriptors()) + 1), _all_taken():
        for name, ask in asks.items():
            try:
                ask()
            except HiveError:
                pass
            except OSError as error:
                problems.append(f"{name}: {error}")
    other.start(bench.order("s", ["sh", "-c", "echo >> marks; exit 4"]))
    assert bench.wait_ended("s").ending.status == 4
    (bench.place / "go").touch()
    assert bench.wait_ended("r").ending.status == 3
    assert len(bench.wait_mark("marks")) == 1
    assert problems == []


def test_a_keeper_without_descriptors_takes_no_run_for_gone(bench: Bench) -> None:
    """What cannot be read now is not known now: a run that lives, or never began, must not become a lost one."""
    bench.shell("living", "exec sleep 60")
    bench.finish("ended", "true")
    poll_until((bench.root / "living" / "claim").exists, "a claim")
    other, looks = bench.open(), []
    with limited(os.getpid(), resource.RLIMIT_NOFILE, max(list_descriptors()) + 1), _all_taken():
        for run in ("living", "ended", "never"):
            with contextlib.suppress(HiveError, OSError):
                looks.append((run, other.look(run)))
    assert [(run, look) for run, look in looks if isinstance(look, Gone)] == []


@contextlib.contextmanager
def _all_taken() -> Iterator[None]:
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    try:
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)


# Root has no limit of processes, so the keeper is a user that nobody else is, who may read everything all the same.
ONLY_READ = "-all,+dac_override"
AS_NOBODY_ELSE = (
    *("setpriv", "--reuid=54321", "--clear-groups", f"--inh-caps={ONLY_READ}"),
    *(f"--ambient-caps={ONLY_READ}", f"--bounding-set={ONLY_READ}"),
)
through = AS_NOBODY_ELSE if os.geteuid() == 0 else ()


def test_a_nursery_that_may_not_fork_starts_the_run_when_it_may(bench: Bench) -> None:
    if through:
        need_program("setpriv", "root has no limit of processes, so somebody else is needed")
    program = """
        import resource
        shell("busy", "while [ ! -e go ]; do sleep 0.02; done; exit 2")
        while not isinstance(runs.look("busy"), Alive):
            time.sleep(0.01)
        print("busy", flush=True)
        for line in sys.stdin:
            pid, limit = map(int, line.split())
            resource.prlimit(pid, resource.RLIMIT_NPROC, (limit, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
            shell("r", "echo >> marks; exit 3")
            print("asked", flush=True)
        """
    keeper = bench.spawn_keeper(program, through)
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == b"busy\n"
    nursery = find_nursery(keeper.pid)
    for limit in (0, 0, 0, 4000):
        assert stays(lambda: bench.runs.look("r") == Unclaimed(), 0.15)
        keeper.stdin.write(b"%d %d\n" % (nursery, limit))
        keeper.stdin.flush()
        assert keeper.stdout.readline() == b"asked\n"
    assert bench.wait_ended("r").ending.status == 3
    assert find_nursery(keeper.pid) == nursery
    (bench.place / "go").touch()
    assert bench.wait_ended("busy").ending.status == 2
    assert len(bench.wait_mark("marks")) == 1
