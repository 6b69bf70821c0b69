"""Who may be the coordinator, decided from facts alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivekeeper.domain.hive_rows import HeartbeatRow, LeaseRow
from hivekeeper.domain.lease import KillFirst, Leave, Take, decide_lease

HERE, ELSEWHERE = "this boot", "another boot"
LEASE = LeaseRow(
    id=1, holder="keeper 42 on here", epoch=3, pid=42, start_ticks=77, boot_id=HERE, taken_at="t", released_at=None
)
BEAT = HeartbeatRow(id=1, epoch=3, at="t", boot_id=HERE, monotonic_ms=100_000)
KILL = KillFirst(42, 77, "")


def decide(
    lease: LeaseRow | None,
    heartbeat: HeartbeatRow | None,
    *,
    free: bool = False,
    now: float = 100.0,
    limit: float = 60.0,
) -> Take | Leave | KillFirst:
    return decide_lease(
        lock_is_free=free,
        lease=lease,
        heartbeat=heartbeat,
        boot_id=HERE,
        monotonic_s=now,
        abandoned_after_s=limit,
    )


TABLE: dict[str, tuple[LeaseRow | None, HeartbeatRow | None, float, type[object]]] = {
    "nobody yet, somebody is starting": (None, None, 1e6, Leave),
    "given back, somebody is starting or stopping": (replace(LEASE, released_at="t"), BEAT, 1e6, Leave),
    "of another boot": (replace(LEASE, boot_id=ELSEWHERE), replace(BEAT, boot_id=ELSEWHERE), 1e6, Leave),
    "of another boot with a beat of this one": (replace(LEASE, boot_id=ELSEWHERE), BEAT, 1e6, Leave),
    "no beat": (LEASE, None, 1e6, Leave),
    "a beat of an older epoch": (LEASE, replace(BEAT, epoch=2), 1e6, Leave),
    "a beat of another boot": (LEASE, replace(BEAT, boot_id=ELSEWHERE), 1e6, Leave),
    "just beaten": (LEASE, BEAT, 100.0, Leave),
    "silent, but not for long enough": (LEASE, BEAT, 159.9, Leave),
    "silent up to the limit": (LEASE, BEAT, 160.0, KillFirst),
    "silent for days": (LEASE, BEAT, 1e6, KillFirst),
    "a beat from the future": (LEASE, BEAT, 3.0, Leave),
}


@pytest.mark.parametrize(("lease", "heartbeat", "now", "expected"), TABLE.values(), ids=TABLE.keys())
def test_a_held_lock_is_left_alone_unless_its_holder_is_abandoned(
    lease: LeaseRow | None, heartbeat: HeartbeatRow | None, now: float, expected: type[object]
) -> None:
    assert isinstance(decide(lease, heartbeat, now=now), expected)


@pytest.mark.parametrize(("lease", "heartbeat", "now", "_"), TABLE.values(), ids=TABLE.keys())
def test_a_free_lock_is_taken_whatever_the_ledger_says(
    lease: LeaseRow | None, heartbeat: HeartbeatRow | None, now: float, _: object
) -> None:
    assert decide(lease, heartbeat, free=True, now=now) == Take()


def test_a_verdict_names_the_holder_and_how_long_it_was_silent() -> None:
    left, killed = decide(LEASE, BEAT, now=107.0), decide(LEASE, BEAT, now=400.0)
    assert isinstance(left, Leave)
    assert "keeper 42 on here" in left.why
    assert "7 s" in left.why
    assert killed == replace(KILL, why="keeper 42 on here was ABANDONED: silent for 300 s")


def test_a_night_in_a_closed_laptop_is_not_silence() -> None:
    """The clock that measures silence stands still while the machine sleeps, whatever the wall clock does."""
    beat = replace(BEAT, at="2026-01-01T22:00:00.000000Z")
    assert isinstance(decide(LEASE, beat, now=100.0 + 59.0), Leave)


leases = st.none() | st.builds(
    LeaseRow,
    id=st.just(1),
    holder=st.just("keeper"),
    epoch=st.integers(0, 3),
    pid=st.integers(1, 9),
    start_ticks=st.integers(0, 9),
    boot_id=st.sampled_from([HERE, ELSEWHERE]),
    taken_at=st.just("t"),
    released_at=st.none() | st.just("t"),
)
beats = st.none() | st.builds(
    HeartbeatRow,
    id=st.just(1),
    epoch=st.integers(0, 3),
    at=st.text(max_size=3),
    boot_id=st.sampled_from([HERE, ELSEWHERE]),
    monotonic_ms=st.integers(0, 10**9),
)
moments = st.floats(0, 1e7)
limits = st.floats(0.001, 1e5)


@given(leases, beats, moments, limits)
def test_a_held_lock_is_never_simply_taken(
    lease: LeaseRow | None, heartbeat: HeartbeatRow | None, now: float, limit: float
) -> None:
    assert decide(lease, heartbeat, now=now, limit=limit) != Take()


@given(leases, beats, moments, limits)
def test_nobody_is_killed_but_a_silent_holder_of_this_boot(
    lease: LeaseRow | None, heartbeat: HeartbeatRow | None, now: float, limit: float
) -> None:
    verdict = decide(lease, heartbeat, now=now, limit=limit)
    if not isinstance(verdict, KillFirst):
        return
    assert lease is not None
    assert heartbeat is not None
    assert (verdict.pid, verdict.start_ticks) == (lease.pid, lease.start_ticks)
    assert lease.released_at is None
    assert lease.boot_id == heartbeat.boot_id == HERE
    assert lease.epoch == heartbeat.epoch
    assert now - heartbeat.monotonic_ms / 1000 >= limit


@given(st.integers(0, 10**9), limits, st.floats(0, 1, exclude_max=True))
def test_nobody_is_killed_within_the_time_limit(beaten_ms: int, limit: float, share: float) -> None:
    now = beaten_ms / 1000 + limit * share
    if now - beaten_ms / 1000 < limit:  # what adding and taking away leaves of the fraction
        assert isinstance(decide(LEASE, replace(BEAT, monotonic_ms=beaten_ms), now=now, limit=limit), Leave)


@given(leases, beats, moments, limits)
def test_the_wall_clock_has_no_say(
    lease: LeaseRow | None, heartbeat: HeartbeatRow | None, now: float, limit: float
) -> None:
    later = heartbeat and replace(heartbeat, at="9999-12-31T23:59:59.999999Z")
    taken = lease and replace(lease, taken_at="0001-01-01T00:00:00.000000Z")
    assert decide(lease, heartbeat, now=now, limit=limit) == decide(taken, later, now=now, limit=limit)
