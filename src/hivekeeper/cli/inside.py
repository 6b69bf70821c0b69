"""What an agent types inside its sandbox: `hive mail`, `progress`, `help-me`, `done`, `seance` and `mcp`.

It works on the files of the worker's mailbox, where no ledger can be seen. Outside of a worker it says so.
"""

import json as json_text
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from hivekeeper.domain.protocol import INFORM
from hivekeeper.mailbox.worker import Message, make_payload
from hivekeeper.worker.reporting import Reporter, Told, find_reporter

inside_app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Your place in the hive."
)
inside_mail_app = typer.Typer(no_args_is_help=True, help="Your mailbox: read messages, reply, and write to others.")
inside_app.add_typer(inside_mail_app, name="mail")

Json = Annotated[bool, typer.Option("--json", help="Output JSON.")]
Text = Annotated[str, typer.Argument(help="What to say.")]
Type = Annotated[str, typer.Option("--type", help="Type of the message.")]
Payload = Annotated[str, typer.Option(help="More fields of the message, as a JSON object.")]
Mail = Annotated[str, typer.Argument(metavar="ID", help="A message's id, as hive mail ls shows it.")]


def is_inside(arguments: list[str]) -> bool:
    """Whether this is typed by a worker, for its own mailbox."""
    return bool(os.environ.get("HIVE_MAILBOX")) and (
        not arguments or arguments[0] in {*WORKER_COMMANDS, *_BOTH, "mail", "--help"}
    )


@inside_mail_app.command("ls")
def inside_ls(*, json: Json = False) -> None:
    """List the messages in your inbox, oldest first."""
    messages = find_reporter().box.list_inbox()
    if json:
        typer.echo(json_text.dumps([_show(message) for message in messages], ensure_ascii=False, indent=2))
        return
    for each in messages:
        typer.echo(f"{'new ' if each.is_new else '    '}{each.id}  {each.type} from {each.sender}: {each.text[:80]}")
    typer.echo("To read one: hive mail read ID" if messages else "Your inbox is empty.")


@inside_mail_app.command("read")
def inside_read(mail: Mail = "", *, json: Json = False) -> None:
    """Show a message: the oldest new one if none is named."""
    reporter = find_reporter()
    message = reporter.read(mail)
    if json:
        typer.echo(json_text.dumps(_show(message), ensure_ascii=False, indent=2))
        return
    typer.echo(f"{message.type} from {message.sender}, {message.sent_at}, {message.id}")
    if message.in_reply_to:
        typer.echo(f"In reply to {message.in_reply_to}")
    is_text = set(message.payload) == {"text"}
    said = message.payload["text"] if is_text else json_text.dumps(message.payload, ensure_ascii=False, indent=2)
    typer.echo(f"\n{said}\n")
    if message.expects_reply:
        typer.echo(f"To reply: hive mail reply {message.id} 'text'. Without a reply: hive mail done {message.id}")
    _tell_of_new(reporter)


@inside_mail_app.command("send")
def inside_send(
    to: Annotated[str, typer.Argument(help="Another worker, a task, supervisor, person or queue.")],
    text: Text = "",
    *,
    type_: Type = INFORM,
    payload: Payload = "",
    given_id: Annotated[str, typer.Option("--id", help="An id of your own: sent twice it is one message.")] = "",
    json: Json = False,
) -> None:
    """Send a message."""
    reporter = find_reporter()
    _print(reporter, reporter.send(to, make_payload(text, payload), type_, given_id), json=json)


@inside_mail_app.command("reply")
def inside_reply(
    mail: Mail,
    text: Text = "",
    *,
    type_: Type = "",
    payload: Payload = "",
    to: Annotated[str, typer.Option(help="Its sender, if the message was in your prompt.")] = "",
    json: Json = False,
) -> None:
    """Reply to a message, which is then done."""
    reporter = find_reporter()
    _print(reporter, reporter.reply(mail, make_payload(text, payload), type_, to), json=json)


@inside_mail_app.command("done")
def inside_done(mail: Mail) -> None:
    """Say that you have dealt with a message."""
    reporter = find_reporter()
    typer.echo(reporter.acknowledge(mail))
    _tell_of_new(reporter)


def progress(text: str) -> None:
    """For workers: tell people how the work is going."""
    reporter = find_reporter()
    _print(reporter, reporter.report_progress(text))


def help_me(
    text: str,
    *,
    blocking: Annotated[bool, typer.Option("--blocking", help="You cannot go on without an answer.")] = False,
) -> None:
    """For workers: ask the supervisor for help."""
    reporter = find_reporter()
    _print(reporter, reporter.ask_for_help(text, is_blocking=blocking))


def learn(text: str, *, topic: Annotated[str, typer.Option(help="patterns, anti-patterns or decisions.")] = "") -> None:
    """For workers: add something to your agent's expertise; it is kept if your change lands."""
    reporter = find_reporter()
    _print(reporter, reporter.report_lesson(text, topic))


def done(
    summary: Annotated[str, typer.Argument(help="What you did, in a sentence.")] = "",
    *,
    nothing_to_change: Annotated[str, typer.Option(help="Why nothing had to be changed.")] = "",
) -> None:
    """For workers: report that the task is finished."""
    reporter = find_reporter()
    _print(reporter, reporter.report_done(summary, nothing_to_change))


def mcp() -> None:
    """For workers: serve the mailbox as MCP tools on standard input and output."""
    reporter = find_reporter()
    from hivekeeper.worker.server import make_server  # noqa: PLC0415 - its SDK takes longer to import than all else

    make_server(reporter).run("stdio")


def seance(question: Annotated[str, typer.Argument(help="What you want to know.")] = "", *, json: Json = False) -> None:
    """Ask what earlier sessions of your task and your own earlier ones tried, what failed and what worked."""
    reporter = find_reporter()
    told = reporter.hold_seance(question)
    if json:
        typer.echo(json_text.dumps({"id": told.id, "state": told.state, "text": told.sentence}, ensure_ascii=False))
    else:
        typer.echo(told.sentence)
    _tell_of_new(reporter)


WORKER_COMMANDS: dict[str, Callable[..., None]] = {
    "progress": progress,
    "help-me": help_me,
    "learn": learn,
    "done": done,
    "mcp": mcp,
}
_BOTH = {"seance": seance}  # outside of a worker, a command of the same name asks about any task
for name, command in (*WORKER_COMMANDS.items(), *_BOTH.items()):
    inside_app.command(name)(command)


def _print(reporter: Reporter, told: Told, *, json: bool = False) -> None:
    typer.echo(json_text.dumps({"id": told.id, "state": told.state}) if json else told.sentence)
    _tell_of_new(reporter)


def _tell_of_new(reporter: Reporter) -> None:
    if said := reporter.describe_new():
        typer.echo(f"{said} Type: hive mail ls", err=True)


def _show(message: Message) -> dict[str, Any]:
    shown = {"id": message.id, "type": message.type, "sender": message.sender, "sent_at": message.sent_at}
    return {**shown, "in_reply_to": message.in_reply_to, "new": message.is_new, "payload": message.payload}
