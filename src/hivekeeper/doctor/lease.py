"""The lease: who keeps this hive, and whether they are alive."""

from collections.abc import Iterator

from hivekeeper.doctor.facts import Facts
from hivekeeper.doctor.findings import Check, Finding, Level


def check_lease(facts: Facts, abandoned_after_s: float) -> Iterator[Finding]:
    """Tell who holds the lease, since when, and how fresh its last sign of life is."""
    lease, records = facts.records.lease, facts.records
    if lease is None:
        yield Finding(Check.LEASE, Level.OK, "no keeper has run yet")
        return
    if lease.epoch != records.head.epoch:
        what = f"The lease is of epoch {lease.epoch}, and the head of epoch {records.head.epoch}."
        yield Finding(Check.LEASE, Level.FAIL, what, "Restore the last good copy of the .hive folder.")
    if lease.released_at is not None:
        yield Finding(Check.LEASE, Level.OK, f"{lease.holder} gave the lease back at {lease.released_at}")
    elif records.keeper is not None:
        yield _judge_silence(facts, abandoned_after_s)
    else:
        what = f"{lease.holder} died without giving the lease back; nobody keeps this hive."
        yield Finding(Check.LEASE, Level.WARN, what, "Type: hive up")


def _judge_silence(facts: Facts, abandoned_after_s: float) -> Finding:
    lease, beat = facts.records.keeper, facts.records.heartbeat
    assert lease is not None
    if beat is None or (beat.epoch, beat.boot_id) != (lease.epoch, facts.boot_id):
        return Finding(Check.LEASE, Level.OK, f"{lease.holder} has just taken over")
    silent_s = facts.monotonic_s - beat.monotonic_ms / 1000
    if silent_s < abandoned_after_s:
        return Finding(Check.LEASE, Level.OK, f"{lease.holder} is alive; its last sign of life is {silent_s:.0f} s old")
    what = f"{lease.holder} is ABANDONED: its process is there, but it has been silent for {silent_s:.0f} s."
    return Finding(Check.LEASE, Level.WARN, what, "A new keeper ends it and takes over. Type: hive up")
