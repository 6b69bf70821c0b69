"""Views as text for people; control characters in text from outside are made harmless."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hivekeeper.cli.here import find_named
from hivekeeper.clock import to_local
from hivekeeper.domain.events import Event
from hivekeeper.views.events import say_event

STYLES = {
    "COMPLETE": "green",
    "ACTIVE": "cyan",
    "IN_PROGRESS": "cyan",
    "FAILED": "bold red",
    "UNKNOWN": "bold magenta",
    "CANCELLED": "dim",
    "PENDING": "dim",
    "ARCHIVED": "dim",
    "stalled": "bold yellow",
    "zombie": "bold red",
}


def console() -> Console:
    """Make a console that does not wrap lines when the output is not a terminal."""
    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=not is_terminal, width=None if is_terminal else _ANY_WIDTH)


def clean(value: object) -> str:
    """Make text from outside harmless: no escape can move a cursor or set a title."""
    text = "" if value is None else str(value)
    return "".join(character if character.isprintable() else " " for character in text)


def localize(value: object) -> str:
    """Make text harmless, and show its times in the local time zone."""
    return _TIME.sub(lambda found: to_local(found[0]), clean(value))


def print_lines(*lines: object) -> None:
    """Print lines, each made harmless."""
    sys.stdout.write("".join(f"{clean(line)}\n" for line in lines))


def say_line(event: Event, *, verbose: bool = False) -> str:
    """Say when something happened, and what; if verbose, its kind too."""
    kind = f"  [{event.body.kind}]" if verbose else ""
    return localize(f"{event.occurred_at} {say_event(event)}{kind}")


def print_json(value: object) -> None:
    """Print a view as JSON."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_json_line(value: object) -> None:
    """Print a view as one line of JSON, for programs that read a stream."""
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
    text = localize(value)
    return Text(text, style=STYLES.get(text, ""))


def print_status(view: Mapping[str, Any]) -> None:
    """Print what needs a person first, then the rest."""
    out = console()
    _print_needs(out, view["needs_me"])
    keeper = view["keeper"]
    said = f"{keeper['holder']} since {keeper['since']}, {keeper['state']}" if keeper["holder"] else "not running"
    out.print(Text(localize(f"Keeper: {said}")))
    if view["isolation"]:
        out.print(Text(f"Workers: {view['isolation']}"))
    for wait in view["waits"]:
        out.print(Text(f"Waiting: {shorten(wait['what'])}"))
    if view["convoys"]:
        rows = [{**row, "done": f"{row['complete']}/{row['tasks']}"} for row in view["convoys"]]
        print_table(rows, {"convoy": "Convoy", "state": "State", "done": "Done", "submitted_at": "Submitted"})
    if view["workers"]:
        print_table(view["workers"], {"worker": "Worker", "task": "Task", "attempt": "Attempt", "since": "Since"})
    if view["queue"]:
        print_table(view["queue"], {"task": "In the merge queue", "repo": "Repository", "doing": "State"})
    for repo in view["repos"]:
        branch = f"branch {repo['published_as']} of {repo['path']}"
        if repo["integration"] != repo["published"]:
            out.print(Text(clean(f"{repo['repo']}: not everything that landed is in {branch} yet"), style="dim"))
        elif repo["published"] and repo["state"] == "READY":
            out.print(Text(clean(f"{repo['repo']}: everything that landed is in {branch}"), style="dim"))
        if repo["agent_configuration"]:
            files = shorten(", ".join(repo["agent_configuration"]))
            out.print(Text(clean(f"{repo['repo']}: agents follow its {files}"), style="dim"))


def _print_needs(out: Console, needs: Sequence[Mapping[str, Any]]) -> None:
    out.print("[bold red]Needs you[/]" if needs else "[green]Nothing needs you.[/]")
    for need in needs:
        out.print(Text(f"  {localize(need['what'])}"))
        for line in say_failure(need.get("failure")):
            out.print(Text(f"  {line}", style="dim"))
        out.print(Text(f"    → {say_advice(need['type'])}"))


def say_failure(failure: Mapping[str, Any] | None) -> list[str]:
    """Say the last lines of what failed, and where the whole output is."""
    if not failure:
        return []
    return [*(f"  | {clean(line)}" for line in failure["lines"]), f"  full output: {clean(failure['type'])}"]


def say_advice(command: str) -> str:
    """Say what to type so that it works where the person is: the hive may be elsewhere, named by -C."""
    where = find_named()
    named = f"hive -C {quote(where)} " if where else "hive "
    return re.sub(r"^hive (?=[a-z])", lambda _: named, localize(command))


def reprint_status(view: Mapping[str, Any]) -> None:
    """Print the status in place of the one before."""
    console().clear()
    print_status(view)
    sys.stdout.flush()


def print_convoy(view: Mapping[str, Any]) -> None:
    """Print a convoy's card."""
    out = console()
    head = Text(clean(f"{view['convoy']}  "), style="bold").append(view["state"], style=STYLES.get(view["state"], ""))
    out.print(head.append(f"  {view['complete']}/{view['tasks']} complete", style="bold"))
    counts = [f"{number} {state.lower().replace('_', ' ')}" for state, number in view["counts"].items()]
    failed = f"; {count(view['failed_attempts'], 'attempt')} failed" if view["failed_attempts"] else ""
    out.print(Text(f"  {draw_bar(view)}  {', '.join(counts)}{failed}".rstrip()))
    if any(repo["repo"] for repo in view["repos"]):
        places = (f"{repo['repo'] or 'no repository'} {repo['complete']}/{repo['tasks']}" for repo in view["repos"])
        out.print(Text(clean(f"  {', '.join(places)}")))
    for swarm in view["swarms"]:
        _print_swarm(out, swarm)
    if said := say_time(view):
        out.print(Text(f"  {said}"))
    if view["state"] == "ACTIVE" and not view["keeper_is_alive"]:
        out.print(Text("  The keeper is not running. Type: hive up", style="bold red"))
    columns = {"task": "Task", "state": "State", "attempts": "Attempts", "repo": "Repository", "why": "Why"}
    print_table([{**task, "why": _say_trouble(task)} for task in view["task_list"]], columns)


def print_workers(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print workers."""
    if not rows:
        console().print("No workers are running.")
        return
    shown = [
        {
            **row,
            "since": f"{localize(row['since'])[11:]} ({say_duration(row['for_s'])})",
            "silent": "" if row["silent_s"] is None else say_duration(row["silent_s"]),
            "progress": shorten(row["progress"]),
        }
        for row in rows
    ]
    columns = {"worker": "Worker", "task": "Task", "attempt": "Attempt", "state": "State", "since": "Since"}
    columns |= {"silent": "Silent", "pid": "Process", "output_bytes": "Output, bytes"}
    print_table(shown, columns | ({"progress": "Progress"} if any(row["progress"] for row in shown) else {}))


def _print_swarm(out: Console, swarm: Mapping[str, Any]) -> None:
    first, last = swarm["first_worker"], swarm["last_worker"]
    workers = f"worker {first}" if first == last else f"workers {first}–{last}"
    now = f", {swarm['working']} at work" if swarm["working"] else ""
    out.print(Text(f"  Swarm {swarm['swarm']}: {workers}, {swarm['complete']}/{swarm['attempts']} complete{now}"))
    for failure in swarm["failed"][:_MOST_FAILURES]:
        line = f"    ✗ {failure['task']} (worker {failure['worker']}): {shorten(failure['reason'])}"
        out.print(Text(clean(line), style="red"))
    if len(swarm["failed"]) > _MOST_FAILURES:
        out.print(Text(f"    … and {len(swarm['failed']) - _MOST_FAILURES} more", style="red"))


def _say_trouble(task: Mapping[str, Any]) -> str:
    waits = ", ".join(f"{other['task']} ({other['state']})" for other in task["waits_for"])
    failed = f"failed {task['failed_attempts']}×" if task["failed_attempts"] else ""
    parts = (f"waits for {waits}" if waits else "", failed, shorten(task["reason"] or task["progress"]))
    return ": ".join(part for part in parts if part)


def draw_bar(view: Mapping[str, Any]) -> str:
    """Draw a convoy's progress."""
    filled: int = _BAR_WIDTH * view["complete"] // max(view["tasks"], 1)
    return "█" * filled + "░" * (_BAR_WIDTH - filled)


def draw_convoy(view: Mapping[str, Any]) -> Text:
    """Draw a convoy on one line, for the live picture."""
    line = Text(clean(view["convoy"]), style="bold", no_wrap=True, overflow="ellipsis")
    return line.append(f"  {draw_bar(view)}  {view['complete']}/{view['tasks']}  {say_time(view)}", style="not bold")


def draw_workers(rows: Sequence[Mapping[str, Any]], height: int) -> Table:
    """Draw workers, one line each and as many as fit, for the live picture."""
    table = Table.grid(padding=(0, 2), expand=True)
    for _ in range(3):
        table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)  # the title has what is left, and is cut first
    for row in rows[: height if len(rows) <= height else height - 1]:
        quiet = f", silent {say_duration(row['silent_s'])}" if row["state"] == "stalled" else ""
        doing = Text(row["state"], style=STYLES.get(row["state"], "")).append(f" {say_duration(row['for_s'])}{quiet}")
        about = Text(shorten(row["progress"] or row["title"]), "dim")
        table.add_row(Text(f"  worker {row['worker']}"), _cell(row["task"]), doing, about)
    if len(rows) > height:
        table.add_row(Text(f"  … and {len(rows) - height + 1} more"))
    return table


def say_time(view: Mapping[str, Any]) -> str:
    """Say how long a convoy has taken, and about how long is left where that can be estimated."""
    if view["elapsed_s"] is None:
        return ""
    if view["state"] != "ACTIVE":
        return f"took {say_duration(view['elapsed_s'])}"
    left_s = view["left_s"]
    left = "" if left_s is None else f", about {say_duration(_to_minutes(left_s))} left"
    return f"{say_duration(view['elapsed_s'])} so far{left}"


def _to_minutes(seconds: float) -> float:
    """Round an estimate to minutes."""
    minute_s = _UNITS_S["min"]
    return seconds if seconds < minute_s else round(seconds / minute_s) * minute_s


def say_duration(seconds: float) -> str:
    """Say a duration as a person would, two units at most."""
    rest, parts = max(0, round(seconds)), []
    for unit, size in _UNITS_S.items():
        parts.append(f"{rest // size} {unit}")
        rest %= size
    first = next((place for place, part in enumerate(parts) if not part.startswith("0 ")), len(parts) - 1)
    return " ".join(part for part in parts[first : first + 2] if not part.startswith("0 ")) or parts[-1]


def shorten(value: object) -> str:
    """Cut long text to fit on a line."""
    text = localize(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def count(number: int, noun: str) -> str:
    """Say how many of something there are."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_task(view: Mapping[str, Any]) -> None:
    """Print a task with its attempts and their runs."""
    out = console()
    out.print(Text(localize(view["why"]), style="bold"))
    for line in say_failure(view["failure"]):
        out.print(Text(line))
    out.print(Text(f"$ {clean(view['command'])}", style="dim"))
    for attempt in view["attempts"]:
        head = f"  attempt {attempt['attempt']} (worker {attempt['worker']}): {attempt['state']} {attempt['reason']}"
        out.print(Text(localize(head).rstrip()))
        for run in attempt["runs"]:
            out.print(Text(localize(f"    {run['kind']:9} {run['ending'] or run['state']}"), style="dim"))


_ANY_WIDTH = 1_000_000
_BAR_WIDTH = 20
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_LONGEST_TEXT = 100
_MOST_FAILURES = 10
_UNITS_S = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
