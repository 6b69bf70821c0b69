"""The commands about single tasks."""

from typing import Annotated

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import Json, Reason, me, open_here, read_here
from hivekeeper.cli.restore import restore
from hivekeeper.commands import plans, tasks
from hivekeeper.domain.names import TASK_ID_RULE, is_name, is_task_id
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.errors import InputError
from hivekeeper.hive import find_living_holder
from hivekeeper.views.tasks import get_task, show_task, show_why

task_app = typer.Typer(no_args_is_help=True, help="Add, retry, edit and cancel tasks; see why one is not done.")
task_app.command()(restore)


@task_app.command("add")
def task_add(  # noqa: PLR0913 - one option a field of the task
    convoy: str,
    task_id: str,
    *,
    command: Annotated[str, typer.Option(help="What to run; or --prompt.")] = "",
    prompt: Annotated[str, typer.Option(help="What to tell a runner; @FILE is what the file says.")] = "",
    runner: Annotated[str, typer.Option(help="Who takes the prompt.")] = "",
    repo: Annotated[str | None, typer.Option(help="On which repository.")] = None,
    after: Annotated[list[str], typer.Option(help="Which task must be complete first.")] = [],  # noqa: B006 - typer copies it
    verify: Annotated[str | None, typer.Option(help="Its own gate, after the repository's.")] = None,
    output: Annotated[list[str], typer.Option(help="A file it promises.")] = [],  # noqa: B006 - as above
    path: Annotated[list[str], typer.Option(help="A glob: all that it may change.")] = [],  # noqa: B006 - as above
    priority: int = 0,
    attempts: Annotated[int, typer.Option(min=1, max=100)] = 3,
) -> None:
    """Add one task to a convoy, which is created if missing."""
    if not is_name(convoy) or not is_task_id(task_id):
        raise InputError(f"'{convoy}' or '{task_id}' is not a name.", advice=f"Names are {TASK_ID_RULE}.")
    from hivekeeper.config.plans import read_prompt  # noqa: PLC0415 - its parser takes a third of every start of `hive`

    hive = open_here()
    if runner:
        hive.settings.check_runner(runner)
    spec = TaskSpec(
        id=task_id,
        command=command,
        prompt=read_prompt(prompt),
        runner=runner,
        outputs=tuple(output),
        paths=tuple(path),
        repo=repo,
        after=tuple(after),
        verify=verify,
        priority=priority,
        attempts=attempts,
        limits=hive.settings.limits,
    )
    with hive.ledger.write(me()) as tx:
        added = plans.add_task(tx, convoy, spec, why="hive task add")
    typer.echo(f"{convoy}/{task_id} is added." if added else f"{convoy}/{task_id} was there already.")


@task_app.command("show")
def task_show(task: str, *, json: Json = False) -> None:
    """Show a task, its attempts and their runs."""
    hive = read_here()
    with hive.ledger.read() as connection:
        kept, now = find_living_holder(connection) is not None, hive.ledger.clock.now()
        view = show_task(connection, get_task(connection, task), keeper_is_alive=kept, now=now)
    render.print_json(view) if json else render.print_task(view)


@task_app.command("why")
def task_why(task: str, *, json: Json = False) -> None:
    """Say in one sentence why a task is not done yet."""
    hive = read_here()
    with hive.ledger.read() as connection:
        row = get_task(connection, task)
        sentence = show_why(
            connection, row, keeper_is_alive=find_living_holder(connection) is not None, now=hive.ledger.clock.now()
        )
    view = {"task": row.key, "state": row.state.value, "why": sentence}
    render.print_json(view) if json else typer.echo(render.tell(sentence))


@task_app.command("cancel")
def task_cancel(task: str, reason: Reason = "") -> None:
    """Cancel a task; what it runs is ended first."""
    hive = read_here()
    with hive.ledger.write(me()) as tx:
        row = get_task(tx.connection, task)
        done = tasks.cancel_task(tx, row, why=reason)
    typer.echo(f"{row.key} is cancelled." if done else f"{row.key} was cancelled already.")


@task_app.command("retry")
def task_retry(task: str, reason: Reason = "") -> None:
    """Try a failed or unknown task again."""
    hive = read_here()
    with hive.ledger.write(me()) as tx:
        row = get_task(tx.connection, task)
        done = tasks.retry_task(tx, row, why=reason)
    typer.echo(f"{row.key} will be tried again." if done else f"{row.key} is under way already.")
