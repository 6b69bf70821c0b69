"""A directory as a value: what is where in it, and how to read it from a disk.

A file is a tuple of chunks that its versions share, and a digest is a sum, so that a version costs what differs in it.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import assert_never

CHUNK = 4096


def _hash(*parts: bytes) -> int:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return int.from_bytes(digest.digest(), "big")


def _hash_chunks(first: int, chunks: Sequence[bytes]) -> int:
    return sum(_hash(b"%d" % number, chunk) for number, chunk in enumerate(chunks, first))


@dataclass(frozen=True, slots=True)
class File:
    """A file at one moment."""

    chunks: tuple[bytes, ...] = ()
    executable: bool = False
    digest: int = 0
    mode: int = field(default=0o644, compare=False)

    @property
    def content(self) -> bytes:
        """All of it, in one piece."""
        return b"".join(self.chunks)

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return (len(self.chunks) - 1) * CHUNK + len(self.chunks[-1]) if self.chunks else 0

    def with_mode(self, mode: int) -> "File":
        """Give it other permissions; only whether it can be executed makes it another file."""
        return File(self.chunks, bool(mode & stat.S_IXUSR), self.digest, mode)

    def with_bytes(self, offset: int, data: bytes) -> "File":
        """Write into it; a gap is filled with zeros."""
        if offset > self.size:
            data, offset = bytes(offset - self.size) + data, self.size
        if not data:
            return self
        first, end = offset // CHUNK, offset + len(data)
        last = (end - 1) // CHUNK + 1
        old = self.chunks[first:last]
        head = old[0][: offset % CHUNK] if old else b""
        tail = old[-1][end - (last - 1) * CHUNK :] if len(old) == last - first else b""
        whole = head + data + tail
        new = tuple(whole[start : start + CHUNK] for start in range(0, len(whole), CHUNK))
        return self._with_chunks(first, old, new, self.chunks[last:])

    def with_size(self, size: int) -> "File":
        """Cut it, or fill it up with zeros."""
        if size >= self.size:
            return self.with_bytes(self.size, bytes(size - self.size))
        first = size // CHUNK
        old = self.chunks[first:]
        return self._with_chunks(first, old, (old[0][: size % CHUNK],) if size % CHUNK else (), ())

    def _with_chunks(
        self, first: int, old: tuple[bytes, ...], new: tuple[bytes, ...], rest: tuple[bytes, ...]
    ) -> "File":
        digest = self.digest - _hash_chunks(first, old) + _hash_chunks(first, new)
        return File(self.chunks[:first] + new + rest, self.executable, digest, self.mode)


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory; what is in it has paths of its own."""

    mode: int = field(default=0o755, compare=False)


@dataclass(frozen=True, slots=True)
class SymbolicLink:
    """A symbolic link."""

    target: str


Node = File | Directory | SymbolicLink
Tree = Mapping[str, Node]


@cache
def zeros(size: int) -> File:
    return File().with_size(size)


def digest_entry(path: str, node: Node) -> int:
    match node:
        case File():
            return _digest_file(path, node.executable, node.digest)
        case Directory():
            return _digest_other(path, "directory")
        case SymbolicLink():
            return _digest_other(path, f"to {node.target}")
        case _:
            assert_never(node)


# Thousands of trees have most of their entries in common.
@lru_cache(1 << 16)
def _digest_file(path: str, executable: bool, digest: int) -> int:  # noqa: FBT001 - part of what is hashed
    return _hash(os.fsencode(path), b"%d %d" % (executable, digest))


@lru_cache(1 << 16)
def _digest_other(path: str, told: str) -> int:
    return _hash(os.fsencode(path), os.fsencode(told))


def digest_tree(tree: Tree) -> int:
    """Tell a number that is the same for the same names, contents and executables."""
    return sum(digest_entry(path, node) for path, node in tree.items())


def load_tree(root: Path) -> Tree:
    """Read a directory as it is, parents first; sockets, pipes and SQLite's shared memory hold nothing to lose."""
    tree: dict[str, Node] = {}
    for directory, names, files in os.walk(root):
        for name in sorted(names + files):
            path = Path(directory, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                tree[str(path.relative_to(root))] = SymbolicLink(str(path.readlink()))
            elif stat.S_ISDIR(mode):
                tree[str(path.relative_to(root))] = Directory(stat.S_IMODE(mode))
            elif stat.S_ISREG(mode) and not name.endswith("-shm"):
                read = File().with_bytes(0, path.read_bytes())
                tree[str(path.relative_to(root))] = read.with_mode(stat.S_IMODE(mode))
    return tree
