"""Every change of a run is told within a second: its start, its end, its wrapper's death, whoever started it."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from hivekeeper.domain.run import Alive, Ended, Gone
from tests.runs.conftest import Bench, find_nursery, poll_until, stays, wait_dead

pytestmark = pytest.mark.alone

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done"


def quiet(bench: Bench) -> None:
    """Wait until everything told so far has been told."""
    poll_until(lambda: not bench.changes or time.monotonic() - bench.changes[-1] > 0.1, "quiet")
    bench.changes.clear()


def wait_told(bench: Bench, what: str) -> None:
    """Wait for the next word, at most a second."""
    poll_until(lambda: bool(bench.changes), f"a word about {what}", 1.0)


def test_a_start_is_told(bench: Bench) -> None:
    bench.finish("warm", "true")
    quiet(bench)
    bench.shell("r", "exec sleep 60")
    wait_told(bench, "the start")
    assert isinstance(bench.runs.look("r"), Alive)


def test_an_end_is_told_when_the_look_shows_it(bench: Bench) -> None:
    bench.shell("r", f"{WAIT_FOR_GO}; exit 3")
    bench.wait_alive("r")
    quiet(bench)
    (bench.place / "go").touch()
    wait_told(bench, "the end")
    assert isinstance(bench.runs.look("r"), Ended)


def test_an_end_is_told_although_nobody_ever_looked(bench: Bench) -> None:
    bench.shell("r", f"echo >> begun; {WAIT_FOR_GO}; exit 3")
    bench.wait_mark("begun")
    wait_told(bench, "the start")
    quiet(bench)
    (bench.place / "go").touch()
    wait_told(bench, "the end")
    assert isinstance(bench.runs.look("r"), Ended)


def test_the_death_of_a_wrapper_is_told(bench: Bench) -> None:
    bench.shell("r", "exec sleep 60")
    claim = bench.wait_alive("r")
    quiet(bench)
    os.kill(claim.pid, signal.SIGKILL)
    wait_told(bench, "the wrapper's death")
    assert isinstance(bench.runs.look("r"), Gone)


def test_the_death_of_a_wrapper_is_told_although_nobody_ever_looked(bench: Bench) -> None:
    bench.shell("r", "echo $PPID >> wrapper; exec sleep 60")
    (wrapper,) = bench.wait_mark("wrapper")
    wait_told(bench, "the start")
    quiet(bench)
    os.kill(int(wrapper), signal.SIGKILL)
    wait_told(bench, "the wrapper's death")
    assert isinstance(bench.runs.look("r"), Gone)


def test_the_end_of_an_adopted_run_is_told(bench: Bench) -> None:
    bench.shell("r", f"{WAIT_FOR_GO}; exit 3")
    bench.wait_alive("r")
    bench.reopen()
    bench.wait_alive("r")
    quiet(bench)
    (bench.place / "go").touch()
    wait_told(bench, "the end of an adopted run")
    assert isinstance(bench.runs.look("r"), Ended)


def test_the_end_of_a_run_adopted_from_a_killed_keeper_is_told(bench: Bench) -> None:
    program = f"""
        shell("r", "{WAIT_FOR_GO}; exit 3")
        while not isinstance(runs.look("r"), Alive):
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
        """
    bench.spawn_keeper(program).wait()
    bench.wait_alive("r")
    quiet(bench)
    (bench.place / "go").touch()
    wait_told(bench, "the end of an adopted run")
    assert isinstance(bench.runs.look("r"), Ended)


def test_the_death_of_an_adopted_wrapper_is_told(bench: Bench) -> None:
    bench.shell("r", "exec sleep 60")
    bench.wait_alive("r")
    bench.reopen()
    claim = bench.wait_alive("r")
    quiet(bench)
    os.kill(claim.pid, signal.SIGKILL)
    wait_told(bench, "the adopted wrapper's death")
    assert isinstance(bench.runs.look("r"), Gone)


def test_the_end_of_a_run_is_told_although_its_nursery_was_killed_and_replaced(bench: Bench) -> None:
    bench.shell("r", f"{WAIT_FOR_GO}; exit 3")
    bench.wait_alive("r")
    nursery = find_nursery()
    os.kill(nursery, signal.SIGKILL)
    wait_dead(nursery)
    bench.finish("next", "true")
    quiet(bench)
    (bench.place / "go").touch()
    wait_told(bench, "the end")
    assert isinstance(bench.runs.look("r"), Ended)


@contextlib.contextmanager
def busy_thread() -> Iterator[None]:
    """Keep the interpreter's lock in use, so that every other thread is a little late."""
    done = threading.Event()

    def keep_busy() -> None:
        while not done.is_set():
            pass

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_changes_are_told_however_often_the_nursery_was_killed(bench: Bench) -> None:
    """Its successor takes its place at the very moment in which its last words are read."""
    with busy_thread():
        for index in range(3):
            bench.finish(f"r{index}", "true")
            nursery = find_nursery()
            os.kill(nursery, signal.SIGKILL)
            wait_dead(nursery)
    bench.shell("last", f"echo >> begun; {WAIT_FOR_GO}; exit 3")
    bench.wait_mark("begun")
    wait_told(bench, "the start")
    quiet(bench)
    (bench.place / "go").touch()
    wait_told(bench, "the end")


def test_nothing_is_told_and_nothing_spins_while_nothing_happens(bench: Bench) -> None:
    bench.shell("r", "exec sleep 60")
    bench.finish("short", "true")
    claim = bench.wait_alive("r")
    bench.shell("gone", "kill -9 $PPID")
    bench.wait_gone("gone")
    quiet(bench)
    before = os.times()
    assert stays(lambda: not bench.changes, 0.4)
    after = os.times()
    # The waiting itself looks a hundred times a second.
    assert after.user + after.system - before.user - before.system < 0.2
    assert bench.runs.look("r") == Alive(claim)
