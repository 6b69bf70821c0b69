"""Nothing a run started outlives its ending, and nothing it left behind delays it."""

import os
import signal
import sys
import textwrap
import time

import pytest

from hivekeeper.domain.run import Alive
from tests.runs.conftest import Bench, is_running, list_children, poll_until, read_stat

DAEMON = """
    import os, signal, sys, time
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (1, 2, 3, 15):
        signal.signal(number, signal.SIG_IGN)
    for descriptor in range(3):
        os.close(descriptor)
    with open("daemon", "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(60)
    """


def _python(program: str) -> str:
    """Write a Python program as one word of a shell script."""
    quoted = textwrap.dedent(program).replace("'", "'\\''")
    return f"{sys.executable} -ISc '{quoted}'"


def test_a_daemon_that_forked_twice_and_left_its_session_is_dead_when_the_run_has_ended(bench: Bench) -> None:
    ended = bench.finish("r", f"{_python(DAEMON)}; while [ ! -s daemon ]; do sleep 0.01; done; exit 3")
    (pid,) = bench.wait_mark("daemon")
    assert not is_running(int(pid))
    assert ended.ending.status == 3
    assert bench.read_exit("r")["survivors"] == 0


def test_a_daemon_is_dead_too_when_a_limit_ended_the_run(bench: Bench) -> None:
    bench.shell("r", f"{_python(DAEMON)}; exec sleep 60", wall_s=1.0, grace_s=0.1)
    (pid,) = bench.wait_mark("daemon")
    assert bench.wait_ended("r").ending.ended_by == "wall"
    assert not is_running(int(pid))


@pytest.mark.alone
def test_a_background_child_that_holds_the_output_open_does_not_delay_the_ending(bench: Bench) -> None:
    started = time.monotonic()
    ended = bench.finish("r", "sleep 60 & echo $! >> pid; echo said; exit 4")
    assert time.monotonic() - started < 3.0
    assert (ended.ending.status, bench.runs.read_output("r")) == (4, "said\n")
    (pid,) = bench.wait_mark("pid")
    assert not is_running(int(pid))


@pytest.mark.alone
def test_a_background_child_that_never_stops_talking_does_not_delay_the_ending(bench: Bench) -> None:
    """As a development server left behind by a test suite would, on its own and deaf to the polite signal."""
    chatter = "setsid sh -c \"trap '' TERM; echo \\$\\$ >> pids; while :; do echo; done\" &"
    bench.shell("r", f": > pids; {chatter} {chatter} while [ $(wc -l < pids) -lt 2 ]; do sleep 0.01; done; exit 4")
    pids = bench.wait_mark("pids", 2)
    ended = bench.wait_ended("r", 4.0)
    assert (ended.ending.status, ended.ending.ended_by) == (4, "exit")
    assert [pid for pid in pids if is_running(int(pid))] == []


def test_what_a_run_said_before_its_end_is_kept_although_children_live_on(bench: Bench) -> None:
    ended = bench.finish("r", "sleep 60 & head -c 60000 /dev/zero; exit 0")
    assert ended.ending.output_bytes == 60_000
    assert (bench.root / "r" / "output").stat().st_size == 60_000


def test_a_tree_of_forks_is_dead_to_the_last_leaf(bench: Bench) -> None:
    program = """
        import os, time
        for _ in range(5):  # 32 processes
            if os.fork() == 0 and os.getpid() % 2:
                os.setsid()
        with open("leaves", "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(60)
        """
    bench.python("r", program)
    pids = [int(pid) for pid in bench.wait_mark("leaves", 32)]
    bench.wait_alive("r")
    bench.runs.stop("r")
    assert bench.wait_ended("r").ending.ended_by == "killed"
    assert [pid for pid in pids if is_running(pid)] == []


@pytest.mark.alone
def test_a_tree_that_forks_faster_than_it_dies_is_dead_in_the_end(bench: Bench) -> None:
    """Each process starts its successor and leaves: nobody that a list names is there a moment later."""
    program = """
        import os, time
        for _ in range(3):
            if os.fork() == 0:
                end = time.monotonic() + 20
                while time.monotonic() < end:
                    if os.fork():
                        os._exit(0)
                    os.setsid()
        time.sleep(0.3)
        """
    bench.python("r", program)
    ended = bench.wait_ended("r")
    assert ended.ending.status == 0
    assert bench.read_exit("r")["survivors"] == 0
    poll_until(lambda: not bench.find_marked("r"), "no process of the run", 2.0)


def test_stopped_children_die_with_the_run(bench: Bench) -> None:
    ended = bench.finish("r", "sleep 60 & kill -STOP $!; echo $! >> pid; exit 0")
    (pid,) = bench.wait_mark("pid")
    assert ended.ending.status == 0
    assert not is_running(int(pid))


def test_a_child_that_moved_to_another_group_dies_with_the_run(bench: Bench) -> None:
    bench.shell("r", "setsid sleep 60 & echo $! >> pid; wait", wall_s=0.6, grace_s=0.2)
    (pid,) = bench.wait_mark("pid")
    assert bench.wait_ended("r").ending.ended_by == "wall"
    assert not is_running(int(pid))


def test_zombies_the_command_never_waited_for_are_reaped(bench: Bench) -> None:
    program = """
        import os, time
        for _ in range(20):
            if os.fork() == 0:
                os._exit(0)
        time.sleep(0.2)
        """
    bench.python("r", program)
    ended = bench.wait_ended("r")
    assert ended.ending.status == 0
    assert list_children(ended.claim.pid) == {}


def test_a_run_that_stops_and_continues_is_not_ended_by_it(bench: Bench) -> None:
    bench.shell("r", "echo $$ >> pid; kill -STOP $$; exit 6")
    (pid,) = bench.wait_mark("pid")
    claim = bench.wait_alive("r")
    poll_until(lambda: read_stat(int(pid)) == ("T", claim.pid), "it stopped")
    assert isinstance(bench.runs.look("r"), Alive)
    os.kill(int(pid), signal.SIGCONT)
    assert bench.wait_ended("r").ending.status == 6
