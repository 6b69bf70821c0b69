"""`hive log`, `hive replay` and `hive diff`."""

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import Json, me, read_here
from hivekeeper.clock import to_local, to_seconds, to_text
from hivekeeper.commands.history import check_cursor, move_cursor
from hivekeeper.config.values import read_duration
from hivekeeper.domain.events import Event
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import InputError
from hivekeeper.hive import Records
from hivekeeper.store import queries
from hivekeeper.store.ledger import read_events, read_head
from hivekeeper.views import history as views
from hivekeeper.views.events import show_event

_FORMS = ("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M")
_EVENTS_A_PAGE = 1000
_EVENTS_TO_BEGIN_WITH = 20


def read_moment(text: str, *, now: str) -> int | str:
    """Read a moment as a person types it: an event's number, or a time, which is returned as the ledger writes it."""
    typed = text.strip()
    if typed.isascii() and typed.isdecimal():
        return int(typed)
    if typed == "now":
        return now
    if typed.startswith("-") or typed.endswith("ago"):
        try:
            return to_text(to_seconds(now) - read_duration(typed.removeprefix("-").removesuffix("ago").strip()))
        except (ValueError, OverflowError):
            raise _no_moment(text) from None
    plain, is_utc = typed.replace("T", " ").removesuffix("Z"), typed.endswith("Z")
    today = now[:10] if is_utc else to_local(now)[:10]
    for written in (plain, f"{today} {plain}"):
        for form in _FORMS:
            try:
                found = datetime.strptime(written, form).astimezone()  # the local time zone, as times are shown
            except ValueError:
                continue
            return to_text((found.replace(tzinfo=UTC) if is_utc else found).timestamp())
    raise _no_moment(text)


def _no_moment(text: str) -> InputError:
    forms = (
        "an event's number (1234), a time ('2026-11-15 21:25', 21:25, in UTC 2026-11-15T21:25:35Z), -10m, '10m ago'"
        " or now"
    )
    return InputError(f"'{text}' is not a moment.", advice=f"Type {forms}.")


def log(  # noqa: PLR0913 - one option a way of reading
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new events.")] = False,
    since: Annotated[int, typer.Option(help="Start after this event number.")] = -1,
    lines: Annotated[
        int | None, typer.Option("-n", min=0, help="Number of events to show first: 20, or all with --subject.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="Only events about this convoy, CONVOY/TASK, run or repository.")
    ] = None,
    cursor: Annotated[
        str | None, typer.Option(help="Continue where this reader stopped, and remember its place.")
    ] = None,
    cursors: Annotated[bool, typer.Option("--cursors", help="List readers and how far behind each is.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the kind of each event too.")] = False,
    json: Json = False,
) -> None:
    """Show the log."""
    hive = read_here()
    if cursors:
        with hive.ledger.read() as connection:
            rows = views.list_cursors(connection)
        columns = {"cursor": "Cursor", "seq": "Read up to", "behind": "Behind", "moved_at": "Moved"}
        render.print_json(rows) if json else render.print_table(rows, columns, spare=("moved_at",))
        return
    if subject is not None:
        with hive.ledger.read() as connection:
            views.check_subject(connection, subject)
    seen = _find_start(hive, since, lines, subject, cursor)
    try:
        while True:
            events = _read_page(hive, seen, subject)
            for event in events:
                render.print_json_line(show_event(event)) if json else typer.echo(
                    render.say_line(event, verbose=verbose)
                )
                seen = event.seq
            if events and cursor is not None:
                # Only now: a reader that dies before this reads these events twice, and never misses one.
                sys.stdout.flush()
                with hive.ledger.write(me()) as tx:
                    move_cursor(tx, cursor, seen)
            if not events and not follow:
                return
            if not events:
                time.sleep(0.2)
    except KeyboardInterrupt:
        return


def _find_start(hive: Records, since: int, lines: int | None, subject: str | None, cursor: str | None) -> int:
    """Find the event to start after."""
    if cursor is not None:
        check_cursor(cursor)
        if since >= 0:
            what = "--cursor and --since exclude each other: a cursor remembers its place."
            raise InputError(what, advice="Leave out --since, or use a new cursor.")
    with hive.ledger.read() as connection:
        if cursor is not None:
            found = queries.find_cursor(connection, cursor)
            return found.seq if found else 0
        if since >= 0:
            return since
        if subject is None:
            return max(0, read_head(connection).seq - (_EVENTS_TO_BEGIN_WITH if lines is None else lines))
        return 0 if lines is None else views.find_last(connection, subject, lines)


def _read_page(hive: Records, seen: int, subject: str | None) -> list[Event]:
    with hive.ledger.read() as connection:
        if subject is None:
            return read_events(connection, seen, _EVENTS_A_PAGE)
        head = read_head(connection).seq
        return queries.list_events_about(connection, subject, after=seen, until=head, limit=_EVENTS_A_PAGE)


def replay(
    *,
    at: Annotated[str, typer.Option(help="Event number, time, or how long ago: 1234, 21:25, -10m.")],
    convoy: Annotated[str | None, typer.Option(help="Only this convoy, archived or not.")] = None,
    json: Json = False,
) -> None:
    """Show the hive at a past moment."""
    hive = read_here()
    now = hive.ledger.clock.now()
    with hive.ledger.read() as connection:
        seq = views.get_seq(connection, read_moment(at, now=now), now=now)
        shown = (
            views.show_status_at(connection, seq) if convoy is None else views.show_convoy_at(connection, seq, convoy)
        )
    if json:
        render.print_json(shown)
        return
    typer.echo(render.localize(f"As of event {seq}, recorded at {shown['as_of']['recorded_at']}"))
    render.print_status(shown) if convoy is None else render.print_convoy(shown)


def diff(first: str, second: str, *, json: Json = False) -> None:
    """Show what changed between two moments: event numbers, times, or how long ago."""
    hive = read_here()
    now = hive.ledger.clock.now()
    with hive.ledger.read() as connection:
        moments = [read_moment(text, now=now) for text in (first, second)]
        seqs = [views.get_seq(connection, moment, now=now, from_nothing=True) for moment in moments]
        shown = views.show_difference(connection, *seqs)
    if json:
        render.print_json(shown)
        return
    begin, end = shown["from"], shown["to"]
    if begin == end:
        typer.echo(f"Both are {_say_moment(end)}: nothing changed.")
        return
    typer.echo(f"From {_say_moment(begin)}")
    typer.echo(f"  to {_say_moment(end)}: {say_count(shown['events'], 'event')}")
    columns = {"convoy": ("state", "complete", "tasks"), "task": ("state", "attempts", "commit")}
    columns["repo"] = ("state", "integration", "published")
    for noun, names in columns.items():
        _print_changes(noun, names, shown[f"{noun}s"])
    if not any(shown[f"{noun}s"] for noun in columns):
        typer.echo("No convoy, task or repository changed.")


def _say_moment(moment: Mapping[str, Any]) -> str:
    if moment["recorded_at"] is None:
        return "before the first event"
    return render.localize(f"event {moment['seq']}, recorded at {moment['recorded_at']}")


def _print_changes(noun: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        shown = [
            {noun: row[noun], **{name: _say_change(name, row["from"], row["to"]) for name in names}} for row in rows
        ]
        columns = {name: name.capitalize() for name in (noun, *names)}
        render.print_table(shown, columns, spare=tuple(reversed(names[1:])))


def _say_change(name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    was, is_ = ("–" if side is None or side[name] is None else str(side[name])[:12] for side in (before, after))
    return is_ if was == is_ else f"{was} → {is_}"
