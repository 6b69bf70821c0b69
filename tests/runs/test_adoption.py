"""Runs belong to their directory, not to the keeper that asked for them: any keeper finds them, alive or ended."""

import os
import signal
import subprocess

from hivekeeper.domain.run import Alive, Ended
from tests.runs.conftest import Bench, find_nursery, is_running, poll_until, stays, wait_dead

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done"


def say_and_wait(keeper: subprocess.Popen[bytes]) -> str:
    """Read one line a keeper says."""
    assert keeper.stdout is not None
    return keeper.stdout.readline().decode().strip()


def start_elsewhere(bench: Bench, script: str, **limits: float) -> subprocess.Popen[bytes]:
    """Have another process start a run, and return when the run is alive."""
    program = """
        shell("r", script, **limits)
        while not isinstance(runs.look("r"), (Alive, Ended)):
            time.sleep(0.01)
        print("alive", flush=True)
        sys.stdin.readline()
        """
    keeper = bench.spawn_keeper(program, script=script, limits=limits)
    assert say_and_wait(keeper) == "alive"
    return keeper


def test_a_run_whose_keeper_was_killed_is_alive_to_the_next_and_ends_with_its_own_status(bench: Bench) -> None:
    keeper = start_elsewhere(bench, f"echo before; {WAIT_FOR_GO}; echo after; exit 42")
    keeper.kill()
    keeper.wait()
    claim = bench.wait_alive("r")
    assert stays(lambda: bench.runs.look("r") == Alive(claim), 0.15)
    (bench.place / "go").touch()
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by, ended.claim) == (42, "exit", claim)
    assert bench.runs.read_output("r") == "before\nafter\n"


def test_a_run_whose_keeper_left_properly_goes_on(bench: Bench) -> None:
    bench.shell("r", f"{WAIT_FOR_GO}; exit 42")
    claim = bench.wait_alive("r")
    bench.reopen()
    assert bench.runs.look("r") == Alive(claim)
    (bench.place / "go").touch()
    assert bench.wait_ended("r").ending.status == 42


def test_a_run_that_began_and_ended_while_no_keeper_lived_is_found_ended(bench: Bench) -> None:
    keeper = start_elsewhere(bench, f"{WAIT_FOR_GO}; echo done; exit 42")
    keeper.kill()
    keeper.wait()
    (bench.place / "go").touch()
    poll_until((bench.root / "r" / "exit").exists, "the exit record")
    look = bench.runs.look("r")
    assert isinstance(look, Ended)
    assert (look.ending.status, bench.runs.read_output("r")) == (42, "done\n")


def test_limits_hold_although_every_keeper_is_dead(bench: Bench) -> None:
    keeper = start_elsewhere(bench, "trap '' TERM; setsid sleep 60 & exec sleep 60", wall_s=1.0, grace_s=0.2)
    keeper.kill()
    keeper.wait()
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-9, "wall")
    assert bench.find_marked("r") == []


def test_a_keeper_that_never_started_a_run_stops_one(bench: Bench) -> None:
    keeper = start_elsewhere(bench, "exec sleep 60", grace_s=5.0)
    keeper.kill()
    keeper.wait()
    bench.wait_alive("r")
    bench.runs.stop("r")
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-15, "killed")


def test_two_keepers_see_the_same_run_end(bench: Bench) -> None:
    other = bench.open()
    bench.shell("r", f"{WAIT_FOR_GO}; exit 42")
    claim = bench.wait_alive("r")
    assert other.look("r") == Alive(claim)
    (bench.place / "go").touch()
    ended = bench.wait_ended("r")
    assert other.look("r") == ended


def test_runs_survive_the_nursery_and_the_next_start_works(bench: Bench) -> None:
    for index in range(3):
        bench.shell(f"r{index}", f"{WAIT_FOR_GO}; exit {index}")
        bench.wait_alive(f"r{index}")
    nursery = find_nursery()
    os.kill(nursery, signal.SIGKILL)
    wait_dead(nursery)
    for index in range(3):
        assert isinstance(bench.runs.look(f"r{index}"), Alive)
    assert bench.finish("next", "exit 7").ending.status == 7
    assert find_nursery() != nursery
    (bench.place / "go").touch()
    assert [bench.wait_ended(f"r{index}").ending.status for index in range(3)] == [0, 1, 2]


def test_a_nursery_killed_again_and_again_loses_nothing_that_is_asked_for_again(bench: Bench) -> None:
    for index in range(8):
        bench.shell(f"r{index}", f"echo r{index} >> marks; exit {index}")
        nursery = find_nursery()
        os.kill(nursery, signal.SIGKILL)
        wait_dead(nursery)
    for index in range(8):
        bench.shell(f"r{index}", f"echo r{index} >> marks; exit {index}")
        assert bench.wait_ended(f"r{index}").ending.status == index
    assert sorted(bench.wait_mark("marks", 8)) == [f"r{index}" for index in range(8)]


def test_a_wrapper_leaves_when_its_run_has_ended_and_its_keeper_is_dead(bench: Bench) -> None:
    keeper = start_elsewhere(bench, f"{WAIT_FOR_GO}; exit 0")
    keeper.kill()
    keeper.wait()
    claim = bench.wait_alive("r")
    (bench.place / "go").touch()
    bench.wait_ended("r")
    poll_until(lambda: not is_running(claim.pid), "the wrapper left", 3.0)


def test_a_run_does_not_hold_the_output_of_a_keeper_that_is_gone(bench: Bench) -> None:
    """Whoever reads the keeper's words (`hive up 2>&1 | tee log`) must see their end when the keeper ends."""
    read, write = os.pipe()
    program = """
        os.dup2(words, 1), os.dup2(words, 2), os.close(words)
        shell("r", "exec sleep 60")
        while not isinstance(runs.look("r"), Alive):
            time.sleep(0.01)
        os._exit(0)
        """
    try:
        subprocess.run(bench.keeper_argv(program, words=write), pass_fds=[write], check=True)
        os.close(write)
        claim = bench.wait_alive("r")
        os.set_blocking(read, False)
        poll_until(lambda: _is_at_end(read), "the end of the keeper's words", 3.0)
        assert is_running(claim.pid)
    finally:
        os.close(read)


def _is_at_end(descriptor: int) -> bool:
    try:
        return os.read(descriptor, 1 << 16) == b""
    except BlockingIOError:
        return False


def test_a_keeper_that_blocks_or_ignores_signals_does_not_make_its_runs_deaf(bench: Bench) -> None:
    program = """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        runs.close()
        runs = LocalRuns(place / "runs", hive)
        shell("r", "exec sleep 60", grace_s=60.0)
        while not isinstance(runs.look("r"), Alive):
            time.sleep(0.01)
        print("alive", flush=True)
        sys.stdin.readline()
        """
    assert say_and_wait(bench.spawn_keeper(program)) == "alive"
    bench.wait_alive("r")
    bench.runs.stop("r")
    ended = bench.wait_ended("r", 3.0)
    assert (ended.ending.status, ended.ending.ended_by) == (-15, "killed")
