"""Stopping a run: politely, hard, too early, too late, twice; and never somebody else's."""

import os
import signal
import time

import pytest

from hivekeeper.domain.run import Alive, Ended, Gone
from tests.runs.conftest import Bench, is_running, poll_until, read_stat, stays

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done"


@pytest.mark.alone
def test_a_polite_stop_lets_the_program_tidy_up(bench: Bench) -> None:
    bench.shell("r", "trap 'echo tidied; exit 7' TERM; echo >> ready; while :; do sleep 0.02; done", grace_s=10.0)
    bench.wait_mark("ready")
    bench.wait_alive("r")
    bench.runs.stop("r")
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (7, "killed")
    assert bench.runs.read_output("r").endswith("tidied\n")


def test_a_stop_reaches_the_whole_tree(bench: Bench) -> None:
    bench.shell(
        "r", "setsid sleep 60 & echo $! >> pids; sh -c 'trap \"\" TERM; sleep 60; true' & echo $! >> pids; wait"
    )
    pids = bench.wait_mark("pids", 2)
    bench.wait_alive("r")
    bench.runs.stop("r")
    assert bench.wait_ended("r").ending.ended_by == "killed"
    assert [pid for pid in pids if is_running(int(pid))] == []


@pytest.mark.alone
def test_a_program_deaf_to_a_polite_stop_is_killed_after_its_grace_and_not_before(bench: Bench) -> None:
    bench.shell("r", "trap '' TERM; echo >> ready; while :; do sleep 0.02; done", grace_s=0.4)
    bench.wait_mark("ready")
    bench.wait_alive("r")
    began = time.monotonic()
    bench.runs.stop("r")
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-9, "killed")
    assert 0.4 <= time.monotonic() - began < 3.0


@pytest.mark.alone
def test_asking_to_stop_again_and_again_does_not_put_off_the_kill(bench: Bench) -> None:
    bench.shell("r", "trap '' TERM; echo >> ready; while :; do sleep 0.02; done", grace_s=0.4)
    bench.wait_mark("ready")
    bench.wait_alive("r")
    began = time.monotonic()
    while isinstance(bench.runs.look("r"), Alive):
        bench.runs.stop("r")
        assert time.monotonic() - began < 4.0
    assert bench.wait_ended("r").ending.status == -9


def test_a_hard_stop_of_a_healthy_wrapper_ends_the_tree_at_once(bench: Bench) -> None:
    bench.shell("r", "trap '' TERM; setsid sleep 60 & echo $! >> pids; echo $$ >> pids; wait; sleep 60", grace_s=60.0)
    pids = bench.wait_mark("pids", 2)
    claim = bench.wait_alive("r")
    bench.runs.stop("r", hard=True)
    assert bench.wait_gone("r").claim == claim
    poll_until(lambda: not bench.find_marked("r"), "nothing of the run", 3.0)
    assert [pid for pid in [*map(int, pids), claim.pid] if is_running(pid)] == []


def test_a_hard_stop_ends_a_wrapper_that_is_stopped_and_deaf(bench: Bench) -> None:
    bench.shell("r", "exec sleep 60")
    claim = bench.wait_alive("r")
    os.kill(claim.pid, signal.SIGSTOP)
    poll_until(lambda: (read_stat(claim.pid) or ("", 0))[0] == "T", "the wrapper is stopped")
    bench.runs.stop("r")
    assert stays(lambda: bench.runs.look("r") == Alive(claim), 0.15)
    bench.runs.stop("r", hard=True)
    assert isinstance(bench.wait_gone("r"), Gone)
    poll_until(lambda: not bench.find_marked("r") and not is_running(claim.pid), "nothing of the run", 3.0)


def test_a_stopped_wrapper_obeys_a_polite_stop_once_it_goes_on(bench: Bench) -> None:
    bench.shell("r", "exec sleep 60", grace_s=10.0)
    claim = bench.wait_alive("r")
    os.kill(claim.pid, signal.SIGSTOP)
    bench.runs.stop("r")
    os.kill(claim.pid, signal.SIGCONT)
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-15, "killed")


@pytest.mark.parametrize("hard", [False, True])
def test_stopping_an_ended_run_does_not_touch_what_its_wrapper_runs_now(bench: Bench, *, hard: bool) -> None:
    first = bench.finish_and_rest("first", "exit 3")
    bench.shell("second", f"{WAIT_FOR_GO}; exit 4", grace_s=10.0)
    claim = bench.wait_alive("second")
    assert claim.pid == first.claim.pid, "the wrapper was to be the same"
    for _ in range(5):
        bench.runs.stop("first", hard=hard)
    assert stays(lambda: bench.runs.look("second") == Alive(claim), 0.15)
    assert (read_stat(claim.pid) or ("", 0))[0] != "T"
    (bench.place / "go").touch()
    assert bench.wait_ended("second").ending.status == 4
    assert bench.runs.look("first") == first


def test_a_signal_meant_for_the_last_run_does_not_end_this_one(bench: Bench) -> None:
    first = bench.finish_and_rest("first", "true")
    bench.shell("second", f"{WAIT_FOR_GO}; exit 4", grace_s=10.0)
    claim = bench.wait_alive("second")
    assert claim.pid == first.claim.pid
    for _ in range(100):
        os.kill(claim.pid, signal.SIGTERM)
    assert stays(lambda: bench.runs.look("second") == Alive(claim), 0.15)
    (bench.place / "go").touch()
    assert bench.wait_ended("second").ending.status == 4


def test_a_free_wrapper_survives_late_signals_and_takes_the_next_run(bench: Bench) -> None:
    first = bench.finish_and_rest("first", "true")
    for _ in range(20):
        os.kill(first.claim.pid, signal.SIGTERM)
    second = bench.finish("second", "exit 5")
    assert (second.ending.status, second.claim.pid) == (5, first.claim.pid)


@pytest.mark.alone
@pytest.mark.parametrize("command", ["sleep", "no-such-command"])
def test_a_run_told_to_die_before_it_started_dies_as_soon_as_it_starts(bench: Bench, command: str) -> None:
    bench.write("r", "kill", b"")
    began = time.monotonic()
    bench.runs.start(bench.order("r", [command, "60"], grace_s=10.0))
    ended = bench.wait_ended("r")
    assert time.monotonic() - began < 5.0
    expected = {"sleep": (-15, "killed"), "no-such-command": (127, "could-not-start")}[command]
    assert (ended.ending.status, ended.ending.ended_by) == expected


def test_stops_at_any_moment_of_short_runs_end_only_these(bench: Bench) -> None:
    """Stops race with the ends of runs of a few milliseconds, all in the same few wrappers."""
    bench.shell("bystander", f"{WAIT_FOR_GO}; exit 4", grace_s=10.0)
    claim = bench.wait_alive("bystander")
    for index in range(60):
        bench.shell(f"r{index}", "sleep 0.002; exit 0", grace_s=10.0)
        pause_until = time.monotonic() + index % 12 * 0.0005
        while isinstance(bench.runs.look(f"r{index}"), Alive) and time.monotonic() < pause_until:
            pass
        poll_until((bench.root / f"r{index}" / "claim").exists, "a claim")
        bench.runs.stop(f"r{index}", hard=index % 3 == 0)
    for index in range(60):
        poll_until(lambda run=f"r{index}": isinstance(bench.runs.look(run), Ended | Gone), "an end")  # type: ignore[misc]
        look = bench.runs.look(f"r{index}")
        assert isinstance(look, Ended) or index % 3 == 0
    assert bench.runs.look("bystander") == Alive(claim)
    (bench.place / "go").touch()
    assert bench.wait_ended("bystander").ending.status == 4


def test_a_wrapper_that_ended_a_run_by_force_takes_the_next_unharmed(bench: Bench) -> None:
    bench.write("first", "kill", b"")
    first = bench.finish_and_rest("first", "exec sleep 60")
    assert first.ending.ended_by == "killed"
    second = bench.finish("second", "sleep 0.2; exit 6")
    assert (second.claim.pid, second.ending.status, second.ending.ended_by) == (first.claim.pid, 6, "exit")
