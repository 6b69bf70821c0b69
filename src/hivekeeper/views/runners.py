"""Runners: which are here, signed in, held up; and what everything has cost."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hivekeeper.domain.budget import MICRO
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import Runner
from hivekeeper.domain.states import AttemptState
from hivekeeper.store import queries
from hivekeeper.store.database import Connection

_VERSION = re.compile(r"\d+\.\d+")
_WAYS = ("task", "agent", "runner", "convoy")
_ADDRESSES = ("_URL", "_HOST", "_PATH", "_MODEL", "_PROVIDER", "_BASE", "_PROJECT", "_OFFLINE")


def list_runners(connection: Connection, runners: Mapping[str, Runner], *, now: str) -> list[dict[str, Any]]:
    """List the runners a prompt may be given to: is it here, is it signed in as far as can be seen, is it held up."""
    active = [hold for hold in queries.list_holds(connection) if hold.scope == "runner" and hold.is_active(now)]
    holds = {hold.name: hold for hold in sorted(active, key=lambda hold: hold.until or "~")}  # the longest is shown
    return [
        {
            "runner": name,
            "program": runner.program,
            "path": shutil.which(runner.program),
            "sign_in": find_sign_in(runner),
            "resumes": runner.can_resume,
            "reach": runner.reach.value,
            "mcp": runner.mcp.by.value,
            "read_by": runner.output or ("signs" if runner.signs else "exit code"),
            "held": _describe_hold(holds[name]) if name in holds else None,
        }
        for name, runner in runners.items()
    ]


def find_version(said: str) -> str | None:
    """Find a program's version in what it says of it: the first line with a number, whatever it advertises below."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in lines if _VERSION.search(line)), lines[-1] if lines else None)


def find_sign_in(runner: Runner) -> str | None:
    """Find how a program is signed in, as far as can be seen from outside; None where nothing can."""
    keys = [name for name in runner.inherit if not name.endswith(_ADDRESSES) and os.environ.get(name)]
    if keys:
        return f"${keys[0]}"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - pathlib raises for a user nobody gave a home
    files = (path for path in runner.sign_in if (home / path[2:] if path.startswith("~/") else Path(path)).is_file())
    return next(files, None)


def _describe_hold(hold: HoldRow) -> str:
    until = f" until {hold.until}" if hold.until else ""
    return f"{hold.cause}{until}: {hold.why}"


def list_hold_needs(connection: Connection, *, now: str) -> Iterator[dict[str, str]]:
    """List what is held up until a person does something, each with the command; who is not signed in comes first."""
    holds = [hold for hold in queries.list_holds(connection) if hold.is_active(now)]
    for hold in sorted(holds, key=lambda hold: hold.cause not in ("auth", "missing")):
        match hold.scope, hold.cause:
            case "runner", "auth":
                what = f"{hold.name} is not signed in, and its tasks wait: {hold.why}"
                yield {"what": what, "type": f"hive runner resume {hold.name}  (once it is)"}
            case "runner", "setup":
                what = f"{hold.name} could not start, so its set-up is wrong, and its tasks wait: {hold.why}"
                yield {
                    "what": what,
                    "type": f"hive runner resume {hold.name}  (once hive runner test {hold.name} works)",
                }
            case "runner", "missing":
                what = f"{hold.name} cannot be started, and its tasks wait: {hold.why}."
                yield {"what": what, "type": f"hive runner resume {hold.name}  (once that is done)"}
            case scope, "budget":
                name = "today" if scope == "day" else hold.name
                what = f"{scope} {hold.name} is parked: {hold.why}." if scope != "day" else f"Prompts wait: {hold.why}."
                yield {"what": what, "type": f"hive budget raise {name} --money DOLLARS  (or --tokens)"}
            case "repo", "configuration":
                what = f"Prompts on {hold.name} wait: {hold.why}."
                yield {"what": what, "type": f"hive runner trust {hold.name}"}


def list_waits(connection: Connection, *, now: str) -> list[dict[str, Any]]:
    """List what waits for a limit to pass by itself."""
    parked = [attempt.task for attempt, _ in queries.list_open_attempts(connection, AttemptState.PARKED)]
    holds = [hold for hold in queries.list_holds(connection) if hold.is_active(now) and hold.until]
    shown = [{"scope": h.scope, "name": h.name, "cause": h.cause, "until": h.until, "why": h.why} for h in holds]
    runs = queries.list_runs_of_open_attempts(connection, AttemptState.WORKING)
    silent = [run for several in runs.values() for run in several if run.is_open and run.waiting_since]
    return [
        *shown,
        *(
            {
                "scope": "task",
                "name": run.task,
                "cause": "waiting for the model",
                "until": None,
                "why": f"no answer since {run.waiting_since}",
            }
            for run in silent
        ),
        *({"scope": "attempt", "name": task, "cause": "parked", "until": None, "why": ""} for task in parked),
    ]


def show_costs(connection: Connection, *, since: str = "") -> dict[str, Any]:
    """Show what agent programs used: in all, and by task, agent, runner and convoy; each way the same sum."""
    total, sessions, unpriced = Usage(), 0, set[str]()
    by: dict[str, dict[str, Usage]] = {way: {} for way in _WAYS}
    for run, agent in queries.list_paid_runs(connection, since=since):
        used = Usage(run.tokens_in, run.tokens_out, run.microusd)
        total, sessions = total + used, sessions + 1
        if used.tokens and not used.microusd:
            unpriced.add(str(run.runner))
        task = run.task or ""
        names = (task, agent or "(nobody by name)", str(run.runner), task.partition("/")[0])
        for way, name in zip(_WAYS, names, strict=True):
            by[way][name] = by[way].get(name, Usage()) + used
    return {
        "since": since or None,
        "sessions": sessions,
        "unpriced": sorted(unpriced),
        **_show_usage(total),
        **{f"by_{way}": _show_all(by[way].items(), way) for way in _WAYS},
    }


def _show_all(items: Iterable[tuple[str, Usage]], way: str) -> list[dict[str, Any]]:
    rows = sorted(items, key=lambda item: (-item[1].microusd, -item[1].tokens, item[0]))
    return [{way: name, **_show_usage(used)} for name, used in rows]


def _show_usage(used: Usage) -> dict[str, Any]:
    return {"tokens_in": used.tokens_in, "tokens_out": used.tokens_out, "money": used.microusd / MICRO}
