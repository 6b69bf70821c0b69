"""Runners: which are installed, signed in or waiting; and what sessions have cost."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hivekeeper.domain.budget import MICRO
from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import Runner
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.views.holds import list_active_holds, say_hold
from hivekeeper.views.rows import pick

_VERSION = re.compile(r"\d+\.\d+")
_WAYS = ("task", "agent", "runner", "convoy")
_ADDRESSES = ("_URL", "_HOST", "_PATH", "_MODEL", "_PROVIDER", "_BASE", "_PROJECT", "_OFFLINE")


def list_runners(connection: Connection, runners: Mapping[str, Runner], *, now: str) -> list[dict[str, Any]]:
    """List the runners that take prompts: installed, signed in as far as can be seen, and what each waits for."""
    active = [hold for hold in list_active_holds(connection, now=now) if hold.scope == "runner"]
    holds = {hold.name: hold for hold in sorted(active, key=lambda hold: hold.until or "~")}  # the longest is shown
    return [
        {
            "runner": name,
            "program": runner.program,
            "path": shutil.which(runner.program),
            "sign_in": find_sign_in(runner),
            "resumes": runner.can_resume,
            "reach": runner.reach,
            "mcp": runner.mcp.by,
            "read_by": runner.output or ("signs" if runner.signs else "exit code"),
            "held": say_hold(holds[name]) if name in holds else None,
        }
        for name, runner in runners.items()
    ]


def find_version(output: str) -> str | None:
    """Find a program's version in its output: the first line with a number, whatever it advertises below."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if _VERSION.search(line)), lines[-1] if lines else None)


def find_sign_in(runner: Runner) -> str | None:
    """Find how a program is signed in, as far as can be seen from outside: a variable or a file."""
    keys = [name for name in runner.inherit if not name.endswith(_ADDRESSES) and os.environ.get(name)]
    if keys:
        return f"${keys[0]}"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - pathlib raises for a user nobody gave a home
    files = (path for path in runner.sign_in if (home / path[2:] if path.startswith("~/") else Path(path)).is_file())
    return next(files, None)


def show_costs(connection: Connection, *, since: str = "") -> dict[str, Any]:
    """Show what agent programs used: in total, and by task, agent, runner and convoy, with the same sum each."""
    total, unpriced = Usage(), set[str]()
    by: dict[str, dict[str, Usage]] = {way: {} for way in _WAYS}
    paid = queries.list_paid_runs(connection, since=since)
    for run, agent in paid:
        used = Usage(run.tokens_in, run.tokens_out, run.microusd)
        total += used
        if used.tokens and not used.microusd:
            unpriced.add(str(run.runner))
        task = run.task or ""
        names = (task, agent or "(no agent named)", str(run.runner), task.partition("/")[0])
        for way, name in zip(_WAYS, names, strict=True):
            by[way][name] = by[way].get(name, Usage()) + used
    return {
        "since": since or None,
        "sessions": len(paid),
        "unpriced": sorted(unpriced),
        **_show_usage(total),
        **{
            f"by_{way}": [{way: name, **_show_usage(used)} for name, used in sorted(by[way].items(), key=_rank)]
            for way in _WAYS
        },
    }


def _rank(item: tuple[str, Usage]) -> tuple[int, int, str]:
    name, used = item
    return -used.microusd, -used.tokens, name


def _show_usage(used: Usage) -> dict[str, Any]:
    return {**pick(used, "tokens_in", "tokens_out"), "money": used.microusd / MICRO}
