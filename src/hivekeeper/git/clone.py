"""Reading a worker's clone from outside while the worker is alive: name by name, and no link is followed."""

import hashlib
import os
import re
import stat
from pathlib import Path

_MAX_HASHED = 64 << 20
_MAX_REFS = 4 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_POINTS_TO = "ref: "


def hash_file(top: Path, path: str) -> str | None:
    """Return the name that git would give to the content of a file; None if it is no plain file."""
    data = _read(top, path, _MAX_HASHED)
    if data is None:
        return None
    return hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest()


def read_base(sandbox: Path) -> str | None:
    """Return the commit that the clone in a sandbox was made at; None while it is being made."""
    return _to_commit(_read_text(sandbox, "base"))


def read_head(top: Path) -> str | None:
    """Return the commit that a clone is at, as its files say; None if they say nothing that can be a commit."""
    head = _read_text(top, ".git/HEAD")
    ref = head.removeprefix(_POINTS_TO)
    if ref == head:
        return _to_commit(head)
    if not ref.startswith("refs/") or ".." in ref or not ref.isprintable():
        return None
    return _to_commit(_read_text(top, f".git/{ref}")) or _find_packed(_read_text(top, ".git/packed-refs"), ref)


def _find_packed(text: str, ref: str) -> str | None:
    lines = (line.partition(" ") for line in text.splitlines())
    return next((_to_commit(commit) for commit, _, name in lines if name == ref), None)


def _to_commit(text: str) -> str | None:
    return text if _COMMIT.fullmatch(text) else None


def _read_text(top: Path, path: str) -> str:
    return (_read(top, path, _MAX_REFS) or b"").decode("utf-8", "replace").strip()


def _read(top: Path, path: str, limit: int) -> bytes | None:
    try:
        descriptor = _open_beneath(top, path)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _open_beneath(top: Path, path: str) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    opened = os.open(top, flags)
    for name in path.split("/"):
        try:
            inner = os.open(name, flags, dir_fd=opened)
        finally:
            os.close(opened)
        opened = inner
    return opened
