"""What may be spent, and by whom: a task, a convoy, a day. The last word is a person's."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hivekeeper.domain.hive_rows import BudgetRow
from hivekeeper.domain.report import Usage
from hivekeeper.domain.rows import ConvoyRow, TaskRow

MICRO = 1_000_000
CAUSE = "budget"  # why something is held up that has spent what it may
DAY = "today"  # the name under which the day's budget is held up


@dataclass(frozen=True, slots=True)
class Cap:
    """What something may use in all; None is no limit."""

    tokens: int | None = None
    microusd: int | None = None

    def is_reached(self, used: Usage) -> bool:
        """Tell whether nothing is left of it."""
        has_tokens = self.tokens is None or used.tokens < self.tokens
        return not (has_tokens and (self.microusd is None or used.microusd < self.microusd))

    def describe(self) -> str:
        """Say how much it is."""
        said = [] if self.microusd is None else [f"${self.microusd / MICRO:g}"]
        return " and ".join([*said, *([] if self.tokens is None else [f"{self.tokens:,} tokens"])])


NO_CAP = Cap()


def read_cap(said: Mapping[str, float]) -> Cap:
    """Read what a plan or hive.toml says."""
    tokens, money = said.get("tokens"), said.get("money")
    return Cap(None if tokens is None else int(tokens), None if money is None else round(money * MICRO))


def find_cap(scope: str, name: str, planned: Cap, raised: Iterable[BudgetRow]) -> Cap:
    """Find what holds: what a person allowed later, or else what was planned."""
    row = next((row for row in raised if (row.scope, row.name) == (scope, name)), None)
    if row is None:
        return planned
    tokens = planned.tokens if row.tokens is None else row.tokens
    return Cap(tokens, planned.microusd if row.microusd is None else row.microusd)


def list_caps(
    task: TaskRow, convoy: ConvoyRow, day: Cap, raised: Iterable[BudgetRow], today: str
) -> tuple[tuple[str, str, Cap], ...]:
    """List what bounds a task: scope, name and cap of each; what was allowed for a day holds for that day."""
    rows = tuple(raised)
    own, whole = read_cap(task.get_details().get("budget", {})), read_cap(json.loads(convoy.budget))
    return (
        ("task", task.key, find_cap("task", task.key, own, rows)),
        ("convoy", convoy.name, find_cap("convoy", convoy.name, whole, rows)),
        ("day", DAY, find_cap("day", today, day, rows)),
    )
