"""`hive doctor`: problems first, each with what to type."""

import sys
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from hivekeeper.cli import render
from hivekeeper.cli.here import Json, find_here
from hivekeeper.domain.wording import say_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hivekeeper.doctor.findings import Finding, Report, Say


def doctor(
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what is safe; needs the keeper's lease.")] = False,
    json: Json = False,
) -> None:
    """Check the hive: ledger, lease, runs, sandboxes, mirrors and machine."""
    from hivekeeper.doctor.examine import examine, repair  # noqa: PLC0415 - only this command needs it
    from hivekeeper.doctor.findings import decide_exit_code  # noqa: PLC0415 - as above

    root = find_here()
    with _progress() as say:
        report = repair(root, say=say) if fix else examine(root, say=say)
    code = decide_exit_code(report.findings)
    render.print_json(_show(report, code)) if json else _print(report)
    raise typer.Exit(code)


@contextmanager
def _progress() -> "Iterator[Say]":
    """Show on a terminal what is being checked."""
    if not sys.stderr.isatty():
        yield lambda _what: None
        return
    with Console(stderr=True).status("Checking …") as status:
        yield lambda what: status.update(f"Checking {render.clean(what)} …")


def _show(report: "Report", code: int) -> dict[str, Any]:
    counts = {level: sum(finding.level == level for finding in report.findings) for level in ("OK", *_STYLES)}
    done, left = ([render.clean(line) for line in lines] for lines in (report.done, report.left))
    summary = {**counts, "exit_code": code, "done": done, "left": left}
    return {"summary": summary, "findings": [_show_finding(finding) for finding in report.findings]}


def _show_finding(finding: "Finding") -> dict[str, Any]:
    texts = {name: render.clean(value) for name, value in asdict(finding).items() if name != "fix"}
    return {**texts, "fixable": finding.fix is not None}


def _print(report: "Report") -> None:
    out = render.console()
    render.print_lines(*report.done, *report.left)
    wrong = sorted((f for f in report.findings if f.level != "OK"), key=lambda finding: finding.level)
    for finding in (*wrong, *(f for f in report.findings if f.level == "OK")):
        said = f"{finding.level:4}  {finding.check:12}  {render.clean(finding.what)}"
        line = Text(render.wrap(said, out.width, _INDENT))
        line.stylize(_STYLES.get(finding.level, ""), 0, len(finding.level))
        out.print(line, soft_wrap=True)
        if finding.level != "OK":
            render.print_whole(out, f"{_INDENT}→ {render.clean(finding.advice)}")
    found = f"[bold red]{say_count(len(wrong), 'problem')} found.[/]"
    out.print(found if wrong else "[green]Nothing is wrong with this hive.[/]")


_INDENT = " " * 20
_STYLES = {"WARN": "bold yellow", "FAIL": "bold red"}
