"""A wrapper that was killed: the run is gone, its processes are found and ended, and nobody else is touched."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from hivekeeper.domain.run import Alive, Claim, Gone
from hivekeeper.runs.wrapper import read_boot_id, read_start_ticks
from tests.runs.conftest import Bench, is_running, poll_until, wait_dead

TREE = "echo $$ >> pids; setsid sleep 60 & echo $! >> pids; sh -c 'echo $$ >> pids; sleep 60; true' & wait"


def settle(bench: Bench, run: str) -> Gone:
    """Do as the executor does: kill leftovers and look again until there are none."""
    deadline = time.monotonic() + 10
    while (look := bench.wait_gone(run)).leftovers:
        assert time.monotonic() < deadline, look
        bench.runs.kill_leftovers(look.leftovers)
    return look


def test_a_run_whose_wrapper_was_killed_is_gone_with_leftovers_and_then_without(bench: Bench) -> None:
    bench.shell("r", TREE)
    pids = {int(pid) for pid in bench.wait_mark("pids", 3)}
    claim = bench.wait_alive("r")
    os.kill(claim.pid, signal.SIGKILL)
    look = bench.wait_gone("r")
    assert look.claim == claim
    assert pids <= set(look.leftovers)
    assert settle(bench, "r") == Gone(claim)
    assert [pid for pid in pids if is_running(pid)] == []
    assert bench.find_marked("r") == []


def test_other_runs_of_the_same_nursery_do_not_notice(bench: Bench) -> None:
    bench.shell("other", "while [ ! -e go ]; do sleep 0.02; done; exit 5")
    bench.shell("r", "exec sleep 60")
    other, claim = bench.wait_alive("other"), bench.wait_alive("r")
    os.kill(claim.pid, signal.SIGKILL)
    settle(bench, "r")
    assert bench.runs.look("other") == Alive(other)
    assert bench.finish("next", "exit 6").ending.status == 6
    (bench.place / "go").touch()
    assert bench.wait_ended("other").ending.status == 5


def test_a_run_that_kills_its_own_wrapper_gains_nothing(bench: Bench) -> None:
    bench.shell("r", "echo $$ >> pid; kill -9 $PPID; exec sleep 60")
    (pid,) = bench.wait_mark("pid")
    assert settle(bench, "r").leftovers == ()
    assert not is_running(int(pid))


def test_leftovers_of_one_run_are_not_those_of_another_whose_name_begins_alike(bench: Bench) -> None:
    bench.shell("r1", "exec sleep 60")
    bench.shell("r10", "exec sleep 60")
    longer, claim = bench.wait_alive("r10"), bench.wait_alive("r1")
    os.kill(claim.pid, signal.SIGKILL)
    settle(bench, "r1")
    assert bench.runs.look("r10") == Alive(longer)
    poll_until(lambda: bool(bench.find_marked("r10")), "the other run's program")


def test_leftovers_of_another_hive_with_the_same_run_are_left_alone(bench: Bench) -> None:
    environment = {"HIVE_RUN": f"{bench.hive}x/r"}
    with subprocess.Popen(["sleep", "60"], env=environment | {"PATH": os.environ["PATH"]}) as stranger:
        bench.shell("r", "kill -9 $PPID")
        settle(bench, "r")
        assert stranger.poll() is None
        stranger.kill()


def test_children_of_leftovers_that_dropped_the_mark_are_ended_too(bench: Bench) -> None:
    """As tox, sudo and `nix-shell --pure` do: they give their children an environment of their own."""
    bench.shell("r", "env -i sh -c 'echo $$ >> pids; sleep 60; true' & echo $$ >> pids; wait")
    pids = [int(pid) for pid in bench.wait_mark("pids", 2)]
    os.kill(bench.wait_alive("r").pid, signal.SIGKILL)
    settle(bench, "r")
    poll_until(lambda: not [pid for pid in pids if is_running(pid)], "nothing of the tree is alive", 3.0)


def test_a_tree_that_keeps_forking_without_its_wrapper_is_ended_by_looking_again(bench: Bench) -> None:
    program = """
        import os, time
        with open("pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        while True:
            if os.fork() == 0:
                os.setsid()
                time.sleep(60)
            time.sleep(0.02)
        """
    bench.python("r", program)
    bench.wait_mark("pids")
    os.kill(bench.wait_alive("r").pid, signal.SIGKILL)
    settle(bench, "r")
    assert bench.find_marked("r") == []


def test_killing_leftovers_that_are_gone_by_now_is_no_problem(bench: Bench) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    bench.runs.kill_leftovers((process.pid,))


def _claim_of(pid: int) -> dict[str, object]:
    return {"pid": pid, "start_ticks": read_start_ticks(pid), "boot_id": read_boot_id(), "at": time.time()}


def test_a_claim_naming_a_living_process_with_its_start_time_is_alive(bench: Bench) -> None:
    bench.write("r", "claim", _claim_of(os.getpid()))
    look = bench.runs.look("r")
    assert isinstance(look, Alive)
    assert look.claim.pid == os.getpid()


@pytest.mark.parametrize(
    "change",
    [
        lambda claim: claim | {"start_ticks": claim["start_ticks"] + 1},
        lambda claim: claim | {"start_ticks": claim["start_ticks"] - 1},
        lambda claim: claim | {"boot_id": "0" * 36},
        lambda claim: claim | {"boot_id": ""},
        lambda claim: claim | {"pid": 1},
    ],
    ids=["later", "earlier", "another-boot", "no-boot", "another-process"],
)
def test_a_claim_of_a_pid_used_again_or_of_another_boot_is_not_alive(
    bench: Bench, change: Callable[[dict[str, object]], dict[str, object]]
) -> None:
    claim = change(_claim_of(os.getpid()))
    bench.write("r", "claim", claim)
    look = bench.runs.look("r")
    assert isinstance(look, Gone)
    assert isinstance(look.claim, Claim)
    bench.runs.stop("r")
    bench.runs.stop("r", hard=True)  # this process is still here to tell


def test_a_claim_of_a_zombie_is_not_alive(bench: Bench) -> None:
    process = subprocess.Popen(["sleep", "60"])
    claim = _claim_of(process.pid)
    process.kill()
    wait_dead(process.pid)
    bench.write("r", "claim", claim)
    assert isinstance(bench.runs.look("r"), Gone)
    process.wait()
    assert isinstance(bench.runs.look("r"), Gone)


def test_a_zombie_that_was_seen_alive_before_is_not_alive(bench: Bench) -> None:
    process = subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(60)"])
    bench.write("r", "claim", _claim_of(process.pid))
    assert isinstance(bench.runs.look("r"), Alive)
    process.kill()
    wait_dead(process.pid)
    assert isinstance(bench.runs.look("r"), Gone)
    process.wait()
