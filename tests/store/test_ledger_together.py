"""Many at once: threads and processes that write, read for long, and are killed in the middle of it."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from hivekeeper.domain.events import ConvoySubmitted
from hivekeeper.errors import HiveError, LedgerRefusedError
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByPerson, Ledger, create_ledger, open_ledger, read_head
from hivekeeper.store.schema import SCHEMA
from hivekeeper.store.sqlite import SqliteDatabase
from tests.budget import sample
from tests.store.ledger_children import (
    SERVER,
    child,
    come_and_go,
    create_together,
    drain,
    lock_out,
    submit_whole,
    write_for,
    write_until_killed,
)
from tests.store.ledger_kit import PERSON, assert_whole, head_of, new_ledger, opened

FAIR = 3.0  # nobody waits longer on average than so many times the mean of all


def slowest_against_mean(counts: list[int], seconds: float) -> float:
    """Tell how much longer than the mean the unluckiest writer's writes took."""
    assert min(counts) > 0, f"somebody never got in: {counts}"
    latencies = [seconds / count for count in counts]
    return max(latencies) * len(latencies) / sum(latencies)


@pytest.mark.alone
def test_two_threads_write_side_by_side_and_neither_starves(tmp_path: Path) -> None:
    counts, problems, seconds = [0, 0], [], 1.0
    start = threading.Barrier(2)

    def write(ledger: Ledger, number: int) -> None:
        try:
            start.wait()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                with ledger.write(ByPerson(f"thread {number}")) as tx:
                    tx.record(ConvoySubmitted(f"{number}-{counts[number]}", f"{number}-{counts[number]}"))
                counts[number] += 1
        except BaseException as error:  # noqa: BLE001 - told to the test below
            problems.append(error)

    with new_ledger(tmp_path) as ledger:
        threads = [threading.Thread(target=write, args=(ledger, number)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []
    assert assert_whole(tmp_path / "ledger.db") == sum(counts)
    assert slowest_against_mean(counts, seconds) <= FAIR


@pytest.mark.alone
def test_a_thread_that_comes_and_goes_is_let_in_between_two_that_never_rest(tmp_path: Path) -> None:
    stop = threading.Event()

    def press(ledger: Ledger, number: int) -> None:
        count = 0
        while not stop.is_set():
            submit_whole(ledger, f"{number}-{count}")
            count += 1

    with new_ledger(tmp_path) as ledger:
        threads = [threading.Thread(target=press, args=(ledger, number)) for number in range(2)]
        for thread in threads:
            thread.start()
        waited = []
        try:
            for number in range(20):
                before = time.monotonic()
                submit_whole(ledger, f"guest-{number}")
                waited.append(time.monotonic() - before)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        with ledger.read() as connection:
            guests = [row for row in queries.list_convoys(connection) if row.name.startswith("guest-")]
    assert len(guests) == 20
    assert sum(waited) < 10.0, waited


@pytest.mark.alone
def test_eight_processes_write_at_once_and_all_is_there_and_nobody_starves(tmp_path: Path) -> None:
    with new_ledger(tmp_path):
        pass
    path, seconds, barrier = tmp_path / "ledger.db", 2.0, SERVER.Barrier(8)
    with ExitStack() as stack:
        writers = [stack.enter_context(child(write_for, path, f"w{n}", barrier, seconds)) for n in range(8)]
        told = [pipe.recv() for _, pipe in writers]
        for process, _ in writers:
            process.join()
            assert process.exitcode == 0
    counts = [count for _, count in told]
    assert assert_whole(path) == sum(counts)
    with opened(path) as ledger, ledger.read() as connection:
        names = {row.name for row in queries.list_convoys(connection)}
        writers_in_order = [row[0] for row in connection.rows("SELECT who FROM event ORDER BY seq")]
    assert names == {f"{name}-{number}" for name, count in told for number in range(count)}
    assert slowest_against_mean(counts, seconds) <= FAIR, counts
    # With all others waiting, the last winner is not the next: a plain lock lets it win again 1 time in 5 to 10.
    again = sum(one == next_ for one, next_ in pairwise(writers_in_order)) / len(writers_in_order)
    assert again < 0.05, f"{again:.0%} of all writes follow one of the same writer"


def test_eight_processes_make_one_ledger_at_the_same_moment(tmp_path: Path) -> None:
    path, barrier = tmp_path / "ledger.db", SERVER.Barrier(8)
    with ExitStack() as stack:
        makers = [stack.enter_context(child(create_together, path, barrier)) for _ in range(8)]
        seqs = sorted(pipe.recv()[0] for _, pipe in makers)
    assert seqs == [3, 6, 9, 12, 15, 18, 21, 24]
    assert assert_whole(path) == 24


@pytest.mark.alone
def test_whoever_opens_while_others_come_and_go_is_never_told_that_the_ledger_is_locked(tmp_path: Path) -> None:
    """The last to close writes SQLite's log back and locks everybody out for a moment; that is to be waited for."""
    path, barrier, times = tmp_path / "ledger.db", SERVER.Barrier(6), 30
    create_ledger(path)
    with ExitStack() as stack:
        guests = [stack.enter_context(child(come_and_go, path, barrier, times)) for _ in range(6)]
        problems = [problem for _, pipe in guests for problem in pipe.recv()]
    assert problems == []
    assert assert_whole(path) == 6 * times * 3


@pytest.mark.parametrize("act", [create_ledger, open_ledger, SqliteDatabase], ids=["made again", "opened", "connected"])
def test_a_ledger_that_is_locked_for_a_moment_is_waited_for(tmp_path: Path, act: Callable[[Path], object]) -> None:
    path = tmp_path / "ledger.db"
    create_ledger(path)
    with child(lock_out, path, 0.3) as (_, pipe):
        pipe.recv()
        done = act(path)
    if isinstance(done, Ledger | SqliteDatabase):
        done.close()


def test_a_read_sees_one_moment_however_long_it_lasts(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger, opened(tmp_path / "ledger.db") as other:
        submit_whole(ledger, "before")
        with ledger.read() as connection:
            first = read_head(connection), queries.list_convoys(connection)
            for number in range(5):
                submit_whole(ledger if number % 2 else other, f"later-{number}")
                assert (read_head(connection), queries.list_convoys(connection)) == first
                assert queries.list_tasks_of_convoy(connection, f"later-{number}") == []
        with ledger.read() as connection:
            assert len(queries.list_convoys(connection)) == 6


def test_a_read_inside_a_read_is_not_called_damage(tmp_path: Path) -> None:
    """A mistake of ours, or nothing at all; but nobody is to restore a backup because of it."""
    with new_ledger(tmp_path) as ledger:
        submit_whole(ledger, "a")
        try:
            with ledger.read() as outer, ledger.read() as inner:
                assert read_head(outer) == read_head(inner)
        except LedgerRefusedError as error:
            pytest.fail(f"nothing is damaged: {error.what}")
        except (HiveError, RuntimeError):
            pass
        assert head_of(ledger).seq == 3, "and the next read is well"


def test_a_thread_whose_first_read_finds_the_file_gone_is_told_in_words(tmp_path: Path) -> None:
    told: list[BaseException] = []

    def look(ledger: Ledger) -> None:
        for read in (lambda: head_of(ledger), ledger.version):
            try:
                read()
            except BaseException as error:  # noqa: BLE001 - looked at below
                told.append(error)

    with new_ledger(tmp_path) as ledger:
        (tmp_path / "ledger.db").rename(tmp_path / "moved.db")
        thread = threading.Thread(target=look, args=(ledger,))
        thread.start()
        thread.join()
        (tmp_path / "moved.db").rename(tmp_path / "ledger.db")
    assert [type(error) for error in told if not isinstance(error, HiveError)] == []


def test_reads_never_see_half_a_transaction(tmp_path: Path) -> None:
    """While a process writes a convoy with its two tasks at a time, every look sees whole convoys only."""
    looks = 0
    with new_ledger(tmp_path) as ledger:
        with child(write_until_killed, tmp_path / "ledger.db", "w") as (_, pipe):
            pipe.recv()
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                with ledger.read() as connection:
                    (convoys,) = connection.rows("SELECT count(*) FROM convoy")[0]
                    (tasks,) = connection.rows("SELECT count(*) FROM task")[0]
                    assert (tasks, read_head(connection).seq) == (2 * convoys, 3 * convoys)
                looks += 1
        assert looks > 10
        assert head_of(ledger).seq > 3


@pytest.mark.alone
def test_a_reader_in_no_hurry_does_not_hold_up_writers(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with new_ledger(tmp_path) as ledger, opened(path) as reader:
        submit_whole(ledger, "first")
        with reader.read() as connection:
            read_head(connection)
            before = time.monotonic()
            with ledger.write(PERSON) as tx:  # more than the 16 MB after which SQLite writes its log back
                for number in range(30):
                    tx.record(ConvoySubmitted(f"big-{number}", f"big-{number}"), why="x" * 1_000_000)
            for number in range(20):
                submit_whole(ledger, f"small-{number}")
            assert time.monotonic() - before < 15.0, "writers waited for a reader (the busy time limit is 20 s)"
            assert read_head(connection).seq == 3
        assert head_of(reader).seq == 3 + 30 + 60
    assert_whole(path)


def test_the_version_tells_of_every_commit_of_anybody_else(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger, opened(tmp_path / "ledger.db") as other:
        seen = [ledger.version()]
        for number in range(3):
            submit_whole(other, f"other-{number}")
            seen.append(ledger.version())
        submit_whole(ledger, "own")
        seen.append(ledger.version())
        assert len(set(seen)) == 5, seen
        assert ledger.version() == seen[-1]


WRITER = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "busy_timeout": 20_000,
    "wal_autocheckpoint": 4000,
    "trusted_schema": 0,
    "query_only": 0,
    "locking_mode": "normal",
}
READER = {"journal_mode": "wal", "busy_timeout": 20_000, "trusted_schema": 0, "query_only": 1}


def test_every_pragma_is_in_force_on_both_connections_of_every_thread(tmp_path: Path) -> None:
    found: list[tuple[dict[str, object], dict[str, object]]] = []

    def look(ledger: Ledger) -> None:
        with ledger.write(PERSON) as tx:
            writer: dict[str, object] = {name: tx.connection.rows(f"PRAGMA {name}")[0][0] for name in WRITER}
        with ledger.read() as connection:
            reader: dict[str, object] = {name: connection.rows(f"PRAGMA {name}")[0][0] for name in READER}
        found.append((writer, reader))

    with new_ledger(tmp_path) as ledger:
        thread = threading.Thread(target=look, args=(ledger,))
        thread.start()
        thread.join()
        look(ledger)
        with ledger.read() as connection:
            encoding, version = (connection.rows(f"PRAGMA {name}")[0][0] for name in ("encoding", "user_version"))
    assert found == [(WRITER, READER)] * 2
    assert (encoding, version) == ("UTF-8", SCHEMA)


def test_a_reading_connection_cannot_write(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        submit_whole(ledger, "a")
        with pytest.raises(Exception, match="readonly"), ledger.read() as connection:
            connection.run("DELETE FROM event")
        assert head_of(ledger).seq == 3


def test_a_row_that_refers_to_nobody_is_refused(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        before = head_of(ledger)
        with pytest.raises(Exception, match="FOREIGN KEY"), ledger.write(PERSON) as tx:
            tx.connection.run("INSERT INTO task_after (task, after) VALUES ('nobody', 'nobody')")
        assert head_of(ledger) == before


def test_the_database_library_is_past_the_bug_that_damages_logs() -> None:
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


@pytest.mark.parametrize("seed", sample(range(50), 2))
def test_writers_killed_at_forty_random_moments_lose_nothing_they_said_was_written(tmp_path: Path, seed: int) -> None:
    """Four writers at a time, each killed somewhere between its start and its next write; eighty in all."""
    path, chance = tmp_path / "ledger.db", random.Random(seed)  # noqa: S311 - moments, not secrets
    create_ledger(path)
    acknowledged: dict[str, int] = {}
    found: dict[str, int] = {}
    for round_ in range(10):
        with ExitStack() as stack:
            writers = [stack.enter_context(child(write_until_killed, path, f"{round_}-{n}")) for n in range(4)]
            for process, pipe in writers:
                for _ in range(chance.choice((0, 0, 1, 1, 2))):
                    name, seq = pipe.recv()
                    acknowledged[name] = seq
                pipe.poll(chance.uniform(0.0, 0.012))  # real time: the moment of death is what varies
                process.kill()
            for process, pipe in writers:
                process.join()
                acknowledged.update(drain(pipe))
        with opened(path) as ledger, ledger.read() as connection:
            found = dict(connection.rows("SELECT subject, seq + 2 FROM event WHERE kind = 'convoy.submitted'"))
            (tasks,) = connection.rows("SELECT count(*) FROM task")[0]
        assert tasks == 2 * len(found), f"round {round_}: half a transaction"
        lost = acknowledged.items() - found.items()
        assert not lost, f"round {round_}: acknowledged and lost"
    assert len(acknowledged) > 20
    assert assert_whole(path) == 3 * len(found)
