"""`hive bench`: this machine and this hive, measured."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import Json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hivekeeper.bench import Figure

bench_app = typer.Typer(no_args_is_help=True, help="Measure this machine and this hive against it.")


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


def _show_figures(figures: "Iterator[Figure]", *, as_json: bool) -> None:
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
