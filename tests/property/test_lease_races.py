"""Several would-be keepers at one hive: one lock, rising epochs, and no trace of whoever comes too late.

What single facts lead to is in `tests/lease/test_lease_decision.py`; here time passes and
keepers come and go.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hivekeeper.commands.leases import release_lease, take_lease
from hivekeeper.domain.events import ConvoySubmitted, LeaseTaken
from hivekeeper.domain.hive_rows import HeartbeatRow, LeaseRow
from hivekeeper.domain.lease import KillFirst, Leave, decide_lease
from hivekeeper.errors import AnotherKeeperError, HiveError, StaleEpochError
from hivekeeper.keeper.lease import Lease
from hivekeeper.keeper.lease import take as take_with_the_lock
from hivekeeper.store import queries
from hivekeeper.store.ledger import (
    Authority,
    ByKeeper,
    ByPerson,
    BySuccessor,
    Ledger,
    create_ledger,
    open_ledger,
    read_events,
)
from hivekeeper.testing.fakes import FakeClock
from tests.property.budget import MEMORY, PATIENCE, tries
from tests.store.ledger_kit import assert_whole, dump_all, head_of

pytestmark = PATIENCE

NUMBERS = st.integers(0, 10**6)
ABANDONED_AFTER_S = 300.0
HOLDER = LeaseRow(1, "keeper 42 on here", 3, 42, 77, "this boot", "t", None)

spans = st.lists(
    st.tuples(st.sampled_from(["beat", "awake", "asleep"]), st.floats(0.0, 400.0, allow_nan=False)), max_size=12
)


@given(spans)
@tries(300)
def test_only_waking_silence_makes_a_holder_abandoned(spans: list[tuple[str, float]]) -> None:
    """However long the machine sleeps and whatever the wall clock says."""
    clock = FakeClock()
    beaten_ms, silent_s = int(clock.monotonic() * 1000), 0.0
    for what, seconds in spans:
        if what == "beat":
            beaten_ms, silent_s = int(clock.monotonic() * 1000), 0.0
        else:
            clock.advance(seconds, asleep=what == "asleep")
            silent_s += seconds if what == "awake" else 0.0
        verdict = decide_lease(
            lock_is_free=False,
            lease=HOLDER,
            heartbeat=HeartbeatRow(1, HOLDER.epoch, clock.now(), HOLDER.boot_id, beaten_ms),
            boot_id=HOLDER.boot_id,
            monotonic_s=clock.monotonic(),
            abandoned_after_s=ABANDONED_AFTER_S,
        )
        if silent_s < ABANDONED_AFTER_S - 0.01:  # a heartbeat knows milliseconds
            assert isinstance(verdict, Leave)
        elif silent_s > ABANDONED_AFTER_S:
            assert isinstance(verdict, KillFirst)
            assert (verdict.pid, verdict.start_ticks) == (HOLDER.pid, HOLDER.start_ticks)


@dataclass
class Candidate:
    """Somebody who is or was a keeper; `lease` is None for one that was never given it by the lock."""

    authority: ByKeeper
    lease: Lease | None = None
    gave_up: bool = False


def let_go(candidate: Candidate) -> None:
    """Let go of the lock as the kernel does at a process's end."""
    if candidate.lease is not None:
        lock = candidate.lease._lock  # noqa: SLF001 - nobody else may do this
        assert lock is not None
        os.close(lock)


class LeaseRaces(RuleBasedStateMachine):
    """Keepers that are taken on, die, freeze, lose their lock file and wake up again, each with its own ledger."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory(prefix="hive-leases-", dir=MEMORY)
        place = Path(self._directory.name)
        self.path, self.lock = place / "ledger.db", place / "keeper.lock"
        create_ledger(self.path)
        self.clock = FakeClock()
        # Two connections: between them there is nothing but the file.
        self.ledgers: list[Ledger] = [open_ledger(self.path, self.clock) for _ in range(2)]
        self.candidates: list[Candidate] = []
        self.holder: Candidate | None = None  # of the kernel's lock
        self.names = 0

    def teardown(self) -> None:
        try:
            assert_whole(self.path)
        finally:
            for candidate in self.candidates:
                if not candidate.gave_up:
                    let_go(candidate)
            for ledger in self.ledgers:
                ledger.close()
            self._directory.cleanup()

    @property
    def newest(self) -> ByKeeper:
        """Who alone may write."""
        return self.candidates[-1].authority

    @rule(pick=NUMBERS)
    def take(self, pick: int) -> None:
        """Take it as a keeper does; while the lock is held nobody gets it, silent holder or not."""
        ledger = self.ledgers[pick % 2]
        before = dump_all(ledger)
        try:
            taken = take_with_the_lock(ledger, self.lock, self.clock, abandoned_after_s=ABANDONED_AFTER_S)
        except AnotherKeeperError:
            assert self.holder is not None, "the lock is free"
            assert dump_all(ledger) == before
            return
        assert self.holder is None, "S7: the lock is held"
        self.holder = Candidate(taken.authority, taken)
        self.candidates.append(self.holder)

    @rule(pick=NUMBERS)
    def take_without_the_lock(self, pick: int) -> None:
        """As on a disk whose locks do not hold: then the epoch alone is the fence."""
        self.names += 1
        name = f"keeper {self.names} elsewhere"
        with self.ledgers[pick % 2].write(BySuccessor(name)) as tx:
            authority = take_lease(tx, holder=name, pid=self.names, start_ticks=1, boot_id="elsewhere", why="")
        self.candidates.append(Candidate(authority))

    @precondition(lambda self: self.holder)
    @rule()
    def the_holder_dies(self) -> None:
        assert self.holder is not None
        let_go(self.holder)
        self.holder.gave_up, self.holder = True, None

    @precondition(lambda self: self.holder)
    @rule()
    def somebody_deletes_the_lock_file(self) -> None:
        """Then the next keeper locks another file, while the old one lives on."""
        self.lock.unlink()
        self.holder = None

    @precondition(lambda self: self.holder and not self.find_lease().released_at)
    @rule()
    def the_holder_gives_the_lease_back(self) -> None:
        assert self.holder is not None
        assert self.holder.lease is not None
        before = dump_all(self.ledgers[0])
        self.holder.lease.release()
        if self.holder.authority == self.newest:
            assert self.find_lease().released_at is not None
        else:
            assert dump_all(self.ledgers[0]) == before, "S8: only the holder releases"
        self.holder.gave_up, self.holder = True, None

    @precondition(lambda self: self.candidates)
    @rule(pick=NUMBERS, what=st.sampled_from(["event", "beat", "release", "release for the newest"]))
    def write(self, pick: int, what: str) -> None:
        """Any of them, of whatever time; all but the newest are refused and leave nothing."""
        ledger, chosen = self.ledgers[pick % 2], self.candidates[pick % len(self.candidates)].authority
        before, released = dump_all(ledger), self.find_lease().released_at is not None
        allowed = chosen.epoch == self.newest.epoch and not (what.startswith("release") and released)
        refusal: HiveError | None = None
        try:
            with ledger.write(chosen) as tx:
                if what == "event":
                    tx.record(ConvoySubmitted(f"c{head_of(ledger).seq}", f"p{head_of(ledger).seq}"))
                elif what == "beat":
                    tx.beat(boot_id="elsewhere", monotonic_s=self.clock.monotonic())
                else:
                    release_lease(tx, chosen.who if what == "release" else self.newest.who)
        except HiveError as error:
            refusal = error
        assert (refusal is None) == allowed, f"epoch {chosen.epoch}, newest {self.newest.epoch}: {refusal}"
        assert isinstance(refusal, StaleEpochError) == (chosen.epoch != self.newest.epoch)
        assert refusal is None or dump_all(ledger) == before, "what was refused left something"

    @precondition(lambda self: self.candidates)
    @rule(pick=NUMBERS, name=st.sampled_from(["somebody else", "", "keeper"]))
    def release_in_anothers_name(self, pick: int, name: str) -> None:
        ledger = self.ledgers[pick % 2]
        others = [other.authority.who for other in self.candidates if other.authority.who != self.find_lease().holder]
        before = dump_all(ledger)
        with pytest.raises(HiveError), ledger.write(self.newest) as tx:
            release_lease(tx, others[pick % len(others)] if others else name)
        assert dump_all(ledger) == before

    @rule(pick=NUMBERS, epoch=st.integers(-1, 9), by=st.sampled_from(["keeper", "person", "successor"]))
    def take_an_epoch_that_is_not_the_next(self, pick: int, epoch: int, by: str) -> None:
        ledger = self.ledgers[pick % 2]
        head = head_of(ledger)
        if by == "keeper" and not self.candidates:
            return
        if by == "successor" and epoch == head.epoch + 1:
            return
        others: dict[str, Authority] = {"person": ByPerson("ann"), "successor": BySuccessor("keeper x")}
        who = others.get(by) or self.newest
        before = dump_all(ledger)
        with pytest.raises(HiveError), ledger.write(who) as tx:
            tx.record(LeaseTaken("keeper x", epoch, 1, 1, "b", ""))
        assert dump_all(ledger) == before

    @precondition(lambda self: self.candidates)
    @rule(pick=NUMBERS, count=st.integers(1, 4))
    def be_overtaken_in_the_middle_of_a_transaction(self, pick: int, count: int) -> None:
        """What the head looks like to a writer whose locks did not hold: the fence is in the append itself."""
        ledger, moment = self.ledgers[pick % 2], pick // 2 % count
        before = dump_all(ledger)

        def write() -> None:
            with ledger.write(self.newest) as tx:
                for number in range(count):
                    if number == moment:
                        tx.connection.run("UPDATE head SET epoch = epoch + 1")
                    tx.record(ConvoySubmitted(f"o{number}-{pick}", f"o{number}-{pick}"))

        with pytest.raises(HiveError):
            write()
        assert dump_all(ledger) == before

    @rule(seconds=st.sampled_from([1.0, 299.0, 301.0, 90_000.0]), asleep=st.booleans())
    def time_passes(self, seconds: float, *, asleep: bool) -> None:
        self.clock.advance(seconds, asleep=asleep)

    @invariant()
    def epochs_rise_one_by_one_and_the_newest_has_the_lease(self) -> None:
        head = head_of(self.ledgers[0])
        assert head.epoch == len(self.candidates)
        assert [candidate.authority.epoch for candidate in self.candidates] == list(range(1, head.epoch + 1))
        with self.ledgers[1].read() as connection:
            taken = [event.body for event in read_events(connection, 0, 10**6) if isinstance(event.body, LeaseTaken)]
        assert [body.epoch for body in taken] == list(range(1, head.epoch + 1))
        if self.candidates:
            row = self.find_lease()
            assert (row.holder, row.epoch) == (self.newest.who, self.newest.epoch)

    def find_lease(self) -> LeaseRow:
        """Find who holds it."""
        with self.ledgers[0].read() as connection:
            row = queries.find_lease(connection)
        assert row is not None
        return row


TestLeaseRaces = LeaseRaces.TestCase
TestLeaseRaces.settings = tries(60, steps=30)
