"""Logs that are SQLite databases: goose's sessions and OpenCode's.

The database is a worker's: it is copied first, up to a size, with its write-ahead log, and the copy is read with as
little trust as SQLite can have. Rows come one at a time, and what takes too long is left.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.runners.reading import as_text, at
from hivekeeper.seance.readers.parts import answered, called, failed, list_blocks, read_time, said
from hivekeeper.store.sqlite import StatementError, reading_foreign

MAX_COPIED = 256 << 20
_CHUNK = 1 << 20
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


def read(file: BinaryIO, wal: BinaryIO | None = None) -> Iterator[Excerpt]:
    """Read a database."""
    with tempfile.TemporaryDirectory(prefix="hive-log-") as directory:
        copy = Path(directory) / "log.db"
        if not _copy(file, copy) or (wal is not None and not _copy(wal, copy.with_name("log.db-wal"))):
            yield Excerpt(Role.UNREAD, f"it is a database of more than {MAX_COPIED >> 20} MiB")
            return
        try:
            with reading_foreign(copy) as ask:
                tables = {name for (name,) in ask(_TABLES)}
                if (found := next((each for each in _PROGRAMS if each.tables <= tables), None)) is None:
                    yield Excerpt(Role.UNREAD, "it is a database of no program that is known")
                    return
                yield from _read_rows(ask(found.query), found.read_row)
        except StatementError as error:
            yield Excerpt(Role.UNREAD, f"the database cannot be read to its end: {error}")


def _read_rows(rows: Iterator[tuple[Any, ...]], read_row: Callable[[str, Any], Iterator[Excerpt]]) -> Iterator[Excerpt]:
    for row, at_, role, text in rows:
        position = row if isinstance(row, int) else 0
        try:
            content = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            yield Excerpt(Role.UNREAD, "the row is no JSON", position)
            continue
        for excerpt in read_row(as_text(role), content):
            yield replace(excerpt, position=position, at=read_time(at_))


def _copy(file: BinaryIO, target: Path) -> bool:
    """Copy a file; False if it is too large."""
    left = MAX_COPIED
    with target.open("xb") as copy:
        while left > 0 and (words := file.read(min(_CHUNK, left))):
            copy.write(words)
            left -= len(words)
    return not file.read(1)


def _read_goose(role: str, content: object) -> Iterator[Excerpt]:
    for block in list_blocks({"content": content}, "content"):
        match block.get("type"):
            case "text" if role == "assistant":
                yield from said(block.get("text"))
            case "toolRequest":
                call = at(block, "toolCall", "value") or {}
                yield from called(at(call, "name"), at(call, "arguments"))
            case "toolResponse":
                result = block.get("toolResult")
                if isinstance(result, dict) and result.get("error"):
                    yield from failed(result["error"])
                else:
                    value = at(block, "toolResult", "value")
                    yield from answered(value, is_error=isinstance(value, dict) and bool(value.get("isError")))


def _read_opencode(role: str, part: object) -> Iterator[Excerpt]:
    if not isinstance(part, dict):
        return
    match part.get("type"):
        case "text" if role == "assistant" and not part.get("synthetic"):
            yield from said(part.get("text"))
        case "tool":
            yield from called(part.get("tool"), at(part, "state", "input"))
            if at(part, "state", "status") == "error":
                yield from failed(at(part, "state", "error"))
            else:
                yield from answered(at(part, "state", "output"))


@dataclass(frozen=True, slots=True)
class _Program:
    """How a program's database is asked: row, time, role and content of each message, in order."""

    tables: frozenset[str]
    query: str
    read_row: Callable[[str, Any], Iterator[Excerpt]]


_PROGRAMS = (
    _Program(
        frozenset({"sessions", "messages"}),
        "SELECT id, created_timestamp, role, content_json FROM messages ORDER BY id",
        _read_goose,
    ),
    _Program(
        frozenset({"message", "part"}),
        """SELECT part.rowid, part.time_created, json_extract(message.data, '$.role'), part.data
           FROM part JOIN message ON message.id = part.message_id ORDER BY part.rowid""",
        _read_opencode,
    ),
)
