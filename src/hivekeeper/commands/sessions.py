"""What keeps sessions from going on, and what they may spend."""

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.domain import budget as b
from hivekeeper.domain import events as e
from hivekeeper.domain.report import Usage
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.domain.session import Hold
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

SOON_S = 5.0
MAX_TRUSTED_RESETS = 3


def park_attempt(tx: Transaction, attempt: AttemptRow, *, why: str) -> None:
    """Record that an attempt waits, and its worker is free."""
    tx.record(e.AttemptParked(attempt.task, attempt.number), why=why)


def resume_attempt(tx: Transaction, attempt: AttemptRow) -> None:
    """Record that a parked attempt goes on."""
    tx.record(e.AttemptResumed(attempt.task, attempt.number))


def place_hold(tx: Transaction, hold: Hold, *, why: str, retry_at: str | None = None) -> None:
    """Record that something is held up: until the moment that was told, or else for a while, or for a person."""
    now = to_seconds(tx.now)
    until = None if hold.in_s is None else to_text(now + hold.in_s)
    if retry_at is not None and until is not None and to_seconds(retry_at) > now + SOON_S:
        # Who names a moment again and again that does not hold is believed no more.
        until = retry_at if hold.strikes < MAX_TRUSTED_RESETS else max(until, retry_at)
    tx.record(e.HoldPlaced(hold.scope, hold.name, hold.cause, until, hold.strikes), why=why)


def lift_hold(tx: Transaction, scope: str, name: str, *, cause: str | None = None, why: str = "") -> bool:
    """Record that something may go on, whatever held it up or for one cause; False when nothing did."""
    found = [row for row in queries.list_holds(tx.connection) if (row.scope, row.name) == (scope, name)]
    active = [row for row in found if not row.lifted and cause in (None, row.cause)]
    for row in active:
        tx.record(e.HoldLifted(scope, name, row.cause), why=why)
    return bool(active)


def raise_budget(tx: Transaction, scope: str, name: str, cap: b.Cap, *, why: str = "") -> None:
    """Record what a person allows, of a day for that day; what waited for it goes on."""
    key = tx.now[:10] if scope == "day" else name
    tx.record(e.BudgetRaised(scope, key, cap.tokens, cap.microusd), why=why)
    lift_hold(tx, scope, name, cause=b.CAUSE, why=why or "its budget was raised")


class Budgets:
    """What may be spent: caps, and what was spent, counted once a pass; `live` is what open runs have used so far."""

    def __init__(self, connection: Connection, day: b.Cap, live: dict[str, Usage] | None = None, *, now: str) -> None:
        self._connection, self._day, self._live, self._now = connection, day, live or {}, now
        self._raised = queries.list_budgets(connection)
        self._used: dict[tuple[str, str], Usage] = {}

    def find_exhausted(self, task: TaskRow) -> tuple[Hold, str] | None:
        """Find the first budget of a task that is used up, as what to hold up, and why."""
        convoy = queries.find_convoy(self._connection, task.convoy)
        assert convoy is not None
        for scope, name, cap in b.list_caps(task, convoy, self._day, self._raised, self._now[:10]):
            if (cap.tokens, cap.microusd) != (None, None) and cap.is_reached(self._count(scope, name)):
                in_s = 86_400.0 - to_seconds(self._now) % 86_400.0 if scope == "day" else None
                whose = {"task": "its", "convoy": f"convoy {name}'s", "day": "the day's"}[scope]
                return Hold(scope, name, b.CAUSE, in_s, 1), f"{whose} budget of {cap.describe()} is spent"
        return None

    def _count(self, scope: str, name: str) -> Usage:
        if (scope, name) not in self._used:
            if scope == "day":
                used = queries.sum_usage_of_day(self._connection, self._now[:10])
            elif scope == "convoy":
                used = queries.sum_usage_of_convoy(self._connection, name)
            else:
                used = queries.sum_usage_of_task(self._connection, name)
            for key, spent in self._live.items():
                used += spent if scope == "day" or key == name or key.startswith(f"{name}/") else Usage()
            self._used[scope, name] = used
        return self._used[scope, name]
