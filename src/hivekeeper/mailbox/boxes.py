"""The hive's side of a mailbox.

Everything below a mailbox belongs to its worker, who may swap any of it for a link while it is read. So a mailbox is
opened one name at a time without following links, files are read through descriptors, and what is not a small regular
file with one name is not read at all.
"""

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hivekeeper.domain.mail import MAX_RAW, Unreadable
from hivekeeper.domain.protocol import MAX_DEPTH

MAX_BYTES = 1 << 20
MAX_NAME = 200
MAX_LISTED = 10_000
INBOX, OUTBOX, ACKNOWLEDGED, SENT = "inbox", "outbox", ".done", ".sent"
_DONE, _SENT = f"{INBOX}/{ACKNOWLEDGED}", f"{OUTBOX}/{SENT}"
BAD = "bad-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Listed:
    """A name in an outbox, and what changes when its file does."""

    name: str
    stamp: tuple[int, int, int]
    at_ns: int


@dataclass(frozen=True, slots=True)
class Read:
    """What a file holds: its JSON, or why it is no message; an incomplete one may still become one."""

    digest: str
    said: object = None
    text: str = ""
    problem: Unreadable | None = None
    may_be_incomplete: bool = False


def has_unread(path: Path, delivered: Iterable[str]) -> bool:
    """Whether a mailbox holds what the router has not recorded: a message, or an acknowledgement of these names."""
    try:
        with Mailbox(path) as box:
            return bool(box.list_outbox()) or any(box.find_place(name) != INBOX for name in delivered)
    except OSError:
        return False


class Mailbox:
    """An open mailbox. A directory that its worker removed is missing; it is made again only to be written to."""

    def __init__(self, path: Path) -> None:
        """Open it; an OSError if it is missing, or one of its directories is something else."""
        self._open: dict[str, int] = {}
        try:
            above = os.open(path.parent, _DIRECTORY)
            try:
                self._open[""] = os.open(path.name, _DIRECTORY, dir_fd=above)
            finally:
                os.close(above)
            for name in (INBOX, OUTBOX, _DONE, _SENT):
                with contextlib.suppress(FileNotFoundError):
                    self._enter(name)
        except OSError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its directories."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _enter(self, place: str, *, make: bool = False) -> int:
        """Open one of its directories, and make it if it is missing."""
        if place in self._open:
            return self._open[place]
        above, _, name = place.rpartition("/")
        directory = self._enter(above, make=make) if above else self._open[""]
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=directory)
        self._open[place] = os.open(name, _DIRECTORY, dir_fd=directory)
        return self._open[place]

    # --- outbox -----------------------------------------------------------------------------------------------------

    def list_outbox(self) -> list[Listed]:
        """List what lies in the outbox, in the order in which it was written; names with a dot in front are drafts."""
        listed: list[Listed] = []
        if OUTBOX not in self._open:
            return listed
        outbox = self._open[OUTBOX]
        with os.scandir(outbox) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_LISTED:
                    break
                if entry.name.startswith("."):
                    continue
                with contextlib.suppress(OSError):
                    found = os.stat(entry.name, dir_fd=outbox, follow_symlinks=False)
                    stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
                    listed.append(Listed(entry.name, stamp, found.st_mtime_ns))
        return sorted(listed, key=lambda each: (each.at_ns, each.name))

    def read(self, listed: Listed) -> Read | None:
        """Read a file of the outbox; None if it is gone."""
        name = listed.name
        mark = f"{listed.stamp[1]}-{listed.stamp[2]}"
        if len(name) > MAX_NAME or not name.isprintable():
            return _refuse(mark, "its name is too long, or holds characters that cannot be printed")
        try:
            descriptor = os.open(name, _FILE, dir_fd=self._enter(OUTBOX))
        except FileNotFoundError:
            return None
        except OSError as error:
            return _refuse(mark, f"it cannot be opened: {error.strerror}")
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return _refuse(mark, "it is not a regular file")
            if found.st_nlink > 1:
                return _refuse(mark, "it has several names (hard links)", may_be_incomplete=True)
            if found.st_size > MAX_BYTES:
                return _refuse(mark, f"it is larger than {MAX_BYTES >> 20} MiB", may_be_incomplete=True)
            data = b"".join(_read_all(descriptor))
        finally:
            os.close(descriptor)
        if len(data) > MAX_BYTES:
            return _refuse(mark, f"it is larger than {MAX_BYTES >> 20} MiB")
        return read_json(data)

    def finish(self, name: str, reason: str = "") -> None:
        """Move a file to `.sent/NAME`, or if it was refused to `.sent/bad-NAME` beside the reason."""
        if not reason:
            self._move(name, name)
            return
        bad = f"{BAD}{name}"
        if len(bad) > MAX_NAME:
            bad = f"{BAD}{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(f"{bad}.reason", _NEW, 0o600, dir_fd=self._enter(_SENT, make=True))
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{reason}\n")
        self._move(name, bad)

    def _move(self, name: str, target: str) -> None:
        """Rename a file; one that was sent under this name before stays, with a number."""
        number, free, sent = 1, target, self._enter(_SENT, make=True)
        while True:
            try:
                os.stat(free, dir_fd=sent, follow_symlinks=False)
            except FileNotFoundError:
                break
            number += 1
            free = f"{target}~{number}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(name, free, src_dir_fd=self._enter(OUTBOX), dst_dir_fd=sent)

    # --- inbox ------------------------------------------------------------------------------------------------------

    def deliver(self, name: str, message: Mapping[str, Any]) -> None:
        """Put a message into the inbox, whole: written, synced, then renamed."""
        draft, inbox = f".{name}.part", self._enter(INBOX, make=True)  # some programs list hidden files too
        self._enter(_DONE, make=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=inbox)
        descriptor = os.open(draft, _NEW, 0o600, dir_fd=inbox)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(message, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(descriptor)
        os.rename(draft, name, src_dir_fd=inbox, dst_dir_fd=inbox)

    def find_place(self, name: str) -> str:
        """Find where a delivered message is: in the inbox, acknowledged in `.done`, or "" if it is gone."""
        for directory, place in ((INBOX, INBOX), (_DONE, ACKNOWLEDGED)):
            if directory in self._open:
                with contextlib.suppress(FileNotFoundError):
                    os.stat(name, dir_fd=self._open[directory], follow_symlinks=False)
                    return place
        return ""


def read_json(data: bytes) -> Read:
    """Read a message strictly: UTF-8, no duplicate keys, no NaN, no lone surrogates, not too deep."""
    digest = hashlib.sha256(data).hexdigest()
    text = data.decode("utf-8", "backslashreplace")[:MAX_RAW]
    if _is_too_deep(data):
        return Read(digest, problem=Unreadable(f"it is nested deeper than {MAX_DEPTH}", text))
    try:
        said = json.loads(data.decode("utf-8"), object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
        json.dumps(said, ensure_ascii=False).encode("utf-8")  # a lone surrogate can be read, but never written
    except _NotStrictError as error:
        return Read(digest, problem=Unreadable(str(error), text))
    except (ValueError, RecursionError) as error:
        return Read(digest, problem=Unreadable(f"it is not JSON: {error}", text), may_be_incomplete=True)
    return Read(digest, said, text)


class _NotStrictError(Exception):
    """JSON that programs read differently."""


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotStrictError("a key stands twice in one of its objects")
    return found


def _refuse_constant(name: str) -> object:
    raise _NotStrictError(f"{name} is no JSON")


def _is_too_deep(data: bytes) -> bool:
    depth = 0
    for part in _split_strings(data):
        for byte in part:
            if byte in b"[{":
                depth += 1
                if depth > MAX_DEPTH:
                    return True
            elif byte in b"]}":
                depth -= 1
    return False


def _split_strings(data: bytes) -> Iterator[bytes]:
    """Give what stands outside of strings."""
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:  # else it cannot be too deep
        rest = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        yield from (part.translate(None, _PLAIN) for part in rest.split(b'"')[::2])


_PLAIN = bytes(byte for byte in range(256) if byte not in b"[]{}")


def _read_all(descriptor: int) -> Iterable[bytes]:
    left = MAX_BYTES + 1
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 16))):
        left -= len(piece)
        yield piece


def _refuse(mark: str, reason: str, *, may_be_incomplete: bool = False) -> Read:
    return Read(mark, problem=Unreadable(reason), may_be_incomplete=may_be_incomplete)
