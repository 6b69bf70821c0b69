"""The dispatch ledger as others read it: the published schema, true to the letter."""

import json
import os
from pathlib import Path

import pytest

from hivekeeper.commands.convoys import archive_convoy
from hivekeeper.commands.plans import submit_plan
from hivekeeper.commands.tasks import retry_task
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.domain.states import ConvoyState
from hivekeeper.errors import InputError
from hivekeeper.hive import open_hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByPerson, create_ledger
from hivekeeper.testing.fakes import FakeClock, FakeRuns
from hivekeeper.views.convoys import get_convoy, show_ledger

GOLDEN = Path(__file__).parent / "golden" / "dispatch_ledger.json"
ME = ByPerson("ann")
TASKS = (
    TaskSpec("agent_order_1", "true"),
    TaskSpec("agent_order_2", "true"),
    TaskSpec("agent_order_3", "true", after=("agent_order_2",)),
)


class Play:
    """A hive whose time and runs are ours."""

    def __init__(self, root: Path) -> None:
        (root / ".hive").mkdir()
        create_ledger(root / ".hive" / "ledger.db")
        self.clock = FakeClock(start=1_776_841_200.0)  # 2026-04-22T07:00:00Z
        self.runs = FakeRuns(self.clock, lambda _order: None)
        self.hive = open_hive(root, self.clock)
        with self.hive.ledger.write(ME) as tx:
            submit_plan(tx, PlanSpec("orders", TASKS))
        self.keeper = Keeper(self.hive, runs=self.runs)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        while self.keeper.step():
            pass

    def ledger(self) -> dict[str, object]:
        with self.hive.ledger.read() as connection:
            return show_ledger(connection, get_convoy(connection, "orders"))


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def test_the_dispatch_ledger_matches_the_golden_file(play: Play) -> None:
    play.pass_time(5)
    play.clock.advance(146)
    play.runs.end("orders/agent_order_1.1.agent", 0)
    play.pass_time(30)
    shown = {"half_way": play.ledger()}
    play.runs.end("orders/agent_order_2.1.agent", 0)
    play.pass_time(10)
    play.runs.end("orders/agent_order_3.1.agent", 0)
    play.pass_time(10)
    shown["complete"] = play.ledger()
    text = json.dumps(shown, indent=2) + "\n"
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_a_completion_nobody_saw_is_dated_at_its_true_end(play: Play) -> None:
    play.pass_time(1)
    play.runs.end("orders/agent_order_1.1.agent", 0)
    at = play.clock.now()
    play.pass_time(3600)
    with play.hive.ledger.read() as connection:
        task = queries.find_task(connection, "orders/agent_order_1")
    assert task is not None
    assert task.completed_at == at


def test_a_complete_convoy_is_archived_after_a_day_and_its_ids_never_run_again(play: Play) -> None:
    play.runs._decide = lambda _order: 0  # noqa: SLF001 - from now on everything succeeds at once
    play.pass_time(1)
    play.pass_time(1)
    assert play.ledger()["state"] == "COMPLETE"
    play.pass_time(86_401)
    assert play.ledger()["state"] == "ARCHIVED"
    ran = len(play.runs.started)
    with play.hive.ledger.write(ME) as tx:
        assert submit_plan(tx, PlanSpec("orders", TASKS)).added == 0
    play.pass_time(10)
    assert len(play.runs.started) == ran
    with pytest.raises(InputError, match="archived"), play.hive.ledger.write(ME) as tx:
        submit_plan(tx, PlanSpec("orders", (*TASKS, TaskSpec("new", "true"))))


def test_an_archived_failed_task_is_not_retried(play: Play) -> None:
    play.runs._decide = lambda _order: 1  # noqa: SLF001 - from now on everything fails at once
    for _ in range(4):
        play.pass_time(1)
    with play.hive.ledger.write(ME) as tx:
        convoy = get_convoy(tx.connection, "orders")
        assert convoy.state is ConvoyState.FAILED
        assert archive_convoy(tx, convoy)
        task = queries.find_task(tx.connection, "orders/agent_order_1")
        assert task is not None
        with pytest.raises(InputError, match="archived"):
            retry_task(tx, task)


def test_two_passes_equal_one(play: Play) -> None:
    play.pass_time(1)
    with play.hive.ledger.read() as connection:
        before = connection.rows("SELECT seq FROM head")
    for _ in range(5):
        assert play.keeper.step() == {}
    with play.hive.ledger.read() as connection:
        assert connection.rows("SELECT seq FROM head") == before


def test_a_keeper_writes_a_heartbeat_row_each_minute_and_no_event(play: Play) -> None:
    play.pass_time(1)
    with play.hive.ledger.read() as connection:
        before, events = queries.find_heartbeat(connection), connection.rows("SELECT seq FROM head")
    play.clock.advance(59)
    play.keeper.step()
    with play.hive.ledger.read() as connection:
        assert queries.find_heartbeat(connection) == before
    play.clock.advance(1)
    play.keeper.step()
    with play.hive.ledger.read() as connection:
        after = queries.find_heartbeat(connection)
        assert connection.rows("SELECT seq FROM head") == events
    assert before is not None
    assert after is not None
    assert after.monotonic_ms - before.monotonic_ms >= 60_000
