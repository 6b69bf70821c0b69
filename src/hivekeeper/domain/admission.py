"""Decides whether something may start now, given what is on hold. Nothing else interprets holds.

`store/sql/_is_admitted.sql` is the same decision for queries over many tasks; a property test compares the two.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from hivekeeper.domain.budget import DAY
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.rows import TaskRow


@dataclass(frozen=True, slots=True)
class Need:
    """What must not be on hold: all of `scopes`, and at least one of `runners`, the preferred one first."""

    scopes: frozenset[tuple[str, str]]
    runners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Admitted:
    """It may start, with `runner` if it needs one."""

    runner: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """It may not start; `hold` says why. None: it needs a runner, and this hive has none of those it allows."""

    hold: HoldRow | None

    @property
    def why(self) -> str:
        """What it waits for."""
        return f"{self.hold.cause}: {self.hold.why}" if self.hold else "no runner is free"


def need_of_task(task: TaskRow, runners: Collection[str] | None = None) -> Need:
    """Return what a task's prompt needs; `runners` are those this hive has."""
    here = tuple(name for name in task.runners if runners is None or name in runners)
    # If the hive has none of them, the caller reports that.
    return Need(_scopes_of(task), here or task.runners)


def need_of_resolver(task: TaskRow, runner: str) -> Need:
    """Return what the resolver of a task's conflict needs."""
    return Need(_scopes_of(task), (runner,))


def _scopes_of(task: TaskRow) -> frozenset[tuple[str, str]]:
    return frozenset({("task", task.key), ("convoy", task.convoy), ("day", DAY), ("repo", task.repo or "")})


def may_start(need: Need, holds: Iterable[HoldRow], now: str, prefer: str = "") -> Admitted | Held:
    """Decide whether something may start, and with which runner: `prefer` if it is free, else the first that is."""
    active = [hold for hold in holds if hold.is_active(now)]
    if (found := next((hold for hold in active if (hold.scope, hold.name) in need.scopes), None)) is not None:
        return Held(found)
    held = {hold.name: hold for hold in active if hold.scope == "runner"}
    free = [name for name in need.runners if name not in held]
    if not free:
        return Held(next((held[name] for name in (prefer, *need.runners) if name in held), None))
    return Admitted(prefer if prefer in free else free[0])
