"""The limit on a run's processes: a fork bomb is gone in a moment, and with it whoever left its session."""

import time

import pytest

from tests.runs.conftest import Bench, is_running, list_children, poll_until
from tests.runs.test_limits import duration_s

BOMB = """
    import os, signal, time
    signal.signal(15, signal.SIG_IGN)
    end = time.monotonic() + 20
    for _ in range(8):  # 256 processes, should nobody stop it
        os.fork()
    while time.monotonic() < end:
        pass
    """


@pytest.mark.alone
def test_a_fork_bomb_is_gone_in_a_moment_and_is_not_asked_politely(bench: Bench) -> None:
    bench.python("r", BOMB, processes=40, grace_s=60.0)
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-9, "processes")
    assert duration_s(ended) < 2.0
    assert bench.read_exit("r")["survivors"] == 0
    assert bench.find_marked("r") == []


def test_a_run_has_a_session_of_its_own(bench: Bench) -> None:
    """Linux shares the processor out by sessions: a bomb in the wrapper's own would starve the one who is to end it."""
    bench.python("r", "import os; print(os.getsid(0) == os.getpid())")
    bench.wait_ended("r")
    assert bench.runs.read_output("r") == "True\n"


def test_processes_that_left_the_session_count_and_die_with_the_rest(bench: Bench) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do setsid sh -c 'echo $$ >> pids; exec sleep 60' & done; wait"
    bench.shell("r", script, processes=9, grace_s=60.0)
    ended = bench.wait_ended("r")
    assert ended.ending.ended_by == "processes"
    assert [pid for pid in bench.wait_mark("pids", 9) if is_running(int(pid))] == []


def test_as_many_processes_as_allowed_are_no_offence(bench: Bench) -> None:
    ended = bench.finish("r", "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.7 & done; wait; exit 3", processes=10)
    assert (ended.ending.status, ended.ending.ended_by) == (3, "exit")


@pytest.mark.alone
def test_processes_that_came_and_went_without_a_parent_take_no_place(bench: Bench) -> None:
    """Each starts its successor and leaves; who buries them is the wrapper, and not only when all is over."""
    program = """
        import os, time
        for _ in range(100):
            if os.fork() == 0:
                if os.fork() == 0:
                    os._exit(0)
                os._exit(0)
            os.wait()
        open("done", "w").write("\\n")
        while not os.path.exists("go"):
            time.sleep(0.02)
        """
    bench.python("r", program, processes=20)
    bench.wait_mark("done")
    claim = bench.wait_alive("r")
    poll_until(lambda: len(list_children(claim.pid)) == 1, "nobody but the program itself", 2.0)
    (bench.place / "go").touch()
    assert bench.wait_ended("r").ending.ended_by == "exit"


@pytest.mark.alone
def test_the_dead_that_a_program_never_waits_for_fill_the_process_table_and_count(bench: Bench) -> None:
    program = "import os, time\nfor _ in range(50):\n    if os.fork() == 0: os._exit(0)\ntime.sleep(60)"
    started = time.monotonic()
    bench.python("r", program, processes=40)
    assert bench.wait_ended("r").ending.ended_by == "processes"
    assert time.monotonic() - started < 5.0
