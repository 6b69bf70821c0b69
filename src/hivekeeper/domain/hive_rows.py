"""Rows about the hive itself: who keeps it, what waits and until when, what may be spent, who has read what."""

from hivekeeper.domain.schema import table
from hivekeeper.domain.waits import is_waiting


@table("lease", key={"id": 1}, of_convoy=False, constraints=("CHECK (id = 1)",))
class LeaseRow:
    """The coordinator's lease."""

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
    """What keeps something from going on, one row a cause; `until` None waits for a person.

    `strikes` counts those in a row.
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
        """Tell whether it keeps something from going on at this moment."""
        return not self.lifted and (self.until is None or is_waiting(now, self.placed_at, self.until))


@table("budget", key={"scope": "scope", "name": "name"}, of_convoy=False)
class BudgetRow:
    """What a person allows, in place of what was planned."""

    scope: str
    name: str
    tokens: int | None
    microusd: int | None


@table("heartbeat", key={"id": 1}, of_convoy=False, is_projected=False, constraints=("CHECK (id = 1)",))
class HeartbeatRow:
    """When the keeper was last known alive."""

    id: int
    epoch: int
    at: str
    boot_id: str
    monotonic_ms: int


@table("cursor", key={"name": "name"}, of_convoy=False, is_projected=False)
class CursorRow:
    """A reader of the log: up to and with this event it has read everything."""

    name: str
    seq: int
    moved_at: str
