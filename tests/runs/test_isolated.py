"""Runs inside bubblewrap: they get their grace as any other, although bubblewrap itself would die of being asked."""

import shutil

import pytest

from tests.needs import need_program
from tests.runs.conftest import Bench
from tests.runs.test_limits import duration_s
from tests.runs.test_process_limit import BOMB

SANDBOX = ("bwrap", "--unshare-pid", "--die-with-parent", "--new-session", "--bind", "/", "/", "--proc", "/proc")


@pytest.fixture(autouse=True)
def _bubblewrap() -> None:
    need_program("bwrap", "apt-get install bubblewrap")


def start(bench: Bench, script: str, **limits: float | None) -> None:
    """Start a shell script in a sandbox."""
    bench.runs.start(bench.order("r", (*SANDBOX, "sh", "-c", script), **limits))


@pytest.mark.alone
def test_a_program_inside_gets_its_grace_and_says_goodbye(bench: Bench) -> None:
    start(
        bench, "trap 'sleep 0.2; echo goodbye; exit 7' TERM; echo >> ready; while :; do sleep 0.05; done", grace_s=9.0
    )
    bench.wait_mark("ready")
    bench.wait_alive("r")
    bench.runs.stop("r")
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (7, "killed")
    assert bench.runs.read_output("r").endswith("goodbye\n")


@pytest.mark.alone
def test_a_limit_asks_the_program_inside_too(bench: Bench) -> None:
    start(bench, "trap 'echo goodbye; exit 7' TERM; while :; do sleep 0.05; done", wall_s=0.5, grace_s=9.0)
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (7, "wall")
    assert bench.runs.read_output("r").endswith("goodbye\n")


@pytest.mark.alone
def test_a_deaf_program_inside_is_killed_after_its_grace_with_everything_it_started(bench: Bench) -> None:
    start(bench, "trap '' TERM; setsid sleep 60 & echo >> ready; while :; do sleep 0.05; done", wall_s=0.5, grace_s=0.4)
    bench.wait_mark("ready")
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-9, "wall")
    assert 0.9 <= duration_s(ended) < 4.0
    assert bench.find_marked("r") == []


def test_a_program_inside_that_dies_of_the_polite_signal_is_not_waited_for(bench: Bench) -> None:
    start(bench, "exec sleep 60", wall_s=0.4, grace_s=60.0)
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (128 + 15, "wall")


def test_a_sandbox_with_nobody_inside_is_asked_itself(bench: Bench) -> None:
    """As while they are being built; a program of the same name stands in for that moment."""
    (bench.place / "bwrap").symlink_to(shutil.which("sleep") or "")
    bench.runs.start(bench.order("r", (str(bench.place / "bwrap"), "60"), wall_s=0.3, grace_s=60.0))
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-15, "wall")


def test_a_program_inside_that_is_killed_ends_with_the_status_bubblewrap_gives(bench: Bench) -> None:
    start(bench, "kill -9 $$")
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (128 + 9, "exit")


@pytest.mark.alone
def test_a_fork_bomb_inside_is_gone_in_a_moment(bench: Bench) -> None:
    bench.python("r", BOMB, through=SANDBOX, processes=40, grace_s=60.0)
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-9, "processes")
    assert duration_s(ended) < 2.0
    assert bench.find_marked("r") == []


def test_a_file_that_outgrows_the_limit_inside_ends_the_run_by_disk(bench: Bench) -> None:
    start(bench, "exec truncate -s 100M file", disk_bytes=1 << 20)
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (128 + 25, "disk")
