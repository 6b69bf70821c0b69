"""A keeper that dies at the very moment when another stops it is as dead as one that was stopped."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from hivekeeper.domain.hive_rows import LeaseRow
from hivekeeper.keeper import lease
from hivekeeper.runs.wrapper import read_start_ticks


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseRow]:
    """A process that dies, and is reaped, as soon as somebody has made sure who it is."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ticks = read_start_ticks(process.pid)

    def look(pid: int) -> int | None:
        found = read_start_ticks(pid)
        process.kill()
        process.wait()
        return found

    monkeypatch.setattr(lease, "read_start_ticks", look)
    yield LeaseRow(1, "a keeper", 1, process.pid, ticks or 0, "boot", "now")
    process.kill()
    process.communicate()


def test_a_keeper_that_dies_while_it_is_asked_to_stop_has_stopped(keeper: LeaseRow) -> None:
    assert lease.ask_to_stop(keeper, 5.0)


def test_a_keeper_that_dies_while_it_is_killed_is_dead(keeper: LeaseRow) -> None:
    lease._kill(keeper.pid, keeper.start_ticks)  # noqa: SLF001 - to be killed, it would have to be silent for minutes
