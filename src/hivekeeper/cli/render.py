"""Views as text for people; control characters in text from outside are made harmless."""

import json
import re
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from shlex import quote
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from hivekeeper.cli import tables
from hivekeeper.cli.here import find_named
from hivekeeper.clock import to_local
from hivekeeper.domain.events import Event
from hivekeeper.domain.wording import say_count
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
    made = Console(highlight=False, soft_wrap=not is_terminal, width=None if is_terminal else tables.ANY_WIDTH)
    if made.width < 1:  # COLUMNS=0
        made.width = _USUAL_WIDTH
    return made


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


def print_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    *,
    texts: Collection[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print rows as a table; `columns` maps a row's key to its heading.

    On a terminal `texts` are cut to make a row fit, and then `spare` columns left out, in this order. Elsewhere a row
    is whole.
    """
    out = console()
    cells = [{key: localize(row.get(key)) for key in columns} for row in rows]
    widths = tables.fit(tables.measure(cells, columns), out.width, texts, spare)
    if any(columns.values()):
        out.print(_draw_row(columns, widths, out.width, texts, dict.fromkeys(columns, "bold")), soft_wrap=True)
    for row in cells:
        styles = {key: STYLES.get(text, "") for key, text in row.items()}
        out.print(_draw_row(row, widths, out.width, texts, styles), soft_wrap=True)
    if left_out := [heading for key, heading in columns.items() if heading and key not in widths]:
        print_prose(out, f"Not enough room for: {', '.join(left_out)}", style="dim", indent=_INDENT)


def _draw_row(
    row: Mapping[str, str], widths: Mapping[str, int], width: int, texts: Collection[str], styles: Mapping[str, str]
) -> Text:
    cells = tables.lay_out(row, widths, width, texts)
    line = Text(tables.GAP).join(Text(cell, style=styles.get(key, "")) for key, cell in zip(widths, cells, strict=True))
    line.rstrip()
    return line


def print_prose(out: Console, text: object, *, style: str = "", indent: str = "") -> None:
    """Print a sentence. On a terminal it goes on in the next line between two words, never within a name or a path."""
    out.print(Text(wrap(localize(text), out.width, indent), style=style), soft_wrap=True)


def wrap(text: str, width: int, indent: str) -> str:
    """Wrap a text between words, its further lines with an indent."""
    lines = textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def print_whole(out: Console, line: str, *, style: str = "") -> None:
    """Print what may be typed or compared, in one piece."""
    out.print(Text(line, style=style), soft_wrap=True)


def print_status(view: Mapping[str, Any]) -> None:
    """Print what needs a person first, then the rest."""
    out = console()
    _print_needs(out, view["needs_me"])
    keeper = view["keeper"]
    said = f"{keeper['holder']} since {keeper['since']}, {keeper['state']}" if keeper["holder"] else "not running"
    print_prose(out, f"Keeper: {said}")
    if view["isolation"]:
        print_prose(out, f"Workers: {view['isolation']}")
    for wait in view["waits"]:
        print_prose(out, f"Waiting: {wait['what']}", indent="  ")
    if view["convoys"]:
        print_convoys(view["convoys"])
    if view["workers"]:
        columns = {"worker": "Worker", "task": "Task", "attempt": "Attempt", "since": "Since"}
        print_table(view["workers"], columns, spare=("since", "attempt"))
    if view["queue"]:
        columns = {"task": "In the merge queue", "repo": "Repository", "doing": "State"}
        print_table(view["queue"], columns, texts=("doing",), spare=("repo",))
    for repo in view["repos"]:
        branch = f"branch {repo['published_as']} of {repo['path']}"
        if repo["integration"] != repo["published"]:
            print_prose(out, f"{repo['repo']}: not everything that landed is in {branch} yet", style="dim")
        elif repo["published"] and repo["state"] == "READY":
            print_prose(out, f"{repo['repo']}: everything that landed is in {branch}", style="dim")
        if repo["agent_configuration"]:
            head, files = f"{repo['repo']}: agents follow its ", clean(", ".join(repo["agent_configuration"]))
            print_whole(out, tables.cut_after(head, files, out.width), style="dim")


def print_convoys(rows: Sequence[Mapping[str, Any]], **more: str) -> None:
    """Print convoys and their progress; `more` are further columns and their headings."""
    shown = [{**row, "done": f"{row['complete']}/{row['tasks']}"} for row in rows]
    columns = {"convoy": "Convoy", "state": "State", "done": "Done", "submitted_at": "Submitted", **more}
    print_table(shown, columns, spare=(*more, "submitted_at"))


def _print_needs(out: Console, needs: Sequence[Mapping[str, Any]]) -> None:
    out.print("[bold red]Needs you[/]" if needs else "[green]Nothing needs you.[/]")
    for need in needs:
        print_prose(out, f"  {need['what']}", indent="  ")
        for line in say_failure(need.get("failure")):
            print_whole(out, f"  {line}", style="dim")
        print_whole(out, f"    → {say_advice(need['type'])}")


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
    out.print(head.append(f"  {view['complete']}/{view['tasks']} complete", style="bold"), soft_wrap=True)
    counts = [f"{number} {state.lower().replace('_', ' ')}" for state, number in view["counts"].items()]
    failed = f"; {say_count(view['failed_attempts'], 'attempt')} failed" if view["failed_attempts"] else ""
    print_prose(out, f"  {draw_bar(view)}  {', '.join(counts)}{failed}".rstrip(), indent="  ")
    if any(repo["repo"] for repo in view["repos"]):
        places = (f"{repo['repo'] or 'no repository'} {repo['complete']}/{repo['tasks']}" for repo in view["repos"])
        print_prose(out, f"  {', '.join(places)}", indent="  ")
    for swarm in view["swarms"]:
        _print_swarm(out, swarm)
    if said := say_time(view):
        out.print(Text(f"  {said}"))
    if view["state"] == "ACTIVE" and not view["keeper_is_alive"]:
        out.print(Text("  The keeper is not running. Type: hive up", style="bold red"))
    columns = {"task": "Task", "state": "State", "attempts": "Attempts", "repo": "Repository", "why": "Why"}
    rows = [{**task, "why": _say_trouble(task)} for task in view["task_list"]]
    print_table(rows, columns, texts=("why",), spare=("attempts", "repo"))


def print_workers(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print workers."""
    if not rows:
        console().print("No workers are running.")
        return
    shown = [
        {
            **row,
            "since": localize(row["since"])[11:],
            "for": say_duration(row["for_s"]),
            "silent": "" if row["silent_s"] is None else say_duration(row["silent_s"]),
        }
        for row in rows
    ]
    columns = {"worker": "Worker", "task": "Task", "attempt": "Attempt", "state": "State", "since": "Since"}
    columns |= {"for": "For", "silent": "Silent", "pid": "Process", "output_bytes": "Output bytes"}
    columns |= {"progress": "Progress"} if any(row["progress"] for row in shown) else {}
    spare = ("output_bytes", "pid", "since", "attempt", "silent", "for")
    print_table(shown, columns, texts=("progress",), spare=spare)


def _print_swarm(out: Console, swarm: Mapping[str, Any]) -> None:
    first, last = swarm["first_worker"], swarm["last_worker"]
    workers = f"worker {first}" if first == last else f"workers {first}–{last}"
    now = f", {swarm['working']} at work" if swarm["working"] else ""
    out.print(Text(f"  Swarm {swarm['swarm']}: {workers}, {swarm['complete']}/{swarm['attempts']} complete{now}"))
    for failure in swarm["failed"][:_MOST_FAILURES]:
        head = clean(f"    ✗ {failure['task']} (worker {failure['worker']}): ")
        print_whole(out, tables.cut_after(head, localize(failure["reason"]), out.width), style="red")
    if len(swarm["failed"]) > _MOST_FAILURES:
        out.print(Text(f"    … and {len(swarm['failed']) - _MOST_FAILURES} more", style="red"))


def _say_trouble(task: Mapping[str, Any]) -> str:
    waits = ", ".join(f"{other['task']} ({other['state']})" for other in task["waits_for"])
    failed = f"failed {task['failed_attempts']}×" if task["failed_attempts"] else ""
    parts = (f"waits for {waits}" if waits else "", failed, task["reason"] or task["progress"] or "")
    return ": ".join(part for part in parts if part)


def draw_bar(view: Mapping[str, Any]) -> str:
    """Draw a convoy's progress."""
    filled: int = _BAR_WIDTH * view["complete"] // max(view["tasks"], 1)
    return "█" * filled + "░" * (_BAR_WIDTH - filled)


def draw_convoy(view: Mapping[str, Any]) -> Text:
    """Draw a convoy on one line, for the live picture."""
    line = Text(clean(view["convoy"]), style="bold", no_wrap=True, overflow="ellipsis")
    return line.append(f"  {draw_bar(view)}  {view['complete']}/{view['tasks']}  {say_time(view)}", style="not bold")


def draw_workers(rows: Sequence[Mapping[str, Any]], height: int, width: int) -> Group:
    """Draw workers, one line each and as many as fit, for the live picture: titles are cut first, then names."""
    shown = rows[: height if len(rows) <= height else height - 1]
    cells = [_describe_worker(row) for row in shown]
    width -= len(_INDENT)
    widths = tables.fit(tables.measure(cells, dict.fromkeys(_LIVE, "")), width, (), spare=("worker",))
    # A title has what is left, so that no other column comes and goes as the time beside it grows.
    left = width - sum(size + len(tables.GAP) for size in widths.values())
    widths |= {"about": left} if left >= tables.NARROWEST else {}
    lines = []
    for row, cell in zip(shown, cells, strict=True):
        styles = {"state": STYLES.get(row["state"], ""), "about": "dim"}
        lines.append(Text(_INDENT).append(_draw_row(cell, widths, width, cell, styles)))
    if len(rows) > height:
        lines.append(Text(f"{_INDENT}… and {len(rows) - height + 1} more"))
    return Group(*lines)


def _describe_worker(row: Mapping[str, Any]) -> dict[str, str]:
    quiet = f", silent {say_duration(row['silent_s'])}" if row["state"] == "stalled" else ""
    return {
        "worker": f"worker {row['worker']}",
        "task": clean(row["task"]),
        "state": f"{row['state']} {say_duration(row['for_s'])}{quiet}",
        "about": localize(row["progress"] or row["title"]),
    }


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


def print_task(view: Mapping[str, Any]) -> None:
    """Print a task with its attempts and their runs."""
    out = console()
    print_prose(out, view["why"], style="bold")
    for line in say_failure(view["failure"]):
        print_whole(out, line)
    print_whole(out, f"$ {clean(view['command'])}", style="dim")
    for attempt in view["attempts"]:
        head = f"  attempt {attempt['attempt']} (worker {attempt['worker']}): {attempt['state']} {attempt['reason']}"
        print_prose(out, head.rstrip(), indent="    ")
        for run in attempt["runs"]:
            print_prose(out, f"    {run['kind']:9} {run['ending'] or run['state']}", style="dim", indent=" " * 14)


_USUAL_WIDTH = 80
_BAR_WIDTH = 20
_INDENT = "  "
_LIVE = ("worker", "task", "state")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_MOST_FAILURES = 10
_UNITS_S = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
