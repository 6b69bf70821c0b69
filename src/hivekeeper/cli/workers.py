"""`hive worker`."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Annotated, BinaryIO

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import NO_KEEPER, Json, Reason, me, open_here, read_here
from hivekeeper.cli.mail import mail_send
from hivekeeper.commands.runs import kill_worker
from hivekeeper.domain.run import Alive, Unclaimed
from hivekeeper.hive import Records, is_kept
from hivekeeper.runners import is_piece
from hivekeeper.runs.local import LocalRuns, Outputs
from hivekeeper.store.ledger import read_head
from hivekeeper.views import session_logs
from hivekeeper.views import workers as views

worker_app = typer.Typer(no_args_is_help=True, help="Running workers.")

Who = Annotated[str, typer.Argument(metavar="WORKER|TASK", help="A worker's number, or its task.")]


@contextmanager
def _look(hive: Records) -> Iterator[LocalRuns]:
    """Look at runs without being the keeper."""
    with hive.ledger.read() as connection:
        name = read_head(connection).hive
    with closing(LocalRuns(hive.places.runs, name)) as runs:
        yield runs


@worker_app.command("ls")
def worker_ls(*, json: Json = False) -> None:
    """List workers and their state: working, stalled, zombie, or in the queue."""
    hive = read_here()
    with _look(hive) as runs, hive.ledger.read() as connection:
        rows = views.list_workers(connection, runs, now=hive.ledger.clock.now())
        kept = is_kept(connection)
    if json:
        render.print_json(rows)
        return
    render.print_workers(rows)
    if rows and not kept:
        typer.echo(f"{NO_KEEPER}, so their results are not processed. Type: hive up")


@worker_app.command("log")
def worker_log(
    who: Who,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until its run ends.")] = False,
    attempt: Annotated[int | None, typer.Option(help="Attempt number; default: the last.")] = None,
    lines: Annotated[int, typer.Option("-n", min=0, help="Number of lines to show first.")] = 50,
    session: Annotated[bool, typer.Option("--session", help="Show the agent program's own session log.")] = False,
) -> None:
    """Show a worker's output."""
    if session:
        _print_sessions(who, attempt, lines)
        return
    hive = read_here()
    with hive.ledger.read() as connection:
        found = views.get_attempt(connection, who, attempt)
        run = views.find_agent_run(connection, found)
    name = f"Worker {found.worker} ({found.task}, attempt {found.number})"
    if run is None:
        typer.echo(f"{name} has not started its agent yet. Type: hive task why {found.task}", err=True)
        return

    def is_over() -> bool:
        return not follow or not isinstance(runs.look(run.id, views.find_claim(run)), Alive | Unclaimed)

    with suppress(KeyboardInterrupt), _look(hive) as runs:
        if not _print_output(runs, run.id, lines, is_over):
            typer.echo(f"{name} has written no output{' yet' if run.is_open and not follow else ''}.", err=True)


def _print_sessions(who: str, number: int | None, lines: int) -> None:
    hive = open_here()
    with hive.ledger.read() as connection:
        found = views.get_attempt(connection, who, number)
        patterns = session_logs.list_session_logs(connection, found, hive.settings.runners)
    logs = session_logs.read_session_logs(hive.places, found, patterns)
    if not logs:
        typer.echo(f"There is no session log of {found.task} (attempt {found.number}).", err=True)
    for log in logs:
        typer.echo(render.clean(f"{log.name}:"), err=True)
        if log.lines is None:
            typer.echo(render.clean(f"It is a database, not text. It is here: {log.place}"), err=True)
        render.print_lines(*(log.lines or [])[-lines:] if lines else ())


def _print_output(outputs: Outputs, run: str, lines: int, is_over: Callable[[], bool]) -> bool:
    """Print the last lines of a run's output and all that follow until it is over; False when there is none."""
    file, over = None, False
    while file is None and not over:
        over = is_over()  # asked before looking: output written before the end is there when the end is
        file = outputs.open_output(run)
        if file is None and not over:
            time.sleep(_LOOK_AGAIN_S)
    if file is None:
        return False
    with file:
        starts, position = deque([0], maxlen=max(lines, 1)), 0
        for line in file:
            if not is_piece(line):
                starts.append(position)
            position += len(line)
        file.seek(starts[0] if lines else position)
        for line in _read_lines(file, is_over):
            if not is_piece(line):
                render.print_lines(line.rstrip(b"\n").decode("utf-8", "replace"))
                sys.stdout.flush()
    return True


def _read_lines(file: BinaryIO, is_over: Callable[[], bool]) -> Iterator[bytes]:
    """Read a growing file line by line until its run is over."""
    line, over = b"", False
    while not over:
        over = is_over()
        for piece in file:
            line += piece
            if line.endswith(b"\n"):
                yield line
                line = b""
        if not over:
            time.sleep(_LOOK_AGAIN_S)
    if line:
        yield line


@worker_app.command("kill")
def worker_kill(who: Who, reason: Reason = "") -> None:
    """Stop a worker. On a repository its task is retried; without one it waits for you."""
    hive = read_here()
    with hive.ledger.write(me()) as tx:
        attempt = views.get_worker(tx.connection, who)
        asked = kill_worker(tx, attempt, why=reason)
        kept = is_kept(tx.connection)
    typer.echo(f"Worker {attempt.worker} ({attempt.task}) is {'' if asked else 'already '}being stopped.")
    if not kept:
        typer.echo(f"{NO_KEEPER}, so the worker goes on until one is started. Type: hive up")


worker_app.command("tell")(mail_send)


_LOOK_AGAIN_S = 0.2
