"""Logs of JSON lines: what a line means is said by the program's own file.

A program is known by the shape of its lines, not by its name: a runner of a person's own may write the same.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.seance.readers import acp, claude, codex, copilot, gemini, pi, qwen
from hivekeeper.seance.readers.lines import MAX_LINE, read_lines
from hivekeeper.seance.readers.parts import read_time

MAX_JOINED = 64 << 10
MAX_TOLD = 5  # lines that cannot be read, each by its number
_PROGRAMS = (claude, codex, qwen, gemini, pi, copilot, acp)


def read(file: BinaryIO) -> Iterator[Excerpt]:
    """Read a log."""
    is_known, unread, number = False, 0, 0
    chunks: Excerpt | None = None  # what is said bit by bit
    for number, line in read_lines(file):
        event = _parse(line)
        if isinstance(event, dict):
            for excerpt in read_event(event):
                is_known = True
                placed = replace(excerpt, position=number, at=excerpt.at or read_time(event.get("timestamp")))
                if acp.knows(event) and excerpt.role is Role.SAID:
                    chunks = replace(chunks, text=chunks.text + excerpt.text) if chunks else placed
                    if len(chunks.text) < MAX_JOINED:
                        continue
                    placed, chunks = chunks, None
                elif chunks:
                    yield chunks
                    chunks = None
                yield placed
        elif why := _find_problem(line):
            unread += 1
            if unread <= MAX_TOLD:
                yield Excerpt(Role.UNREAD, why, number)
    if chunks:
        yield chunks
    if unread > MAX_TOLD:
        yield Excerpt(Role.UNREAD, f"{unread} lines of it cannot be read")
    if not is_known:
        yield Excerpt(Role.UNREAD, f"none of its {number} lines is of a program that is known")


def read_event(event: dict[str, Any]) -> Iterator[Excerpt]:
    """Read what a JSON object means to the first program that knows it."""
    for program in _PROGRAMS:
        if program.knows(event):
            yield from program.read_event(event)
            return


def _parse(line: bytes | None) -> object:
    try:
        return json.loads(line) if line else None
    except (ValueError, RecursionError):
        return None


def _find_problem(line: bytes | None) -> str:
    """Say why a line cannot be read; "" for an empty one."""
    if line is None:
        return f"the line is longer than {MAX_LINE >> 20} MiB"
    if not line.strip():
        return ""
    return "the line is no JSON object" if line.endswith(b"\n") else "the last line is torn: it may still be written"
