"""Cuts a file into numbered lines, in bounded memory."""

from collections.abc import Iterator
from typing import BinaryIO

MAX_LINE = 4 << 20


def read_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Read lines, each with its number; None for one that is longer than any a program writes."""
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        if line.endswith(b"\n") or len(line) < MAX_LINE:
            yield number, line
            continue
        while (line := file.readline(MAX_LINE)) and not line.endswith(b"\n"):
            pass
        yield number, None
