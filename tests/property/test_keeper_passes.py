"""Passes of a whole keeper in any order, with any fate of runs, keepers and people in between.

A pass that says it did nothing did nothing, and so does the next; no run without an intent, none twice; and whatever
has happened, once everything goes well every task that can be done is done, in a bounded number of steps.
"""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hivekeeper.commands import convoys, tasks
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.domain.rows import TaskRow
from hivekeeper.domain.states import ConvoyState, SwarmState, TaskState
from hivekeeper.errors import InputError, StaleEpochError
from hivekeeper.loops import Loop
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.replay import list_differences, rebuilt
from tests.property.budget import PATIENCE, tries
from tests.property.history import History
from tests.property.keeper_world import WORKERS, KeeperWorld
from tests.store.ledger_kit import PERSON, assert_whole, dump_all

pytestmark = PATIENCE

CONVOYS, IDS = ("red", "green"), tuple("abcde")
NUMBERS = st.integers(0, 10**6)
WISHES = st.sampled_from(["cancel", "cancel", "retry", "retry", "cancel all", "archive"])
PASSED: set[str] = set()  # loops that were passed singly
MOST_PASSES = 20
MOST_STEPS = 400
NEEDS_A_PERSON = (TaskState.FAILED, TaskState.UNKNOWN, TaskState.CANCELLED)


class KeeperPasses(RuleBasedStateMachine):
    """Tasks without a repository; everything else as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.world = KeeperWorld()
        self.history = History()
        self.after: dict[str, tuple[str, ...]] = {}

    def teardown(self) -> None:
        try:
            self.let_everything_end_well()
            with self.world.ledger.read() as connection:
                self.history.read_on(connection)
                with rebuilt(connection) as again:
                    assert list_differences(connection, again) == []
            assert_whole(self.world.hive.places.ledger)
        finally:
            self.world.close()

    @initialize(after=st.lists(st.sets(st.sampled_from(IDS), max_size=2), min_size=len(IDS), max_size=len(IDS)))
    def begin(self, after: list[set[str]]) -> None:
        # Each waits only for earlier ones, so that no ring comes of it.
        self.after = {name: tuple(sorted(set(IDS[:n]) & after[n])) for n, name in enumerate(IDS)}
        self.submit(CONVOYS[0], 3)

    def specs(self, count: int) -> tuple[TaskSpec, ...]:
        """Say the first tasks of every convoy's plan."""
        return tuple(
            TaskSpec(name, "work", after=self.after[name], priority=n % 2, attempts=1 + n % 3, idempotent=n % 2 == 1)
            for n, name in enumerate(IDS[:count])
        )

    @rule(convoy=st.sampled_from(CONVOYS), count=st.integers(1, len(IDS)))
    def submit(self, convoy: str, count: int) -> None:
        try:
            self.world.submit(PlanSpec(convoy, self.specs(count), self.world.repos))
        except InputError:
            assert self.find_convoy(convoy) is ConvoyState.ARCHIVED

    def choose_loop(self, number: int) -> Loop:
        """Choose one of the loops that the keeper has."""
        loops = self.world.keeper.loops
        chosen = loops[number % len(loops)]
        PASSED.add(chosen.name)
        return chosen

    @rule(loop=NUMBERS)
    def make_a_pass(self, loop: int) -> None:
        self.world.run_pass(self.choose_loop(loop))

    @rule(loop=NUMBERS)
    def make_passes_until_there_is_nothing_to_do(self, loop: int) -> None:
        chosen = self.choose_loop(loop)
        passes = 0
        while self.world.run_pass(chosen):
            passes += 1
            assert passes < MOST_PASSES, f"the {chosen.name} does not come to rest"
        assert not self.world.run_pass(chosen), f"the {chosen.name} had nothing to do and then it had"

    @rule(steps=st.integers(1, 4))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.world.keeper.step()

    @rule(loop=NUMBERS, wish=WISHES, pick=NUMBERS)
    def make_a_pass_in_which_a_person_is_faster(self, loop: int, wish: str, pick: int) -> None:
        self.world.race(self.choose_loop(loop), lambda: self.wish(wish, pick))

    @rule(wish=WISHES, pick=NUMBERS)
    def wish(self, wish: str, pick: int) -> None:
        with self.world.ledger.read() as connection:
            rows = queries.list_convoys(connection, archived=True)
            convoy = rows[pick % len(rows)]
            of_convoy = queries.list_tasks_of_convoy(connection, convoy.name)
            task = of_convoy[pick // 2 % len(of_convoy)]
        before = dump_all(self.world.ledger)
        try:
            with self.world.ledger.write(PERSON) as tx:
                match wish:
                    case "cancel":
                        tasks.cancel_task(tx, task)
                    case "retry":
                        tasks.retry_task(tx, task)
                    case "archive":
                        convoys.archive_convoy(tx, convoy)
                    case _ if pick % 3 == 0:
                        convoys.cancel_convoy(tx, convoy)
        except InputError:
            assert dump_all(self.world.ledger) == before

    @rule(pick=NUMBERS, status=st.sampled_from([0, 0, 0, 1, 77, -15]))
    def a_run_ends(self, pick: int, status: int) -> None:
        if living := self.world.runs.list_living():
            self.world.finish(living[pick % len(living)], status, f"file-{pick % 3}")

    @rule(pick=NUMBERS)
    def a_wrapper_is_killed(self, pick: int) -> None:
        if living := self.world.runs.list_living():
            self.world.runs.lose(living[pick % len(living)].run)

    @rule(when=st.sampled_from(["before", "after"]))
    def the_next_wrapper_will_be_killed(self, when: str) -> None:
        self.world.runs.accident = when

    @rule(seconds=st.sampled_from([0.5, 6.0, 61.0, 3600.0, 90_000.0]), asleep=st.booleans())
    def time_passes(self, seconds: float, *, asleep: bool) -> None:
        self.world.clock.advance(seconds, asleep=asleep)

    @rule(crash=st.booleans())
    def another_keeper_takes_over(self, *, crash: bool) -> None:
        rested = all(not self.world.run_pass(loop) for loop in self.world.keeper.loops)
        self.world.take_over(crash=crash)
        if rested:
            found = self.world.keeper.step().keys() - {"heart.beats"}
            assert not found, "a successor found something to do where there was nothing"

    @precondition(lambda self: self.world.fenced)
    @rule(pick=NUMBERS, loop=NUMBERS)
    def a_keeper_of_yesterday_wakes_up(self, pick: int, loop: int) -> None:
        before = dump_all(self.world.ledger)
        loops = self.world.fenced[pick % len(self.world.fenced)].loops
        with contextlib.suppress(StaleEpochError):
            loops[loop % len(loops)].run_once()
        assert dump_all(self.world.ledger) == before

    @invariant()
    def the_log_is_one_that_may_be(self) -> None:
        with self.world.ledger.read() as connection:
            self.history.read_on(connection)
            working = connection.rows("SELECT count(*) FROM attempt WHERE state = 'WORKING'")[0][0]
            left_over = connection.rows(
                "SELECT run.id FROM run JOIN attempt ON attempt.task = run.task AND attempt.number = run.attempt"
                " WHERE run.ended_at IS NULL AND attempt.ended_at IS NOT NULL AND run.kind <> 'remove'"
            )
        assert left_over == [], "S14: what a settled attempt ran is ended first"
        assert working <= WORKERS, "more at work than there are workers"
        started = [order.run for order in self.world.runs.started]
        assert len(set(started)) == len(started), "a run was started twice"
        assert set(started) <= self.history.runs.keys(), "S1: a run was started without an intent"

    def let_everything_end_well(self) -> None:
        self.world.runs.accident = ""
        for step in range(MOST_STEPS):
            for number, order in enumerate(self.world.runs.list_living()):
                self.world.finish(order, 0, f"well-{step}-{number}")
            self.world.clock.advance(1.0)
            if not self.world.keeper.step() and not self.world.runs.list_living():
                break
        else:
            pytest.fail(f"not at rest after {MOST_STEPS} steps")
        with self.world.ledger.read() as connection:
            for convoy in queries.list_convoys(connection, archived=True):
                assert convoy.state is not ConvoyState.ACTIVE, f"{convoy.name} has not settled"
                swarms = queries.list_swarms(connection, convoy.name)
                assert all(tally.swarm.state is SwarmState.CLOSED for tally in swarms)
                for task in queries.list_tasks_of_convoy(connection, convoy.name):
                    needs_a_person = is_held_up(connection, task)
                    assert needs_a_person or task.state is TaskState.COMPLETE, f"{task.key} is {task.state}"
            assert queries.list_open_runs(connection) == []

    def find_convoy(self, name: str) -> ConvoyState | None:
        """Find what became of a convoy."""
        with self.world.ledger.read() as connection:
            convoy = queries.find_convoy(connection, name)
        return convoy.state if convoy else None


class KeeperPassesOnARepository(KeeperPasses):
    """Tasks on a repository, with real git; clones, gates and landings end at once, well or with an accident."""

    def begin_repository(self) -> None:
        """Make it when it is wanted: it takes its time."""
        if not self.world.repos:
            self.world.make_repository()

    def specs(self, count: int) -> tuple[TaskSpec, ...]:
        self.begin_repository()
        return tuple(replace(spec, repo="app", verify="true") for spec in super().specs(min(count, 3)))


def is_held_up(connection: Connection, task: TaskRow) -> bool:
    """Tell whether a task, or any before it, waits for a person."""
    if task.state in NEEDS_A_PERSON:
        return True
    before = [queries.find_task(connection, key) for key in queries.list_predecessors(connection, task.key)]
    return task.state is TaskState.PENDING and any(other and is_held_up(connection, other) for other in before)


TestKeeperPasses = KeeperPasses.TestCase
TestKeeperPasses.settings = tries(25, steps=40)

TestKeeperPassesOnARepository = KeeperPassesOnARepository.TestCase
TestKeeperPassesOnARepository.settings = tries(2, steps=40)


def test_every_loop_of_the_keeper_was_passed_singly() -> None:
    """Runs after the passes above."""
    world = KeeperWorld()
    try:
        loops = {loop.name for loop in world.keeper.loops}
    finally:
        world.close()
    assert PASSED in (loops, set()), "none only where the passes were not run"
