"""The benchmarks' command line, which `make bench` and its parts type: `python -m benchmarks ledger --tasks 100`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import Figure, again, door, ledger, mail, merge, seance, simulate, tasks, workers
from hivekeeper.errors import HiveError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Directory = Annotated[Path | None, typer.Option(help="A directory on the disk to measure; otherwise TMPDIR.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
say = partial(typer.echo, err=True)


@app.command("ledger")
def bench_ledger(
    *,
    directory: Directory = None,
    history: Annotated[int, typer.Option(min=2000, help="Events in the long history.")] = 1_000_000,
    tiny: Annotated[int, typer.Option("--tasks", min=10, help="How many tiny tasks a kill interrupts.")] = 1000,
    at_once: Annotated[int, typer.Option(min=1, help="How many of them at once.")] = 8,
    as_json: Json = False,
) -> None:
    """Measure the ledger against this disk, and how the length of its history tells."""
    show_figures(
        ledger.run_all(say, directory=directory, history=history, tasks=tiny, at_once=at_once), as_json=as_json
    )


@app.command("workers")
def bench_workers(
    *,
    directory: Directory = None,
    crowd: Annotated[int, typer.Option("--workers", min=1, max=1000, help="How many at once.")] = 200,
    files: Annotated[int, typer.Option(min=1, help="Files in the repository that sandboxes are made of.")] = 2000,
    single: Annotated[int, typer.Option("--tasks", min=2, help="How many are dispatched one by one.")] = 20,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long the workers are watched.")] = 20.0,
    as_json: Json = False,
) -> None:
    """Measure what workers cost, how soon they begin, and their sandboxes against `git worktree add`."""
    measured = workers.run_all(say, directory=directory, workers=crowd, files=files, tasks=single, seconds=seconds)
    show_figures(measured, as_json=as_json)


@app.command("door")
def bench_door(
    *,
    directory: Directory = None,
    crowd: Annotated[int, typer.Option("--workers", min=1, max=1000, help="How many workers are told.")] = 200,
    paths: Annotated[int, typer.Option(min=1, help="How many paths each has changed.")] = 50,
    as_json: Json = False,
) -> None:
    """Measure how long others wait for the ledger while a hotfix is told to many workers."""
    show_figures(door.run_all(say, directory=directory, workers=crowd, paths=paths), as_json=as_json)


@app.command("tasks")
def bench_tasks(
    *,
    directory: Directory = None,
    tiny: Annotated[int, typer.Option("--tasks", min=10, help="How many tiny tasks.")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, help="How often everybody does them.")] = 3,
    events: Annotated[int, typer.Option(min=1, help="Durable events in each of five rounds.")] = ledger.EVENTS_A_ROUND,
    as_json: Json = False,
) -> None:
    """Measure tiny tasks, with the sandbox and without, against bare processes, bare bubblewrap and huey."""
    show_figures(tasks.run_all(say, directory=directory, tasks=tiny, rounds=rounds, events=events), as_json=as_json)


@app.command("mail")
def bench_mail(  # noqa: PLR0913 - one an option
    *,
    directory: Directory = None,
    mailboxes: Annotated[int, typer.Option(min=30, help="The most mailboxes at once.")] = 2000,
    messages: Annotated[int, typer.Option(min=10, help="How many are sent at once.")] = 2000,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long messages are sent one by one.")] = 10.0,
    idle: Annotated[float, typer.Option(min=0.1, help="Seconds without a message.")] = 40.0,
    history: Annotated[int, typer.Option(min=100, help="Messages in the history that is searched.")] = 1_000_000,
    as_json: Json = False,
) -> None:
    """Measure how soon and how many messages reach inboxes, what many mailboxes cost, and search."""
    size = mail.Size(mailboxes, messages, seconds, idle, history)
    figures = mail.run_all(say, size, directory=directory)
    show_figures(figures, as_json=as_json)


@app.command("seance")
def bench_seance(
    *,
    directory: Directory = None,
    megabytes: Annotated[int, typer.Option(min=1, help="Size of the session log.")] = 100,
    as_json: Json = False,
) -> None:
    """Measure collecting a long session log, and searching it."""
    show_figures(seance.run_all(say, megabytes=megabytes, directory=directory), as_json=as_json)


@app.command("merge")
def bench_merge(
    *,
    directory: Directory = None,
    refused: Annotated[bool, typer.Option("--again", help="What refused work costs, done anew and mended.")] = False,
    small: Annotated[bool, typer.Option("--small", help="Little of everything: that it works, not how well.")] = False,
    as_json: Json = False,
) -> None:
    """Measure landing against a fresh worktree and `git merge`, and the merge queue against one at a time."""
    if refused:
        show_figures(again.run_all(say, directory=directory), as_json=as_json)
    size = merge.SMALL if small else merge.Size()
    show_figures(merge.run_all(say, directory=directory, size=size), as_json=as_json)


@app.command("simulate")
def bench_simulate(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many simulations each figure is the mean of.")] = 10,
    as_json: Json = False,
) -> None:
    """Measure the merge queue's policy alone, in virtual time."""
    show_figures(simulate.run_all(seeds), as_json=as_json)


def show_figures(figures: Iterator[Figure], *, as_json: bool) -> None:
    """Print each figure as it is measured, or all of them as JSON; the exit code says whether all goals are met."""
    found = []
    for figure in figures:
        found.append(figure)
        if not as_json:
            mark = "✓" if figure.reached else "✗"
            number, goal = f"{figure.value:.2f} {figure.unit}", f"goal {figure.goal}"
            typer.echo(f"{mark} {figure.name:<66} {number:>15}  {goal:<13} {figure.detail}".rstrip())
    if as_json:
        typer.echo(json.dumps([asdict(figure) for figure in found], indent=2, ensure_ascii=False))
    sys.exit(0 if all(figure.reached for figure in found) else 1)


def main() -> None:
    """Run a benchmark; what it could not do is a sentence, advice and an exit code."""
    try:
        app()
    except HiveError as error:
        typer.echo(error, err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
