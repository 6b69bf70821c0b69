"""What waits: for a person, with the command that ends the wait, or for a limit to pass by itself."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.holds import describe_hold, find_command
from hivekeeper.domain.report import Outcome
from hivekeeper.domain.run import HELP
from hivekeeper.domain.states import AttemptState
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.views.rows import pick

_FIRST = (Outcome.AUTH, "missing")


def list_active_holds(connection: Connection, *, now: str) -> list[HoldRow]:
    """List the holds that are not lifted and have not ended."""
    return [hold for hold in queries.list_holds(connection) if hold.is_active(now)]


def say_hold(hold: HoldRow) -> str:
    """Say what waits, until when and why."""
    return describe_hold(hold.scope, hold.name, hold.cause, hold.until, hold.why)


def list_hold_needs(connection: Connection, *, now: str) -> Iterator[tuple[str, str]]:
    """List what waits for a person, each with the command; programs to sign in to or to install come first."""
    holds = [hold for hold in list_active_holds(connection, now=now) if hold.until is None and hold.cause != HELP]
    for hold in sorted(holds, key=lambda hold: hold.cause not in _FIRST):
        yield f"{say_hold(hold).rstrip('.')}. Its prompts wait.", find_command(hold)


def list_waits(connection: Connection, *, now: str) -> list[dict[str, Any]]:
    """List what waits and continues by itself, and the parked attempts."""
    waits = [
        {**pick(hold, "scope", "name", "cause", "until", "why"), "what": say_hold(hold)}
        for hold in list_active_holds(connection, now=now)
        if hold.until
    ]
    runs = chain.from_iterable(queries.list_runs_of_open_attempts(connection, AttemptState.WORKING).values())
    parked = queries.list_open_attempts(connection, AttemptState.PARKED)
    return [
        *waits,
        *(
            _show_wait("task", run.task, "waiting for the model", f"no answer since {run.waiting_since}")
            for run in runs
            if run.is_open and run.waiting_since
        ),
        *(_show_wait("attempt", attempt.task, "parked", "") for attempt, _ in parked),
    ]


def _show_wait(scope: str, name: str | None, cause: str, why: str) -> dict[str, Any]:
    what = f"{name} is {cause}{why and f': {why}'}"
    return {"scope": scope, "name": name, "cause": cause, "until": None, "why": why, "what": what}
