"""Who may write what: a person asks, a keeper of the present epoch acts, a successor only takes the lease."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.commands.leases import release_lease
from hivekeeper.domain.events import (
    BODIES,
    REQUESTS,
    ConvoySubmitted,
    LeaseTaken,
    RunExited,
    RunIntended,
    RunKillRequested,
    RunStarted,
)
from hivekeeper.domain.hive_rows import LeaseRow
from hivekeeper.errors import AnotherKeeperError, HiveError, StaleEpochError
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByKeeper, BySuccessor, Ledger
from tests.store.ledger_children import added
from tests.store.ledger_kit import (
    PERSON,
    assert_whole,
    dump_all,
    fingerprint,
    head_of,
    new_ledger,
    opened,
    sample_bodies,
    seize,
)

SAMPLES = sample_bodies()
KEEPERS_OWN = sorted(kind for kind, cls in BODIES.items() if cls not in REQUESTS)
TAKEN = LeaseTaken("keeper 2 on here", 2, 2, 2, "boot", "")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with new_ledger(tmp_path) as made:
        seize(made)
        yield made


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A ledger for those who leave nothing in it."""
    with new_ledger(tmp_path_factory.mktemp("untouched")) as made:
        seize(made)
        yield made


def find_lease(ledger: Ledger) -> LeaseRow:
    with ledger.read() as connection:
        lease = queries.find_lease(connection)
    assert lease is not None
    return lease


def submit_with_more(ledger: Ledger, kind: str) -> None:
    """Ask for something, and in the same breath for what is not a person's to write."""
    with ledger.write(PERSON) as tx:
        tx.record(ConvoySubmitted("before", "before"))
        tx.record(SAMPLES[kind])


def test_what_a_person_may_ask_for_is_exactly_this() -> None:
    assert sorted(cls.kind for cls in REQUESTS) == [
        "agent.created",
        "agent.described",
        "agent.learnt",
        "agent.renamed",
        "agent.restored",
        "agent.retired",
        "agent.unlearnt",
        "budget.raised",
        "convoy.archived",
        "convoy.defaults_set",
        "convoy.extended",
        "convoy.submitted",
        "hold.lifted",
        "mail.closed",
        "mail.dropped",
        "mail.requeued",
        "mail.sent",
        "merge.approved",
        "merge.prioritized",
        "repo.paused",
        "repo.pinned",
        "repo.resumed",
        "repo.wanted",
        "run.kill_requested",
        "task.added",
        "task.cancel_requested",
        "task.cancelled",
        "task.edited",
        "task.handed_off",
        "task.retry_requested",
    ]


@pytest.mark.parametrize("kind", KEEPERS_OWN)
def test_a_person_may_not_write_what_is_the_keepers(untouched: Ledger, kind: str) -> None:
    before = dump_all(untouched)
    with pytest.raises(HiveError, match="may not write"):
        submit_with_more(untouched, kind)
    assert dump_all(untouched) == before


def test_a_refused_person_writes_not_one_byte(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        seize(ledger)
    before = fingerprint(tmp_path / "ledger.db")
    with opened(tmp_path / "ledger.db") as ledger:
        for kind in KEEPERS_OWN:
            with pytest.raises(HiveError, match="may not write"):
                submit_with_more(ledger, kind)
    assert fingerprint(tmp_path / "ledger.db") == before


def test_a_person_may_ask_for_the_end_of_an_open_run_once_and_of_no_other(ledger: Ledger, tmp_path: Path) -> None:
    keeper = seize(ledger)
    with ledger.write(keeper) as tx:
        for name in ("open", "over"):
            tx.record(RunIntended(name, "agent", None, None, None, ["true"], "/", {}, {}, "boot"))
        tx.record(RunStarted("over", 1, 1, "boot"))
        tx.record(RunExited("over", "agent", 0, "exit", 0))
    with ledger.write(PERSON) as tx:
        tx.record(RunKillRequested("open"), why="too slow")
    before = dump_all(ledger)
    for run in ("open", "over", "never heard of"):
        with pytest.raises(HiveError), ledger.write(PERSON) as tx:
            tx.record(RunKillRequested(run))
    assert dump_all(ledger) == before
    with ledger.read() as connection:
        row = queries.find_run(connection, "open")
    assert row is not None
    assert (row.is_open, row.reason) == (True, "too slow")
    assert_whole(tmp_path / "ledger.db")


@pytest.mark.parametrize("kind", sorted(set(BODIES) - {"lease.taken"}))
def test_a_successor_may_write_nothing_but_that_it_took_the_lease(untouched: Ledger, kind: str) -> None:
    before = dump_all(untouched)
    with pytest.raises(HiveError, match="may not write"), untouched.write(BySuccessor("keeper 2 on here")) as tx:
        tx.record(SAMPLES[kind])
    assert dump_all(untouched) == before


def test_a_person_writes_under_any_epoch_and_the_event_says_which(ledger: Ledger) -> None:
    for name in ("a", "b"):
        with ledger.write(PERSON) as tx:
            assert tx.record(ConvoySubmitted(name, name)).epoch == head_of(ledger).epoch
        seize(ledger)
    assert head_of(ledger).epoch == 3


def test_taking_the_lease_raises_the_epoch_of_that_very_event(ledger: Ledger, tmp_path: Path) -> None:
    for expected in (2, 3, 4):
        assert seize(ledger).epoch == expected
        assert head_of(ledger).epoch == find_lease(ledger).epoch == expected
    assert_whole(tmp_path / "ledger.db")


@pytest.mark.parametrize("epoch", [0, 1, 2, 4, 99])
def test_a_keeper_of_another_epoch_is_refused_before_it_decides_anything(ledger: Ledger, epoch: int) -> None:
    seize(ledger)
    seize(ledger)
    before, entered = dump_all(ledger), False
    with pytest.raises(StaleEpochError) as caught, ledger.write(ByKeeper("keeper", epoch)):
        entered = True
    assert not entered
    assert isinstance(caught.value, AnotherKeeperError)
    assert caught.value.exit_code == 3
    assert dump_all(ledger) == before


def test_a_keeper_is_refused_from_the_moment_its_successor_has_written(ledger: Ledger, tmp_path: Path) -> None:
    old = seize(ledger, "old")
    with ledger.write(old) as tx:
        tx.record(ConvoySubmitted("a", "a"))
    with opened(tmp_path / "ledger.db") as elsewhere:
        new = seize(elsewhere, "new")
    before = dump_all(ledger)
    for _ in range(2):
        with pytest.raises(StaleEpochError), ledger.write(old) as tx:
            tx.record(added("a", "t"))
    assert dump_all(ledger) == before
    with ledger.write(new) as tx:
        tx.record(added("a", "t"))


def test_an_epoch_that_moves_in_the_middle_of_a_transaction_ends_it(ledger: Ledger) -> None:
    """What `head` would look like to a writer whose lock was lost: the fence is in the append itself."""
    keeper = seize(ledger)
    before = dump_all(ledger)

    def write() -> None:
        with ledger.write(keeper) as tx:
            tx.record(ConvoySubmitted("a", "a"))
            tx.connection.run("UPDATE head SET epoch = epoch + 1")
            tx.record(ConvoySubmitted("b", "b"))

    with pytest.raises(HiveError):
        write()
    assert dump_all(ledger) == before


def test_a_stale_keeper_cannot_even_beat(ledger: Ledger) -> None:
    old = seize(ledger)
    seize(ledger)
    with pytest.raises(StaleEpochError), ledger.write(old) as tx:
        tx.beat(boot_id="b", monotonic_s=1.0)


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_nobody_lowers_or_repeats_an_epoch(ledger: Ledger, epoch: int) -> None:
    """An epoch that came back would let every keeper fenced off by its end write again."""
    seize(ledger)
    before = dump_all(ledger)
    with pytest.raises(HiveError), ledger.write(BySuccessor("keeper 2 on here")) as tx:
        tx.record(replace(TAKEN, epoch=epoch))
    assert dump_all(ledger) == before


def test_a_release_by_an_older_epoch_changes_nothing(ledger: Ledger) -> None:
    old = seize(ledger, "same name")
    seize(ledger, "same name")
    before = dump_all(ledger)
    with pytest.raises(StaleEpochError), ledger.write(old) as tx:
        release_lease(tx, old.who)
    assert dump_all(ledger) == before
    assert find_lease(ledger).released_at is None


def test_a_keeper_cannot_release_the_lease_in_anothers_name(ledger: Ledger) -> None:
    keeper = seize(ledger, "me")
    before = dump_all(ledger)
    with pytest.raises(HiveError), ledger.write(keeper) as tx:
        release_lease(tx, "somebody else")
    assert dump_all(ledger) == before
