"""The hive's side of a mailbox.

Everything below a mailbox belongs to its worker, who may swap any of it for a link while it is read. So a mailbox is
opened one name at a time without following links, files are read through descriptors, and what is not a small regular
file with one name is not read at all.
"""

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hivekeeper.domain.mail import MAX_RAW, Unreadable
from hivekeeper.domain.protocol import MAX_DEPTH
from hivekeeper.errors import UnavailableError

MAX_BYTES = 1 << 20
MAX_NAME = 200
MAX_LISTED = 10_000
INBOX, OUTBOX, ACKNOWLEDGED, SENT, READ = "inbox", "outbox", ".done", ".sent", ".read"
BAD = "bad-"
_DRAFTS = (".tmp", ".part", "~")  # as programs name what they still write
_PART = ".part"  # whoever looks for *.json may find names with a dot in front too
_PARENTS = {SENT: OUTBOX, ACKNOWLEDGED: INBOX, READ: INBOX}
# What is wrong with the machine, and not with one mailbox.
OF_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_NO_MAILBOX = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Stamp = tuple[int, int, int]  # inode, size, time: what changes when a file does, or when it is replaced


@dataclass(frozen=True, slots=True)
class Listed:
    """A name in an outbox, and which file had it."""

    name: str
    stamp: Stamp
    at_ns: int


@dataclass(frozen=True, slots=True)
class Read:
    """What a file holds: its JSON, or why it is no message; an incomplete one may still become one."""

    digest: str
    said: object = None
    text: str = ""
    problem: Unreadable | None = None
    may_be_incomplete: bool = False


def has_unread(path: Path, delivered: Iterable[str], accepted: Iterable[str] = ()) -> bool:
    """Whether a mailbox holds what the router has not recorded: a message, or an acknowledgement of these names.

    One that was only accepted is acknowledged if a keeper died after it had put it into the inbox.
    """
    try:
        with Mailbox(path) as box:
            box.open(SENT)
            return (
                box.list_outbox() != []
                or any(box.find_place(name) != INBOX for name in delivered)
                or any(box.find_place(name) == ACKNOWLEDGED for name in accepted)
            )
    except OSError as error:
        if error.errno in OF_MACHINE:
            what = f"A mailbox cannot be looked into just now: {error.strerror}."
            raise UnavailableError(what, advice="Check disk space, memory and limits (ulimit -a).") from error
        return error.errno not in _NO_MAILBOX


def was_read(path: Path, name: str) -> bool:
    """Whether a worker has looked at a message in its inbox, as it says."""
    try:
        with Mailbox(path) as box:
            os.stat(name, dir_fd=box.open(READ), follow_symlinks=False)
    except OSError:
        return False
    return True


class Mailbox:
    """An open mailbox. Each of its directories is opened when it is needed, and made again if its worker removed it.

    Whatever is done with one may raise an OSError: NotADirectoryError if there is something else in its place.
    """

    def __init__(self, path: Path) -> None:
        """Open it."""
        self._open: dict[str, int] = {}
        above = os.open(path.parent, _DIRECTORY)
        try:
            self._open[""] = _enter(above, path.name)
        finally:
            os.close(above)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its directories."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def open(self, name: str) -> int:
        """Open one of its directories; return its descriptor, which is the mailbox's to close."""
        if name not in self._open:
            above = _PARENTS.get(name, "")
            self._open[name] = _enter(self.open(above), name)
        return self._open[name]

    # --- outbox -----------------------------------------------------------------------------------------------------

    def list_outbox(self) -> list[Listed] | None:
        """List what lies in the outbox, in the order in which it was written; None if that is too much.

        Names with a dot in front, or that end as drafts do, are drafts.
        """
        outbox, listed = self.open(OUTBOX), list[Listed]()
        with os.scandir(outbox) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_LISTED:
                    return None
                if entry.name.startswith(".") or entry.name.endswith(_DRAFTS):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(entry.name, dir_fd=outbox, follow_symlinks=False)
                    listed.append(Listed(entry.name, _make_stamp(found), found.st_mtime_ns))
        return sorted(listed, key=lambda each: (each.at_ns, each.name))

    def identify_outbox(self) -> str:
        """Tell what another outbox in its place would not have."""
        return f"{OUTBOX}-{os.fstat(self.open(OUTBOX)).st_ino}"

    def replace_outbox(self) -> None:
        """Move the whole outbox aside, with all that lies in it; there is an empty one in its place."""
        outbox, top = self.identify_outbox(), self.open("")
        with contextlib.suppress(FileNotFoundError):
            os.rename(OUTBOX, f".{outbox}.{os.urandom(4).hex()}", src_dir_fd=top, dst_dir_fd=top)
        for name in (SENT, OUTBOX):
            if name in self._open:
                os.close(self._open.pop(name))
        self.open(SENT)

    def read(self, listed: Listed) -> Read | None:
        """Read a file of the outbox; None if it is gone."""
        name = listed.name
        mark = f"unread-{listed.stamp[1]}"  # no time: after a power cut it may be another
        if len(name) > MAX_NAME or not name.isprintable():
            return _refuse(mark, "its name is too long, or holds characters that cannot be printed")
        try:
            descriptor = os.open(name, _FILE, dir_fd=self.open(OUTBOX))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in OF_MACHINE:
                raise
            link = error.errno == errno.ELOOP
            return _refuse(mark, "it is a link" if link else f"it cannot be opened: {error.strerror}")
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

    def finish(self, listed: Listed, reason: str = "") -> None:
        """Move a file to `.sent/NAME`, or if it was refused to `.sent/bad-NAME` beside the reason.

        What has replaced it since it was listed is another message, and stays in the outbox.
        """
        if self._find_stamp(OUTBOX, listed.name) != listed.stamp:
            return
        target = self._choose_target(f"{BAD}{listed.name}" if reason else listed.name)
        if reason:
            self._write_reason(f"{target}.reason", reason)
        self._move(listed.name, target)
        if self._find_stamp(SENT, target) != listed.stamp:  # it was replaced at this very moment
            again = f"{target.removeprefix(BAD)}~{os.urandom(4).hex()}"  # by now its name may be another's
            with contextlib.suppress(FileNotFoundError):
                os.rename(target, again, src_dir_fd=self.open(SENT), dst_dir_fd=self.open(OUTBOX))

    def _find_stamp(self, place: str, name: str) -> Stamp | None:
        with contextlib.suppress(FileNotFoundError):
            return _make_stamp(os.stat(name, dir_fd=self.open(place), follow_symlinks=False))
        return None

    def _choose_target(self, name: str) -> str:
        """Choose a name in `.sent`; what was sent under one before stays."""
        fitting = os.fsdecode(os.fsencode(name)[:MAX_NAME])
        is_free = self._find_stamp(SENT, fitting) is None
        return fitting if is_free else f"{fitting}~{os.urandom(4).hex()}"

    def _write_reason(self, name: str, reason: str) -> None:
        with contextlib.suppress(OSError):  # that of a file that is gone
            os.unlink(name, dir_fd=self.open(SENT))
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(name, _NEW, 0o600, dir_fd=self.open(SENT))
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{reason}\n")

    def _move(self, name: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            try:
                os.rename(name, target, src_dir_fd=self.open(OUTBOX), dst_dir_fd=self.open(SENT))
            except PermissionError:  # a directory that is not to be changed
                _permit(self.open(OUTBOX), name)
                os.rename(name, target, src_dir_fd=self.open(OUTBOX), dst_dir_fd=self.open(SENT))

    # --- inbox ------------------------------------------------------------------------------------------------------

    def write_draft(self, name: str, message: Mapping[str, Any]) -> int:
        """Write a message beside its place in the inbox, and have it written to disk; return its open file."""
        inbox, draft = self.open(INBOX), f".{name}{_PART}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=inbox)
        descriptor = os.open(draft, _NEW, 0o600, dir_fd=inbox)
        try:
            data = memoryview(json.dumps(message, ensure_ascii=False).encode("utf-8", "backslashreplace"))
            while data:
                data = data[os.write(descriptor, data) :]
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # begins to write it, and does not wait
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def publish_draft(self, name: str) -> None:
        """Put what was written into its place; durable once the directory is synced."""
        os.rename(f".{name}{_PART}", name, src_dir_fd=self.open(INBOX), dst_dir_fd=self.open(INBOX))

    def find_place(self, name: str) -> str:
        """Find where a delivered message is: in the inbox, acknowledged in `.done`, or "" if it is gone."""
        return next((place for place in (INBOX, ACKNOWLEDGED) if self._find_stamp(place, name)), "")


@dataclass(slots=True)
class Delivery:
    """A message for an inbox; afterwards `problem` says why it does not lie there durably."""

    box: Mailbox
    name: str
    message: Mapping[str, Any]
    problem: OSError | None = None


def deliver(deliveries: Sequence[Delivery]) -> None:
    """Put messages into inboxes, each whole and durable: all are written, synced, renamed, and the inboxes synced.

    One that lies there already, since whoever put it there died, is only synced.
    """
    drafts = list[tuple[Delivery, int]]()
    for each in deliveries:
        with _noting(each):
            if not each.box.find_place(each.name):
                drafts.append((each, each.box.write_draft(each.name, each.message)))
    for each, descriptor in drafts:
        with _noting(each):
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    for each, _ in drafts:
        with _noting(each):
            if each.problem is None:
                each.box.publish_draft(each.name)
    synced = set[int]()
    for each in deliveries:
        with _noting(each):
            if each.problem is None and (inbox := each.box.open(INBOX)) not in synced:
                os.fsync(inbox)
                synced.add(inbox)


def _make_stamp(found: os.stat_result) -> Stamp:
    """Tell which file it is; a directory stays the same whatever is put into it."""
    is_directory = stat.S_ISDIR(found.st_mode)
    return found.st_ino, 0 if is_directory else found.st_size, 0 if is_directory else found.st_mtime_ns


@contextlib.contextmanager
def _noting(delivery: Delivery) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        delivery.problem = delivery.problem or error


def _enter(above: int, name: str) -> int:
    """Open a directory below another; make it if there is none, and make it ours to change if it is not."""
    for _ in range(2):
        try:
            descriptor = os.open(name, _DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=above)
        except PermissionError:
            _permit(above, name)
        else:
            if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.fchmod(descriptor, 0o700)
            return descriptor
    return os.open(name, _DIRECTORY, dir_fd=above)


def _permit(above: int, name: str) -> None:
    descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101 - this very directory
    finally:
        os.close(descriptor)


def read_json(data: bytes) -> Read:
    """Read a message strictly: UTF-8, no duplicate keys, no NaN, no lone surrogates, not too deep."""
    digest = hashlib.sha256(data).hexdigest()
    text = data.decode("utf-8", "backslashreplace")[:MAX_RAW]
    if _is_too_deep(data):
        return Read(digest, problem=Unreadable(f"it is nested deeper than {MAX_DEPTH}", text))
    try:
        said = json.loads(data.decode("utf-8"), object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
        # What can be read, but never be written again: a lone surrogate, a number that is too large.
        json.dumps(said, ensure_ascii=False, allow_nan=False).encode("utf-8")
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
        raise _NotStrictError("an object has a duplicate key")
    return found


def _refuse_constant(name: str) -> object:
    raise _NotStrictError(f"{name} is no JSON")


def _is_too_deep(data: bytes) -> bool:
    """Whether brackets are nested too deep, found by taking innermost pairs away: so many bytes are many to look at."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    rest = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    rest = b"".join(rest.split(b'"')[::2]).translate(_BRACKETS, _PLAIN)  # what stands outside of strings
    for _ in range(MAX_DEPTH):
        rest = rest.replace(b"[]", b"")
    return b"[]" in rest or rest.count(b"[") > MAX_DEPTH


_BRACKETS = bytes.maketrans(b"{}", b"[]")
_PLAIN = bytes(byte for byte in range(256) if byte not in b"[]{}")


def _read_all(descriptor: int) -> Iterable[bytes]:
    left = MAX_BYTES + 1
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 16))):
        left -= len(piece)
        yield piece


def _refuse(mark: str, reason: str, *, may_be_incomplete: bool = False) -> Read:
    return Read(mark, problem=Unreadable(reason), may_be_incomplete=may_be_incomplete)
