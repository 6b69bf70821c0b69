"""`hive mail`: what was said, to whom, and what became of it."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import NO_KEEPER, Json, Reason, me, open_here, read_here
from hivekeeper.cli.history import read_moment
from hivekeeper.commands import mail as commands
from hivekeeper.domain import protocol as p
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.names import find_nearest
from hivekeeper.domain.states import MailState
from hivekeeper.errors import InputError
from hivekeeper.hive import is_kept
from hivekeeper.mailbox.boxes import read_json
from hivekeeper.mailbox.worker import make_payload
from hivekeeper.store import queries
from hivekeeper.views import mail as views

mail_app = typer.Typer(no_args_is_help=True, help="Read messages, and write to workers.")
quarantine_app = typer.Typer(no_args_is_help=True, help="Messages of workers that could not be read.")
mail_app.add_typer(quarantine_app, name="quarantine")

Limit = Annotated[int, typer.Option("-n", min=1, help="Number of messages to show.")]
Kind = Annotated[str, typer.Option("--type", help="Only messages of this type.")]
Who = Annotated[str, typer.Option("--agent", help="Only messages from or to this address.")]
Since = Annotated[str, typer.Option(help='Only messages sent since: "2h ago", or a time like 2026-01-31T08:00.')]
Until = Annotated[str, typer.Option(help='Only messages sent before: "2h ago", or a time like 2026-01-31T08:00.')]
Type = Annotated[str, typer.Option("--type", help="Type of the message.")]
Payload = Annotated[str, typer.Option(help="More fields of the message, as a JSON object.")]
Text = Annotated[str, typer.Argument(help="What to say.")]
Mail = Annotated[str, typer.Argument(metavar="ID", help="A message's id, as hive mail ls shows it.")]


@mail_app.command("ls")
def mail_ls(  # noqa: PLR0913 - one option a condition
    *,
    state: Annotated[str, typer.Option(help="Only accepted, delivered, handled, returned ... messages.")] = "",
    kind: Kind = "",
    who: Who = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """List messages, newest first."""
    _print_found(kind, who, since, until, limit, state=_read_state(state), json=json)


@mail_app.command("search")
def mail_search(  # noqa: PLR0913 - as above
    words: str,
    *,
    kind: Kind = "",
    who: Who = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """Search the text of all messages."""
    _print_found(kind, who, since, until, limit, words=words, json=json)


@mail_app.command("inbox")
def mail_inbox(*, json: Json = False) -> None:
    """List open messages to you and to the hive, oldest first."""
    with read_here().ledger.read() as connection:
        rows = views.list_inbox(connection)
    _print_list(rows, json=json)


@mail_app.command("thread")
def mail_thread(mail: Annotated[str, typer.Argument(metavar="ID|TASK")], *, json: Json = False) -> None:
    """Show the conversation of a message, or everything that was said about a task, oldest first."""
    with read_here().ledger.read() as connection:
        rows = views.show_thread(connection, mail)
    _print_thread(rows, json=json)


@mail_app.command("read")
def mail_read(mail: Mail, *, json: Json = False) -> None:
    """Show a message. One to you that expects no reply is then done."""
    hive = read_here()
    with hive.ledger.read() as connection:
        row = views.get_mail(connection, mail)
    if row.is_open and row.receiver in p.ADDRESSES and not row.expects_reply:
        with hive.ledger.write(me()) as tx:
            commands.close_mail(tx, p.PROTOCOL, row, "read")
    _print_thread([views.show_mail(row)], json=json)


@mail_app.command("send")
def mail_send(
    to: Annotated[str, typer.Argument(help="An agent, CONVOY.worker-N, a worker's number, or a task.")],
    text: Text = "",
    *,
    type_: Type = p.INFORM,
    payload: Payload = "",
) -> None:
    """Send a message to a worker's agent."""
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        sent = commands.send_as_person(tx, hive.settings.protocol, type_, _name(to), _say(text, payload))
        at_work, kept = views.find_reader(tx.connection, sent), is_kept(tx.connection)
        is_urgent = hive.settings.protocol[type_].is_urgent
        if at_work is not None and at_work.runner is None and "HIVE_MAILBOX" not in at_work.environment:
            what = f"{sent.receiver} is a command without a mailbox, so nothing reaches it."
            raise InputError(what, advice="With mail = true in [patterns] of hive.toml, tasks with a sandbox have one.")
    typer.echo(f"Sent to {sent.receiver}; {views.say_when(at_work, hive.settings.runners, is_urgent=is_urgent)}.")
    if not kept:
        typer.echo(f"{NO_KEEPER}, so nothing is delivered until one is started. Type: hive up")
    typer.echo(f"To see what becomes of it: hive mail thread {sent.id}")


@mail_app.command("reply")
def mail_reply(mail: Mail, text: Text = "", *, type_: Type = p.INFORM, payload: Payload = "") -> None:
    """Reply to a worker's request or question; one that waits for help continues."""
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        asked = views.get_mail(tx.connection, mail)
        sent = commands.reply_as_person(tx, hive.settings.protocol, asked, _say(text, payload), type_)
    typer.echo(f"Replied to {sent.receiver}.")
    typer.echo(f"To see what becomes of it: hive mail thread {sent.thread}")


@mail_app.command("done")
def mail_done(mail: Mail, reason: Reason = "") -> None:
    """Close a message to you without a reply."""
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        row = views.get_mail(tx.connection, mail)
        if row.receiver not in p.ADDRESSES:
            raise InputError(f"{row.id} is to {row.receiver}, not to you.", advice="Type: hive mail inbox")
        closed = commands.close_mail(tx, hive.settings.protocol, row, reason or "closed by a person")
    typer.echo(f"{row.id} is done." if closed else f"{row.id} was done already.")


@quarantine_app.command("ls")
def quarantine_ls(*, limit: Limit = 50, json: Json = False) -> None:
    """List quarantined messages, newest first."""
    with read_here().ledger.read() as connection:
        rows = queries.list_set_aside_mail(connection, MailState.QUARANTINED, limit)
    shown = [views.show_mail(row) for row in rows]
    if json:
        render.print_json(shown)
    elif shown:
        columns = {"sent_at": "Found", "sender": "From", "file": "File", "id": "Id", "reason": "Why"}
        render.print_table(shown, columns, texts=("reason",), spare=("sent_at", "file", "sender"))
    else:
        typer.echo("Nothing is quarantined.")


@quarantine_app.command("show")
def quarantine_show(mail: Mail) -> None:
    """Show what a quarantined message holds."""
    with read_here().ledger.read() as connection:
        row = views.get_mail(connection, mail)
    typer.echo(render.clean(f"{row.file} from {row.sender}: {row.reason}"), err=True)
    render.print_lines(*str(row.get_payload().get("raw", "")).splitlines())


@quarantine_app.command("requeue")
def quarantine_requeue(
    mail: Mail,
    *,
    file: Annotated[Path | None, typer.Option(help='The corrected message; "-" reads standard input.')] = None,
) -> None:
    """Deliver a quarantined message after all, for example once its type is in hive.toml."""
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        row = views.get_mail(tx.connection, mail)
        draft = _read_draft(row, file, hive.settings.protocol)
        sent = commands.requeue_mail(tx, hive.settings.protocol, row, draft)
    typer.echo(f"{sent.id} is on its way to {sent.receiver}.")


@quarantine_app.command("drop")
def quarantine_drop(mail: Mail, reason: Reason = "") -> None:
    """Throw a quarantined message away. Its text stays in the ledger."""
    with read_here().ledger.write(me()) as tx:
        row = views.get_mail(tx.connection, mail)
        dropped = commands.drop_mail(tx, row, reason)
    typer.echo(f"{row.id} is dropped." if dropped else f"{row.id} is not quarantined.")


def _read_draft(row: MailRow, file: Path | None, protocol: Mapping[str, p.MessageType]) -> p.Draft:
    if file is None:
        data = str(row.get_payload().get("raw", "")).encode()
    else:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    advice = f"To mend it: hive mail quarantine show {row.id} > message.json, then requeue it with --file message.json"
    read = read_json(data)
    if read.problem is not None:
        raise InputError(f"It cannot be requeued: {read.problem.reason}.", advice=advice)
    draft = p.read_draft(read.said, protocol)
    if isinstance(draft, str):
        raise InputError(f"It cannot be requeued: {draft}.", advice=advice)
    return draft


def _say(text: str, payload: str) -> dict[str, Any]:
    said = make_payload(text, payload)
    if not said:
        raise InputError("There is nothing to send.", advice="Add a text, or --payload.")
    return said


def _name(address: str) -> str:
    return f"worker-{address}" if address.isdecimal() else address


def _print_found(  # noqa: PLR0913 - as above
    kind: str, who: str, since: str, until: str, limit: int, *, state: str = "", words: str = "", json: bool
) -> None:
    hive = read_here()
    now = hive.ledger.clock.now()
    with hive.ledger.read() as connection:
        times = {"since": _read_time(since, now), "until": _read_time(until, now)}
        rows = views.search_mail(connection, words, limit=limit, type_=kind, address=who, state=state, **times)
    _print_list(rows, json=json)


def _read_time(said: str, now: str) -> str:
    if not said:
        return ""
    moment = read_moment(said, now=now)
    if isinstance(moment, int):
        raise InputError(f"'{said}' is not a time.", advice='For example: "2h ago", or 2026-01-31 08:00')
    return moment


def _print_list(rows: Sequence[MailRow], *, json: bool) -> None:
    shown = [views.show_mail(row) for row in rows]
    if json:
        render.print_json(shown)
    elif shown:
        headings = {"sent_at": "Sent", "type": "Type", "sender": "From", "receiver": "To", "state": "State"}
        spare = ("sent_at", "type", "receiver", "state", "sender")
        render.print_table(shown, {**headings, "id": "Id", "gist": "Message"}, texts=("gist",), spare=spare)
    else:
        typer.echo("No messages.")


def _print_thread(rows: Sequence[Mapping[str, Any]], *, json: bool) -> None:
    if json:
        render.print_json(rows)
        return
    if not rows:
        typer.echo("Nothing was said about it yet.")
    for row in rows:
        head = f"{row['sent_at']}  {row['type']}  {row['sender']} -> {row['receiver']}  {row['id']}"
        typer.echo(render.localize(head))
        for name, value in row["payload"].items():
            lines = value if isinstance(value, list) else str(value).splitlines()
            render.print_lines(*(f"    {line}" for line in (lines if name == "text" else [f"{name}:", *lines])))
        for words in _describe_end(row):
            typer.echo(render.localize(f"  {words}"))


def _describe_end(row: Mapping[str, Any]) -> Iterator[str]:
    """Say when a message was delivered, and what became of it."""
    if row["delivered_at"]:
        where = f"with {row['delivered_run']}" if row["delivered_run"] else "to its inbox"
        yield f"delivered {row['delivered_at']} {where}"
    if row["ended_at"]:
        yield f"{str(row['state']).lower()} {row['ended_at']} by {row['ended_by']}: {row['reason']}"
    elif not row["delivered_at"]:
        yield "not delivered yet"


def _read_state(state: str) -> str:
    states = {each.value.lower(): each.value for each in MailState}
    if state and state.lower() not in states:
        hint = find_nearest(state.lower(), states)
        advice = f"Did you mean '{hint}'?" if hint else f"A state is one of: {', '.join(states)}."
        raise InputError(f"There is no state '{state}' of a message.", advice=advice)
    return states.get(state.lower(), "")
