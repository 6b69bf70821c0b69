"""A run starts at most once, however often and by however many keepers it is asked for or forbidden."""

import subprocess
import time
from collections.abc import Sequence

import pytest

from hivekeeper.domain.run import Alive, Ended, Gone
from tests.runs.conftest import Bench, list_marks, poll_until, stays

MARK = "echo $$ >> marks"


def release(keepers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let keepers that wait for it go at the same moment."""
    for keeper in keepers:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"ready\n"
    for keeper in keepers:
        assert keeper.stdin is not None
        keeper.stdin.write(b"go\n")
        keeper.stdin.flush()
    for keeper in keepers:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"done\n"


def test_a_run_asked_for_fifty_times_by_one_keeper_starts_once(bench: Bench) -> None:
    for _ in range(50):
        bench.shell("r", MARK)
    bench.wait_ended("r")
    bench.finish("last", "true")
    assert stays(lambda: len(bench.wait_mark("marks")) == 1, 0.15)


def test_a_run_asked_for_by_many_keepers_in_several_processes_at_once_starts_once(bench: Bench) -> None:
    program = """
        held = [runs, *(LocalRuns(place / "runs", "other-name") for _ in range(3))]
        orders = [Order(f"r{i}", "test", ("sh", "-c", f"echo r{i} >> marks"), str(place), {}, {}) for i in range(8)]
        for number, one in enumerate(held):
            one.start(Order(f"warm{os.getpid()}.{number}", "test", ("true",), str(place), {}, {}))
        print("ready", flush=True); sys.stdin.readline()
        for order in orders:
            for _ in range(4):
                for one in held:
                    one.start(order)
        print("done", flush=True); sys.stdin.readline()
        """
    release([bench.spawn_keeper(program) for _ in range(4)])
    for index in range(8):
        assert bench.wait_ended(f"r{index}", 30.0).ending.status == 0
    assert stays(lambda: len(list_marks(bench.place / "marks")) == 8, 0.15)
    assert sorted(list_marks(bench.place / "marks")) == [f"r{index}" for index in range(8)]


def test_an_ended_run_asked_for_again_stays_as_it_ended(bench: Bench) -> None:
    ended = bench.finish("r", f"{MARK}; echo first; exit 3")
    bench.shell("r", f"{MARK}; echo second; exit 4")
    bench.finish("after", "true")
    assert stays(lambda: bench.runs.look("r") == ended, 0.15)
    assert (bench.runs.read_output("r"), len(bench.wait_mark("marks"))) == ("first\n", 1)


def test_a_living_run_asked_for_again_goes_on_undisturbed(bench: Bench) -> None:
    bench.shell("r", f"{MARK}; while [ ! -e go ]; do sleep 0.02; done; exit 3")
    claim = bench.wait_alive("r")
    other = bench.open()
    other.start(bench.order("r", ["sh", "-c", f"{MARK}; exit 4"]))
    assert stays(lambda: bench.runs.look("r") == Alive(claim), 0.15)
    (bench.place / "go").touch()
    assert bench.wait_ended("r").ending.status == 3
    assert len(bench.wait_mark("marks")) == 1


def test_a_gone_run_asked_for_again_stays_gone(bench: Bench) -> None:
    bench.shell("r", f"{MARK}; kill -9 $PPID; exit 0")
    bench.wait_gone("r")
    bench.shell("r", MARK)
    bench.finish("after", "true")
    assert stays(lambda: isinstance(bench.runs.look("r"), Gone), 0.15)
    assert len(bench.wait_mark("marks")) == 1


def test_a_forbidden_run_never_starts(bench: Bench) -> None:
    bench.runs.forbid("r")
    assert bench.runs.look("r") == Gone(None, why="it was cancelled before it started")
    bench.shell("r", MARK)
    bench.finish("after", "true")
    assert stays(lambda: not (bench.place / "marks").exists(), 0.15)
    bench.runs.forbid("r")
    assert bench.runs.look("r") == Gone(None, why="it was cancelled before it started")


def test_forbidding_changes_nothing_for_a_run_that_lives_or_has_ended(bench: Bench) -> None:
    bench.shell("r", "while [ ! -e go ]; do sleep 0.02; done; exit 3")
    claim = bench.wait_alive("r")
    bench.runs.forbid("r")
    assert bench.runs.look("r") == Alive(claim)
    (bench.place / "go").touch()
    ended = bench.wait_ended("r")
    bench.runs.forbid("r")
    assert bench.runs.look("r") == ended
    assert sorted(path.name for path in (bench.root / "r").iterdir()) == ["claim", "exit"]


def test_forbidding_and_starting_at_once_means_never_or_once_and_the_look_knows_which(bench: Bench) -> None:
    program = """
        shell(f"warm{os.getpid()}", "true")
        print("ready", flush=True); sys.stdin.readline()
        begun = time.monotonic()
        for i in range(40):
            # Both turn to the same run at about the same moment; the forbidder from too early to too late.
            at = begun + i * 0.01 + (i % 12 * 0.0003 if forbids else 0.0)
            while time.monotonic() < at:
                pass
            if forbids:
                runs.forbid(f"r{i}")
            else:
                shell(f"r{i}", f"echo r{i} >> marks")
        print("done", flush=True); sys.stdin.readline()
        """
    release([bench.spawn_keeper(program, forbids=forbids) for forbids in (True, False)])
    poll_until(lambda: all(isinstance(bench.runs.look(f"r{i}"), Ended | Gone) for i in range(40)), "all settled")
    ended = [f"r{i}" for i in range(40) if isinstance(bench.runs.look(f"r{i}"), Ended)]
    assert sorted(list_marks(bench.place / "marks")) == sorted(ended)
    for index in range(40):
        assert [path.name for path in (bench.root / f"r{index}").glob("claim.*")] == []


@pytest.mark.alone
def test_a_run_asked_for_while_its_nursery_is_busy_with_many_is_not_forgotten(bench: Bench) -> None:
    started = time.monotonic()
    for index in range(60):
        bench.shell(f"r{index}", f"echo {index} >> marks; exec sleep 60")
    marks = bench.wait_mark("marks", 60)
    assert sorted(map(int, marks)) == list(range(60))
    assert time.monotonic() - started < 10.0
