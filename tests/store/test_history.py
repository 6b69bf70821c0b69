"""The past from states put by: at every moment of any history the same as from the whole log."""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from hivekeeper.commands import attempts, convoys, history, merges, runs
from hivekeeper.domain.convoy import Outcome
from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.owners import attempt_owner, fetch_owner
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.steps import Start
from hivekeeper.errors import DamagedLedgerError, HiveError, InputError
from hivekeeper.loops import Parts
from hivekeeper.loops.janitor import Janitor
from hivekeeper.places import Places
from hivekeeper.sandbox.isolation import Isolation, Level
from hivekeeper.settings import Settings
from hivekeeper.store import asking, queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_events, read_head
from hivekeeper.store.replay import (
    add_convoy,
    encode_state,
    find_seq_at,
    is_checkpoint_right,
    list_differences,
    rebuilt,
    state_at,
)
from hivekeeper.testing.fakes import FakeClock, FakeRuns
from hivekeeper.views.history import get_seq, list_cursors, show_convoy_at, show_difference, show_status_at
from hivekeeper.views.status import show_status
from tests.needs import need
from tests.store.ledger_kit import BOOT, Dump, dump_all, dump_tables, tamper
from tests.store.ledger_situations import build_situations
from tests.store.ledger_world import World
from tests.store.test_replay import ANY, IDS, Histories

# Every table that belongs to a convoy, and where in its rows the convoy's name stands before a "/" or alone.
OF_CONVOYS = (
    "convoy",
    "swarm",
    "task",
    "task_after",
    "task_prompt",
    "task_runner",
    "attempt",
    "merge_entry",
    "mail",
)
SEEN = {"checkpoints with a convoy": 0, "moments with one archived": 0, "events of archived ones": 0}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def put_by(world: World) -> int:
    """Put the state by, due or not."""
    with world.keep() as tx:
        tx.save_checkpoint(encode_state(tx.connection))
    return world.seq()


def without_archived(tables: Dump) -> Dump:
    """Leave of all tables what was not archived: written anew here, from whole tables."""
    living = {row[0] for row in tables["convoy"] if "ARCHIVED" not in row}
    kept = {
        name: rows for name, rows in tables.items() if name in ("lease", "repo", "hold", "budget", "agent", "lesson")
    }
    for name in OF_CONVOYS:
        kept[name] = [row for row in tables[name] if row[0].partition("/")[0] in living]
    kept["run"] = [
        row
        for row in tables["run"]
        if row[0].partition("/")[0] in living
        or (row[0].startswith(("_repos/", "_gates/")) and {"INTENDED", "RUNNING"}.intersection(row))
    ]
    return kept


def compare_moments(connection: Connection, *, spoilt: int = 0, most: int = 1000) -> None:
    """Compare every moment, or so many: those around a state put by or an archiving, the last, and others evenly."""
    put_by = queries.list_checkpoints(connection)
    for seq in choose_moments(connection, put_by, most):
        with rebuilt(connection, until=seq) as whole, state_at(connection, seq) as quick:
            tables = dump_tables(whole)
            assert dump_tables(quick) == without_archived(tables), f"at event {seq}"
            assert read_head(quick) == read_head(whole)
            assert is_checkpoint_right(connection, whole, seq) == (seq in put_by and seq != spoilt)
            for name, *_ in (row for row in tables["convoy"] if "ARCHIVED" in row):
                SEEN["moments with one archived"] += 1
                add_convoy(connection, quick, name, seq)
            # With every archived convoy added by name, nothing is missing but ended runs on repositories.
            whole.run("DELETE FROM run WHERE id LIKE '!_repos/%' ESCAPE '!' AND ended_at IS NOT NULL")
            assert list_differences(whole, quick) == []


def choose_moments(connection: Connection, put_by: Sequence[int], most: int) -> list[int]:
    last = read_head(connection).seq
    archived = [event.seq for event in read_events(connection, 0, last) if event.body.kind == "convoy.archived"]
    hard = {seq + step for seq in (*put_by, *archived) for step in (-1, 0, 1)} | {last}
    even = range(1, last + 1, max(1, last // most + 1))
    left = [seq for seq in even if seq not in hard]
    chosen = sorted(hard)[: most // 2] + left[: most - min(len(hard), most // 2)]
    return sorted({seq for seq in (*chosen, last) if 1 <= seq <= last})


class Pasts(Histories):
    """A hive's life at random, with states put by at random."""

    @rule()
    def put_by(self) -> None:
        put_by(self.world)
        with self.world.ledger.read() as connection:
            SEEN["checkpoints with a convoy"] += bool(queries.list_convoys(connection))

    @rule(pick=ANY)
    def put_away(self, pick: int) -> None:
        """Bring a convoy to its end, so that there is something to archive and something left to do after it."""
        convoy = self.pick_convoy(pick)
        if pick % 2 or convoy is None or convoy.archived_at is not None:
            return
        self.dispatch(pick, 3)  # else it may leave no sandbox, and nothing is left to do
        with self.world.ask() as tx:
            convoys.cancel_convoy(tx, convoy)
        for number in range(len(IDS)):
            self.end_attempt(number, "fail")
            self.move_merge(number, "requeue")
        with self.world.keep() as tx:
            if convoy.state.value == "ACTIVE" and not queries.has_task_under_way(tx.connection, convoy.name):
                convoys.end_convoy(tx, convoy.name, Outcome.FAILED, at=tx.now)
        self.archive(pick)
        if pick % 2:
            self.put_by()
        with self.world.ledger.read() as connection:
            left = [a for a in queries.list_removable_sandboxes(connection, 99) if a.convoy == convoy.name]
        for attempt in left[:1]:
            self.remove(attempt)

    @rule(pick=ANY)
    def remove_sandbox(self, pick: int) -> None:
        if attempt := self.find(lambda c: queries.list_removable_sandboxes(c, 9), pick):
            self.remove(attempt)

    def remove(self, attempt: AttemptRow) -> None:
        owner = attempt_owner(attempt.task, attempt.number, None)
        with self.world.keep() as tx:
            runs.intend_run(tx, owner, Start("remove"), RunSpec(("rm",), "/", {}, {}), boot_id=BOOT)

    @rule(pick=ANY)
    def run_on_repository(self, pick: int) -> None:
        if repo := self.find(queries.list_repos, pick):
            with self.world.keep() as tx:
                owner = fetch_owner(replace(repo, fetches=tx.head.seq))
                runs.intend_run(tx, owner, Start("fetch"), RunSpec(("true",), "/", {}, {}), boot_id=BOOT)

    @invariant()
    def archived_convoys_still_have_events(self) -> None:
        with self.world.ledger.read() as connection:
            last = read_events(connection, read_head(connection).seq - 1, 1)[-1].body
            found = queries.find_convoy(connection, last.subject.partition("/")[0])
        after = found is not None and found.archived_at is not None and last.kind != "convoy.archived"
        SEEN["events of archived ones"] += after

    def teardown(self) -> None:
        try:
            with self.world.ledger.read() as connection:
                compare_moments(connection, most=16)
        finally:
            super().teardown()


TestPasts = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")(Pasts.TestCase)
TestPasts = pytest.mark.timeout(600)(TestPasts)  # many moments of every past are rebuilt, on a machine that others use
TestPasts.settings = settings(max_examples=8, stateful_step_count=60, derandomize=True)


def test_random_pasts_hold_what_makes_them_hard() -> None:
    """Runs after the histories above."""
    need(any(SEEN.values()), "the histories above were not run")
    assert all(SEEN.values()), SEEN


def finish(world: World, convoy: str, *ids: str) -> None:
    """Have a convoy with these tasks, all done, and archive it."""
    world.submit(convoy, *(TaskSpec(name, "true") for name in ids))
    for name in ids:
        world.dispatch(f"{convoy}/{name}")
        world.complete(f"{convoy}/{name}")
    assert world.settle(convoy)
    with world.ask() as tx:
        assert convoys.archive_convoy(tx, world.convoy(convoy))


def test_what_happens_to_an_archived_convoy_after_a_state_was_put_by_harms_no_later_state(world: World) -> None:
    key = world.add("a", convoy="old")
    world.dispatch(key)
    world.intend(f"{key}.1.agent", key, 1)
    world.fail(key)
    assert world.settle("old")
    with world.ask() as tx:
        convoys.archive_convoy(tx, world.convoy("old"))
    world.submit("new", TaskSpec("a", "true"))
    put_by(world)
    world.intend(f"{key}.1.remove", key, 1)
    with world.keep() as tx:
        runs.note_lost(tx, world.run(f"{key}.1.agent"), "gone")
        attempts.sweep_attempt(tx, world.attempt(key))
    world.cancel(key)
    world.dispatch("new/a")
    with world.ledger.read() as connection:
        compare_moments(connection)


def test_the_status_at_the_last_event_is_the_status_now(tmp_path: Path) -> None:
    world = build_situations(tmp_path)
    try:
        with world.ledger.read() as connection:
            now, then = show_status(connection, KeeperState.ACTIVE), show_status_at(connection, world.seq())
            recorded_at = read_events(connection, world.seq() - 1, 1)[0].recorded_at
    finally:
        world.close()
    assert then.pop("as_of") == {"seq": now["events"], "recorded_at": recorded_at}
    assert then == now


@pytest.mark.parametrize(("head", "last", "due"), [(9_999, 0, False), (10_000, 0, True), (19_999, 10_000, False)])
def test_a_state_is_put_by_every_ten_thousand_events(head: int, last: int, due: bool) -> None:  # noqa: FBT001 - an example
    assert history.is_checkpoint_due(head, last) is due


def test_the_janitor_puts_the_state_by_once_and_writes_no_event_for_it(world: World, tmp_path: Path) -> None:
    places, runs, isolation = Places(tmp_path), FakeRuns(FakeClock()), Isolation(Level.LIMITS, "", "/nobody")
    janitor = Janitor(Parts(world.ledger, world.keeper, places, runs, world.clock, Settings(), lambda: isolation))
    assert janitor.run_once() == {}
    world.submit("big", *(TaskSpec(f"t{number}", "true") for number in range(10_000)))
    seq = world.seq()
    assert janitor.run_once()["checkpoints"] == 1
    assert janitor.run_once() == {}
    with world.ledger.read() as connection:
        assert queries.find_last_checkpoint(connection) == world.seq() == seq
        with state_at(connection, seq) as state:
            assert dump_tables(state) == dump_tables(connection)


def test_a_state_put_by_spares_the_events_before_it(world: World) -> None:
    world.submit("c", TaskSpec("a", "true"))
    seq = put_by(world)
    world.dispatch("c/a")
    tamper(world.path, "DELETE FROM event WHERE seq < :seq", seq=seq)
    with world.ledger.read() as connection, state_at(connection, world.seq()) as state:
        assert dump_tables(state) == dump_tables(connection)


def test_putting_the_same_moment_by_twice_changes_nothing(world: World) -> None:
    assert put_by(world) == put_by(world)
    with world.ledger.read() as connection:
        assert connection.rows("SELECT count(*) FROM checkpoint") == [(1,)]


def test_nobody_but_the_keeper_puts_a_state_by(world: World) -> None:
    with pytest.raises(HiveError, match="only the keeper is"), world.ask() as tx:
        tx.save_checkpoint("")


def test_nobody_but_the_keeper_throws_a_state_away(world: World) -> None:
    seq = put_by(world)
    with pytest.raises(HiveError, match="only the keeper is"), world.ask() as tx:
        tx.delete_checkpoint(seq)
    with world.keep() as tx:
        tx.delete_checkpoint(seq)
    with world.ledger.read() as connection:
        assert queries.find_last_checkpoint(connection) == 0


def spell(tables: object) -> str:
    return b64encode(zlib.compress(json.dumps(tables).encode())).decode()


def unspell(data: str) -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = json.loads(zlib.decompress(b64decode(data)))
    return found


UNREADABLE: dict[str, Callable[[str], str]] = {
    "empty": lambda _: "",
    "no base 64": lambda _: "no base 64",
    "not compressed": lambda _: "bm8gemxpYg==",
    "cut off": lambda data: data[:-8],
    "no JSON": lambda _: b64encode(zlib.compress(b"{")).decode(),
    "no tables": lambda _: spell([]),
    "a table less": lambda data: spell({name: rows for name, rows in unspell(data).items() if name != "run"}),
    "another column": lambda data: spell(unspell(data) | {"task_after": [["task", "before"]]}),
    "a row too short": lambda data: spell(unspell(data) | {"task_after": [["task", "after"], ["c/a"]]}),
    "a row that is none": lambda data: spell(unspell(data) | {"task_after": [["task", "after"], 7]}),
    "a value of no kind": lambda data: spell(unspell(data) | {"task_after": [["task", "after"], [{}, 1 << 99]]}),
    "a row that refers to nothing": lambda data: spell(unspell(data) | {"task_after": [["task", "after"], ["x", "y"]]}),
    "a row twice": lambda data: spell({name: [*rows, *rows[1:]] for name, rows in unspell(data).items()}),
}


@pytest.mark.parametrize("spoil", UNREADABLE.values(), ids=UNREADABLE)
def test_a_state_that_cannot_be_read_is_passed_over_for_the_one_before_it(
    world: World, spoil: Callable[[str], str]
) -> None:
    world.submit("c", TaskSpec("a", "true"))
    first = put_by(world)
    world.dispatch("c/a")
    second = put_by(world)
    world.complete("c/a")
    with world.ledger.read() as connection, rebuilt(connection, until=second) as whole:
        _, data = queries.find_checkpoint(connection, second) or (0, "")
        assert is_checkpoint_right(connection, whole, second)
    tamper(world.path, "UPDATE checkpoint SET data = :data WHERE seq = :seq", data=spoil(data), seq=second)
    with world.ledger.read() as connection:
        compare_moments(connection, spoilt=second)
    tamper(world.path, "DELETE FROM event WHERE seq < :seq", seq=first)  # so that it can only come from the first
    with world.ledger.read() as connection, state_at(connection, world.seq()) as state:
        assert dump_tables(state) == dump_tables(connection)


def test_when_no_state_can_be_read_the_whole_log_is(world: World) -> None:
    finish(world, "c", "a")
    for name in ("a", "b"):
        world.submit(name, TaskSpec("a", "true"))
        put_by(world)
    tamper(world.path, "UPDATE checkpoint SET data = 'spoilt'")
    with world.ledger.read() as connection, state_at(connection, world.seq()) as state:
        assert dump_tables(state) == without_archived(dump_tables(connection))


def test_an_event_that_cannot_be_replayed_is_named(world: World) -> None:
    finish(world, "c", "a")
    tamper(world.path, "UPDATE event SET data = replace(data, 'c/a', 'c/b') WHERE kind = 'task.dispatched'")
    with world.ledger.read() as connection:
        (seq,) = (e.seq for e in read_events(connection, 0, 99) if e.body.kind == "task.dispatched")
        with pytest.raises(DamagedLedgerError, match=f"Event {seq} cannot be replayed"), rebuilt(connection):
            pass
        tamper(world.path, "DELETE FROM event WHERE seq >= :seq", seq=seq)
    with (
        world.ledger.read() as connection,
        pytest.raises(DamagedLedgerError, match=f"Event {seq} is missing"),
        rebuilt(connection),
    ):
        pass


def test_each_difference_from_the_log_is_said_in_a_sentence(world: World) -> None:
    finish(world, "c", "a", "b")
    tamper(
        world.path,
        "UPDATE task SET reason = 'hm', priority = 7 WHERE key = 'c/b'",
        "DELETE FROM attempt WHERE task = 'c/a'",
        "INSERT INTO task_after VALUES ('c/a', 'c/b')",
    )
    with world.ledger.read() as connection, rebuilt(connection) as again:
        assert list_differences(connection, again) == [
            "task c/b: priority is 7, and the log says 0.",
            "task c/b: reason is 'hm', and the log says ''.",
            "attempt c/a/1 is in the log, and not in the tables.",
            "task_after c/a/c/b is in the tables, and nothing in the log says so.",
        ]


def test_the_first_twenty_differences_are_enough(world: World) -> None:
    world.submit("big", *(TaskSpec(f"t{number}", "true") for number in range(30)))
    tamper(world.path, "UPDATE task SET title = 'x'")
    with world.ledger.read() as connection, rebuilt(connection) as again:
        assert len(list_differences(connection, again)) == 20


def test_tables_of_many_pages_are_compared_to_the_last_row(world: World) -> None:
    world.submit("big", *(TaskSpec(f"t{number:04d}", "true") for number in range(2500)))
    tamper(world.path, "UPDATE task SET reason = 'hm' WHERE key IN ('big/t0000', 'big/t1000', 'big/t2499')")
    with world.ledger.read() as connection, rebuilt(connection) as again:
        found = list_differences(connection, again)
    assert [sentence.partition(":")[0] for sentence in found] == ["task big/t0000", "task big/t1000", "task big/t2499"]


def test_an_archived_convoy_is_shown_from_its_own_events_alone(world: World) -> None:
    finish(world, "c", "a", "b")
    done = world.seq()
    for name in ("c2", "c-x", "b"):
        finish(world, name, "a")
    put_by(world)
    with world.ledger.read() as connection:
        events = queries.list_events_about(connection, "c", after=0, until=world.seq(), limit=-1)
        assert {event.body.subject.partition("/")[0] for event in events} == {"c"}
        assert [event.seq for event in events] == list(range(2, done + 1))
        card = show_convoy_at(connection, world.seq(), "c")
        assert (card["state"], card["tasks"], card["complete"]) == ("ARCHIVED", 2, 2)
        assert show_convoy_at(connection, done - 1, "c")["state"] == "COMPLETE"
        assert show_convoy_at(connection, 2, "c")["tasks"] == 0
        with pytest.raises(InputError, match="There was no convoy 'c' at event 1"):
            show_convoy_at(connection, 1, "c")
        with pytest.raises(InputError, match="There is no convoy 'd'"):
            show_convoy_at(connection, done, "d")
        with state_at(connection, world.seq()) as state:
            assert dump_tables(state)["convoy"] == []


@pytest.mark.parametrize("convoy", ["old", "r"])
def test_adding_an_archived_convoy_leaves_repositories_as_they_were(world: World, convoy: str) -> None:
    """Also one that is called like the convoy."""
    key = world.add("a", convoy=convoy)
    world.dispatch(key)
    world.hand_in(key)
    with world.keep() as tx:
        merges.begin_verifying(tx, replace(world.merge(key), round=1, base="1" * 40, candidate="2" * 40, tree="3" * 40))
    with world.keep() as tx:
        merges.begin_landing(tx, world.merge(key), at=tx.now)
        merges.note_landed(tx, world.merge(key), world.task(key), at=tx.now)
    assert world.settle(convoy)
    with world.ask() as tx:
        convoys.archive_convoy(tx, world.convoy(convoy))
    world.add("b", convoy="later")
    put_by(world)
    with world.ledger.read() as connection, state_at(connection, world.seq()) as state:
        add_convoy(connection, state, convoy, world.seq())
        assert dump_tables(state) == dump_tables(connection)


def test_the_difference_of_two_moments_names_what_changed_and_nothing_else(world: World) -> None:
    world.submit("c", TaskSpec("a", "true"), TaskSpec("b", "true"))
    begin = world.seq()
    finish(world, "short", "x")
    world.dispatch("c/a")
    end = put_by(world)
    with world.ledger.read() as connection:
        view = show_difference(connection, end, begin)
        same = show_difference(connection, end, end)
    assert (view["from"]["seq"], view["to"]["seq"], view["events"]) == (begin, end, end - begin)
    done = {"state": "ARCHIVED", "complete": 1, "tasks": 1}
    assert view["convoys"] == [{"convoy": "short", "from": None, "to": done}]
    assert {row["task"]: (row["from"], row["to"]) for row in view["tasks"]} == {
        "c/a": (
            {"state": "PENDING", "attempts": 0, "commit": None},
            {"state": "IN_PROGRESS", "attempts": 1, "commit": None},
        ),
        "short/x": (None, {"state": "COMPLETE", "attempts": 1, "commit": None}),
    }
    assert view["repos"] == []
    assert (same["events"], same["convoys"], same["tasks"], same["repos"]) == (0, [], [], [])


def test_a_convoy_that_was_archived_meanwhile_differs_by_that(world: World) -> None:
    world.submit("c", TaskSpec("a", "true"))
    world.cancel("c/a")
    assert world.settle("c")
    begin = world.seq()
    with world.ask() as tx:
        convoys.archive_convoy(tx, world.convoy("c"))
    put_by(world)
    with world.ledger.read() as connection:
        view = show_difference(connection, begin, world.seq())
    assert [(row["from"]["state"], row["to"]["state"]) for row in view["convoys"]] == [("COMPLETE", "ARCHIVED")]
    assert view["tasks"] == []


def test_a_time_means_the_last_event_written_down_by_then(world: World) -> None:
    finish(world, "c", "a")
    with world.ledger.read() as connection:
        times = [event.recorded_at for event in read_events(connection, 0, 99)]
        assert [find_seq_at(connection, at) for at in times] == list(range(1, len(times) + 1))
        assert find_seq_at(connection, times[3][:-2] + "5Z") == 4  # between two events
        assert find_seq_at(connection, "2000-01-01T00:00:00.000000Z") == 0
        assert find_seq_at(connection, "9999-01-01T00:00:00.000000Z") == len(times)


def test_where_the_clock_was_set_back_a_time_means_an_event_after_which_the_clock_passed_it(world: World) -> None:
    world.submit("a", TaskSpec("t", "true"))
    world.clock.looks -= 5000
    finish(world, "b", "t", "u")
    with world.ledger.read() as connection:
        times = [event.recorded_at for event in read_events(connection, 0, 99)]
        assert times != sorted(times)
        for at in times[:-1]:
            seq = find_seq_at(connection, at)
            assert seq == 0 or times[seq - 1] <= at
            assert seq == len(times) or times[seq] > at


def test_a_moment_that_is_none_is_refused_with_what_to_type(world: World) -> None:
    late = "9999-01-01T00:00:00.000000Z"
    with world.ledger.read() as connection:
        for moment, said in (
            (0, "from 1 to 1"),
            (2, "from 1 to 1"),
            ("2000-01-01T00:00:00.000000Z", "first event"),
            (late, "in the future"),
        ):
            with pytest.raises(InputError, match=said):
                get_seq(connection, moment, now="2027-01-15T08:00:01.000000Z")
        assert get_seq(connection, late, now=late) == 1


def test_cursors_move_forward_only_and_each_by_itself_and_are_no_events(world: World) -> None:
    finish(world, "c", "a")
    before, head = dump_all(world.ledger), world.seq()
    for name, seq in (("one", 3), ("two", 5), ("one", 4), ("one", 2), ("two", 5), ("far", 10**9)):
        with world.ask() as tx:
            history.move_cursor(tx, name, seq)
    assert dump_all(world.ledger) == before
    with world.ledger.read() as connection:
        rows = list_cursors(connection)
    assert [(row["cursor"], row["seq"], row["behind"]) for row in rows] == [
        ("far", head, 0),
        ("one", 4, head - 4),
        ("two", 5, head - 5),
    ]
    with pytest.raises(InputError, match="not a name"), world.ask() as tx:
        history.move_cursor(tx, "No Name", 1)


def test_events_about_a_subject_are_found_by_the_index(world: World) -> None:
    sql = asking.read_sql("list_events_about")
    values: dict[str, str | int] = {"subject": "c", "first": "c/", "beyond": "c0", "after": 0, "until": 9, "limit": 9}
    with world.ledger.read() as connection:
        plan = [str(row[-1]) for row in connection.rows(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert not [step for step in plan if step.startswith("SCAN")], plan
    assert sum("event_by_subject" in step for step in plan) == 2
