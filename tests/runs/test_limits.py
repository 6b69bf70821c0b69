"""The limits a wrapper holds by itself: output, wall time, silence, memory, and the grace before the kill."""

import sys
import textwrap
from pathlib import Path

import pytest

from hivekeeper.clock import to_seconds
from hivekeeper.domain.run import Alive, Ended
from tests.runs.conftest import Bench, is_running, poll_until, stays, wait_dead

CAP = 100_000
TAIL = 1 << 16
MOST_BEYOND = TAIL + 100  # the last words, and the line before them
IGNORES_TERM = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"


def duration_s(ended: Ended) -> float:
    """Tell how long a run took, by its own record."""
    return to_seconds(ended.ending.at) - to_seconds(ended.claim.at)


def read_peak_memory(pid: int) -> int:
    """Tell how many bytes a process had in memory at most, so far."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def test_output_of_exactly_the_cap_is_no_offence(bench: Bench) -> None:
    ended = bench.finish("r", f"head -c {CAP} /dev/zero; sleep 0.2", output_bytes=CAP)
    assert (ended.ending.status, ended.ending.ended_by, ended.ending.output_bytes) == (0, "exit", CAP)
    assert (bench.root / "r" / "output").stat().st_size == CAP


def test_one_byte_over_the_cap_ends_the_run_and_what_is_there_is_kept(bench: Bench) -> None:
    ended = bench.finish("r", f"head -c {CAP + 1} /dev/zero; exec sleep 60", output_bytes=CAP, grace_s=5.0)
    assert (ended.ending.status, ended.ending.ended_by, ended.ending.output_bytes) == (-15, "output", CAP + 1)
    assert (bench.root / "r" / "output").read_bytes() == bytes(CAP + 1)


def test_endless_output_ends_the_run_at_the_cap(bench: Bench) -> None:
    ended = bench.finish("r", "exec yes", output_bytes=CAP)
    assert ended.ending.ended_by == "output"
    assert ended.ending.output_bytes > CAP
    assert ended.ending.status in (-15, -9)
    assert (bench.root / "r" / "output").stat().st_size <= CAP + MOST_BEYOND


@pytest.mark.alone
def test_a_program_that_floods_and_ignores_the_polite_signal_is_killed_after_its_grace(bench: Bench) -> None:
    program = "import signal, sys\nsignal.signal(15, signal.SIG_IGN)\nwhile True: sys.stdout.write('x' * 65536)"
    bench.python("r", program, output_bytes=CAP, grace_s=0.3)
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-9, "output")
    assert (bench.root / "r" / "output").stat().st_size <= CAP + MOST_BEYOND


FLOOD = """
    import os, signal
    goodbye = b"goodbye, after %d bytes\\n"
    wanted = 300 << 20
    def leave(*_):
        global is_asked
        is_asked = True
    signal.signal(15, leave)
    is_asked, said = False, os.write(1, b"hello\\n")
    while not is_asked or said < wanted:
        said += os.write(1, b"x" * 65535 + b"\\n")
    said += len(goodbye % said)
    os.write(1, goodbye % (said - len(goodbye % said)))
    with open("said", "w") as file:
        file.write(f"{said}\\n")
    """


def test_of_a_flood_the_head_and_the_last_words_are_kept_and_what_was_left_out_is_said(bench: Bench) -> None:
    first = bench.finish_and_rest("first", "head -c 1000000 /dev/zero")
    before = read_peak_memory(first.claim.pid)
    bench.python("r", FLOOD, output_bytes=CAP, grace_s=60.0)
    ended = bench.wait_ended("r")
    assert ended.claim.pid == first.claim.pid
    assert read_peak_memory(first.claim.pid) < before + (1 << 20), "a flood is not held in memory"
    (said,) = map(int, bench.wait_mark("said"))
    assert (ended.ending.status, ended.ending.ended_by, ended.ending.output_bytes) == (0, "output", said)
    kept = (bench.root / "r" / "output").read_bytes()
    head, line, tail = kept[:CAP], kept[CAP:-TAIL], kept[-TAIL:]
    assert head.startswith(b"hello\nxxx")
    assert line == b"\n[%d bytes of output were left out here]\n" % (said - CAP - TAIL)
    assert tail.endswith(b"x\ngoodbye, after %d bytes\n" % (said - len(tail.rpartition(b"\ngoodbye")[2]) - 7))


def test_a_program_that_ends_by_itself_right_after_going_over_the_cap_went_over_the_cap(bench: Bench) -> None:
    for index in range(10):
        ended = bench.finish(f"r{index}", "printf 123456", output_bytes=5)
        assert (ended.ending.ended_by, ended.ending.output_bytes) == ("output", 6)
        assert bench.runs.read_output(f"r{index}") == "123456"


def test_a_cap_of_nothing_allows_silence_and_no_word(bench: Bench) -> None:
    assert bench.finish("silent", "exit 0", output_bytes=0).ending.ended_by == "exit"
    assert bench.finish("talking", "echo x; exec sleep 60", output_bytes=0).ending.ended_by == "output"
    assert bench.runs.read_output("talking") == "x\n", "the last words are kept whatever the cap"


@pytest.mark.alone
def test_the_wall_limit_ends_a_run_not_before_and_not_long_after(bench: Bench) -> None:
    ended = bench.finish("r", "while :; do echo x; sleep 0.05; done", wall_s=0.4, silence_s=5.0, grace_s=5.0)
    assert (ended.ending.status, ended.ending.ended_by) == (-15, "wall")
    assert 0.4 <= duration_s(ended) < 3.0


@pytest.mark.parametrize("name", ["wall_s", "silence_s", "grace_s"])
def test_a_limit_of_a_year_as_the_settings_allow_it_is_no_hindrance(bench: Bench, name: str) -> None:
    bench.runs.start(bench.order("r", ["sh", "-c", "sleep 0.2; exit 3"], **{name: 365 * 86400.0}))
    assert bench.wait_ended("r", 3.0).ending.status == 3


def test_a_year_of_grace_is_no_hindrance_to_a_kill(bench: Bench) -> None:
    bench.shell(
        "r", "trap 'sleep 0.2; exit 3' TERM; echo >> ready; while :; do sleep 0.05; done", grace_s=365 * 86400.0
    )
    bench.wait_mark("ready")
    bench.runs.stop("r")
    assert bench.wait_ended("r", 3.0).ending.status == 3


@pytest.mark.alone
def test_silence_ends_a_run_at_its_limit_and_not_before(bench: Bench) -> None:
    ended = bench.finish("r", "echo x; exec sleep 60", silence_s=0.4, grace_s=5.0)
    assert (ended.ending.status, ended.ending.ended_by) == (-15, "silence")
    assert 0.4 <= duration_s(ended) < 3.0


@pytest.mark.alone
def test_a_program_that_keeps_talking_and_keeps_within_its_other_limits_goes_on(bench: Bench) -> None:
    script = "for i in 1 2 3 4 5 6; do echo $i >&2; sleep 0.2; done; exit 8"
    ended = bench.finish("r", script, silence_s=1.0, wall_s=60.0, memory_bytes=100 << 20, output_bytes=12)
    assert (ended.ending.status, ended.ending.ended_by) == (8, "exit")
    assert duration_s(ended) >= 1.2, (
        "longer than the silence it is allowed, and than a look at its memory takes to come"
    )


def test_a_program_that_closed_its_output_is_silent(bench: Bench) -> None:
    ended = bench.finish("r", "exec >&- 2>&-; exec sleep 60", silence_s=0.2)
    assert ended.ending.ended_by == "silence"


@pytest.mark.alone
def test_the_memory_limit_counts_the_whole_tree(bench: Bench) -> None:
    hog = f"{sys.executable} -ISc 'x = bytearray(60 << 20); import time; time.sleep(60)'"
    ended = bench.finish("r", f"{hog} & {hog} & wait", memory_bytes=100 << 20, grace_s=60.0)
    assert ended.ending.ended_by == "memory"
    assert duration_s(ended) < 6.0, "it is not asked politely: memory does not wait"


@pytest.mark.alone
def test_a_program_that_ignores_the_polite_signal_is_killed_after_its_grace(bench: Bench) -> None:
    bench.python("r", IGNORES_TERM, wall_s=0.8, grace_s=0.4)
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-9, "wall")
    assert 1.2 <= duration_s(ended) < 4.0


@pytest.mark.alone
def test_a_program_that_tidies_up_within_its_grace_keeps_its_status(bench: Bench) -> None:
    script = "trap 'echo tidied; exit 7' TERM; while :; do sleep 0.05; done"
    ended = bench.finish("r", script, wall_s=0.5, grace_s=10.0)
    assert (ended.ending.status, ended.ending.ended_by) == (7, "wall")
    assert bench.runs.read_output("r").endswith("tidied\n")


def test_a_stopped_program_is_ended_by_its_limit(bench: Bench) -> None:
    ended = bench.finish("r", "kill -STOP $$; sleep 60", wall_s=0.2, grace_s=0.1)
    assert (ended.ending.status, ended.ending.ended_by) == (-9, "wall")


def test_a_limit_of_one_run_is_not_held_against_the_next_of_the_same_wrapper(bench: Bench) -> None:
    first = bench.finish_and_rest("first", "exec sleep 60", wall_s=0.2)
    second = bench.finish("second", "sleep 0.3; head -c 200000 /dev/zero; exit 5")
    assert second.claim.pid == first.claim.pid
    assert (second.ending.status, second.ending.ended_by) == (5, "exit")


LOSE_FIRST_THREAD = """
    import ctypes, os, signal, threading, time
    def go_on():
        with open("threads", "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(60)
    def lose_first_thread():
        signal.signal(15, signal.SIG_IGN)
        threading.Thread(target=go_on).start()
        number = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
        ctypes.CDLL(None).syscall(number, 0)  # ends this thread alone: /proc calls the whole process a zombie
    """


@pytest.mark.alone
def test_a_program_whose_first_thread_ended_is_not_beyond_its_limits(bench: Bench) -> None:
    bench.python("r", textwrap.dedent(LOSE_FIRST_THREAD) + "lose_first_thread()", wall_s=0.7, grace_s=0.1)
    (pid,) = bench.wait_mark("threads")
    ended = bench.wait_ended("r", 3.0)
    assert ended.ending.ended_by == "wall"
    assert not is_running(int(pid))


@pytest.mark.alone
def test_a_background_process_whose_first_thread_ended_does_not_outlive_the_run(bench: Bench) -> None:
    program = """
        if os.fork() == 0:
            os.setsid()
            lose_first_thread()
        while not os.path.exists("threads"):
            time.sleep(0.01)
        """
    bench.python("r", textwrap.dedent(LOSE_FIRST_THREAD) + textwrap.dedent(program))
    (pid,) = bench.wait_mark("threads")
    bench.wait_ended("r", 3.0)
    assert not is_running(int(pid))


@pytest.mark.parametrize("name", ["output", "exit"])
def test_a_pipe_in_the_way_of_a_file_does_not_free_a_run_from_its_limits(bench: Bench, name: str) -> None:
    """The run's own directory is writable to a worker without a sandbox: opening a pipe there waits for ever."""
    directory = bench.root / "r"
    script = f"mkfifo {directory}/{name}; echo $$ >> ready; echo word; exec sleep 60"
    bench.shell("r", script, wall_s=0.5)
    (pid,) = bench.wait_mark("ready")
    poll_until(lambda: not is_running(int(pid)), "the program's end", 3.0)
    poll_until((directory / "exit").is_file, "an exit record", 3.0)


def test_the_limit_of_a_run_holds_while_nobody_looks(bench: Bench) -> None:
    bench.shell("r", "echo $$ >> pid; exec sleep 60", wall_s=0.4)
    (pid,) = bench.wait_mark("pid")
    wait_dead(int(pid))
    assert bench.wait_ended("r").ending.ended_by == "wall"


def test_no_limits_at_all_end_nothing(bench: Bench) -> None:
    nothing = dict.fromkeys(
        ("wall_s", "silence_s", "output_bytes", "memory_bytes", "processes", "disk_bytes", "grace_s")
    )
    bench.shell("r", "exec sleep 60", **nothing)
    bench.wait_alive("r")
    assert stays(lambda: isinstance(bench.runs.look("r"), Alive), 0.15)
