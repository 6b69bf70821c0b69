"""Keep what an agent program wrote of its session in its sandbox, compressed and capped, before the sandbox is removed.

Run as a script by a bare interpreter: `session_log.py SANDBOX TARGET PATTERN...`. A worker may have put anything there:
every part of a path is opened beneath the one before it, no link is followed, and only plain files are read.
"""

import contextlib
import fnmatch
import gzip
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

LARGEST = 16 << 20  # of one file; of a larger one the end is kept
MAX_FILES = 16
_MAX_ENTRIES = 100_000
_CHUNK = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def find_logs(sandbox: str, patterns: Sequence[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Find the files that match, each open for reading at what is worth keeping of it."""
    found = 0
    for pattern in patterns:
        with contextlib.suppress(OSError):
            top = os.open(sandbox, _DIRECTORY)
            for name, file in _find_beneath(top, pattern.split("/")):
                with file:
                    if found < MAX_FILES:
                        yield name, file
                found += 1


def _find_beneath(directory: int, parts: Sequence[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Find files below an open directory, which is closed at the end."""
    first, *rest = parts
    try:
        for name in _list(directory, first):
            with contextlib.suppress(OSError):
                opened = os.open(name, _DIRECTORY if rest else _FILE, dir_fd=directory)
                if rest:
                    yield from _find_beneath(opened, rest)
                elif (file := _open_plain(opened)) is not None:
                    yield name, file
    finally:
        os.close(directory)


def _list(directory: int, pattern: str) -> list[str]:
    """List the names that match in a directory; one without a wildcard need not be looked for."""
    if not any(sign in pattern for sign in "*?["):
        return [pattern]
    with os.scandir(directory) as entries:
        names = [entry.name for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False)]
    return sorted(fnmatch.filter(names, pattern))


def _open_plain(descriptor: int) -> BinaryIO | None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        return None
    file = os.fdopen(descriptor, "rb")
    file.seek(max(0, found.st_size - LARGEST))
    return file


def keep_logs(sandbox: str, target: str, patterns: Sequence[str]) -> None:
    """Keep them; a repeat after a crash keeps the same again, and never less than a file that is there."""
    names: list[str] = []
    place = Path(target)
    for name, file in find_logs(sandbox, patterns):
        place.mkdir(parents=True, exist_ok=True)
        kept, draft = place / f"{len(names)}-{name}.gz" if name in names else place / f"{name}.gz", place / "new"
        names.append(name)
        with draft.open("wb") as raw:
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                left = LARGEST
                while left > 0 and (words := file.read(min(_CHUNK, left))):
                    packed.write(words)
                    left -= len(words)
            raw.flush()
            os.fsync(raw.fileno())
        draft.replace(kept)


if __name__ == "__main__":
    keep_logs(sys.argv[1], sys.argv[2], sys.argv[3:])
