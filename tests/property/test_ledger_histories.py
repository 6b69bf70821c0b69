"""Any history that people and keepers can write: it folds, it replays, and what must not happen leaves no trace."""

import tempfile
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hivekeeper.commands import leases, plans
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec
from hivekeeper.domain.rows import TaskRow
from hivekeeper.domain.states import AttemptState, ConvoyState, RepoState, TaskState
from hivekeeper.errors import HiveError, InputError, StaleEpochError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Authority, ByKeeper, check_tail
from hivekeeper.store.replay import list_differences, rebuilt
from tests.needs import need
from tests.property.budget import MEMORY, PATIENCE, tries
from tests.property.deeds import ASKABLE, Comes, Deed, is_ready, list_deeds
from tests.property.history import History
from tests.store.ledger_kit import COMMON_KINDS, PERSON, assert_whole, dump_all, head_of, seize
from tests.store.ledger_world import World

pytestmark = PATIENCE

CONVOYS, IDS = ("red", "green"), tuple("abcdef")
REPOS = (RepoSpec("r", "/repos/r"), RepoSpec("s", "/repos/s", "next", "make"))
NUMBERS = st.integers(0, 10**6)
GOES_WELL = ("fetched", "dispatch", "start", "end", "complete", "submit", "verify", "begin landing", "land", "settle")
DRASTIC = ("cancel all", "archive", "settle")  # rarely, for little can follow
SEEN: set[str] = set()


@st.composite
def plans_of_one_graph(draw: st.DrawFn, graph: dict[str, tuple[str, ...]]) -> PlanSpec:
    """A part of the convoy's plan, which says the same of a task each time; now and then one that contradicts it."""
    count = draw(st.integers(1, len(IDS)))
    specs = [
        TaskSpec(
            task_id,
            "täglich",
            repo=(None, "r", None, "s")[number % 4],
            after=graph[task_id],
            priority=number % 3,
            attempts=1 + number % 2,
        )
        for number, task_id in enumerate(IDS[:count])
    ]
    if draw(st.integers(0, 7)) == 0:
        spoilt = draw(st.integers(0, count - 1))
        good = specs[spoilt]
        wrong = (replace(good, after=(IDS[-1],)), replace(good, after=("nobody",)), replace(good, repo="q"))
        specs[spoilt] = draw(st.sampled_from(wrong))
    return PlanSpec(draw(st.sampled_from(CONVOYS)), tuple(specs), REPOS)


# Each task may wait for any of those before it, so that every part of the plan is a plan.
GRAPHS = st.tuples(*(st.sets(st.sampled_from(IDS[:n]), max_size=2) if n else st.just(set()) for n in range(len(IDS))))


class LedgerHistories(RuleBasedStateMachine):
    """People and keepers, those of today and of yesterday, at one ledger."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory(prefix="hive-histories-", dir=MEMORY)
        self.world = World(Path(self._directory.name))
        self.fenced: list[ByKeeper] = []
        self.history = History()
        self.graph: dict[str, tuple[str, ...]] = {}

    def teardown(self) -> None:
        SEEN.update(self.history.kinds)
        try:
            assert_whole(self.world.path)
        finally:
            self.world.close()
            self._directory.cleanup()

    @initialize(after=GRAPHS, data=st.data())
    def begin(self, after: tuple[set[str], ...], data: st.DataObject) -> None:
        self.graph = {task: tuple(sorted(before)) for task, before in zip(IDS, after, strict=True)}
        self.hand_in_a_plan(data)

    @rule(data=st.data())
    def hand_in_a_plan(self, data: st.DataObject) -> None:
        plan = data.draw(plans_of_one_graph(self.graph))
        before = dump_all(self.world.ledger)
        try:
            with self.world.ask() as tx:
                plans.submit_plan(tx, plan, why="wanted")
        except InputError:
            assert dump_all(self.world.ledger) == before
            return
        after = dump_all(self.world.ledger)
        with self.world.ask() as tx:
            again = plans.submit_plan(tx, plan)
        assert (again.added, dump_all(self.world.ledger)) == (0, after), "the same plan again is nothing new"

    @rule(picks=st.lists(NUMBERS, min_size=1, max_size=8))
    def do_what_may_be_done(self, picks: list[int]) -> None:
        for pick in picks:
            deeds = [deed for deed in self.list_deeds(pick) if deed.comes is Comes.DONE]
            if pick % 7:
                deeds = [deed for deed in deeds if deed.verb not in DRASTIC]
            if deed := choose(deeds, pick):
                by_person = deed.verb in ASKABLE and pick % 2
                self.do(deed, PERSON if by_person else self.world.keeper, deed.comes)

    @rule(steps=st.integers(1, 25), number=NUMBERS)
    def let_it_go_well(self, steps: int, number: int) -> None:
        """Without this few histories come to a good end."""
        for _ in range(steps):
            deeds = [deed for deed in self.list_deeds(number) if deed.comes is Comes.DONE and deed.verb in GOES_WELL]
            if deed := choose(deeds, number):
                self.do(deed, self.world.keeper, deed.comes)

    @rule(number=NUMBERS)
    def put_a_convoy_away(self, number: int) -> None:
        """Without this few are archived: it takes a settled one, and no task of it that is revived before."""
        for verb in ("settle", "archive"):
            if deed := choose([d for d in self.list_deeds(number) if d.comes is Comes.DONE and d.verb == verb], number):
                self.do(deed, self.world.keeper, deed.comes)

    @rule(pick=NUMBERS, number=NUMBERS)
    def do_something_that_comes_to_nothing(self, pick: int, number: int) -> None:
        if deed := choose([deed for deed in self.list_deeds(number) if deed.comes is not Comes.DONE], pick):
            self.do(deed, self.world.keeper, deed.comes)

    @rule(pick=NUMBERS, number=NUMBERS)
    def do_what_is_the_keepers_as_a_person(self, pick: int, number: int) -> None:
        if deed := choose([deed for deed in self.list_deeds(number) if deed.verb not in ASKABLE], pick):
            self.do(deed, PERSON, Comes.NOTHING if deed.comes is Comes.NOTHING else Comes.REFUSED)

    @rule(pick=NUMBERS, number=NUMBERS)
    def do_anything_as_a_keeper_of_yesterday(self, pick: int, number: int) -> None:
        if self.fenced and (deed := choose(self.list_deeds(number), pick)):
            before = dump_all(self.world.ledger)
            with pytest.raises(StaleEpochError), self.world.ledger.write(self.fenced[number % len(self.fenced)]) as tx:
                deed.act(tx)
            assert dump_all(self.world.ledger) == before

    @rule(pick=NUMBERS, number=NUMBERS)
    def do_two_things_of_which_the_second_is_refused(self, pick: int, number: int) -> None:
        """All or nothing, also when whoever writes catches the refusal."""
        refused = choose([deed for deed in self.list_deeds(number) if deed.comes is Comes.REFUSED], pick)
        fine = choose([deed for deed in self.list_deeds(number) if deed.comes is Comes.DONE], pick // 3)
        if refused is None or fine is None or fine.verb == refused.verb:
            return
        before = dump_all(self.world.ledger)

        def act() -> None:
            with self.world.keep() as tx:
                fine.act(tx)
                try:
                    refused.act(tx)
                except InputError:  # the command's own word, before it wrote anything
                    raise
                except HiveError:
                    return
                raise InputError("The first has made the second one legal: nothing to see here.")

        with pytest.raises(HiveError):
            act()
        assert dump_all(self.world.ledger) == before

    @rule(release=st.booleans(), same_name=st.booleans())
    def hand_over(self, *, release: bool, same_name: bool) -> None:
        old = self.world.keeper
        if release:
            with self.world.keep() as tx:
                leases.release_lease(tx, old.who)
            self.do(Deed("release again", lambda tx: leases.release_lease(tx, old.who), Comes.REFUSED), old)
        self.fenced.append(old)
        self.world.keeper = seize(self.world.ledger, old.who if same_name else f"keeper {self.world.seq()} on here")
        assert self.world.keeper.epoch == old.epoch + 1
        self.do(Deed("release for another", lambda tx: leases.release_lease(tx, "nobody"), Comes.REFUSED))

    def list_deeds(self, number: int) -> list[Deed]:
        """List what could be done."""
        with self.world.ledger.read() as connection:
            return list(list_deeds(connection, number))

    def do(self, deed: Deed, authority: Authority | None = None, comes: Comes | None = None) -> None:
        """Do it, and see that what must come of it comes of it."""
        before, wanted = dump_all(self.world.ledger), comes or deed.comes
        refusal: HiveError | None = None
        try:
            with self.world.ledger.write(authority or self.world.keeper) as tx:
                deed.act(tx)
        except HiveError as error:
            refusal = error
        assert (refusal is not None) == (wanted is Comes.REFUSED), f"{deed.verb} was to be {wanted.value}: {refusal}"
        assert (dump_all(self.world.ledger) != before) == (wanted is Comes.DONE), f"{deed.verb} was {wanted.value}"

    @invariant()
    def the_chain_verifies_and_the_log_gives_the_tables(self) -> None:
        with self.world.ledger.read() as connection:
            check_tail(connection, 10**6)
            self.history.read_on(connection)
            with rebuilt(connection) as again:
                assert list_differences(connection, again) == []
        assert head_of(self.world.ledger).epoch == self.world.keeper.epoch

    @invariant()
    def the_queries_say_what_the_rows_say(self) -> None:
        with self.world.ledger.read() as connection:
            convoys = queries.list_convoys(connection, archived=True)
            pairs = [(convoy, task) for convoy in convoys for task in list_tasks(connection, convoy.name)]
            ready = [task for convoy, task in pairs if is_ready(connection, convoy, task)]
            ready.sort(key=lambda task: (-task.priority, task.position))
            assert queries.list_ready_tasks(connection, 100) == ready
            assert queries.list_ready_tasks(connection, 1) == ready[:1]
            for state in (AttemptState.WORKING, AttemptState.PARKED, AttemptState.SUBMITTED):
                there = [
                    (attempt, task)
                    for _, task in pairs
                    for attempt in queries.list_attempts_of_task(connection, task.key)
                    if attempt.state is state
                ]
                assert sorted(queries.list_open_attempts(connection, state), key=repr) == sorted(there, key=repr)
            for convoy in convoys:
                stuck = stuck_tasks(connection, list_tasks(connection, convoy.name))
                pending = [task for task in list_tasks(connection, convoy.name) if task.state is TaskState.PENDING]
                startable = [task for task in pending if task.key not in stuck and not waits(connection, task)]
                assert queries.count_startable(connection, convoy.name) == len(startable)
                if convoy.state is not ConvoyState.ACTIVE:
                    assert not queries.has_task_under_way(connection, convoy.name), "an ended convoy rests"


def list_tasks(connection: Connection, convoy: str) -> list[TaskRow]:
    """List a convoy's tasks."""
    return queries.list_tasks_of_convoy(connection, convoy)


def waits(connection: Connection, task: TaskRow) -> bool:
    """Tell whether a predecessor is not COMPLETE."""
    before = [queries.find_task(connection, key) for key in queries.list_predecessors(connection, task.key)]
    return any(other is None or other.state is not TaskState.COMPLETE for other in before)


def stuck_tasks(connection: Connection, tasks: list[TaskRow]) -> set[str]:
    """Name those whose repository could not be fetched."""
    failed = {repo.name for repo in queries.list_repos(connection) if repo.state is RepoState.FAILED}
    return {task.key for task in tasks if task.repo in failed}


def choose(deeds: list[Deed], pick: int) -> Deed | None:
    """Choose a verb first and then one of its deeds: else the many runs and attempts would crowd out others."""
    verbs = sorted({deed.verb for deed in deeds})
    if not verbs:
        return None
    # Hypothesis likes small numbers, and the same one again; every verb is to have its turn in every situation.
    pick = crc32(f"{pick} {len(deeds)} {verbs}".encode())
    verb = verbs[pick % len(verbs)]
    same = [deed for deed in deeds if deed.verb == verb]
    return same[pick // len(verbs) % len(same)]


TestLedgerHistories = LedgerHistories.TestCase
TestLedgerHistories.settings = tries(25, steps=30)


def test_the_histories_come_to_every_common_end() -> None:
    """Runs after the histories above; a machine that finds nothing to do proves nothing."""
    need(SEEN, "the histories above were not run")
    assert sorted(COMMON_KINDS - SEEN) == []
