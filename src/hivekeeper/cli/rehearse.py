"""`hive rehearse` and `hive demo`: a plan, or one of our own, with scripted agents, before it costs anything."""

import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import Json
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import UnavailableError
from hivekeeper.git.mirror import check_git

if TYPE_CHECKING:
    from hivekeeper.testing.rehearsal import Rehearsal


_COLUMNS = {"task": "Task", "status": "Status", "attempts": "Attempts", "began": "Starts", "landed": "Landed"}
_SPARE = ("landed", "began", "attempts")


def demo(
    *,
    tasks: Annotated[int, typer.Option(min=4, max=99)] = 15,
    workers: Annotated[int, typer.Option(min=1, max=64)] = 8,
    chaos: Annotated[bool, typer.Option("--chaos", help="Make every agent fail first and kill three keepers.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Keep the demo in this new directory.")] = None,
) -> None:
    """Run a demo on a scratch repository: agents fail and a keeper is killed, and no work is lost or repeated."""
    from hivekeeper.testing.demo import run_demo  # noqa: PLC0415 - only this command needs it

    check_git()
    rows, wrong, seconds = run_demo(tasks=tasks, workers=workers, keep=keep, chaos=chaos)
    render.print_table(rows, _COLUMNS, spare=_SPARE)
    if wrong or any(row["status"] != "COMPLETE" for row in rows):
        raise UnavailableError(f"The demo failed ({seconds:.0f} s).", advice="\n".join(wrong))
    failed = sum(row["attempts"] - 1 for row in rows)
    killed = "three keepers" if chaos else "one keeper"
    typer.echo(
        f"{len(rows)} tasks: nothing lost, nothing done twice; {say_count(failed, 'attempt')} failed and {killed}"
        f" killed ({seconds:.0f} s)."
    )
    if keep is not None:
        hive, repository = quote(str(keep.resolve() / "hive")), quote(str(keep.resolve() / "shop"))
        look = f"hive -C {hive} status;  hive -C {hive} convoy show shop;  git -C {repository} log hive/main"
        render.print_lines(f"Everything is kept in {keep.resolve()}. Look around:  {look}")


def rehearse(  # noqa: PLR0913 - one option a choice
    plan: Path,
    *,
    faults: Annotated[str | None, typer.Option(help="Fault rates: crash=0.2,hang=0.1; or none.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Repeat the faults and kills of this seed.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of tasks to run at once.")] = 4,
    kills: Annotated[int, typer.Option(min=0, max=100, help="Number of keepers to kill.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Keep the rehearsal in this new directory.")] = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Skip setup, verify and accept commands.")] = False,
    json: Json = False,
) -> None:
    """Rehearse a plan with scripted agents on clones of its repositories."""
    from hivekeeper.config.plans import load_plan  # noqa: PLC0415 - its parser takes a third of every start of `hive`
    from hivekeeper.testing import rehearsal  # noqa: PLC0415 - only this command needs it
    from hivekeeper.testing.scripted import parse_rates  # noqa: PLC0415 - as above

    check_git()
    rates = parse_rates(rehearsal.DEFAULT_FAULTS if faults is None else faults)
    spec = load_plan(plan)
    seed = secrets.randbelow(10**6) if seed is None else seed
    out = sys.stderr if json else sys.stdout
    theirs = "Its setups, gates and acceptance " + ("are skipped" if no_verify else "run as they are")
    out.write(
        f"Rehearsing {plan} with scripted agents (--seed {seed}), in a scratch hive on clones of its repositories.\n"
        f"Your files and repositories are not touched, and its tasks' commands do not run. {theirs}.\n"
    )
    out.flush()
    settings = rehearsal.Settings(seed, rates, workers, kills, not no_verify, keep)
    result = rehearsal.rehearse_plan(spec, settings, out)
    is_well = result.is_right and result.convoy == "COMPLETE"
    render.print_json({**asdict(result), "right": result.is_right}) if json else _print(result)
    raise typer.Exit(0 if is_well else 1)


def _print(result: "Rehearsal") -> None:
    columns = {**_COLUMNS, "reason": "Why"} if result.unfinished else _COLUMNS
    render.print_table(result.tasks, columns, texts=("reason",), spare=_SPARE)
    faults = ", ".join(f"{count} {fault}" for fault, count in result.faults.items()) or "none"
    left = f"processes left: {len(result.processes_left)}, sandboxes left: {len(result.sandboxes_left)}"
    endings = ", ".join(f"{count} by {ending}" for ending, count in result.endings.items()) or "none"
    tried = f"{say_count(len(result.tasks), 'task')}, {say_count(result.attempts, 'attempt')}"
    lines = [
        f"{tried}, {result.seconds:.0f} s (--seed {result.seed}).",
        f"Faults: {faults}. Keepers killed: {result.keepers_killed}. Isolation: {result.isolation}.",
        f"Agents ended: {endings}.",
        f"{say_count(len(result.violations), 'violation')}, {left}.",
    ]
    lines += [f"  ✗ {line}" for line in result.violations]
    lines += [f"  ✗ left: {line}" for line in (*result.processes_left, *result.sandboxes_left)]
    if result.is_right and result.unfinished:
        lines.append(
            f"Not done: {say_count(len(result.unfinished), 'task')}. If a gate rejected them, try: --no-verify"
        )
    elif result.is_right and result.convoy != "COMPLETE":
        lines.append("All tasks are done, but the plan's acceptance failed. To skip it: --no-verify")
    if result.kept:
        lines.append(f"Everything is kept in {result.kept}.")
    render.print_lines(*lines)
