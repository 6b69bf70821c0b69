"""Reads and writes the files of agents.

They are people's own, below `.hive`, where no worker can write. Still nothing but a plain file of a bounded size is
read, so that a link, a pipe or a device by mistake harms nothing.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 1 << 20
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Found:
    """A file: its text, or what is wrong with it; neither if there is none."""

    text: str | None = None
    problem: str = ""


def read_file(path: Path) -> Found:
    """Read a file of an agent."""
    try:
        descriptor = os.open(path, _FILE)
    except FileNotFoundError:
        return Found()
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        return Found(problem="it is a link, which is not followed" if is_link else f"cannot be read: {error.strerror}")
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        return Found(problem="it is no plain file")
    with os.fdopen(descriptor, "rb") as file:
        if found.st_size > MAX_BYTES:
            return Found(problem=f"it is larger than {MAX_BYTES >> 20} MiB")
        try:
            return Found(file.read(MAX_BYTES).decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            return Found(problem=f"it is not UTF-8 text, from byte {error.start} on")


def write_file(path: Path, text: str) -> None:
    """Write a file whole, synced, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    with suppress(FileNotFoundError):
        draft.unlink()
    with draft.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_stamp(path: Path) -> tuple[int, int, int] | None:
    """Read what is another when a file was changed or replaced; None if there is none."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def list_directories(path: Path) -> Iterator[str]:
    """List the directories in a directory."""
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        yield from sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
