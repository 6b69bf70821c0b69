"""Who may be the coordinator.

The kernel's lock decides who is alive: it dies with its holder. The heartbeat decides only when a living holder is so
silent that it counts as ABANDONED; such a holder is killed before it is followed, for a frozen process keeps its lock.
Silence is measured on the clock that stops while the machine sleeps, so a night in a closed laptop is not silence.
"""

from dataclasses import dataclass
from enum import StrEnum

from hivekeeper.domain.hive_rows import HeartbeatRow, LeaseRow


@dataclass(frozen=True, slots=True)
class Take:
    """The lock is free."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Somebody else is the coordinator."""

    why: str


@dataclass(frozen=True, slots=True)
class KillFirst:
    """The holder is of this boot and abandoned."""

    pid: int
    start_ticks: int
    why: str


class KeeperState(StrEnum):
    """What can be said of a hive's keeper from outside."""

    NONE = "NONE"
    UNKNOWN = "UNKNOWN"
    ACTIVE = "ACTIVE"
    ABANDONED = "ABANDONED"


def decide_keeper(
    living: LeaseRow | None, heartbeat: HeartbeatRow | None, *, monotonic_s: float, abandoned_after_s: float
) -> KeeperState:
    """Decide what a keeper is whose process is alive; `living` is None where none is."""
    if living is None:
        return KeeperState.NONE
    if heartbeat is None or (heartbeat.epoch, heartbeat.boot_id) != (living.epoch, living.boot_id):
        return KeeperState.UNKNOWN
    silent_s = monotonic_s - heartbeat.monotonic_ms / 1000
    return KeeperState.ACTIVE if silent_s < abandoned_after_s else KeeperState.ABANDONED


def decide_lease(
    *,
    lock_is_free: bool,
    lease: LeaseRow | None,
    heartbeat: HeartbeatRow | None,
    boot_id: str,
    monotonic_s: float,
    abandoned_after_s: float,
) -> Take | Leave | KillFirst:
    """Decide what a would-be coordinator does."""
    if lock_is_free:
        return Take()
    if lease is None or lease.released_at is not None:
        return Leave("another keeper is just starting or stopping")
    if lease.boot_id != boot_id:
        return Leave(f"{lease.holder} holds the lock, and it is not a process of this machine's present boot")
    if heartbeat is None or heartbeat.epoch != lease.epoch or heartbeat.boot_id != boot_id:
        return Leave(f"{lease.holder} has just taken over")
    silent_s = monotonic_s - heartbeat.monotonic_ms / 1000
    if silent_s < abandoned_after_s:
        return Leave(f"{lease.holder} is active: its last heartbeat is {silent_s:.0f} s old")
    why = f"{lease.holder} was ABANDONED: silent for {silent_s:.0f} s"
    return KillFirst(lease.pid, lease.start_ticks, why)
