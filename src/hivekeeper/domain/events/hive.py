"""What happens to the hive itself: who keeps it, what must wait, and what may be spent."""

from hivekeeper.domain.hive_rows import BudgetRow, HoldRow, LeaseRow
from hivekeeper.domain.schema import AT, PERSON, SEQ, WHY, Body, event, field_of, updates, upserts


@event(
    "lease.taken",
    "holder",
    upserts(LeaseRow, "epoch", "pid", "start_ticks", "boot_id", "holder", taken_at=AT, released_at=None),
)
class LeaseTaken(Body):
    """A keeper took the lease and raised the epoch."""

    holder: str
    epoch: int
    pid: int
    start_ticks: int
    boot_id: str
    after: str


@event(
    "lease.released",
    "holder",
    updates(LeaseRow, where={"holder": field_of("holder"), "released_at": None}, released_at=AT),
)
class LeaseReleased(Body):
    """The holder itself gave the lease back."""

    holder: str


@event(
    "hold.placed",
    "name",
    upserts(HoldRow, "until", "strikes", lifted=0, why=WHY, placed_at=AT, placed_seq=SEQ),
)
class HoldPlaced(Body):
    """Nothing of this kind begins: `scope` is runner, task, convoy, repo or day. None as `until` waits for a person."""

    scope: str
    name: str
    cause: str
    until: str | None
    strikes: int


@event("hold.lifted", "name", updates(HoldRow, lifted=1, strikes=0), by=PERSON)
class HoldLifted(Body):
    """What was held up for this cause may go on, unless another holds it."""

    scope: str
    name: str
    cause: str


@event("budget.raised", "name", upserts(BudgetRow, "tokens", "microusd"), by=PERSON)
class BudgetRaised(Body):
    """A person allows a task, a convoy or a day this much in all."""

    scope: str
    name: str
    tokens: int | None
    microusd: int | None
