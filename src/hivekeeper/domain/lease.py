"""Decides which process may be the keeper.

The kernel lock shows whether the holder is alive: it is released when the process dies. The heartbeat only decides
whether a living holder is ABANDONED. Such a holder is killed before it is replaced, because a frozen process keeps its
lock. Silence is measured on the clock that stops while the machine sleeps, so a sleeping laptop is not silent.
"""

from dataclasses import dataclass
from enum import StrEnum

from hivekeeper.domain.hive_rows import HeartbeatRow, LeaseRow


@dataclass(frozen=True, slots=True)
class Take:
    """The lock is free."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Another process is the keeper."""

    why: str


@dataclass(frozen=True, slots=True)
class KillFirst:
    """The holder is a process of this boot, and ABANDONED."""

    pid: int
    start_ticks: int
    why: str


class KeeperState(StrEnum):
    """The state of a hive's keeper as seen by another process."""

    NONE = "NONE"
    UNKNOWN = "UNKNOWN"
    ACTIVE = "ACTIVE"
    ABANDONED = "ABANDONED"


def decide_keeper(
    living: LeaseRow | None, heartbeat: HeartbeatRow | None, *, monotonic_s: float, abandoned_after_s: float
) -> KeeperState:
    """Decide the state of a keeper; `living` is its lease if its process is alive, else None."""
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
    """Decide whether this process may take the lease."""
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
