"""What is recorded of sessions: a run is asked to end once, and no word of a program's holds anybody up for months."""

from pathlib import Path

from hivekeeper.clock import to_seconds
from hivekeeper.commands import runs, sessions
from hivekeeper.domain.report import Outcome, Report
from hivekeeper.domain.run import BUDGET, LIMIT
from hivekeeper.domain.session import Hold
from hivekeeper.store import queries
from tests.store.ledger_situations import bring_run
from tests.store.ledger_world import World


def test_two_reasons_to_end_a_run_in_one_pass_are_one_request(tmp_path: Path) -> None:
    world = World(tmp_path)
    bring_run(world, "run", "RUNNING")
    row = world.run("run")
    with world.keep() as tx:
        assert runs.request_kill(tx, row, "it is spent", BUDGET)
        assert not runs.request_kill(tx, row, "it waits", LIMIT), "the row in hand is older than the request"
    assert world.run("run").kill_cause == BUDGET
    world.close()


def test_a_moment_far_off_is_cut_to_eight_days(tmp_path: Path) -> None:
    world = World(tmp_path)
    bring_run(world, "run", "EXITED")
    with world.keep() as tx:
        runs.note_report(tx, world.run("run"), Report(Outcome.QUOTA, "later", retry_epoch=9_999_999_999.0))
        now = to_seconds(tx.now)
    told = world.run("run").retry_at
    assert told is not None
    assert abs(to_seconds(told) - now - runs.MAX_RETRY_S) < 1
    world.close()


def test_what_is_held_for_two_causes_waits_for_both(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world.keep() as tx:
        sessions.place_hold(tx, Hold("runner", "claude", "auth", None, 1), why="not signed in")
        sessions.place_hold(tx, Hold("runner", "claude", "rate-limited", 60.0, 1), why="429")
    with world.keep() as tx:
        assert sessions.lift_hold(tx, "runner", "claude", cause="rate-limited", why="it works again")
        active = [hold.cause for hold in queries.list_holds(tx.connection) if hold.is_active(tx.now)]
        assert active == ["auth"], "a limit that has passed is no sign-in"
        assert sessions.lift_hold(tx, "runner", "claude")
        assert not sessions.lift_hold(tx, "runner", "claude"), "once"
    world.close()
