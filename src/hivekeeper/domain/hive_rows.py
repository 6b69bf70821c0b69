"""Rows about the hive itself: its lease, holds, budgets, heartbeat and log readers."""

from hivekeeper.domain.schema import table
from hivekeeper.domain.waits import is_waiting


@table("lease", key={"id": 1}, of_convoy=False, constraints=("CHECK (id = 1)",))
class LeaseRow:
    """The keeper's lease."""

    id: int
    holder: str
    epoch: int
    pid: int
    start_ticks: int
    boot_id: str
    taken_at: str
    released_at: str | None = None


@table("hold", key={"scope": "scope", "name": "name", "cause": "cause"}, of_convoy=False)
class HoldRow:
    """What is on hold, one row per cause; `until` None waits for a person.

    `strikes` counts consecutive holds.
    """

    scope: str
    name: str
    cause: str
    until: str | None
    strikes: int
    why: str
    placed_at: str
    lifted: int = 0
    placed_seq: int = 0

    def is_active(self, now: str) -> bool:
        """Whether the hold is in force at this moment."""
        return not self.lifted and (self.until is None or is_waiting(now, self.placed_at, self.until))


@table("budget", key={"scope": "scope", "name": "name"}, of_convoy=False)
class BudgetRow:
    """A budget that a person set in place of the planned one."""

    scope: str
    name: str
    tokens: int | None
    microusd: int | None


@table("heartbeat", key={"id": 1}, of_convoy=False, is_projected=False, constraints=("CHECK (id = 1)",))
class HeartbeatRow:
    """When the keeper was last alive, and what fails in it: a sentence for each loop, as JSON."""

    id: int
    epoch: int
    at: str
    boot_id: str
    monotonic_ms: int
    problems: str = "{}"


@table("cursor", key={"name": "name"}, of_convoy=False, is_projected=False)
class CursorRow:
    """A reader of the log, which has read everything up to this event."""

    name: str
    seq: int
    moved_at: str
