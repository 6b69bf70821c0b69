"""Logs that are text: aider's chat history, in Markdown, and whatever another program writes.

In aider's history, `####` is what the user says, `>` what aider did and was told, and the rest what the model says.
"""

from collections.abc import Iterator
from typing import BinaryIO

from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.seance.readers.lines import MAX_LINE, read_lines
from hivekeeper.seance.readers.parts import answered, failed

MAX_BLOCK = 64 << 10
_ERRORS = ("error", "exception", "traceback", "failed", "fatal", "can't", "cannot")
_RUNS = ("Running ", "> Running ")


def read(file: BinaryIO) -> Iterator[Excerpt]:
    """Read a log: each paragraph that somebody says, at its first line."""
    lines, size, first, kind = list[str](), 0, 0, ""
    for number, raw in read_lines(file):
        if raw is None:
            yield Excerpt(Role.UNREAD, f"the line is longer than {MAX_LINE >> 20} MiB", number)
            continue
        line = raw.decode("utf-8", "replace").rstrip()
        now = _tell(line)
        if lines and (now != kind or size > MAX_BLOCK):
            yield from _give(kind, "\n".join(lines), first)
            lines, size = [], 0
        if line and not lines:
            first = number
        if line or lines:
            lines.append(line)
            size += len(line)
        kind = now
    yield from _give(kind, "\n".join(lines), first)


def _tell(line: str) -> str:
    """Tell who says a line."""
    if line.startswith("#### "):
        return "user"
    if line.startswith("> "):
        return "aider"
    return "model" if line else ""


def _give(kind: str, text: str, position: int) -> Iterator[Excerpt]:
    text = text.strip()
    if not text or kind == "user":
        return
    if kind == "model":
        yield Excerpt(Role.SAID, text, position)
        return
    words = "\n".join(line.removeprefix("> ") for line in text.splitlines())
    if words.startswith(_RUNS):
        yield Excerpt(Role.CALLED, f"shell: {words.removeprefix('Running ')}", position)
    elif any(sign in words.lower() for sign in _ERRORS):
        yield from (Excerpt(each.role, each.text, position) for each in failed(words))
    else:
        yield from (Excerpt(each.role, each.text, position) for each in answered(words))
