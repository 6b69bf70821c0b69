"""`hive mail`: what was said, to whom, and what became of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import Json, me, open_here, read_here
from hivekeeper.commands.mail import write_to_worker
from hivekeeper.domain.names import find_nearest
from hivekeeper.domain.rows import MailRow
from hivekeeper.domain.states import MailState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.views import mail as views
from hivekeeper.views import workers
from hivekeeper.views.tasks import get_task

mail_app = typer.Typer(no_args_is_help=True, help="Read messages, and write to workers.")
Limit = Annotated[int, typer.Option("-n", min=1, help="Number of messages to show.")]


@mail_app.command("ls")
def mail_ls(
    *,
    state: Annotated[str, typer.Option(help="Only accepted, delivered, handled or returned messages.")] = "",
    kind: Annotated[str, typer.Option("--type", help="Only messages of this type.")] = "",
    who: Annotated[str, typer.Option("--agent", help="Only messages from or to this address.")] = "",
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """List messages, newest first."""
    wanted = _read_state(state)
    with read_here().ledger.read() as connection:
        rows = queries.list_mail_matching(connection, limit=limit, type_=kind, state=wanted, address=who)
    _print_list(rows, json=json)


@mail_app.command("search")
def mail_search(words: str, *, limit: Limit = 50, json: Json = False) -> None:
    """Search the text of all messages."""
    with read_here().ledger.read() as connection:
        rows = queries.list_mail_matching(connection, limit=limit, words=words)
    _print_list(rows, json=json)


@mail_app.command("thread")
def mail_thread(task: str, *, json: Json = False) -> None:
    """Show everything that was said about a task, oldest first."""
    with read_here().ledger.read() as connection:
        rows = views.show_thread(connection, get_task(connection, task))
    _print_thread(rows, json=json)


@mail_app.command("read")
def mail_read(mail: str, *, json: Json = False) -> None:
    """Show one message."""
    with read_here().ledger.read() as connection:
        rows = [views.get_mail(connection, mail)]
    _print_thread(rows, json=json)


@mail_app.command("send")
def mail_send(worker: str, text: str) -> None:
    """Send a message to a worker's agent, delivered after its current turn."""
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        attempt = workers.get_worker(tx.connection, worker)
        run = workers.find_agent_run(tx.connection, attempt)
        runner = hive.settings.runners.get((run.runner if run else None) or "")
        write_to_worker(tx, get_task(tx.connection, attempt.task), attempt, runner, text)
    typer.echo(f"Sent to worker {attempt.worker} ({attempt.task}); it gets it after its turn.")
    typer.echo(f"To see when it was delivered: hive mail thread {attempt.task}")


def _print_list(rows: Sequence[MailRow], *, json: bool) -> None:
    shown = [views.show_mail(row) for row in rows]
    if json:
        render.print_json(shown)
    elif shown:
        headings = {"sent_at": "Sent", "type": "Type", "sender": "From", "receiver": "To", "state": "State"}
        render.print_table(shown, {**headings, "gist": "Message"})
    else:
        typer.echo("No messages.")


def _print_thread(rows: Sequence[Mapping[str, Any]], *, json: bool) -> None:
    if json:
        render.print_json(rows)
        return
    if not rows:
        typer.echo("Nothing was said about it yet.")
    for row in rows:
        typer.echo(render.localize(f"{row['sent_at']}  {row['type']}  {row['sender']} -> {row['receiver']}"))
        for name, value in row["payload"].items():
            lines = value if isinstance(value, list) else str(value).splitlines()
            render.print_lines(*(f"    {line}" for line in (lines if name == "text" else [f"{name}:", *lines])))
        for words in _describe_end(row):
            typer.echo(render.localize(f"  {words}"))


def _describe_end(row: Mapping[str, Any]) -> Iterator[str]:
    """Say when a message was delivered, and what became of it."""
    if row["delivered_at"]:
        yield f"delivered {row['delivered_at']} with {row['delivered_run']}"
    if row["ended_at"]:
        yield f"{str(row['state']).lower()} {row['ended_at']}: {row['reason']}"
    elif not row["delivered_at"]:
        yield "not delivered yet"


def _read_state(state: str) -> str:
    states = {each.value.lower(): each.value for each in MailState}
    if state and state.lower() not in states:
        hint = find_nearest(state.lower(), states)
        advice = f"Did you mean '{hint}'?" if hint else f"A state is one of: {', '.join(states)}."
        raise InputError(f"There is no state '{state}' of a message.", advice=advice)
    return states.get(state.lower(), "")
