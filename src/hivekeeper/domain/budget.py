"""Budgets of tasks, convoys and days. A person may raise them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hivekeeper.domain.hive_rows import BudgetRow
from hivekeeper.domain.report import Usage
from hivekeeper.domain.rows import ConvoyRow, TaskRow
from hivekeeper.domain.wording import say_count

MICRO = 1_000_000
CAUSE = "budget"  # the cause of a hold on something that is over budget
DAY = "today"  # the name of the hold on the day's budget


@dataclass(frozen=True, slots=True)
class Cap:
    """A budget in tokens and money; None is no limit."""

    tokens: int | None = None
    microusd: int | None = None

    def is_reached(self, used: Usage) -> bool:
        """Whether nothing is left of it."""
        has_tokens = self.tokens is None or used.tokens < self.tokens
        return not (has_tokens and (self.microusd is None or used.microusd < self.microusd))

    def describe(self) -> str:
        """Format it for a sentence."""
        said = [] if self.microusd is None else [f"${self.microusd / MICRO:g}"]
        return " and ".join([*said, *([] if self.tokens is None else [say_count(self.tokens, "token")])])


NO_CAP = Cap()


def read_cap(said: Mapping[str, float]) -> Cap:
    """Read a budget from a plan or hive.toml."""
    tokens, money = said.get("tokens"), said.get("money")
    return Cap(None if tokens is None else int(tokens), None if money is None else round(money * MICRO))


def find_cap(scope: str, name: str, planned: Cap, raised: Iterable[BudgetRow]) -> Cap:
    """Find the budget in force: the raised one, or else the planned one."""
    row = next((row for row in raised if (row.scope, row.name) == (scope, name)), None)
    if row is None:
        return planned
    tokens = planned.tokens if row.tokens is None else row.tokens
    return Cap(tokens, planned.microusd if row.microusd is None else row.microusd)


def list_caps(
    task: TaskRow, convoy: ConvoyRow, day: Cap, raised: Iterable[BudgetRow], today: str
) -> tuple[tuple[str, str, Cap], ...]:
    """List the budgets that apply to a task: scope, name and cap. A raised day budget applies to that day only."""
    rows = tuple(raised)
    own, whole = read_cap(task.get_details().get("budget", {})), read_cap(json.loads(convoy.budget))
    return (
        ("task", task.key, find_cap("task", task.key, own, rows)),
        ("convoy", convoy.name, find_cap("convoy", convoy.name, whole, rows)),
        ("day", DAY, find_cap("day", today, day, rows)),
    )
