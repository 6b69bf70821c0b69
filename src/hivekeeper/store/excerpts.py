"""The index of excerpts: a database of its own beside the ledger, which can be made again from it and from the logs.

A document is written whole, in one transaction, or not at all. Nothing the hive decides depends on what is in it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from hivekeeper.domain.excerpt import Cited, Excerpt, Role, split_long
from hivekeeper.errors import UnavailableError
from hivekeeper.store.database import Parameters
from hivekeeper.store.excerpt_queries import (
    list_last_excerpts,
    list_repeated_calls,
    search_common,
    search_excerpts,
)
from hivekeeper.store.sqlite import SqliteConnection, StatementError, open_index, remove_database

VERSION = 1  # higher whenever the statements or the readers change: an index of another version is made again
MAX_WORDS = 12  # of a question
_ROWS_AT_ONCE = 256
_COMMON_FROM = 10_000  # excerpts
_WORD = re.compile(r"\w+(?:[./:-]\w+)*")
_COMMON = re.compile(
    r"an?|about|and|any|are|as|at|be|been|but|by|can|could|did|do|does|for|from|had|has|have|how|i|in|is|its?|of|on|or|our"
    r"|so|that|the|theirs?|them|there|they|this|to|was|we|were|what|when|where|which|who|why|will|with|would|you",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Document:
    """What excerpts are from; `stamp` is another when its content is."""

    id: int
    task: str
    attempt: int
    name: str
    stamp: str


class ExcerptIndex:
    """An open index."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open it; a writer makes one that is missing, of another version or damaged."""
        self.path = path
        with _explained(path):
            self._connection = open_index(path, _read_schema(), VERSION, read_only=read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._connection.raw.close()

    # --- writing ------------------------------------------------------------------------------------------------------

    def put(self, task: str, attempt: int, name: str, stamp: str, excerpts: Iterable[Excerpt]) -> Iterator[int]:
        """Write a document in place of what it was; it yields how many excerpts it has now and then.

        Left before its end, it has written nothing.
        """
        with _explained(self.path), _transaction(self._connection):
            row = self._connection.rows("SELECT coalesce(max(id), 0) + 1 FROM document")[0][0]
            self._remove(task, attempt, name)
            self._connection.run("INSERT INTO document VALUES (?, ?, ?, ?, ?)", (row, task, attempt, name, stamp))
            pieces = (piece for whole in excerpts for piece in split_long(whole))
            for number, excerpt in enumerate(pieces):
                key = (row << 32) + number
                values = (key, excerpt.role.value, excerpt.position, excerpt.at, excerpt.text)
                self._connection.run("INSERT INTO excerpt VALUES (?, ?, ?, ?, ?)", values)
                if excerpt.role is not Role.UNREAD:
                    self._connection.run("INSERT INTO words (rowid, text) VALUES (?, ?)", (key, excerpt.text))
                if number % _ROWS_AT_ONCE == _ROWS_AT_ONCE - 1:
                    yield number

    def _remove(self, task: str, attempt: int, name: str) -> None:
        found = self._connection.rows(
            "SELECT id FROM document WHERE task = ? AND attempt = ? AND name = ?", (task, attempt, name)
        )
        for (row,) in found:
            for table, key in (("words", "rowid"), ("excerpt", "id")):
                # Names of our own; every value is a bound parameter.
                sql = f"DELETE FROM {table} WHERE {key} BETWEEN ? AND ?"  # noqa: S608 - see above
                self._connection.run(sql, (row << 32, (row << 32) + 0xFFFFFFFF))
            self._connection.run("DELETE FROM document WHERE id = ?", (row,))

    def note_progress(self, seq: int) -> None:
        """Note up to which event of the ledger everything is collected."""
        with _explained(self.path):
            self._connection.run("UPDATE progress SET seq = ?", (seq,))

    def make_again(self) -> None:
        """Replace it by an empty one, whatever is wrong with it."""
        self.close()
        with _explained(self.path):
            remove_database(self.path)
            self._connection = open_index(self.path, _read_schema(), VERSION, read_only=False)

    # --- reading ------------------------------------------------------------------------------------------------------

    def find_progress(self) -> int:
        """Find up to which event of the ledger everything is collected."""
        return int(self._ask("SELECT seq FROM progress")[0][0])

    def find_problem(self) -> str:
        """Find what is wrong with the file; "" if nothing is."""
        found = str(self._ask("PRAGMA quick_check(1)")[0][0])
        version = self._ask("PRAGMA user_version")[0][0]
        return found if found != "ok" else "" if version == VERSION else f"it is of version {version}"

    def list_documents(self, attempts: Iterable[tuple[str, int]]) -> list[Document]:
        """List the documents of attempts, in their order."""
        wanted = json.dumps([list(each) for each in attempts])
        sql = """SELECT document.* FROM json_each(:wanted) AS wanted
                 JOIN document ON task = wanted.value ->> 0 AND attempt = wanted.value ->> 1 ORDER BY wanted.key, id"""
        return [Document(*row) for row in self._ask(sql, {"wanted": wanted})]

    def search(self, question: str, documents: Sequence[Document], limit: int) -> list[Cited]:
        """Search for the words of a question, the best excerpts first; those with all of them come before others."""
        words = find_words(question)
        rare = [word for word in words if not self._is_common(word)]
        ids = [document.id for document in documents]
        found = list[Cited]()
        for operator in ("AND", "OR"):
            asked = f" {operator} ".join(f'"{word}"' for word in rare or words)
            if asked and len(found) < limit:
                with _explained(self.path):
                    more = (search_excerpts if rare else search_common)(self._connection, asked, ids, limit)
                found += [each for each in more if each not in found]
        return found[:limit]

    def _is_common(self, word: str) -> bool:
        """Whether so many excerpts have a word that it says little, and ranking by it takes long."""
        sql = f"SELECT 1 FROM words WHERE words MATCH ? LIMIT 1 OFFSET {_COMMON_FROM}"  # noqa: S608 - a number of ours
        return bool(self._ask(sql, (f'"{word}"',)))

    def list_last(self, role: Role, documents: Sequence[Document], limit: int, each: int = 1) -> list[Cited]:
        """List the last excerpts of a role in each document."""
        with _explained(self.path):
            return list_last_excerpts(self._connection, role, (document.id for document in documents), limit, each)

    def list_repeated(self, documents: Sequence[Document], limit: int) -> list[Cited]:
        """List the calls that were made most often."""
        with _explained(self.path):
            return list_repeated_calls(self._connection, (document.id for document in documents), limit)

    def _ask(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        with _explained(self.path):
            return self._connection.rows(sql, parameters)


def find_words(question: str) -> list[str]:
    """Find what is worth searching for in a question; if it is nothing but common words, those."""
    words = list(dict.fromkeys(_WORD.findall(question)))
    return ([word for word in words if not _COMMON.fullmatch(word)] or words)[:MAX_WORDS]


@contextmanager
def _transaction(connection: SqliteConnection) -> Iterator[None]:
    connection.run("BEGIN IMMEDIATE")
    try:
        yield
        connection.run("COMMIT")
    finally:
        if connection.raw.in_transaction:
            connection.run("ROLLBACK")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except StatementError as error:
        what = f"The index of what agents did, {path}, cannot be used: {error}."
        raise UnavailableError(what, advice="It can be made again at any time. Type: hive doctor --fix") from error


@cache
def _read_schema() -> str:
    return Path(__file__).with_name("excerpts.sql").read_text("utf-8")
