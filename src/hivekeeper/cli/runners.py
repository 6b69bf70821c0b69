"""`hive runner`, `hive costs` and `hive budget`."""

import shutil
import tempfile
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import Json, Reason, me, open_here
from hivekeeper.commands import sessions as commands
from hivekeeper.commands.trust import trust_configuration
from hivekeeper.domain.budget import DAY, MICRO, Cap
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.git.mirror import Mirror
from hivekeeper.git.orders import source_ref
from hivekeeper.merging.source import read_configuration
from hivekeeper.runs.trial import try_out
from hivekeeper.store import queries
from hivekeeper.views import runners as views
from hivekeeper.views.queue import get_repos
from hivekeeper.views.rows import pick
from hivekeeper.views.tasks import get_task

runner_app = typer.Typer(no_args_is_help=True, help="Agent programs that take prompts.")
budget_app = typer.Typer(no_args_is_help=True, help="Spending limits.")

_TRIAL = "This is a trial. Use no tool and change nothing. Answer with the single word: ready\n"
_VERSION_S, _TRIAL_S = 20.0, 180.0
_LONGEST_VERSION = 60


@runner_app.command("ls")
def runner_ls(*, json: Json = False) -> None:
    """List runners: version, sign-in, and what each waits for."""
    hive = open_here()
    with hive.ledger.read() as connection:
        rows = views.list_runners(connection, hive.settings.runners, now=hive.ledger.clock.now())
    for row in rows:
        row["version"] = _ask_version(row["path"]) if row["path"] else None
    if json:
        render.print_json(rows)
        return
    for row in rows:
        sign_in = f"signed in by {row['sign_in']}" if row["sign_in"] else "no sign-in found"
        found = f"{row['version'] or 'installed'}, {sign_in}" if row["path"] else "not installed"
        render.print_lines(f"{row['runner']:<10} {found}")
        if row["held"]:
            render.print_lines(render.localize(f"           waits: {row['held']}"))


def _ask_version(path: str) -> str | None:
    with tempfile.TemporaryDirectory(
        prefix="hive-version-"
    ) as home:  # it may write files, but not to the person's home
        done = try_out((path, "--version"), home, {"HOME": home, "TMPDIR": home}, at_most_s=_VERSION_S)
    found = views.find_version(done.output.decode("utf-8", "replace"))
    return render.clean(found)[:_LONGEST_VERSION] if found and done.status == 0 else None


@runner_app.command("test")
def runner_test(name: str, *, json: Json = False) -> None:
    """Ask a runner for a one-line answer, in a worker's sandbox with a worker's sign-in."""
    hive = open_here()
    hive.settings.check_runner(name)
    runner = hive.settings.runners.get(name)
    if runner is None or shutil.which(runner.program) is None:
        program = runner.program if runner else name
        advice = "Install it, or set `command` in [runners.NAME] of hive.toml."
        raise UnavailableError(f"'{program}' is not on the PATH.", advice=advice)
    if not json:
        typer.echo(f"Asking {name} for a one-word answer …")
    from hivekeeper.keeper.trials import open_trial  # noqa: PLC0415 - only this command needs it

    with open_trial(hive) as trial:
        said = trial.ask(runner, _TRIAL, at_most_s=_TRIAL_S)
    report = said.report
    view = {
        "runner": name,
        **pick(report, "outcome", "words", "session"),
        **pick(report.usage, "tokens_in", "tokens_out"),
        "money": report.usage.microusd / MICRO,
        "seconds": round(said.tried.took_s, 1),
        "exit_status": said.tried.status,
    }
    if json:
        render.print_json(view)
    else:
        used = f"{say_count(view['tokens_in'], 'token')} in, {view['tokens_out']:,} out, {view['seconds']} s"
        typer.echo(render.clean(f"{name}: {report.outcome.words}{': ' if report.words else ''}{report.words} ({used})"))
    if report.outcome.value != "done":
        raise typer.Exit(1)


@runner_app.command("resume")
def runner_resume(name: str, reason: Reason = "") -> None:
    """Let a runner's tasks continue, after a sign-in or a limit that has passed."""
    hive = open_here()
    hive.settings.check_runner(name)
    with hive.ledger.write(me()) as tx:
        lifted = commands.lift_hold(tx, "runner", name, why=reason or "a person says it works")
    typer.echo(f"{name} continues." if lifted else f"{name} is not on hold.")


@runner_app.command("trust")
def runner_trust(repo: str, reason: Reason = "") -> None:
    """Trust the agent configuration a repository ships, as it is now."""
    hive = open_here()
    with hive.ledger.read() as connection:
        [found] = get_repos(connection, repo)
    mirror = Mirror(hive.places.mirror(found.name))
    shipped = read_configuration(mirror, found, mirror.find_commit(source_ref(found.branch)))
    with hive.ledger.write(me()) as tx:
        files = trust_configuration(tx, found, shipped, why=reason)
    render.print_lines(f"The agent configuration of {repo} is trusted as it is now: {', '.join(files) or 'no files'}.")


def costs(
    *,
    since: Annotated[str, typer.Option(help="Only since this date or time: 2026-11-15.")] = "",
    json: Json = False,
) -> None:
    """Show cost by task, agent, runner and convoy."""
    with open_here().ledger.read() as connection:
        view = views.show_costs(connection, since=since)
    if json:
        render.print_json(view)
        return
    if not view["sessions"]:
        typer.echo("No agent program has run yet.")
        return
    money = _format_usage(view)["money"]
    said = f"{say_count(view['tokens_in'], 'token')} in, {view['tokens_out']:,} out"
    typer.echo(f"{say_count(view['sessions'], 'session')}: {', '.join(filter(None, (money, said)))}")
    if view["unpriced"]:
        names = ", ".join(view["unpriced"])
        render.print_lines(f"Without the cost of {names}: no price is known. Add its model to [prices] in hive.toml.")
    for way in ("convoy", "runner", "agent", "task"):
        rows = [{**row, **_format_usage(row)} for row in view[f"by_{way}"]]
        columns = {way: f"By {way}", "money": "Cost", "tokens_in": "Tokens in", "tokens_out": "Tokens out"}
        render.print_table(rows, columns, spare=("tokens_out", "tokens_in"))


def _format_usage(row: Mapping[str, Any]) -> dict[str, str]:
    money = f"${row['money']:,.4f}" if row["money"] else ""
    return {"money": money, **{name: f"{row[name]:,}" for name in ("tokens_in", "tokens_out")}}


@budget_app.command("raise")
def budget_raise(
    name: Annotated[str, typer.Argument(metavar="TASK|CONVOY|today", help="Whose budget to raise.")],
    *,
    money: Annotated[float | None, typer.Option(min=0.01, help="New limit in dollars, in total.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="New limit in tokens, in total.")] = None,
    reason: Reason = "",
) -> None:
    """Set the budget of a task, a convoy or today. What waited for it continues."""
    if money is None and tokens is None:
        raise InputError("No budget given.", advice="Type --money DOLLARS, --tokens N, or both.")
    cap = Cap(tokens, None if money is None else round(money * MICRO))
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        convoy = queries.find_convoy(tx.connection, name)
        if name == DAY:
            scope, key = "day", DAY
        elif convoy is not None:
            scope, key = "convoy", convoy.name
        else:
            scope, key = "task", get_task(tx.connection, name).key
        commands.raise_budget(tx, scope, key, cap, why=reason)
    typer.echo(f"{scope.capitalize()} {key} may use {cap.describe()} in all.")
