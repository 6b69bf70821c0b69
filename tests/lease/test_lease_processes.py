"""The lease between real processes: killed, frozen, thawed, robbed of their lock file, and twenty at once."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from hivekeeper.clock import SystemClock
from hivekeeper.domain.events import LeaseReleased, LeaseTaken
from hivekeeper.domain.hive_rows import LeaseRow
from hivekeeper.errors import HiveError
from hivekeeper.keeper import lease
from hivekeeper.runs.wrapper import read_start_ticks
from hivekeeper.store import queries
from hivekeeper.store.ledger import Ledger, create_ledger, read_events
from tests.lease.lease_children import (
    LOCK,
    Candidate,
    candidate,
    race,
    read_state,
)
from tests.needs import need_root
from tests.store.ledger_children import SERVER, child
from tests.store.ledger_kit import assert_whole, dump_all, head_of, opened

LIMIT_S = 1.0  # after so much silence a holder counts as abandoned
LONG_LIMIT_S = 3.0  # the same where something is done before it is over, also on a busy machine
ANOTHER, STALE = ("AnotherKeeperError", 3), ("StaleEpochError", 3)


@pytest.fixture
def hive(tmp_path: Path) -> Path:
    create_ledger(tmp_path / "ledger.db")
    return tmp_path


@pytest.fixture
def ledger(hive: Path) -> Iterator[Ledger]:
    with opened(hive / "ledger.db") as made:
        yield made


def find_lease(ledger: Ledger) -> LeaseRow:
    with ledger.read() as connection:
        found = queries.find_lease(connection)
    assert found is not None
    return found


def wait_until_silent(ledger: Ledger, seconds: float) -> None:
    """Wait until the last heartbeat is so old, on the clock that the lease is measured by."""
    with ledger.read() as connection:
        beat = queries.find_heartbeat(connection)
    assert beat is not None
    while time.monotonic() - beat.monotonic_ms / 1000 < seconds:
        time.sleep(0.02)  # real time: silence is made of it


def tamper(hive: Path, *statements: str) -> None:
    raw = apsw.Connection(str(hive / "ledger.db"))
    for statement in statements:
        raw.execute(statement)
    raw.close()


def test_the_first_to_come_is_the_keeper_and_says_who_it_is(hive: Path, ledger: Ledger) -> None:
    with candidate(hive) as first:
        assert first.ask("take") == ("taken", 1)
        row = find_lease(ledger)
        assert (row.pid, row.start_ticks, row.epoch) == (first.pid, read_start_ticks(first.pid), 1)
        assert row.released_at is None
        assert first.ask("write") == ("written", 2)


def test_a_second_keeper_is_told_who_is_there_and_nothing_has_changed(hive: Path, ledger: Ledger) -> None:
    with candidate(hive) as first, candidate(hive) as second:
        first.ask("take")
        before = dump_all(ledger)
        for _ in range(3):
            assert second.ask("take") == ANOTHER
        assert dump_all(ledger) == before
        with pytest.raises(HiveError, match=f"keeper {first.pid} on .* is active"):
            lease.take(ledger, hive / LOCK, SystemClock(), abandoned_after_s=60.0)
        assert first.ask("write")[0] == "written"


def test_a_refused_keeper_leaves_no_file_open(hive: Path) -> None:
    with candidate(hive) as first, candidate(hive) as second:
        first.ask("take")
        second.ask("take")
        before = second.ask("count_files")
        for _ in range(5):
            assert second.ask("take") == ANOTHER
        assert second.ask("count_files") == before


def test_a_killed_keepers_lock_is_free_at_once(hive: Path, ledger: Ledger) -> None:
    """However fresh its heartbeat: the kernel's lock knows, and no time limit is waited for."""
    with candidate(hive) as successor:
        for epoch in (1, 3, 5):
            with candidate(hive) as first:
                assert first.ask("take") == ("taken", epoch)
                first.process.kill()
                first.process.join()
            before = time.monotonic()
            assert successor.ask("take") == ("taken", epoch + 1)
            assert time.monotonic() - before < 5.0
            with ledger.read() as connection:
                *_, event = read_events(connection, 0, 100)
            assert isinstance(event.body, LeaseTaken)
            assert "died without releasing the lease" in event.body.after
            assert successor.ask("release")[0] == "released"


def test_a_program_the_keeper_started_does_not_keep_the_lock_alive(hive: Path) -> None:
    with candidate(hive) as first, candidate(hive) as second:
        first.ask("take")
        _, program = first.ask("start_a_program")
        try:
            first.process.kill()
            first.process.join()
            assert read_state(program) not in ("", "Z")
            assert second.ask("take") == ("taken", 2)
        finally:
            os.kill(program, signal.SIGKILL)


def test_a_lease_given_back_is_taken_without_ado(hive: Path, ledger: Ledger) -> None:
    with candidate(hive) as first, candidate(hive) as second:
        first.ask("take")
        assert first.ask("release") == ("released", 1)
        assert find_lease(ledger).released_at is not None
        assert second.ask("take") == ("taken", 2)
        row = find_lease(ledger)
        assert (row.pid, row.released_at) == (second.pid, None)
        assert first.ask("write") == STALE


@pytest.mark.alone
def test_a_frozen_keeper_is_left_alone_until_its_time_is_up_and_then_killed_and_followed(
    hive: Path, ledger: Ledger
) -> None:
    with candidate(hive) as frozen, candidate(hive, LONG_LIMIT_S) as hasty, candidate(hive) as patient:
        frozen.ask("take")
        frozen.ask("beat")
        frozen.stop()
        assert hasty.ask("take") == ANOTHER
        assert frozen.is_alive()
        wait_until_silent(ledger, LONG_LIMIT_S)
        assert patient.ask("take") == ANOTHER
        assert frozen.is_alive()
        assert hasty.ask("take") == ("taken", 2)
        assert not frozen.is_alive()
        row = find_lease(ledger)
        assert (row.pid, row.epoch) == (hasty.pid, 2)
        with ledger.read() as connection:
            *_, event = read_events(connection, 0, 100)
        assert "ABANDONED" in event.why
        assert hasty.ask("write")[0] == "written"


@pytest.mark.alone
def test_a_keeper_that_beats_is_never_abandoned(hive: Path) -> None:
    with candidate(hive) as busy, candidate(hive, LIMIT_S) as other:
        busy.ask("take")
        end = time.monotonic() + 2.5 * LIMIT_S
        while time.monotonic() < end:
            before = time.monotonic()
            busy.ask("beat")
            answer = other.ask("take")
            if time.monotonic() - before < LIMIT_S:  # else the machine, not the keeper, was silent
                assert answer == ANOTHER
            time.sleep(0.05)  # real time: this is about time passing
        assert busy.ask("write")[0] == "written"


def test_a_keeper_frozen_in_the_middle_of_a_write_leaves_nothing_of_it(hive: Path, ledger: Ledger) -> None:
    with candidate(hive) as frozen, candidate(hive, LIMIT_S) as successor:
        frozen.ask("take")
        assert frozen.ask("stall_in_a_write") == ("in the middle", 0)
        frozen.stop()
        wait_until_silent(ledger, LIMIT_S)
        assert successor.ask("take") == ("taken", 2)
        assert successor.ask("write")[0] == "written"
        with ledger.read() as connection:
            assert queries.find_convoy(connection, "half written") is None
    assert assert_whole(hive / "ledger.db") == 3


def test_a_frozen_keeper_whose_lock_file_was_deleted_is_not_killed_but_never_writes_again(
    hive: Path, ledger: Ledger
) -> None:
    with candidate(hive) as old, candidate(hive, LIMIT_S) as new:
        old.ask("take")
        old.ask("write")
        old.stop()
        (hive / LOCK).unlink()
        wait_until_silent(ledger, LIMIT_S)
        assert new.ask("take") == ("taken", 2)
        assert old.is_alive()
        before = dump_all(ledger)
        old.go_on()
        assert old.ask("write") == STALE
        assert old.ask("beat") == STALE
        assert dump_all(ledger) == before
        assert new.ask("write")[0] == "written"


def test_a_release_by_an_older_epoch_changes_nothing(hive: Path, ledger: Ledger) -> None:
    with candidate(hive) as old, candidate(hive) as new, candidate(hive) as third:
        old.ask("take")
        (hive / LOCK).unlink()
        assert new.ask("take") == ("taken", 2)
        before = dump_all(ledger)
        assert old.ask("release")[0] == "released", "it is told nothing, for it has nothing left to do"
        assert dump_all(ledger) == before
        assert find_lease(ledger).released_at is None
        assert third.ask("take") == ANOTHER, "the successor's lock is its own"
        assert new.ask("write")[0] == "written"


def test_giving_back_twice_is_giving_back_once(hive: Path, ledger: Ledger) -> None:
    with candidate(hive) as first:
        first.ask("take")
        first.ask("release")
        before = dump_all(ledger)
        answer = first.ask("release")
        assert dump_all(ledger) == before
        assert answer[0] == "released"
    with ledger.read() as connection:
        released = [event for event in read_events(connection, 0, 100) if isinstance(event.body, LeaseReleased)]
    assert len(released) == 1


def test_a_holder_of_another_boot_is_never_killed(hive: Path, ledger: Ledger) -> None:
    with candidate(hive) as frozen, candidate(hive, 0.001) as other:
        frozen.ask("take")
        frozen.stop()
        for table in ("lease, heartbeat", "lease"):
            for name in table.split(", "):
                tamper(hive, f"UPDATE {name} SET boot_id = 'another boot'")  # noqa: S608 - our own names
            wait_until_silent(ledger, 0.1)
            before = dump_all(ledger)
            assert other.ask("take") == ANOTHER
            assert frozen.is_alive()
            assert dump_all(ledger) == before


def test_a_process_that_has_inherited_an_abandoned_keepers_number_is_not_killed(hive: Path, ledger: Ledger) -> None:
    with candidate(hive) as holder, candidate(hive) as innocent, candidate(hive, 0.001) as other:
        holder.ask("take")
        holder.stop()
        tamper(hive, f"UPDATE lease SET pid = {innocent.pid}")  # noqa: S608 - a number of ours
        assert read_start_ticks(innocent.pid) is not None
        tamper(hive, "UPDATE lease SET start_ticks = start_ticks - 1")
        wait_until_silent(ledger, 0.1)
        before = dump_all(ledger)
        assert other.ask("take") == ANOTHER
        assert innocent.is_alive()
        assert holder.is_alive()
        assert dump_all(ledger) == before


def test_a_keeper_that_finds_its_own_earlier_self_abandoned_does_not_kill_itself(hive: Path, ledger: Ledger) -> None:
    """A program that keeps a hive twice, its first keeper's heart long dead, is told so and lives."""
    with candidate(hive, 0.05) as twice:
        twice.ask("take")
        wait_until_silent(ledger, 0.2)
        try:
            answer = twice.ask("take")
        except (EOFError, ConnectionError):
            pytest.fail("it killed itself")
        assert answer == ANOTHER


@pytest.fixture
def public_hive() -> Iterator[Path]:
    """A hive that every user may read and write; pytest's own directories are closed to others."""
    directory = Path(tempfile.mkdtemp(prefix="hive-test-"))
    create_ledger(directory / "ledger.db")
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


def share(hive: Path) -> None:
    for file in hive.iterdir():
        file.chmod(0o666)


def test_a_frozen_keeper_of_another_user_is_named_and_not_followed(public_hive: Path) -> None:
    need_root("there has to be a second user")
    with candidate(public_hive) as frozen:
        frozen.ask("take")
        share(public_hive)
        with candidate(public_hive, 0.01, nobody=True) as other, opened(public_hive / "ledger.db") as ledger:
            frozen.stop()
            wait_until_silent(ledger, 0.1)
            before = dump_all(ledger)
            assert other.ask("take") == ANOTHER
            assert frozen.is_alive()
            assert dump_all(ledger) == before


@pytest.mark.parametrize("obstacle", ["a directory in its place", "no directory", "another user's"])
def test_a_lock_file_that_cannot_be_opened_is_told_in_words(public_hive: Path, obstacle: str) -> None:
    need_root("there has to be a second user")
    if obstacle == "a directory in its place":
        (public_hive / LOCK).mkdir()
    elif obstacle == "another user's":
        (public_hive / LOCK).touch(mode=0o600)
    with opened(public_hive / "ledger.db") as ledger:
        before = head_of(ledger)
        if obstacle == "no directory":
            with pytest.raises(HiveError):
                lease.take(ledger, public_hive / "nowhere" / LOCK, SystemClock(), abandoned_after_s=60.0)
        else:
            for file in public_hive.glob("ledger*"):
                file.chmod(0o666)
            with candidate(public_hive, nobody=True) as nobody:
                what, code = nobody.ask("take")
            assert code in (3, 4, 5), what
        assert head_of(ledger) == before


RACERS = 20


def run_race(hive: Path, rounds: int, limit: float, beforehand: Candidate | None = None) -> list[list[tuple[str, int]]]:
    """Have twenty processes want the lease at one moment, round after round; tell what each was told."""
    barrier = SERVER.Barrier(RACERS)
    with ExitStack() as stack:
        racers = [stack.enter_context(child(race, hive, barrier, rounds, limit)) for _ in range(RACERS)]
        answers = []
        for _ in range(rounds):
            for _, pipe in racers:
                assert pipe.poll(30.0), "a racer says nothing"
            answers.append([pipe.recv() for _, pipe in racers])
        for process, _ in racers:
            process.join(30.0)
    assert beforehand is None or not beforehand.is_alive()
    return answers


@pytest.mark.alone
def test_of_twenty_that_want_the_lease_at_once_exactly_one_gets_it_every_time(hive: Path, ledger: Ledger) -> None:
    rounds = 6
    for number, answers in enumerate(run_race(hive, rounds, 60.0), start=1):
        assert sorted(answers) == [ANOTHER] * (RACERS - 1) + [("taken", number)]
    assert head_of(ledger).epoch == rounds
    assert assert_whole(hive / "ledger.db") == 2 * rounds, "one taking and one giving back a round, and nothing else"


@pytest.mark.alone
def test_of_twenty_that_find_a_keeper_abandoned_exactly_one_follows_it(hive: Path, ledger: Ledger) -> None:
    with candidate(hive) as frozen:
        frozen.ask("take")
        frozen.stop()
        wait_until_silent(ledger, 0.3)
        (answers,) = run_race(hive, 1, 0.3, frozen)
    assert sorted(answers) == [ANOTHER] * (RACERS - 1) + [("taken", 2)]
    assert assert_whole(hive / "ledger.db") == 3
