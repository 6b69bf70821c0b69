"""Every `hive` command."""

import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hivekeeper import __version__
from hivekeeper.bench import Figure
from hivekeeper.cli import history, render
from hivekeeper.cli.doctor import doctor
from hivekeeper.cli.here import Json, Reason, me, open_here
from hivekeeper.cli.queue import queue_app
from hivekeeper.cli.rehearse import demo, rehearse
from hivekeeper.cli.restore import restore
from hivekeeper.cli.runners import budget_app, costs, runner_app
from hivekeeper.cli.watch import INTERRUPTED, keep
from hivekeeper.cli.workers import worker_app
from hivekeeper.commands import convoys as convoy_commands
from hivekeeper.commands import plans, tasks
from hivekeeper.config.profiles import make_profile
from hivekeeper.config.values import DEFAULT_TOML, FILE_NAME
from hivekeeper.domain.names import TASK_ID_RULE, is_name, is_task_id
from hivekeeper.domain.plan import PlanSpec, TaskSpec, is_url
from hivekeeper.domain.states import ConvoyState
from hivekeeper.errors import AnotherKeeperError, InputError, UnavailableError
from hivekeeper.git.mirror import check_git, find_source_problem
from hivekeeper.keeper.keeper import Hive, Keeper, open_hive
from hivekeeper.keeper.lease import ask_to_stop, find_living_holder
from hivekeeper.runs.detach import start_detached
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import create_ledger
from hivekeeper.views import convoys as convoy_views
from hivekeeper.views.status import find_tried_level, show_status
from hivekeeper.views.tasks import get_task, show_task, show_why

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
convoy_app = typer.Typer(no_args_is_help=True, help="Plans being kept.")
task_app = typer.Typer(no_args_is_help=True, help="Single tasks.")
bench_app = typer.Typer(no_args_is_help=True, help="Measure this machine and this hive against it.")
app.add_typer(convoy_app, name="convoy")
app.add_typer(task_app, name="task")
app.add_typer(worker_app, name="worker")
app.add_typer(queue_app, name="queue")
app.add_typer(runner_app, name="runner")
app.add_typer(budget_app, name="budget")
app.add_typer(bench_app, name="bench")
app.command()(costs)
app.command()(doctor)
app.command()(demo)
app.command()(rehearse)
task_app.command()(restore)
app.command()(history.log)
app.command()(history.replay)
app.command(context_settings={"ignore_unknown_options": True})(history.diff)  # "-10m" is a moment, not an option

Workers = Annotated[int | None, typer.Option(min=1, max=1000, help="How many tasks may be worked on at once.")]


def _is_kept(connection: Connection) -> bool:
    return find_living_holder(connection) is not None


def _version(value: bool) -> None:  # noqa: FBT001 - typer's calling convention
    if value:
        typer.echo(f"hive {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,  # noqa: FBT002 - as above
) -> None:
    """Keep a hive of agents working unattended: nothing lost, nothing done twice, every commit verified."""


@app.command()
def init(
    directory: Annotated[Path, typer.Argument()] = Path(),
    agents: Annotated[int | None, typer.Option(min=1, max=1000, help="Settings for a hive of so many.")] = None,
) -> None:
    """Make a hive here: hive.toml and .hive/."""
    check_git()
    hive, toml = directory / ".hive", directory / FILE_NAME
    profile = make_profile(agents) if agents else None
    text = profile.toml if profile else DEFAULT_TOML
    try:
        if profile and toml.exists() and toml.read_text("utf-8", "replace") != text:
            advice = f"To have the settings for {agents} agents, move it away and type this again."
            raise InputError(f"{toml.resolve()} is there already and stays as it is.", advice=advice)
        hive.mkdir(parents=True, exist_ok=True)
        (hive / ".gitignore").write_text("*\n")
        if not toml.exists():
            toml.write_text(text, "utf-8")
    except OSError as error:
        raise UnavailableError(f"A hive cannot be made in {directory.resolve()}: {error.strerror}.") from None
    create_ledger(hive / "ledger.db")
    open_hive(directory).close()
    typer.echo(f"A hive is in {directory.resolve()}. Next: hive run PLAN.yaml")
    if profile:
        typer.echo(profile.sentence)


def _load(hive: Hive, path: Path) -> PlanSpec:
    from hivekeeper.config.plans import load_plan  # noqa: PLC0415 - its parser takes a third of every start of `hive`

    plan = load_plan(path, hive.settings.limits, hive.settings.runner_names)
    problems = [
        f"{path}: repo '{repo.name}': {problem}"
        for repo in plan.repos
        if not is_url(repo.path) and (problem := find_source_problem(repo.path, repo.branch))
    ]
    if problems:
        raise InputError("\n".join(problems), advice="Nothing was submitted.")
    return plan


def _print_submitted(submitted: plans.Submitted, advice: str = "") -> None:
    known = f", {submitted.known} known already" if submitted.known else ""
    lines = [f"Convoy {submitted.convoy}: {submitted.added} new tasks{known}.{advice}", *submitted.unchanged_because]
    for line in lines:
        typer.echo(render.clean(line))


@app.command()
def run(plan: Path, workers: Workers = None) -> None:
    """Submit a plan and keep until it is done. Ctrl-C leaves workers safe."""
    check_git()
    hive = open_here()
    spec = _load(hive, plan)
    keeper = Keeper(hive, workers=workers)
    try:
        with hive.ledger.write(me()) as tx:
            submitted = plans.submit_plan(tx, spec, why=f"hive run {plan}")
    except BaseException:
        keeper.close()
        raise
    _print_submitted(submitted)
    code = keep(keeper, hive, submitted.convoy)
    if code == INTERRUPTED:
        typer.echo(f"Stopped keeping. What runs goes on and is found again: hive run {plan}  (or hive up)")
        raise typer.Exit(code)
    with hive.ledger.read() as connection:
        row = convoy_views.get_convoy(connection, submitted.convoy)
        render.print_convoy(convoy_views.show_convoy(connection, row))
        render.print_status(show_status(connection, keeper_is_alive=False, now=hive.ledger.clock.now()))
    hive.close()
    raise typer.Exit(1 if row.state is ConvoyState.FAILED else 0)


@app.command()
def up(
    *,
    workers: Workers = None,
    detach: Annotated[bool, typer.Option("--detach", help="Go on in the background.")] = False,
    if_idle: Annotated[bool, typer.Option("--if-idle", help="Leave quietly if another keeper is active.")] = False,
) -> None:
    """Keep this hive until told to stop."""
    check_git()
    hive = open_here()
    try:
        if detach:
            _detach(hive, workers)
            return
        keeper = Keeper(hive, workers=workers)
    except AnotherKeeperError:
        if if_idle:
            raise typer.Exit(0) from None
        raise
    typer.echo(f"Keeping {hive.places.root}. Ctrl-C or `hive down` stops; workers go on.")
    keep(keeper, hive, None)
    hive.close()


def _detach(hive: Hive, workers: int | None) -> None:
    with hive.ledger.read() as connection:
        if holder := find_living_holder(connection):
            raise AnotherKeeperError(f"Another keeper is active: {holder.holder}.", advice="Type: hive status")
    argv = [sys.executable, "-m", "hivekeeper", "up", *(["--workers", str(workers)] if workers else [])]
    process = start_detached(argv, hive.places.log, hive.places.root)
    while process.poll() is None:
        with hive.ledger.read() as connection:
            holder = find_living_holder(connection)
        if holder is not None and holder.pid == process.pid:
            typer.echo(f"Kept by process {process.pid}; it writes to {hive.places.log}. To stop: hive down")
            return
        time.sleep(0.02)
    said = hive.places.log.read_text("utf-8", "replace").strip().splitlines()
    raise UnavailableError("The keeper ended as soon as it was started.", advice="\n".join(said[-3:]))


@app.command()
def down() -> None:
    """Stop the keeper of this hive; workers go on and are found again."""
    hive = open_here()
    with hive.ledger.read() as connection:
        holder = find_living_holder(connection)
    if holder is None:
        typer.echo("Nobody keeps this hive.")
    elif ask_to_stop(holder, wait_s=30.0):
        typer.echo(f"Stopped {holder.holder}.")
    else:
        raise UnavailableError(f"{holder.holder} did not stop in 30 s.", advice=f"Type: kill -9 {holder.pid}")


@app.command()
def status(*, json: Json = False) -> None:
    """Say what needs me, then what is under way."""
    hive = open_here()
    walls = find_tried_level(hive.places.walls, read_boot_id(), hive.settings.level)
    with hive.ledger.read() as connection:
        view = show_status(
            connection,
            keeper_is_alive=_is_kept(connection),
            walls=walls,
            require=hive.settings.require,
            free_bytes=shutil.disk_usage(hive.places.hive).free,
            now=hive.ledger.clock.now(),
        )
    render.print_json(view) if json else render.print_status(view)


@app.command()
def ledger(convoy: str, *, json: Json = False) -> None:
    """Show a convoy's dispatch ledger."""
    with open_here().ledger.read() as connection:
        view = convoy_views.show_ledger(connection, convoy_views.get_convoy(connection, convoy))
    if json:
        render.print_json(view)
    else:
        typer.echo(f"{view['pipeline_id']}  {view['state']}")
        columns = {"task_id": "Task", "status": "Status", "dispatched_at": "Dispatched", "completed_at": "Completed"}
        render.print_table(view["tasks"], columns)


@convoy_app.command("ls")
def convoy_ls(
    *, all_: Annotated[bool, typer.Option("--all", help="Archived ones too.")] = False, json: Json = False
) -> None:
    """List convoys."""
    with open_here().ledger.read() as connection:
        rows = convoy_views.list_convoys(connection, archived=all_)
    if json:
        render.print_json(rows)
    else:
        shown = [{**row, "done": f"{row['complete']}/{row['tasks']}"} for row in rows]
        columns = {"convoy": "Convoy", "state": "State", "done": "Done", "submitted_at": "Submitted"}
        render.print_table(shown, {**columns, "ended_at": "Ended"})


@convoy_app.command("show")
def convoy_show(convoy: str, *, json: Json = False) -> None:
    """Show one convoy: how far it is, its batches, what failed, what waits."""
    hive = open_here()
    with hive.ledger.read() as connection:
        row = convoy_views.get_convoy(connection, convoy)
        now, kept = hive.ledger.clock.now(), _is_kept(connection)
        view = convoy_views.show_convoy(connection, row, now=now, keeper_is_alive=kept)
    render.print_json(view) if json else render.print_convoy(view)


@convoy_app.command("submit")
def convoy_submit(plan: Path, *, json: Json = False) -> None:
    """Hand a plan to the keeper that is (or will be) running."""
    hive = open_here()
    spec = _load(hive, plan)
    with hive.ledger.write(me()) as tx:
        submitted = plans.submit_plan(tx, spec, why=f"hive convoy submit {plan}")
    with hive.ledger.read() as connection:
        advice = "" if _is_kept(connection) else " Nobody keeps this hive; type: hive up"
    render.print_json(asdict(submitted)) if json else _print_submitted(submitted, advice)


@convoy_app.command("cancel")
def convoy_cancel(convoy: str, reason: Reason = "") -> None:
    """Cancel everything of a convoy that is not complete."""
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        row = convoy_views.get_convoy(tx.connection, convoy)
        count = convoy_commands.cancel_convoy(tx, row, why=reason)
    typer.echo(f"{count} tasks of {convoy} are cancelled.")


@convoy_app.command("archive")
def convoy_archive(convoy: str, reason: Reason = "") -> None:
    """Put an ended convoy away; its ids never run again."""
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        done = convoy_commands.archive_convoy(tx, convoy_views.get_convoy(tx.connection, convoy), why=reason)
    typer.echo(f"{convoy} is archived." if done else f"{convoy} was archived already.")


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
    """Add one task to a convoy, which is made if need be."""
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
    hive = open_here()
    with hive.ledger.read() as connection:
        kept, now = _is_kept(connection), hive.ledger.clock.now()
        view = show_task(connection, get_task(connection, task), keeper_is_alive=kept, now=now)
    render.print_json(view) if json else render.print_task(view)


@task_app.command("why")
def task_why(task: str, *, json: Json = False) -> None:
    """Say in one sentence why a task is not done yet."""
    hive = open_here()
    with hive.ledger.read() as connection:
        row = get_task(connection, task)
        sentence = show_why(connection, row, keeper_is_alive=_is_kept(connection), now=hive.ledger.clock.now())
    view = {"task": row.key, "state": row.state.value, "why": sentence}
    render.print_json(view) if json else typer.echo(render.clean(sentence))


@task_app.command("cancel")
def task_cancel(task: str, reason: Reason = "") -> None:
    """Cancel a task; what it runs is ended first."""
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        row = get_task(tx.connection, task)
        done = tasks.cancel_task(tx, row, why=reason)
    typer.echo(f"{row.key} is cancelled." if done else f"{row.key} was cancelled already.")


@task_app.command("retry")
def task_retry(task: str, reason: Reason = "") -> None:
    """Try a failed or unknown task again."""
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        row = get_task(tx.connection, task)
        done = tasks.retry_task(tx, row, why=reason)
    typer.echo(f"{row.key} will be tried again." if done else f"{row.key} is under way already.")


@bench_app.command("ledger")
def bench_ledger(
    *,
    directory: Annotated[Path | None, typer.Option(help="On which disk.")] = None,
    history: Annotated[int, typer.Option(min=2000, help="Events in the long history.")] = 1_000_000,
    tasks_: Annotated[int, typer.Option("--tasks", min=10)] = 1000,
    at_once: Annotated[int, typer.Option(min=1, help="How many tasks, and xargs processes, at once.")] = 8,
    json: Json = False,
) -> None:
    """Measure the ledger and dispatch against this disk and `xargs -P`."""
    from hivekeeper.bench import ledger as bench  # noqa: PLC0415 - only this command needs it

    say = partial(typer.echo, err=True)
    _show_figures(bench.run_all(say, directory=directory, history=history, tasks=tasks_, at_once=at_once), as_json=json)


@bench_app.command("workers")
def bench_workers(
    *,
    directory: Annotated[Path | None, typer.Option(help="On which disk.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="How many at once.")] = 200,
    files: Annotated[int, typer.Option(min=1, help="In the repository that sandboxes are made of.")] = 2000,
    tasks_: Annotated[int, typer.Option("--tasks", min=2, help="Dispatched one after another.")] = 20,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long the workers are watched.")] = 20.0,
    json: Json = False,
) -> None:
    """Measure what workers cost, how soon they begin, and their sandboxes against `git worktree add`."""
    from hivekeeper.bench import workers as bench  # noqa: PLC0415 - only this command needs it

    say = partial(typer.echo, err=True)
    _show_figures(
        bench.run_all(say, directory=directory, workers=workers, files=files, tasks=tasks_, seconds=seconds),
        as_json=json,
    )


@bench_app.command("merge")
def bench_merge(
    *,
    directory: Annotated[Path | None, typer.Option(help="On which disk.")] = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="The queue's policy alone, in virtual time.")] = False,
    again: Annotated[bool, typer.Option("--again", help="What refused work costs, anew and mended.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="How many simulations each figure is the mean of.")] = 10,
    small: Annotated[bool, typer.Option("--small", help="Little of everything: that it works, not how well.")] = False,
    json: Json = False,
) -> None:
    """Measure landing against a fresh worktree and `git merge`, and the merge queue against one at a time."""
    from hivekeeper.bench import again as refused  # noqa: PLC0415 - only this command needs it
    from hivekeeper.bench import merge  # noqa: PLC0415 - as above
    from hivekeeper.bench import simulate as simulation  # noqa: PLC0415 - as above

    size, say = merge.SMALL if small else merge.Size(), partial(typer.echo, err=True)
    if again:
        measured = refused.run_all(say, directory=directory)
    else:
        measured = simulation.run_all(seeds) if simulate else merge.run_all(say, directory=directory, size=size)
    _show_figures(measured, as_json=json)


def _show_figures(figures: Iterator[Figure], *, as_json: bool) -> None:
    """Print what is measured as it comes, or all of it for programs; the exit code says whether all goals are met."""
    from hivekeeper.bench.ledger import to_row  # noqa: PLC0415 - only benchmarks need it

    found = []
    for figure in figures:
        found.append(figure)
        if not as_json:
            mark = "✓" if figure.reached else "✗"
            typer.echo(f"{mark} {figure.name}: {figure.value:.2f} {figure.unit} (goal {figure.goal}) {figure.detail}")
    if as_json:
        render.print_json([to_row(figure) for figure in found])
    raise typer.Exit(0 if all(figure.reached for figure in found) else 1)
