"""Reads of the index of excerpts that deserve a sentence, by name; documents are given by their numbers."""

import json
from collections.abc import Iterable

from hivekeeper.domain.excerpt import Cited, Excerpt, Role
from hivekeeper.store.asking import read_sql
from hivekeeper.store.database import Connection


def search_excerpts(connection: Connection, words: str, documents: Iterable[int], limit: int) -> list[Cited]:
    """Search for words, the best excerpts first."""
    return _list(connection, "search_excerpts", documents, limit, words=words)


def search_common(connection: Connection, words: str, documents: Iterable[int], limit: int) -> list[Cited]:
    """Search for words that nearly all excerpts have, the newest excerpts first."""
    return _list(connection, "search_common", documents, limit, words=words)


def list_last_excerpts(
    connection: Connection, role: Role, documents: Iterable[int], limit: int, each: int
) -> list[Cited]:
    """List the last excerpts of a role in each document."""
    return _list(connection, "list_last_excerpts", documents, limit, role=role.value, each=each)


def list_repeated_calls(connection: Connection, documents: Iterable[int], limit: int) -> list[Cited]:
    """List the calls that were made most often."""
    return _list(connection, "list_repeated_calls", documents, limit)


def _list(connection: Connection, query: str, documents: Iterable[int], limit: int, **more: str | int) -> list[Cited]:
    asked = {"documents": json.dumps(list(documents)), "limit": limit, **more}
    rows = connection.rows(read_sql(query), asked)
    return [Cited(row[0], row[1], row[2], Excerpt(Role(row[3]), row[4], row[5], row[6])) for row in rows]
