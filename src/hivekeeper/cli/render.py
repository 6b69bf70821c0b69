"""Views as text: tables a person reads, with control characters of strangers made harmless."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

STYLES = {
    "COMPLETE": "green",
    "ACTIVE": "cyan",
    "IN_PROGRESS": "cyan",
    "FAILED": "bold red",
    "UNKNOWN": "bold magenta",
    "CANCELLED": "dim",
    "PENDING": "dim",
    "ARCHIVED": "dim",
}


def console() -> Console:
    """Make a console that keeps whole lines when nobody reads them."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def clean(value: object) -> str:
    """Make text from outside harmless: no escape can move a cursor or set a title."""
    text = "" if value is None else str(value)
    return "".join(character if character.isprintable() else " " for character in text)


def print_json(value: object) -> None:
    """Print a view as it is, for programs."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_json_line(value: object) -> None:
    """Print a view on one line, for programs that read a stream."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """Print rows as a table; `columns` maps a row's key to its heading."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in columns.values():
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in columns))
    console().print(table)


def _cell(value: object) -> Text:
    text = clean(value)
    return Text(text, style=STYLES.get(text, ""))


def print_status(view: Mapping[str, Any]) -> None:
    """Print what needs a person first, then the rest."""
    out = console()
    if view["needs_me"]:
        out.print("[bold red]Needs you[/]")
        for need in view["needs_me"]:
            out.print(Text(f"  {clean(need['what'])}\n    → {clean(need['type'])}"))
    else:
        out.print("[green]Nothing needs you.[/]")
    keeper = view["keeper"]
    out.print(Text(f"Keeper: {keeper['holder']} since {keeper['since']}" if keeper["holder"] else "Keeper: none"))
    if view["convoys"]:
        rows = [{**row, "done": f"{row['complete']}/{row['tasks']}"} for row in view["convoys"]]
        print_table(rows, {"convoy": "Convoy", "state": "State", "done": "Done", "submitted_at": "Submitted"})
    if view["workers"]:
        print_table(view["workers"], {"worker": "Worker", "task": "Task", "attempt": "Attempt", "since": "Since"})
    if view["queue"]:
        print_table(view["queue"], {"task": "In the merge queue", "repo": "Repository", "state": "State"})
    for repo in view["repos"]:
        if repo["published"] and repo["state"] == "READY":
            line = f"{repo['repo']}: what landed is branch hive/{repo['branch']} of {repo['path']}"
            out.print(Text(clean(line), style="dim"))


def print_convoy(view: Mapping[str, Any]) -> None:
    """Print a convoy's card."""
    out = console()
    title = f"{view['convoy']}  {view['state']}  {view['complete']}/{view['tasks']} complete"
    out.print(Text(clean(title), style="bold"))
    for swarm in view["swarms"]:
        workers = f"workers {swarm['first_worker']}–{swarm['last_worker']}"
        now = f", {swarm['working']} at work" if swarm["working"] else ""
        out.print(Text(f"  Swarm {swarm['swarm']}: {workers}, {swarm['complete']}/{swarm['attempts']} complete{now}"))
    columns = {"task": "Task", "state": "State", "attempts": "Attempts", "repo": "Repository", "reason": "Why"}
    print_table(view["task_list"], columns)


def print_task(view: Mapping[str, Any]) -> None:
    """Print a task and its attempts."""
    out = console()
    out.print(Text(clean(view["why"]), style="bold"))
    out.print(Text(f"$ {clean(view['command'])}", style="dim"))
    for attempt in view["attempts"]:
        head = f"  attempt {attempt['attempt']} (worker {attempt['worker']}): {attempt['state']} {attempt['reason']}"
        out.print(Text(clean(head).rstrip()))
        for run in attempt["runs"]:
            out.print(Text(clean(f"    {run['kind']:9} {run['ending'] or run['state']}"), style="dim"))
