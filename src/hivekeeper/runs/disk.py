"""How much is on disk below directories that a living run may change: no link is followed, and no depth hides anything.

Loaded beside the wrapper into a bare interpreter, so it imports nothing of the package.
"""

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Iterable, Iterator

REST_AFTER_WORK = 20.0  # times what a sample took: no tree, however large, costs more than a twentieth of a core
_SAMPLE_EVERY_S = 1.0
_LOOK_UP_AFTER_S = 0.02  # then whoever speaks or ends is heard first
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENAT2, _BENEATH_WITHOUT_LINKS = 437, 0x04 | 0x08  # the same on every architecture
_How = ctypes.c_uint64 * 3  # flags, mode, resolve
_MAX_PIECE = 4000  # of a path in one call: the kernel takes 4096
_libc = ctypes.CDLL(None, use_errno=True)


def watch(directories: Iterable[str]) -> Iterator[tuple[int, float]]:
    """Give what there is, again and again, and how long to wait for the next look."""
    yield 0, _SAMPLE_EVERY_S
    while True:
        used, cost, began = 0, 0.0, time.process_time()
        for number, size in enumerate(_list_sizes(directories), 1):
            used += size
            if number % 16 == 0 and (took := time.process_time() - began) > _LOOK_UP_AFTER_S:
                cost += took
                yield used, 0.0
                began = time.process_time()
        cost += time.process_time() - began
        yield used, max(_SAMPLE_EVERY_S, REST_AFTER_WORK * cost)


def _list_sizes(directories: Iterable[str]) -> Iterator[int]:
    """Give the bytes each thing below directories takes; what vanishes meanwhile, or may not be read, takes none."""
    for directory in directories:
        try:
            top = os.open(directory, _DIRECTORY)
        except OSError:
            continue
        try:
            yield from _list_sizes_below(top)
        finally:
            os.close(top)


def _list_sizes_below(top: int) -> Iterator[int]:
    pending = ["."]
    while pending:
        path = pending.pop()
        try:
            descriptor = _open_beneath(top, path)
        except OSError:
            continue
        try:
            for entry in os.scandir(descriptor):
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    is_directory = entry.is_dir(follow_symlinks=False)
                    if is_directory:
                        pending.append(f"{path}/{entry.name}")
                    # One file with many names is divided among them; a directory's count of names says nothing.
                    yield found.st_blocks * 512 // (1 if is_directory else max(1, found.st_nlink))
        except OSError:
            continue
        finally:
            os.close(descriptor)


def _open_beneath(top: int, path: str) -> int:
    """Open a directory below another, however deep it lies; the run may swap any of them for a link meanwhile."""
    opened, rest = os.dup(top), os.fsencode(path)
    while rest:
        piece = rest if len(rest) <= _MAX_PIECE else rest[: rest.rindex(b"/", 0, _MAX_PIECE)]
        rest = rest[len(piece) + 1 :]
        try:
            inner = _open_piece(opened, piece)
        finally:
            os.close(opened)
        opened = inner
    return opened


def _open_piece(directory: int, path: bytes) -> int:
    how = _How(_DIRECTORY, 0, _BENEATH_WITHOUT_LINKS)
    opened: int = _libc.syscall(_OPENAT2, directory, path, how, ctypes.c_size_t(ctypes.sizeof(how)))
    if opened >= 0:
        return opened
    if (number := ctypes.get_errno()) not in (errno.ENOSYS, errno.EPERM):
        raise OSError(number, os.strerror(number))
    opened = os.dup(directory)  # a kernel before 5.6, or a container that forbids the call: one name after the other
    for name in path.split(b"/"):
        try:
            inner = os.open(name, _DIRECTORY, dir_fd=opened)
        finally:
            os.close(opened)
        opened = inner
    return opened
