"""Every format of a session log: what is in it is read with its place, and what cannot be read is named."""

import json
import random
import sqlite3
import tracemalloc
from pathlib import Path

import pytest

from hivekeeper.domain.excerpt import MAX_PIECE, Excerpt, Role, split_long
from hivekeeper.seance.readers import read_log
from hivekeeper.seance.readers.lines import MAX_LINE
from tests.seance.logs import FACT, LOGS, write_goose

MIB = 1 << 20


def read(path: Path, wal: Path | None = None) -> list[Excerpt]:
    with path.open("rb") as file:
        if wal is None:
            return list(read_log(path.name, file))
        with wal.open("rb") as beside:
            return list(read_log(path.name, file, beside))


def find_unread(excerpts: list[Excerpt]) -> list[tuple[int, str]]:
    return [(each.position, each.text) for each in excerpts if each.role is Role.UNREAD]


@pytest.mark.parametrize("program", LOGS)
def test_what_was_said_called_answered_and_failed_is_read_with_its_place(program: str, tmp_path: Path) -> None:
    name, write = LOGS[program]
    place = write(tmp_path / name)
    found = read(tmp_path / name)
    assert [each.position for each in found if FACT in each.text] == [place]
    errors = [each for each in found if each.role is Role.ERROR]
    assert ["ls: no" in each.text for each in errors] == [True], "what failed is an error, and nothing else is"
    assert [each.text for each in found if each.role is Role.SAID][-1] == "All done."
    if program != "aider":
        assert any(each.role is Role.CALLED and "cat port.txt" in each.text for each in found)
    assert not any("the task" in each.text for each in found), "the task is known"
    assert find_unread(found) == []


@pytest.mark.parametrize("program", LOGS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
def test_a_torn_log_gives_what_is_there_and_says_that_it_is_torn(program: str, share: float, tmp_path: Path) -> None:
    name, write = LOGS[program]
    write(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: int(len(data) * share)])
    found = read(tmp_path / name)
    is_whole = any(each.text == "All done." for each in found)  # of a database, the last page may hold nothing
    assert find_unread(found) or is_whole or (program == "aider" and share)


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.db", "x.md", "x"])
def test_whatever_bytes_a_log_has_nothing_is_raised(name: str, tmp_path: Path) -> None:
    path, rng = tmp_path / name, random.Random(name)  # noqa: S311 - bytes of any kind
    whole = b"".join(_write(program, tmp_path) for program in LOGS)
    for _ in range(60):
        kind = rng.randrange(4)
        if kind == 0:
            data = rng.randbytes(rng.randrange(5000))
        elif kind == 1:
            data = b"SQLite format 3\0" + rng.randbytes(rng.randrange(9000))
        elif kind == 2:
            data = bytes(rng.choice(b'{}[]",:\\\n a1') for _ in range(rng.randrange(3000)))
        else:
            start = rng.randrange(len(whole))
            data = bytearray(whole[start : start + rng.randrange(20_000)])  # type: ignore[assignment]
            for _ in range(rng.randrange(20)):
                data[rng.randrange(len(data))] = rng.randrange(256)  # type: ignore[index]
        path.write_bytes(data)
        for excerpt in read(path):
            excerpt.text.encode()  # what is stored has no halves of characters


def _write(program: str, directory: Path) -> bytes:
    name, write = LOGS[program]
    path = directory / f"{program}-{name}"
    write(path)
    return path.read_bytes()


WORDS = [
    "type",
    "message",
    "content",
    "parts",
    "payload",
    "data",
    "role",
    "assistant",
    "user",
    "gemini",
    "text",
    "toolCalls",
    "response_item",
    "function_call",
    "tool.execution_complete",
    "jsonrpc",
    "params",
    "update",
    "sessionUpdate",
    "tool_call_update",
    "status",
    "failed",
    "functionResponse",
    "response",
    "error",
    "name",
]


def test_json_of_the_wrong_shape_is_passed_over(tmp_path: Path) -> None:
    path, rng = tmp_path / "session.jsonl", random.Random(1)  # noqa: S311 - shapes of any kind

    def make(depth: int) -> object:
        kind = rng.randrange(7 if depth < 4 else 4)
        if kind >= 4:
            count = rng.randrange(4)
            return (
                [make(depth + 1) for _ in range(count)]
                if kind == 4
                else {rng.choice(WORDS): make(depth + 1) for _ in range(count + 2)}
            )
        return (rng.choice(WORDS), rng.randrange(-5, 10**12), None, "\ud800" if depth else True)[kind]

    keys = WORDS[:9]
    events = ({"type": make(0), **{key: make(1) for key in keys}} for _ in range(3000))
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    for excerpt in read(path):
        excerpt.text.encode()


def test_lines_that_are_no_json_are_named_by_their_number_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    LOGS["claude"][1](path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "not json", "x" * (MAX_LINE + 10), *lines[1:], '{"type": "assist']))
    found = read(path)
    assert [each.position for each in found if FACT in each.text] == [6]
    assert find_unread(found) == [
        (2, "the line is no JSON object"),
        (3, "the line is longer than 4 MiB"),
        (9, "the last line is torn: it may still be written"),
    ]


def test_a_log_of_no_known_program_a_binary_and_an_empty_one_are_said_to_be_that(tmp_path: Path) -> None:
    for name, data, said in (
        ("a.jsonl", b'{"what": 1}\n{"ever": 2}\n', "none of its 2 lines is of a program that is known"),
        ("a.bin", b"\x7fELF\0\0\0", "it is neither text nor a database"),
        ("a.md", b"", "it is empty"),
        ("a.json", b'{"messages": 3}', "it is no trajectory that is known"),
    ):
        (tmp_path / name).write_bytes(data)
        assert find_unread(read(tmp_path / name)) == [(0, said)]


def test_what_a_database_has_only_in_its_write_ahead_log_is_read(tmp_path: Path) -> None:
    """A program that was killed leaves it there."""
    path, copy = tmp_path / "sessions.db", tmp_path / "copy"
    write_goose(path)
    copy.mkdir()
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = wal")
    said = json.dumps([{"type": "text", "text": "written last"}])
    database.execute("INSERT INTO messages (role, content_json, created_timestamp) VALUES ('assistant', ?, 1)", (said,))
    database.commit()
    for name in ("sessions.db", "sessions.db-wal"):
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    database.close()
    assert read(copy / "sessions.db", copy / "sessions.db-wal")[-1] == Excerpt(
        Role.SAID, "written last", 6, "1970-01-01T00:00:01.000000Z"
    )
    assert "written last" not in str(read(copy / "sessions.db"))


def test_a_database_whose_schema_is_a_trap_is_not_followed(tmp_path: Path) -> None:
    counting = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    rows = "SELECT i AS id, 'assistant' AS role, '[]' AS content_json, 1 AS created_timestamp FROM n"
    content = "content_json TEXT DEFAULT (hex(zeroblob(9000000)))"
    huge = f"CREATE TABLE messages (id INTEGER, role TEXT, {content}, created_timestamp)"
    for name, statements in {
        "view.db": (f"CREATE VIEW messages AS {counting} {rows}",),
        "huge.db": (huge, "INSERT INTO messages (id) VALUES (1)"),
    }.items():
        database = sqlite3.connect(tmp_path / name)
        database.execute("CREATE TABLE sessions (id TEXT)")
        for statement in statements:
            database.execute(statement)
        database.commit()
        database.close()
        assert find_unread(read(tmp_path / name)), name


def test_a_log_that_grows_while_it_is_read_comes_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    LOGS["claude"][1](path)
    found = list[Excerpt]()
    with path.open("rb") as file, path.open("ab") as more:
        for excerpt in read_log(path.name, file):
            if len(found) < 20:
                more.write(path.read_bytes()[-200:])
                more.flush()
            found.append(excerpt)
    assert len(found) < 100


@pytest.mark.parametrize("program", ["claude", "aider", "mini", "goose"])
def test_a_log_of_a_hundred_megabytes_is_read_in_bounded_memory(program: str, tmp_path: Path) -> None:
    """In small here; `make bench-seance` reads a hundred."""
    name, write = LOGS[program]
    path = tmp_path / name
    write(path)
    _grow(program, path, 24 * MIB)
    tracemalloc.start()
    count = 0
    with path.open("rb") as file:
        for _ in read_log(name, file):
            count += 1
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count > 1000
    assert most < 8 * MIB


def _grow(program: str, path: Path, size: int) -> None:
    text = "word " * 2000
    if program == "goose":
        database, row = sqlite3.connect(path), json.dumps([{"type": "text", "text": text}])
        rows = (("assistant", row, 1) for _ in range(size // len(row)))
        database.executemany("INSERT INTO messages (role, content_json, created_timestamp) VALUES (?, ?, ?)", rows)
        database.commit()
        database.close()
        return
    if program == "mini":
        many = ({"role": "assistant", "content": text} for _ in range(size // len(text)))
        head = path.read_text().removesuffix('], "trajectory_format": "mini-swe-agent-1.1"}')
        with path.open("w") as file:
            file.write(head)
            file.writelines(f", {json.dumps(message)}" for message in many)
            file.write("]}")
        return
    piece = path.read_bytes().replace(b"All done.", text.encode())
    with path.open("ab") as raw:
        for _ in range(size // len(piece)):
            raw.write(piece)


def test_a_long_text_is_several_excerpts_of_the_same_place() -> None:
    text = "\n".join(f"line {number} of a long answer" for number in range(1000))
    pieces = list(split_long(Excerpt(Role.ANSWERED, text, 7)))
    assert "\n".join(piece.text for piece in pieces) == text
    assert {piece.position for piece in pieces} == {7}
    assert max(len(piece.text) for piece in pieces) <= MAX_PIECE
