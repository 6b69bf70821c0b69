"""`hive task`."""

from typing import Annotated, Any

import typer

from hivekeeper.cli import render
from hivekeeper.cli.convoys import check_runners
from hivekeeper.cli.here import STILL_RUNNING, Json, Reason, me, open_here, read_here
from hivekeeper.cli.restore import restore
from hivekeeper.commands import plans, tasks
from hivekeeper.domain.names import NAME_RULE, TASK_ID_RULE, is_name, is_task_id
from hivekeeper.domain.plan import make_task
from hivekeeper.domain.protocol import FREE_ADDRESS_RULE, is_free_address
from hivekeeper.domain.states import AT_REST, TaskState
from hivekeeper.errors import InputError
from hivekeeper.hive import is_kept
from hivekeeper.runs.local import LocalOutputs
from hivekeeper.store import queries
from hivekeeper.views.failures import show_failure
from hivekeeper.views.tasks import get_task, list_tasks, show_task, show_why

task_app = typer.Typer(no_args_is_help=True, help="Add, retry, edit and cancel tasks; see why one is not done.")
task_app.command()(restore)


@task_app.command("add")
def task_add(  # noqa: PLR0913 - one option a field of the task
    convoy: str,
    task_id: str,
    *,
    command: Annotated[str, typer.Option(help="Command to run; or use --prompt.")] = "",
    prompt: Annotated[str, typer.Option(help="Prompt for a runner; @FILE reads a file.")] = "",
    runner: Annotated[str, typer.Option(help="Runner that takes the prompt.")] = "",
    repo: Annotated[str | None, typer.Option(help="Repository to work on.")] = None,
    after: Annotated[list[str], typer.Option(help="Task that must be complete first.")] = [],  # noqa: B006 - typer copies it
    verify: Annotated[str | None, typer.Option(help="Verify command, run after the repository's.")] = None,
    output: Annotated[list[str], typer.Option(help="File it must produce.")] = [],  # noqa: B006 - as above
    path: Annotated[list[str], typer.Option(help="Glob of paths it may change.")] = [],  # noqa: B006 - as above
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    attempts: Annotated[int | None, typer.Option(min=1, max=100, help="Maximum number of attempts.")] = None,
) -> None:
    """Add a task to a convoy, created if missing. The plan's defaults apply."""
    if not is_name(convoy) or not is_task_id(task_id):
        raise InputError(f"'{convoy}' or '{task_id}' is not a valid name.", advice=f"Names are {TASK_ID_RULE}.")
    from hivekeeper.config.plans import read_prompt  # noqa: PLC0415 - its parser takes a third of every start of `hive`

    hive = open_here()
    said = {"runner": runner, "priority": priority, "attempts": attempts}
    task: dict[str, Any] = {
        "id": task_id,
        "command": command,
        "prompt": read_prompt(prompt),
        "outputs": tuple(output),
        "paths": tuple(path),
        "repo": repo,
        "after": tuple(after),
        "verify": verify,
        **{name: value for name, value in said.items() if value not in (None, "")},
    }
    with hive.ledger.write(me()) as tx:
        known = queries.find_convoy(tx.connection, convoy)
        spec = make_task(task, known.get_defaults() if known else {}, hive.settings.limits)
        for name in filter(None, (spec.runner,) if isinstance(spec.runner, str) else spec.runner):
            hive.settings.check_runner(name)
        check_runners(hive, [spec])
        added = plans.add_task(tx, convoy, spec, why="hive task add")
    typer.echo(f"Added {convoy}/{task_id}." if added else f"{convoy}/{task_id} exists already.")


@task_app.command("ls")
def task_ls(
    convoy: Annotated[str | None, typer.Argument(help="Only this convoy.")] = None,
    *,
    state: Annotated[TaskState | None, typer.Option(case_sensitive=False, help="Only in this state.")] = None,
    json: Json = False,
) -> None:
    """List tasks with their state and what they wait for."""
    with read_here().ledger.read() as connection:
        rows = list_tasks(connection, convoy, state)
    if json:
        render.print_json(rows)
    elif rows:
        columns = {"task": "Task", "state": "State", "attempts": "Attempts", "repo": "Repository", "title": "Title"}
        render.print_table(rows, {**columns, "why": "Why"}, texts=("title", "why"), spare=("attempts", "repo"))
    else:
        typer.echo("No tasks.")


@task_app.command("show")
def task_show(task: str, *, json: Json = False) -> None:
    """Show a task, its attempts and their runs."""
    hive = read_here()
    with hive.ledger.read() as connection:
        row, now, outputs = get_task(connection, task), hive.ledger.clock.now(), LocalOutputs(hive.places.runs)
        view = show_task(connection, row, keeper_is_alive=is_kept(connection), now=now, outputs=outputs)
    render.print_json(view) if json else render.print_task(view)


@task_app.command("why")
def task_why(task: str, *, json: Json = False) -> None:
    """Explain why a task is not done yet."""
    hive = read_here()
    with hive.ledger.read() as connection:
        row = get_task(connection, task)
        sentence = show_why(connection, row, keeper_is_alive=is_kept(connection), now=hive.ledger.clock.now())
        failure = show_failure(connection, row, LocalOutputs(hive.places.runs))
    view = {"task": row.key, "state": row.state.value, "why": sentence, "failure": failure}
    if json:
        render.print_json(view)
        return
    render.print_lines(render.localize(sentence), *render.say_failure(failure))


@task_app.command("cancel")
def task_cancel(task: str, reason: Reason = "") -> None:
    """Cancel a task. What it runs is stopped first."""
    hive = read_here()
    with hive.ledger.write(me()) as tx:
        row = get_task(tx.connection, task)
        done = tasks.cancel_task(tx, row, why=reason)
        now = get_task(tx.connection, row.key).state
        kept = is_kept(tx.connection)
    if now is TaskState.CANCELLED:
        typer.echo(f"{row.key} is cancelled." if done else f"{row.key} was cancelled already.")
    elif kept:
        typer.echo(f"{row.key} is being cancelled: its run is stopped first, and its work is saved.")
    else:
        typer.echo(f"{row.key} will be cancelled, but its run goes on: {STILL_RUNNING}")


@task_app.command("retry")
def task_retry(
    task: str,
    reason: Reason = "",
    note: Annotated[str, typer.Option(help="Note for its next worker; @FILE reads a file.")] = "",
) -> None:
    """Retry a failed, unknown or cancelled task."""
    from hivekeeper.config.plans import read_prompt  # noqa: PLC0415 - its parser takes a third of every start of `hive`

    words = read_prompt(note)
    hive = read_here()
    with hive.ledger.write(me()) as tx:
        row = get_task(tx.connection, task)
        done = tasks.retry_task(tx, row, why=reason, note=words)
    typer.echo(f"{row.key} will be retried." if done else f"{row.key} is pending or running already.")


@task_app.command("handoff")
def task_handoff(
    task: str,
    *,
    to: Annotated[str | None, typer.Option(help="Agent that takes over.")] = None,
    runner: Annotated[str | None, typer.Option(help="Runner that takes over.")] = None,
    note: Annotated[str, typer.Option(help="Note for its next session; @FILE reads a file.")] = "",
) -> None:
    """Give a task to another agent or runner, with everything it has done so far."""
    from hivekeeper.config.plans import read_prompt  # noqa: PLC0415 - as above

    if not to and not runner:
        raise InputError("Who takes over?", advice="Give --to AGENT, --runner RUNNER, or both.")
    if to and not is_name(to):
        raise InputError(f"'{to}' is not a valid name.", advice=f"Names are {NAME_RULE}.")
    if to and not is_free_address(to):
        raise InputError(f"'{to}' cannot be an agent's name: it {FREE_ADDRESS_RULE}.", advice="Choose another name.")
    hive, words = open_here(), read_prompt(note)
    if runner:
        hive.settings.check_runner(runner)
    with hive.ledger.write(me()) as tx:
        row = get_task(tx.connection, task)
        done = tasks.hand_off(tx, hive.settings.protocol, row, agent=to, runner=runner, note=words)
    who = " on ".join(filter(None, (to, runner)))
    typer.echo(f"{row.key} is handed off to {who}." if done else f"{row.key} is with {who} already.")
    if done and row.state in AT_REST:
        typer.echo(f"It is {row.state}. To try it again: hive task retry {row.key}")


@task_app.command("edit")
def task_edit(
    task: str,
    *,
    prompt: Annotated[str, typer.Option(help="New prompt; @FILE reads a file.")] = "",
    command: Annotated[str, typer.Option(help="New command.")] = "",
    reason: Reason = "",
) -> None:
    """Change the prompt or command of a task that is not running."""
    from hivekeeper.config.plans import read_prompt  # noqa: PLC0415 - as above

    words = read_prompt(prompt)
    hive = read_here()
    with hive.ledger.write(me()) as tx:
        row = get_task(tx.connection, task)
        done = tasks.edit_task(tx, row, command=command, prompt=words, why=reason)
    typer.echo(f"{row.key} is changed." if done else f"{row.key} has not changed.")
