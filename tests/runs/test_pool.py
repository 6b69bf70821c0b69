"""Wrappers are few, are used again, leave when nobody needs them, and leave nothing behind."""

import contextlib
import os
import signal
import subprocess
import threading
import time

import pytest

from hivekeeper.domain.run import Ended
from hivekeeper.errors import HiveError
from tests.runs.conftest import (
    Bench,
    find_nursery,
    is_running,
    list_children,
    list_descriptors,
    list_nurseries,
    poll_until,
    wait_dead,
)

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done"


def burst(bench: Bench, name: str, count: int) -> None:
    """Have so many runs at the same time, and then none."""
    for index in range(count):
        bench.shell(f"{name}{index}", f"echo >> {name}; while [ ! -e {name}.go ]; do sleep 0.02; done")
    bench.wait_mark(name, count)
    (bench.place / f"{name}.go").touch()
    for index in range(count):
        bench.wait_ended(f"{name}{index}")


def test_as_many_wrappers_as_runs_at_once_and_each_wraps_one_at_a_time(bench: Bench) -> None:
    for index in range(20):
        bench.shell(f"r{index}", f"{WAIT_FOR_GO}; exit 0")
    assert len({bench.wait_alive(f"r{index}").pid for index in range(20)}) == 20
    (bench.place / "go").touch()
    assert all(isinstance(bench.wait_ended(f"r{index}"), Ended) for index in range(20))


@pytest.mark.alone
def test_free_wrappers_leave_after_some_seconds_also_while_others_work(bench: Bench) -> None:
    burst(bench, "idle", 8)
    idle = find_nursery()
    first, bench.runs = bench.runs, bench.open()
    burst(bench, "busy", 8)
    (busy,) = set(list_nurseries(os.getpid())) - {idle}
    assert len(list_children(idle)) >= 8
    assert len(list_children(busy)) >= 8
    began, index = time.monotonic(), 0
    while time.monotonic() - began < 8.0 and (list_children(idle) or len(list_children(busy)) > 3):
        bench.finish(f"trickle{index}", "sleep 0.5")
        index += 1
    assert list_children(idle) == {}
    assert len(list_children(busy)) <= 3
    bench.runs = first
    assert bench.finish("again", "exit 3").ending.status == 3


def test_everything_leaves_when_the_keeper_lets_go(bench: Bench) -> None:
    burst(bench, "many", 10)
    nursery = find_nursery()
    wrappers = list(list_children(nursery))
    assert wrappers
    bench.reopen()
    poll_until(lambda: not any(map(is_running, [nursery, *wrappers])), "nobody is left", 3.0)


def test_everything_leaves_when_the_keeper_is_killed(bench: Bench) -> None:
    program = """
        for i in range(5):
            shell(f"r{i}", "true")
        while not all(isinstance(runs.look(f"r{i}"), Ended) for i in range(5)):
            time.sleep(0.01)
        print("ended", flush=True)
        sys.stdin.readline()
        """
    keeper = bench.spawn_keeper(program)
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == b"ended\n"
    nursery = find_nursery(keeper.pid)
    everybody = [nursery, *list_children(nursery)]
    keeper.kill()
    keeper.wait()
    poll_until(lambda: not any(map(is_running, everybody)), "nobody is left", 3.0)


def test_busy_wrappers_leave_when_the_keeper_lets_go_and_their_run_has_ended(bench: Bench) -> None:
    bench.shell("r", f"{WAIT_FOR_GO}; exit 3")
    claim = bench.wait_alive("r")
    bench.reopen()
    assert is_running(claim.pid)
    (bench.place / "go").touch()
    bench.wait_ended("r")
    poll_until(lambda: not is_running(claim.pid), "the wrapper left", 3.0)


def test_the_nursery_has_no_zombies(bench: Bench) -> None:
    for index in range(10):
        bench.shell(f"r{index}", "kill -9 $PPID")
    for index in range(10):
        bench.wait_gone(f"r{index}")
    burst(bench, "many", 5)
    assert "Z" not in list_children(find_nursery()).values()


@pytest.mark.alone
def test_five_hundred_runs_in_a_row_need_few_wrappers_and_leave_no_descriptor_open_anywhere(bench: Bench) -> None:
    first = bench.finish_and_rest("warm", "true")
    here, nursery = len(list_descriptors()), find_nursery()
    there, inside = len(list_descriptors(nursery)), len(list_descriptors(first.claim.pid))
    wrappers = set()
    for index in range(500):
        bench.runs.start(bench.order(f"r{index}", ["no-such-command"] if index % 50 == 0 else ["true"]))
        wrappers.add(bench.wait_ended(f"r{index}").claim.pid)
    last = bench.finish_and_rest("last", "true")
    assert len(wrappers) <= 5
    # A wrapper more is one channel there and one watch here.
    more = len(list_children(nursery)) - 1
    assert len(list_descriptors()) <= here + more
    assert len(list_descriptors(nursery)) <= there + more
    assert len(list_descriptors(last.claim.pid)) <= inside


def test_wrappers_that_left_long_ago_leave_no_descriptor_open_here(bench: Bench) -> None:
    """A keeper with a run every minute meets a new wrapper each time, since free ones leave after seconds."""
    bench.finish("warm", "true")
    before = len(list_descriptors())
    for index in range(12):
        claim = bench.finish_and_rest(f"r{index}", "true").claim
        os.kill(claim.pid, signal.SIGKILL)
        wait_dead(claim.pid)
    bench.finish("last", "true")
    poll_until(
        lambda: len(list_descriptors()) <= before + 2, f"{len(list_descriptors())} descriptors, {before} before", 2.0
    )


def test_nurseries_that_died_leave_no_descriptor_open_here(bench: Bench) -> None:
    bench.finish("warm", "true")
    before = len(list_descriptors())
    for index in range(6):
        nursery = find_nursery()
        os.kill(nursery, signal.SIGKILL)
        wait_dead(nursery)
        bench.finish(f"r{index}", "true")
    poll_until(
        lambda: len(list_descriptors()) <= before + 2, f"{len(list_descriptors())} descriptors, {before} before", 2.0
    )


def test_opening_and_closing_keepers_leaves_no_descriptor_or_thread(bench: Bench) -> None:
    bench.finish("warm", "true")
    before, threads = len(list_descriptors()), threading.active_count()
    for index in range(6):
        bench.reopen()
        bench.finish(f"r{index}", "true")
    assert len(list_descriptors()) <= before
    assert threading.active_count() <= threads


@pytest.mark.alone
def test_a_free_wrapper_killed_just_before_a_start_holds_up_nobody(bench: Bench) -> None:
    """Its end and the order reach the nursery at once: the new wrapper's channel has the dead one's number."""
    first = bench.finish_and_rest("first", "true")
    nursery = find_nursery()
    os.kill(nursery, signal.SIGSTOP)
    poll_until(lambda: list_children(os.getpid()).get(nursery) == "T", "the nursery is stopped")
    os.kill(first.claim.pid, signal.SIGKILL)
    wait_dead(first.claim.pid)
    bench.shell("long", f"{WAIT_FOR_GO}; exit 3")
    os.kill(nursery, signal.SIGCONT)
    bench.wait_alive("long")
    bench.shell("other", "exit 4")
    try:
        assert bench.wait_ended("other", 3.0).ending.status == 4
    finally:
        (bench.place / "go").touch()
    assert bench.wait_ended("long").ending.status == 3


@pytest.mark.alone
def test_a_free_wrapper_that_is_frozen_holds_up_only_what_it_was_handed(bench: Bench) -> None:
    first = bench.finish_and_rest("first", "true")
    os.kill(first.claim.pid, signal.SIGSTOP)
    big = {"BIG": "x" * 100_000, "BIGGER": "y" * 100_000, "BIGGEST": "z" * 100_000}
    bench.runs.start(bench.order("large", ["sh", "-c", "exit 5"], big))
    assert bench.wait_ended("large", 3.0).ending.status == 5, "what it could not take at once went to another"
    os.kill(bench.runs.look("large").claim.pid, signal.SIGSTOP)  # type: ignore[union-attr]  # it has ended
    bench.runs.start(bench.order("handed", ["sh", "-c", "echo >> marks; exit 3"]))
    bench.shell("other", "exit 4")
    try:
        bench.runs.start(bench.order("other", ["sh", "-c", "exit 4"]))  # as the executor asks again
        assert bench.wait_ended("other", 3.0).ending.status == 4
        bench.runs.start(bench.order("handed", ["sh", "-c", "echo >> marks; exit 3"]))
        assert bench.wait_ended("handed", 3.0).ending.status == 3
    finally:
        os.kill(first.claim.pid, signal.SIGCONT)
        os.kill(bench.runs.look("large").claim.pid, signal.SIGCONT)  # type: ignore[union-attr]  # it has ended
    bench.finish("last", "true")
    assert len(bench.wait_mark("marks")) == 1


@pytest.mark.alone
@pytest.mark.parametrize("ask", ["start", "close"])
def test_a_frozen_nursery_holds_up_nobody(bench: Bench, ask: str) -> None:
    """Nothing waits inside a pass, and a keeper told to leave leaves; a nursery can be killed without harm."""
    runs = bench.runs
    bench.finish_and_rest("first", "true")
    nursery = find_nursery()
    big = bench.order("big", ["true"], {f"BIG{index}": "x" * 100_000 for index in range(3)})
    os.kill(nursery, signal.SIGSTOP)

    def act() -> None:
        with contextlib.suppress(HiveError):
            bench.reopen() if ask == "close" else runs.start(big)

    thread = threading.Thread(target=act)
    thread.start()
    thread.join(3.0)
    is_held_up = thread.is_alive()
    with contextlib.suppress(ProcessLookupError):
        os.kill(nursery, signal.SIGCONT)
    thread.join()
    assert not is_held_up


def test_a_wrapper_carries_nothing_from_one_run_into_the_next(bench: Bench) -> None:
    first = bench.order("first", ["sh", "-c", "umask 0; ulimit -n 64; echo first"], {"LEFT": "over"}, output_bytes=9)
    bench.runs.start(first)
    bench.wait_ended("first")
    bench.finish("rest", "true")
    bench.finish("second", 'echo "$LEFT"; umask; ulimit -n; pwd')
    expected = subprocess.run(["sh", "-c", "umask; ulimit -n"], capture_output=True, text=True, check=True).stdout
    assert bench.runs.read_output("second") == f"\n{expected}{bench.place.resolve()}\n"
    assert bench.runs.read_output("rest") == ""
