"""The executor on real runs and a real ledger: what the world shows is what is recorded, one bad run or not."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.commands.runs import request_kill
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.states import RunState
from hivekeeper.errors import HiveError
from hivekeeper.loops import Parts
from hivekeeper.loops.executor import Executor
from hivekeeper.places import Places
from hivekeeper.sandbox.isolation import Isolation, Level
from hivekeeper.settings import Settings
from hivekeeper.store import queries
from hivekeeper.store.ledger import Ledger
from tests.intents import intend
from tests.runs.conftest import Bench, is_running, list_marks, poll_until
from tests.store.ledger_kit import new_ledger, seize

NO_ISOLATION = Isolation(Level.LIMITS, "", "/nobody")


class HandClock:
    """True time, moved forward by hand."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now(self) -> str:
        return to_text(time.time() + self.ahead_s)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


class Desk:
    """A keeper reduced to its executor."""

    def __init__(self, bench: Bench, ledger: Ledger, clock: HandClock) -> None:
        self.bench, self.ledger, self.clock = bench, ledger, clock
        self.authority = seize(ledger)
        self.executor = self.hire()

    def hire(self) -> Executor:
        """Have a new executor that remembers nothing."""
        places, runs = Places(Path("/")), self.bench.runs
        self.executor = Executor(
            Parts(self.ledger, self.authority, places, runs, self.clock, Settings(), lambda: NO_ISOLATION)
        )
        return self.executor

    def intend(self, run: str, script: str, *, boot_id: str | None = None, **limits: float | None) -> None:
        """Write the intent to run a shell script."""
        order = self.bench.order(run, ("sh", "-c", script), **limits)
        with self.ledger.write(self.authority) as tx:
            intend(tx, order, boot_id=boot_id or self.bench.runs.boot_id)

    def kill(self, run: str) -> None:
        """Write the wish that a run ends."""
        with self.ledger.write(self.authority) as tx:
            assert request_kill(tx, self.row(run), "a person wants it")

    def row(self, run: str) -> RunRow:
        """Read what the ledger knows of a run."""
        with self.ledger.read() as connection:
            row = queries.find_run(connection, run)
        assert row is not None
        return row

    def work_until(self, run: str, state: RunState, timeout_s: float = 10.0) -> RunRow:
        """Make passes until the ledger has a run in a state."""
        deadline = time.monotonic() + timeout_s
        while (row := self.row(run)).state is not state:
            assert time.monotonic() < deadline, f"{run} is still {row.state}"
            self.executor.run_once()
            time.sleep(0.005)  # real time: the run gets on with it
        return row


@pytest.fixture
def desk(bench: Bench, tmp_path: Path) -> Iterator[Desk]:
    """An executor at work."""
    clock = HandClock()
    with new_ledger(tmp_path, clock) as ledger:
        yield Desk(bench, ledger, clock)


def test_a_run_is_recorded_as_it_went_and_a_pass_over_nothing_new_does_nothing(desk: Desk) -> None:
    desk.intend("r", "echo >> begun; while [ ! -e go ]; do sleep 0.02; done; echo last words; exit 3")
    desk.executor.run_once()
    desk.work_until("r", RunState.RUNNING)
    assert desk.executor.run_once() == {}
    (desk.bench.place / "go").touch()
    row = desk.work_until("r", RunState.EXITED)
    assert (row.exit_status, row.ended_by, row.output_bytes) == (3, "exit", 11)
    assert row.started_at is not None
    assert row.ended_at is not None
    assert to_seconds(row.intended_at) <= to_seconds(row.started_at) <= to_seconds(row.ended_at)
    assert desk.executor.run_once() == {}
    assert len(list_marks(desk.bench.place / "begun")) == 1


def test_a_run_that_came_and_went_while_nobody_looked_is_recorded_at_its_true_times(desk: Desk) -> None:
    desk.intend("r", "exit 3")
    desk.executor.run_once()
    ended = desk.bench.wait_ended("r")
    desk.hire()
    desk.clock.ahead_s = 3600.0
    row = desk.work_until("r", RunState.EXITED)
    assert (row.started_at, row.ended_at, row.exit_status) == (ended.claim.at, ended.ending.at, 3)


def test_executors_that_forget_everything_between_passes_start_a_run_once(desk: Desk) -> None:
    desk.intend("r", "echo >> marks; sleep 0.2; exit 0")
    for _ in range(20):
        desk.hire().run_once()
    desk.work_until("r", RunState.EXITED)
    assert len(desk.bench.wait_mark("marks")) == 1


def test_a_run_intended_before_a_restart_of_the_machine_is_lost_and_not_started(desk: Desk) -> None:
    desk.intend("r", "echo >> marks", boot_id="00000000-0000-0000-0000-000000000000")
    desk.work_until("r", RunState.LOST)
    assert not (desk.bench.root / "r").exists()


def test_a_wrapper_that_was_killed_makes_its_run_lost_once_nothing_of_it_lives(desk: Desk) -> None:
    desk.intend("r", "setsid sleep 60 & echo $! >> pids; exec sleep 60")
    desk.work_until("r", RunState.RUNNING)
    (pid,) = desk.bench.wait_mark("pids")
    os.kill(desk.row("r").pid or 0, signal.SIGKILL)
    desk.work_until("r", RunState.LOST)
    assert not is_running(int(pid))
    assert desk.bench.find_marked("r") == []


def test_a_run_killed_before_it_started_never_starts(desk: Desk) -> None:
    desk.intend("r", "echo >> marks")
    desk.kill("r")
    assert "cancelled" in desk.work_until("r", RunState.LOST).reason
    assert not (desk.bench.place / "marks").exists()


def test_a_run_that_is_killed_ends_and_says_so(desk: Desk) -> None:
    desk.intend("r", "exec sleep 60", grace_s=5.0)
    desk.work_until("r", RunState.RUNNING)
    desk.kill("r")
    row = desk.work_until("r", RunState.EXITED)
    assert (row.exit_status, row.ended_by) == (-15, "killed")


def test_a_frozen_wrapper_is_ended_by_force_when_patience_is_over_and_not_before(desk: Desk) -> None:
    desk.intend("r", "echo $$ >> pids; exec sleep 60", grace_s=5.0)
    desk.work_until("r", RunState.RUNNING)
    (pid,) = desk.bench.wait_mark("pids")
    os.kill(desk.row("r").pid or 0, signal.SIGSTOP)
    desk.kill("r")
    desk.clock.ahead_s = 34.0
    desk.executor.run_once()
    assert is_running(int(pid))
    desk.clock.ahead_s = 36.0
    desk.work_until("r", RunState.LOST)
    poll_until(lambda: not is_running(int(pid)), "nothing of it lives", 3.0)


POISONS = ["claim", "exit", "kill", "output", "directory"]


@pytest.mark.parametrize("poison", POISONS)
def test_one_run_with_a_spoiled_directory_delays_nobody(desk: Desk, poison: str) -> None:
    """As a worker without a sandbox can do to its own run: everybody else's runs must go on."""
    desk.intend("bad", "echo word; echo >> begun; while [ ! -e end ]; do sleep 0.02; done; exit 1", grace_s=5.0)
    desk.work_until("bad", RunState.RUNNING)
    desk.bench.wait_mark("begun")
    desk.kill("bad")
    directory = desk.bench.root / "bad"
    match poison:
        case "claim":
            desk.bench.write("bad", "claim", {"pid": 1})
        case "exit":
            desk.bench.write("bad", "exit", {"status": 0})
        case "directory":
            directory.rename(desk.bench.place / "elsewhere")
        case _:
            (directory / poison).unlink(missing_ok=True)
            (directory / poison).symlink_to(poison)
    desk.bench.reopen()  # the next keeper, who remembers nothing
    desk.hire()
    desk.intend("good", "exit 7")
    (desk.bench.place / "end").touch()
    problems, deadline = set(), time.monotonic() + 2.0
    while desk.row("good").state is not RunState.EXITED and time.monotonic() < deadline:
        try:
            desk.executor.run_once()
        except HiveError as error:
            problems.add(str(error))
        except Exception as error:  # noqa: BLE001 - which one it is, is the finding
            problems.add(f"{type(error).__name__}: {error}")
        time.sleep(0.02)  # real time: the runs get on with it
    assert (desk.row("good").state, problems) == (RunState.EXITED, set())
