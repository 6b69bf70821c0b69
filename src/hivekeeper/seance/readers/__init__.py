"""Readers of session logs, one file a format; each reads what an agent program wrote as excerpts.

A log is a worker's: it may be torn, binary, endless, still growing or no log at all. What cannot be read becomes an
excerpt that says so, and nothing is raised. `read_log` finds the format by the content.
"""

from collections.abc import Callable, Iterator
from typing import BinaryIO

from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.seance.readers import databases, json_lines, markdown, trajectory
from hivekeeper.store.sqlite import DATABASE_MAGIC

_HEAD = 4096


def read_log(name: str, file: BinaryIO, wal: BinaryIO | None = None) -> Iterator[Excerpt]:
    """Read a log from its beginning; `wal` is the write-ahead log of one that is a database."""
    try:
        file.seek(0)
        head = file.read(_HEAD)
        file.seek(0)
        yield from _choose(name, head, wal)(file)
    except OSError as error:
        yield Excerpt(Role.UNREAD, f"it cannot be read: {error.strerror or error}")


def _choose(name: str, head: bytes, wal: BinaryIO | None) -> Callable[[BinaryIO], Iterator[Excerpt]]:
    if head.startswith(DATABASE_MAGIC):
        return lambda file: databases.read(file, wal)
    if not head:
        return _read_nothing
    if b"\0" in head:
        return _refuse_binary
    if name.endswith(".json"):
        return trajectory.read
    if head.lstrip().startswith(b"{"):
        return json_lines.read
    return markdown.read


def _refuse_binary(_file: BinaryIO) -> Iterator[Excerpt]:
    yield Excerpt(Role.UNREAD, "it is neither text nor a database")


def _read_nothing(_file: BinaryIO) -> Iterator[Excerpt]:
    yield Excerpt(Role.UNREAD, "it is empty")
