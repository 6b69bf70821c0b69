"""`hive convoy` and `hive ledger`."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import NO_KEEPER, STILL_RUNNING, Json, Reason, me, open_here, read_here
from hivekeeper.commands import convoys as convoy_commands
from hivekeeper.commands import plans
from hivekeeper.domain.plan import PlanSpec, TaskSpec, is_url
from hivekeeper.domain.states import TaskState
from hivekeeper.domain.wording import agree, say_count
from hivekeeper.errors import InputError
from hivekeeper.git.mirror import find_source_problem
from hivekeeper.git.neighbours import leave_marker, list_neighbours
from hivekeeper.hive import Hive, is_kept, works_on
from hivekeeper.store import queries
from hivekeeper.store.ledger import read_head
from hivekeeper.views import convoys as convoy_views

convoy_app = typer.Typer(no_args_is_help=True, help="Submitted plans and their progress.")

Convoy = Annotated[str | None, typer.Argument(help="Convoy name; optional when there is only one.")]


def load_plan(hive: Hive, path: Path) -> PlanSpec:
    """Read a plan, and check the repositories and runners that it names."""
    from hivekeeper.config import plans as config  # noqa: PLC0415 - its parser takes a third of every start of `hive`

    plan = config.load_plan(path, hive.settings.limits, hive.settings.runner_names)
    problems = [
        f"{path}: repo '{repo.name}': {problem}"
        for repo in plan.repos
        if not is_url(repo.path) and (problem := find_source_problem(repo.path, repo.branch))
    ]
    if problems:
        raise InputError("\n".join(problems), advice="Nothing was submitted.")
    check_runners(hive, plan.tasks)
    return plan


def check_runners(hive: Hive, tasks: Iterable[TaskSpec]) -> None:
    """Refuse prompts for programs that cannot be started in a sandbox."""
    prompts = [
        (task.id, (task.runner,) if isinstance(task.runner, str) else task.runner) for task in tasks if task.prompt
    ]
    if prompts:
        from hivekeeper.keeper.programs import refuse_missing  # noqa: PLC0415 - only prompts need it

        refuse_missing(hive, prompts)


def tell_neighbours(hive: Hive, plan: PlanSpec, *, err: bool = False) -> None:
    """Warn of other hives that work on a plan's repositories, and leave a marker of this one there."""
    with hive.ledger.read() as connection:
        name = read_head(connection).hive
    for repo in plan.repos:
        for other, root in list_neighbours(repo.path, name).items():
            if works_on(root, other, repo.path, repo.branch):
                where = f"hive/{repo.branch}" if repo.publish == "branch" else repo.branch
                what = f"The hive in {root} also works on {repo.name} ({repo.path}, {repo.branch})"
                why = f"both publish to {where}, and one of them will wait"
                advice = "Use one hive for it, or another branch in one of the plans."
                typer.echo(render.clean(f"{what}: {why}. {advice}"), err=err)
        leave_marker(repo.path, name, hive.places.root)


def print_submitted(submitted: plans.Submitted, advice: str = "") -> None:
    """Print what a submitted plan added."""
    known = f", {submitted.known} known already" if submitted.known else ""
    added = say_count(submitted.added, "new task")
    render.print_lines(f"Convoy {submitted.convoy}: {added}{known}.{advice}", *submitted.unchanged_because)


def ledger(convoy: Convoy = None, *, json: Json = False) -> None:
    """Show a convoy's dispatch ledger."""
    with read_here().ledger.read() as connection:
        view = convoy_views.show_ledger(connection, convoy_views.get_convoy(connection, convoy))
    if json:
        render.print_json(view)
    else:
        typer.echo(f"{view['pipeline_id']}  {view['state']}")
        columns = {"task_id": "Task", "status": "Status", "dispatched_at": "Dispatched", "completed_at": "Completed"}
        render.print_table(view["tasks"], columns, spare=("completed_at", "dispatched_at"))


@convoy_app.command("ls")
def convoy_ls(
    *, all_: Annotated[bool, typer.Option("--all", help="Include archived convoys.")] = False, json: Json = False
) -> None:
    """List convoys."""
    with read_here().ledger.read() as connection:
        rows = convoy_views.list_convoys(connection, archived=all_)
    if json:
        render.print_json(rows)
    else:
        render.print_convoys(rows, ended_at="Ended")


@convoy_app.command("show")
def convoy_show(convoy: Convoy = None, *, json: Json = False) -> None:
    """Show a convoy: progress, swarms, failures and what waits."""
    hive = read_here()
    with hive.ledger.read() as connection:
        row = convoy_views.get_convoy(connection, convoy)
        now = hive.ledger.clock.now()
        view = convoy_views.show_convoy(connection, row, now=now, keeper_is_alive=is_kept(connection))
    render.print_json(view) if json else render.print_convoy(view)


@convoy_app.command("submit")
def convoy_submit(plan: Path, *, json: Json = False) -> None:
    """Submit a plan without waiting for it."""
    hive = open_here()
    spec = load_plan(hive, plan)
    with hive.ledger.write(me()) as tx:
        submitted = plans.submit_plan(tx, spec, why=f"hive convoy submit {plan}")
    with hive.ledger.read() as connection:
        advice = "" if is_kept(connection) else f" {NO_KEEPER}; type: hive up"
    render.print_json(asdict(submitted)) if json else print_submitted(submitted, advice)
    tell_neighbours(hive, spec, err=json)


@convoy_app.command("cancel")
def convoy_cancel(convoy: str, reason: Reason = "") -> None:
    """Cancel every task of a convoy that is not complete."""
    hive = read_here()
    with hive.ledger.write(me()) as tx:
        row = convoy_views.get_convoy(tx.connection, convoy)
        count = convoy_commands.cancel_convoy(tx, row, why=reason)
        running = queries.count_tasks_by_state(tx.connection, row.name).get(TaskState.CANCELLING, 0)
        kept = is_kept(tx.connection)
    typer.echo(f"Cancelled {say_count(count, 'task')} of {convoy}.")
    are = f"{running} of them {agree(running, 'is', 'are')} running"
    if running and kept:
        stopped = agree(running, "its run is stopped first, and its", "their runs are stopped first, and their")
        typer.echo(f"{are}: {stopped} work is saved.")
    elif running:
        typer.echo(f"{are}, and {agree(running, 'its run goes', 'their runs go')} on: {STILL_RUNNING}")


@convoy_app.command("archive")
def convoy_archive(convoy: str, reason: Reason = "") -> None:
    """Archive a finished convoy. Its task ids never run again."""
    hive = read_here()
    with hive.ledger.write(me()) as tx:
        done = convoy_commands.archive_convoy(tx, convoy_views.get_convoy(tx.connection, convoy), why=reason)
    typer.echo(f"{convoy} is archived." if done else f"{convoy} was archived already.")
