"""The lease: who is the keeper, and whether it is alive."""

from collections.abc import Iterator

from hivekeeper.doctor.facts import Facts
from hivekeeper.doctor.findings import Check, Finding, fail, ok, warn
from hivekeeper.domain.lease import KeeperState, decide_keeper


def check_lease(facts: Facts, abandoned_after_s: float) -> Iterator[Finding]:
    """Check who holds the lease, and how old the last heartbeat is."""
    records, lease, beat = facts.records, facts.records.lease, facts.records.heartbeat
    if lease is None:
        yield ok(Check.LEASE, "no keeper has run yet")
        return
    if lease.epoch != records.head.epoch:
        what = f"The lease is of epoch {lease.epoch}, and the head of epoch {records.head.epoch}."
        yield fail(Check.LEASE, what, "Restore the last good copy of the .hive folder.")
    silent_s = facts.monotonic_s - beat.monotonic_ms / 1000 if beat else 0.0
    match decide_keeper(records.keeper, beat, monotonic_s=facts.monotonic_s, abandoned_after_s=abandoned_after_s):
        case KeeperState.NONE if lease.released_at is not None:
            yield ok(Check.LEASE, f"{lease.holder} released the lease at {lease.released_at}")
        case KeeperState.NONE:
            what = f"{lease.holder} died without releasing the lease; the keeper is not running."
            yield warn(Check.LEASE, what, "Type: hive up")
        case KeeperState.UNKNOWN:
            yield ok(Check.LEASE, f"{lease.holder} has just taken over")
        case KeeperState.ACTIVE:
            yield ok(Check.LEASE, f"{lease.holder} is alive; its last heartbeat is {silent_s:.0f} s old")
        case KeeperState.ABANDONED:
            what = f"{lease.holder} is ABANDONED: its process is alive, but its last heartbeat is {silent_s:.0f} s old."
            yield warn(Check.LEASE, what, "A new keeper ends it and takes over. Type: hive up")
