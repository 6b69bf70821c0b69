"""The `hive` command with all its subcommands, and those that start, stop and show a hive."""

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hivekeeper import __version__
from hivekeeper.cli import history, render
from hivekeeper.cli.agents import agent_app, prime
from hivekeeper.cli.convoys import convoy_app, ledger
from hivekeeper.cli.doctor import doctor
from hivekeeper.cli.here import NO_KEEPER, Json, enter, forget_named, me, open_here, read_here
from hivekeeper.cli.inside import WORKER_COMMANDS
from hivekeeper.cli.mail import mail_app
from hivekeeper.cli.plan import plan
from hivekeeper.cli.queue import queue_app
from hivekeeper.cli.rehearse import demo, rehearse
from hivekeeper.cli.repos import repo_app
from hivekeeper.cli.runners import budget_app, costs, runner_app
from hivekeeper.cli.running import Workers, make_keeper, read_status, run
from hivekeeper.cli.schema import schema
from hivekeeper.cli.seance import seance
from hivekeeper.cli.tasks import task_app
from hivekeeper.cli.watch import keep
from hivekeeper.cli.workers import worker_app
from hivekeeper.config.template import DEFAULT_TOML
from hivekeeper.config.values import FILE_NAME
from hivekeeper.domain.wording import agree, say_count
from hivekeeper.errors import AnotherKeeperError, InputError, UnavailableError
from hivekeeper.git.mirror import check_git
from hivekeeper.hive import Hive, find_living_holder, open_hive
from hivekeeper.runs.detach import start_detached
from hivekeeper.store.ledger import create_ledger
from hivekeeper.views.coordinator import write_section

START, WATCH, STEER, QUEUE, AGENTS, REPAIR = (
    "Start here", "Watch", "Steer", "Merge queue", "Agents", "History and repair"
)  # fmt: skip
PANELS = (START, WATCH, STEER, QUEUE, AGENTS, REPAIR)


class _ByPanel(TyperGroup):
    """Lists commands in the order of their panels; typer by itself lists all groups after all commands."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - of click, in old typers, or of its copy in new ones
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: PANELS.index(getattr(self.commands[name], "rich_help_panel", REPAIR)))


app = typer.Typer(cls=_ByPanel, no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
app.command(rich_help_panel=START)(plan)
app.command(rich_help_panel=START)(run)
app.command(rich_help_panel=START)(demo)
app.command(rich_help_panel=START)(rehearse)
app.command(rich_help_panel=START)(schema)
app.add_typer(convoy_app, name="convoy", rich_help_panel=WATCH)
app.add_typer(worker_app, name="worker", rich_help_panel=WATCH)
app.add_typer(mail_app, name="mail", rich_help_panel=WATCH)
app.command(rich_help_panel=WATCH)(ledger)
app.command(rich_help_panel=WATCH)(seance)
app.add_typer(task_app, name="task", rich_help_panel=STEER)
app.add_typer(budget_app, name="budget", rich_help_panel=STEER)
app.add_typer(queue_app, name="queue", rich_help_panel=QUEUE)
app.add_typer(runner_app, name="runner", rich_help_panel=AGENTS)
app.add_typer(agent_app, name="agent", rich_help_panel=AGENTS)
app.command(rich_help_panel=AGENTS)(prime)
app.command(rich_help_panel=AGENTS)(costs)
app.command(rich_help_panel=REPAIR)(history.log)
app.command(rich_help_panel=REPAIR)(history.replay)
# "-10m" is a moment, not an option.
app.command(rich_help_panel=REPAIR, context_settings={"ignore_unknown_options": True})(history.diff)
app.command(rich_help_panel=REPAIR)(doctor)
app.add_typer(repo_app, name="repo", rich_help_panel=REPAIR)
for name, command in WORKER_COMMANDS.items():  # which outside of a worker say that they are for workers
    app.command(name, hidden=True, rich_help_panel=AGENTS)(command)


def _version(value: bool) -> None:  # noqa: FBT001 - typer's calling convention
    if value:
        typer.echo(f"hive {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    *,
    directory: Annotated[
        Path | None,
        typer.Option("-C", metavar="DIR", help="Run as if started in DIR. HIVE_DIR does the same for a hive."),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Keep a hive of coding agents working unattended."""
    forget_named()
    if directory is not None:
        enter(directory)


@app.command(rich_help_panel=START)
def init(
    directory: Annotated[Path, typer.Argument()] = Path(),
    agents: Annotated[int | None, typer.Option(min=1, max=1000, help="Number of agents to configure for.")] = None,
    *,
    agents_md: Annotated[
        bool, typer.Option("--agents-md", help="Also write a section for coordinators into AGENTS.md (and CLAUDE.md).")
    ] = False,
) -> None:
    """Create a hive here: hive.toml and .hive/."""
    from hivekeeper.config.profiles import make_profile  # noqa: PLC0415 - only this command needs it

    check_git()
    hive, toml = directory / ".hive", directory / FILE_NAME
    profile = make_profile(agents) if agents else None
    text = profile.toml if profile else DEFAULT_TOML
    try:
        if profile and toml.exists() and toml.read_text("utf-8", "replace") != text:
            advice = f"To get the settings of --agents {agents}, move it away and type this again."
            raise InputError(f"{toml.resolve()} exists already and was not changed.", advice=advice)
        hive.mkdir(parents=True, exist_ok=True)
        (hive / ".gitignore").write_text("*\n")
        if not toml.exists():
            toml.write_text(text, "utf-8")
    except OSError as error:
        raise UnavailableError(f"Could not create a hive in {directory.resolve()}: {error.strerror}.") from None
    create_ledger(hive / "ledger.db")
    open_hive(directory).close()
    if agents_md:
        _write_agents_md(directory)
    typer.echo(f"Created a hive in {directory.resolve()}. Next: hive run PLAN.yaml")
    if profile:
        typer.echo(profile.sentence)


def _write_agents_md(directory: Path) -> None:
    """Write the rules for a coordinator that is a language model where it reads them; a second time changes nothing."""
    for name in ("AGENTS.md", "CLAUDE.md"):
        path = directory / name
        if path.is_symlink() or (name == "CLAUDE.md" and not path.exists()):
            continue  # a link leads to the other one, most likely
        old = path.read_text("utf-8") if path.exists() else ""
        if (new := write_section(old)) != old:
            path.write_text(new, "utf-8")
        typer.echo(f"{path.resolve()} tells a coordinator how to go on from the ledger.")


@app.command(rich_help_panel=START)
def up(
    *,
    workers: Workers = None,
    detach: Annotated[bool, typer.Option("--detach", help="Run in the background.")] = False,
    if_idle: Annotated[bool, typer.Option("--if-idle", help="Exit quietly if another keeper is active.")] = False,
) -> None:
    """Start the keeper and run until stopped."""
    check_git()
    hive = open_here()
    try:
        if detach:
            _detach(hive, workers)
            return
        keeper = make_keeper(hive, workers)
    except AnotherKeeperError:
        if if_idle:
            raise typer.Exit(0) from None
        raise
    typer.echo(f"The keeper of {hive.places.root} is running. Ctrl-C or `hive down` stops it; workers go on.")
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
            typer.echo(
                f"The keeper is process {process.pid}; its output is in {hive.places.log}. To stop it: hive down"
            )
            return
        time.sleep(0.02)
    lines = hive.places.log.read_text("utf-8", "replace").strip().splitlines()
    raise UnavailableError("The keeper ended as soon as it started.", advice="\n".join(lines[-3:]))


@app.command(rich_help_panel=START)
def down(
    *,
    workers: Annotated[bool, typer.Option("--workers", help="Stop the workers too and save their work.")] = False,
) -> None:
    """Stop the keeper. Workers go on, and the next keeper adopts them."""
    from hivekeeper.keeper.lease import ask_to_stop  # noqa: PLC0415 - as above

    with read_here().ledger.read() as connection:
        holder = find_living_holder(connection)
    if holder is None:
        typer.echo(f"{NO_KEEPER}.")
    elif ask_to_stop(holder, wait_s=30.0):
        typer.echo(f"Stopped {holder.holder}.")
    else:
        raise UnavailableError(f"{holder.holder} did not stop in 30 s.", advice=f"Type: kill -9 {holder.pid}")
    if workers:
        _end_workers(open_here())


def _end_workers(hive: Hive) -> None:
    """Be the keeper for as long as it takes to end all workers and save their work."""
    from hivekeeper.keeper.ending import end_workers  # noqa: PLC0415 - as above

    keeper = make_keeper(hive, None)
    try:
        count, left = end_workers(keeper, me(), "hive down --workers")
    finally:
        keeper.close()
    ended = f"Ended {say_count(count, 'worker')} and saved {agree(count, 'its', 'their')} work."
    typer.echo(f"{ended} To continue: hive up")
    if left:
        raise UnavailableError(f"Not ended yet: {', '.join(left)}.", advice="Type again: hive down --workers")


@app.command(rich_help_panel=WATCH)
def status(
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds until Ctrl-C.")] = False,
    json: Json = False,
) -> None:
    """Show what needs you, then what is running."""
    hive = read_here()
    if not watch:
        view = read_status(hive)
        render.print_json(view) if json else render.print_status(view)
        return
    with suppress(KeyboardInterrupt):
        while True:
            view = read_status(hive)
            render.print_json_line(view) if json else render.reprint_status(view)
            time.sleep(_WATCH_EVERY_S)


_WATCH_EVERY_S = 2.0
