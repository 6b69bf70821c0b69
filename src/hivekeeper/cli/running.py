"""`hive run`, and what the commands that start and show a keeper share."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hivekeeper.cli import render
from hivekeeper.cli.convoys import load_plan, print_submitted, tell_neighbours
from hivekeeper.cli.here import me, open_here
from hivekeeper.cli.watch import INTERRUPTED, follow, keep
from hivekeeper.commands import plans
from hivekeeper.domain.states import ConvoyState
from hivekeeper.errors import AnotherKeeperError, InputError
from hivekeeper.git.mirror import check_git
from hivekeeper.hive import Hive, Records, find_keeper_state
from hivekeeper.places import Places
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.settings import Settings
from hivekeeper.views import convoys as convoy_views
from hivekeeper.views.status import find_tried_level, show_status

if TYPE_CHECKING:
    from hivekeeper.keeper.keeper import Keeper

Workers = Annotated[int | None, typer.Option(min=1, max=1000, help="Maximum number of tasks to run at once.")]


def make_keeper(hive: Hive, workers: int | None) -> "Keeper":
    """Make the hive's keeper; refuse if another is active."""
    from hivekeeper.keeper.keeper import Keeper  # noqa: PLC0415 - its parts take longer to import than a read takes

    return Keeper(hive, workers=workers)


def run(plan: Path, workers: Workers = None) -> None:
    """Submit a plan and run it until it is done. Ctrl-C stops watching; workers go on."""
    check_git()
    hive = open_here()
    spec = load_plan(hive, plan)
    try:
        keeper = make_keeper(hive, workers)
    except AnotherKeeperError:
        keeper = None
    try:
        with hive.ledger.write(me()) as tx:
            seen = tx.head.seq
            submitted = plans.submit_plan(tx, spec, why=f"hive run {plan}")
    except BaseException:
        if keeper is not None:
            keeper.close()
        raise
    print_submitted(submitted)
    tell_neighbours(hive, spec)
    if keeper is None:
        ignored = " It keeps its own number of workers; --workers is ignored." if workers else ""
        typer.echo(f"The running keeper takes the plan. Ctrl-C stops watching; the keeper goes on.{ignored}")
        code = follow(hive, submitted.convoy, seen)
    else:
        code = keep(keeper, hive, submitted.convoy)
    if code == INTERRUPTED:
        again = f"Stopped the keeper; workers go on. To continue: hive run {plan}  (or hive up)"
        typer.echo("Stopped watching. The keeper goes on: hive status" if keeper is None else again)
        raise typer.Exit(code)
    view = read_status(hive)
    with hive.ledger.read() as connection:
        row = convoy_views.get_convoy(connection, submitted.convoy)
        render.print_convoy(convoy_views.show_convoy(connection, row))
        render.print_status(view)
        unpublished = convoy_views.list_unpublished(connection, row.name)
    hive.close()
    raise typer.Exit(1 if unpublished or row.state in (ConvoyState.FAILED, ConvoyState.ACTIVE) else 0)


def read_status(hive: Hive | Records) -> dict[str, Any]:
    """Read what `hive status` shows."""
    settings, problem = _try_settings(hive.places.root)
    isolation = find_tried_level(hive.places.isolation, read_boot_id(), settings.level)
    clock = hive.ledger.clock
    with hive.ledger.read() as connection:
        return show_status(
            connection,
            find_keeper_state(connection, clock, settings.abandoned_after_s),
            isolation=isolation,
            require=settings.require,
            free_bytes=shutil.disk_usage(hive.places.hive).free,
            now=clock.now(),
            places=hive.places,
            reply_within_s=settings.reply_within_s,
            settings_problem=problem,
        )


def _try_settings(root: Path) -> tuple[Settings, str]:
    """Read hive.toml as a keeper would; where it cannot be used, the defaults, and what is wrong."""
    from hivekeeper.config.settings import load_settings  # noqa: PLC0415 - its parser is for what needs settings only
    from hivekeeper.keeper.programs import refuse_secrets  # noqa: PLC0415 - as above

    try:
        settings = load_settings(root)
        refuse_secrets(settings, Places(root))
    except InputError as error:
        head, _, problems = str(error).partition("\n")  # of a file the first line only counts them
        return Settings(), problems if head.endswith("nothing was done") else str(error)
    return settings, ""
