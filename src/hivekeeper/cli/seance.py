"""`hive seance`: what was tried, what failed and what worked."""

from typing import Annotated, Any

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import Json, read_here
from hivekeeper.domain.excerpt import Cited
from hivekeeper.domain.seance import say_answer
from hivekeeper.errors import UnavailableError
from hivekeeper.seance.asking import ask, find_pending, find_subject
from hivekeeper.store.excerpts import ExcerptIndex, find_words

_WIDTH = 300


def seance(
    who: Annotated[str, typer.Argument(metavar="TASK|AGENT", help="A task, or an agent.")],
    question: Annotated[str, typer.Argument(help="What you want to know.")] = "",
    *,
    json: Json = False,
) -> None:
    """Ask what was tried on a task, or by an agent: what failed, what worked, and where it is written."""
    hive = read_here()
    with hive.ledger.read() as connection:
        name, attempts = find_subject(connection, who)
    if not hive.places.seance.exists():
        what = "Nothing that agents did has been collected yet."
        raise UnavailableError(what, advice="The keeper collects it when a session ends. Type: hive up")
    with ExcerptIndex(hive.places.seance, read_only=True) as index:
        answer = ask(index, attempts, question)
        with hive.ledger.read() as connection:
            is_behind = find_pending(connection, index.find_progress()) is not None
    if json:
        shown = {part: [_show(cited) for cited in found] for part, found in answer.parts}
        unread = [_show(cited) for cited in answer.unread]
        render.print_json({"about": name, "question": question, **shown, "unread": unread, "is_behind": is_behind})
        return
    render.print_lines(f"{name}:", *say_answer(answer, find_words(question), _WIDTH))
    if is_behind:
        typer.echo("Some sessions have ended and are not collected yet. Type: hive up", err=True)


def _show(cited: Cited) -> dict[str, Any]:
    excerpt = cited.excerpt
    return {
        "citation": cited.citation,
        "task": cited.task,
        "attempt": cited.attempt,
        "document": cited.document,
        "position": excerpt.position,
        "role": excerpt.role.value,
        "at": excerpt.at,
        "text": excerpt.text,
    }
