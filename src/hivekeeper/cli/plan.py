"""`hive plan`: a goal or issues to a plan, and a picture of any plan before it runs."""

import io
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from hivekeeper.cli import render
from hivekeeper.cli.convoys import load_plan
from hivekeeper.cli.here import Json, open_here
from hivekeeper.cli.running import run as run_plan
from hivekeeper.domain.budget import MICRO
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.git.mirror import check_git
from hivekeeper.hive import Hive
from hivekeeper.views import plans as views

if TYPE_CHECKING:
    from hivekeeper.domain.issues import Issue
    from hivekeeper.planning.drafting import Draft

_STDIN = Path("-")


def plan(  # noqa: PLR0913 - one option a choice
    goal: Annotated[str, typer.Argument(help="What you want, in your own words.")] = "",
    *,
    repo: Annotated[list[str], typer.Option(help="Repository; default: those of the hive, or this one.")] = [],  # noqa: B006 - typer copies it
    runner: Annotated[str, typer.Option(help="Agent program that plans and does the work.")] = "",
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Issues: gh's JSON or a Markdown list; - is stdin.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write; never overwritten.")] = Path("plan.yaml"),
    run: Annotated[bool, typer.Option("--run", help="Run the plan.")] = False,
    check: Annotated[Path | None, typer.Option(help="Show this plan instead of making one.")] = None,
    timeout: Annotated[str, typer.Option(help="How long the runner may take: 90s, 1h.")] = "10m",
    json: Json = False,
) -> None:
    """Make a plan for a goal, show what it would do, and write it to a file."""
    from hivekeeper.config.values import read_duration  # noqa: PLC0415 - its parser is for few commands

    check_git()
    if check is not None:
        if goal or repo or runner or source or run:
            raise InputError("--check shows a plan and makes none.", advice=f"Type: hive plan --check {check}")
        _show_file(open_here(), check, json=json)
        return
    if not goal.strip() and source is None:
        raise InputError("There is nothing to plan.", advice='Type: hive plan "GOAL", or hive plan --from FILE')
    if json and run:
        raise InputError("--json shows the plan and --run runs it.", advice=f"Then type: hive run {out}")
    try:
        at_most_s = read_duration(timeout)
    except ValueError as error:
        raise InputError(f"--timeout {error}") from None
    if os.path.lexists(out):
        raise InputError(f"{out} exists already and was not changed.", advice="Write to another: --out FILE")
    if not os.access(out.parent, os.W_OK):
        raise InputError(f"{out} cannot be written in {out.parent}.", advice="Write to another: --out FILE")
    hive = open_here()
    draft = _make_draft(hive, goal, repo, runner, source, out, at_most_s)
    out = _write(out, draft.text)
    with hive.ledger.read() as connection:
        view = views.show_plan(connection, draft.plan, author=draft.author, written=draft.written)
    follow_up = f"hive run {quote(str(out))}"
    if json:
        render.print_json({"file": str(out), "type": follow_up, **view})
        return
    render.print_lines(*views.draw_plan(view), "", f"Written to {out}.")
    if not run:
        render.print_lines(f"To run it: {render.say_advice(follow_up)}")
        return
    _refuse_unread(view, out, render.say_advice(follow_up))
    hive.close()
    run_plan(out)


def _show_file(hive: Hive, path: Path, *, json: bool) -> None:
    spec = load_plan(hive, path)
    with hive.ledger.read() as connection:
        view = views.show_plan(connection, spec)
    render.print_json({"file": str(path), **view}) if json else render.print_lines(*views.draw_plan(view))


def _make_draft(  # noqa: PLR0913, PLR0917 - as above
    hive: Hive, goal: str, repos: list[str], runner: str, source: Path | None, out: Path, at_most_s: float
) -> "Draft":
    from hivekeeper.planning import asking, drafting  # noqa: PLC0415 - only this needs them
    from hivekeeper.planning.sources import find_sources  # noqa: PLC0415 - as above

    issues = _read_issues(source) if source else []
    sources = find_sources(hive, repos, Path.cwd())
    chosen = asking.choose_runner(hive, runner)
    desk = drafting.Desk(hive, out, chosen.name, sources)
    if not goal.strip():
        stem = "" if source in (None, _STDIN) else source.stem
        return desk.draft_issues(issues, stem)
    draft, used = asking.ask_for_plan(desk, chosen, asking.Wish(goal, issues, at_most_s), _tell)
    if used.tokens:
        money = f"${used.microusd / MICRO:,.4f}, " if used.microusd else ""
        _tell(f"It used {money}{used.tokens_in:,} tokens in, {used.tokens_out:,} out.")
    return draft


def _tell(words: str) -> None:
    """Tell how it goes; standard output is for the plan."""
    for line in words.splitlines():
        typer.echo(render.clean(line), err=True)


def _read_issues(source: Path) -> "list[Issue]":
    from hivekeeper.config.issues import read_issues  # noqa: PLC0415 - only this needs it
    from hivekeeper.config.located import Problems  # noqa: PLC0415 - as above

    problems = Problems("standard input" if source == _STDIN else str(source), "nothing was planned")
    with ExitStack() as stack:
        file: BinaryIO
        if source == _STDIN:
            file = getattr(sys.stdin, "buffer", None) or io.BytesIO(sys.stdin.read().encode())
        else:
            try:
                file = stack.enter_context(source.open("rb"))
            except OSError as error:
                problems.stop(f"cannot be read: {error.strerror}")
        return read_issues(file, problems)


def _write(out: Path, text: str) -> Path:
    """Write a plan into a new file: beside the one that was meant, if somebody has made that meanwhile."""
    path, number = out, 1
    while True:
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            number += 1
            path = out.with_stem(f"{out.stem}-{number}")
        except OSError as error:
            raise UnavailableError(f"{out} could not be written: {error.strerror}.") from None
        else:
            return path


def _refuse_unread(view: Mapping[str, Any], out: Path, follow_up: str) -> None:
    """Have a person agree to commands that a model wrote."""
    if not (view["author"] and view["commands"]):
        return
    count = say_count(len(view["commands"]), "command")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        what = f"{out} was not run: {view['author']} wrote {count} in it, and nobody is here to read them."
        raise InputError(what, advice=f"Read them, then type: {follow_up}")
    if not typer.confirm(f"{view['author']} wrote the {count} above. Run the plan?", default=False):
        render.print_lines(f"Not run. To run it: {follow_up}")
        raise typer.Exit(1)
