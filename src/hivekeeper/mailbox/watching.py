"""Watches mailboxes: a thread that tells which of them have changed, and wakes whoever reads them.

The kernel (inotify) is asked about open directories, never about paths: a link in the way of one leads nowhere. One
mailbox more or less costs a call or two, however many there are, and while nothing changes nothing is done.
"""

import contextlib
import ctypes
import os
import select
import struct
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
MOVED_TO = 0x80
_CLOSE_WRITE, _CREATE, _DELETE_SELF, _MOVE_SELF = 0x8, 0x100, 0x400, 0x800
_OVERFLOW, _IGNORED, _ONLY_DIRECTORIES = 0x4000, 0x8000, 0x1000000
_MASK = _CLOSE_WRITE | MOVED_TO | _CREATE | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORIES
_EVENT = struct.Struct("iIII")
_BUFFER_BYTES = 1 << 16
_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """The kernel's word on open directories."""

    def __init__(self) -> None:
        """Open it; OSError if this user has too many."""
        self.descriptor = _check(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, directory: int) -> int:
        """Watch an open directory; return its number, which is the same if it is watched already."""
        return _check(_libc.inotify_add_watch(self.descriptor, b"/proc/self/fd/%d" % directory, _MASK))

    def remove(self, number: int) -> None:
        """Watch a directory no more."""
        _libc.inotify_rm_watch(self.descriptor, number)  # fails if the directory is gone, which is as well

    def read(self) -> list[tuple[int, int, str]]:
        """Read what has happened: the number of a directory, what it was, and the name of the file."""
        with contextlib.suppress(BlockingIOError):
            data, found, at = os.read(self.descriptor, _BUFFER_BYTES), list[tuple[int, int, str]](), 0
            while at < len(data):
                number, mask, _, size = _EVENT.unpack_from(data, at)
                at += _EVENT.size + size
                found.append((number, mask, os.fsdecode(data[at - size : at].rstrip(b"\0"))))
            return found
        return []

    def close(self) -> None:
        """Stop watching all of them."""
        os.close(self.descriptor)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class Watcher(Generic[K]):
    """Collects the keys of what has changed, from whichever thread; a change that it misses is nobody's loss."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: set[K] = set()
        self._keys: dict[int, K] = {}
        self._watches: dict[K, set[int]] = {}
        self._refused: set[K] = set()  # there are too many watches
        self._inotify: Inotify | None = None
        self._stop = -1
        self._thread: threading.Thread | None = None
        self._wake: Callable[[], None] | None = None

    @property
    def is_watching(self) -> bool:
        """Whether all that should be watched is."""
        return self._inotify is not None and not self._refused

    def start(self, wake: Callable[[], None]) -> None:
        """Watch from now on, and call `wake` at each change."""
        self._wake = wake
        with contextlib.suppress(OSError):  # tried again when there is something to watch
            self._begin()

    def stop(self) -> None:
        """Stop watching."""
        self._wake = None
        if self._thread is not None and self._inotify is not None:
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            os.close(self._stop)
            self._inotify.close()
            self._thread = self._inotify = None

    def watch(self, key: K, directories: Iterable[int]) -> None:
        """Watch these open directories, and no others, for a key."""
        if self._wake is None:
            return
        try:
            inotify = self._begin()
            numbers = {inotify.add(directory) for directory in directories}
        except OSError:
            self._refused.add(key)
            return
        self._refused.discard(key)
        with self._lock:
            old = self._watches.get(key, set()) - numbers
            self._watches[key] = numbers
            self._keys.update(dict.fromkeys(numbers, key))
        self._remove(inotify, old)

    def forget(self, key: K) -> None:
        """Watch the directories of a key no more."""
        self._refused.discard(key)
        with self._lock:
            old = self._watches.pop(key, set())
        if self._inotify is not None:
            self._remove(self._inotify, old)

    def take_changed(self) -> set[K]:
        """Take the keys of what has changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed

    def _begin(self) -> Inotify:
        if self._inotify is None:
            self._inotify = Inotify()
            self._stop = os.eventfd(0, os.EFD_CLOEXEC)
            self._thread = threading.Thread(target=self._run, args=(self._inotify,), name="mailboxes", daemon=True)
            self._thread.start()
        return self._inotify

    def _remove(self, inotify: Inotify, numbers: Iterable[int]) -> None:
        for number in numbers:
            inotify.remove(number)
            self._keys.pop(number, None)

    def _run(self, inotify: Inotify) -> None:
        poll = select.poll()
        for descriptor in (inotify.descriptor, self._stop):
            poll.register(descriptor, select.POLLIN)
        while self._stop not in {descriptor for descriptor, _ in poll.poll()}:
            if self._note(inotify.read()) and (wake := self._wake) is not None:
                wake()

    def _note(self, events: Iterable[tuple[int, int, str]]) -> bool:
        """Note what has changed; whether anybody needs to know."""
        with self._lock:
            before = len(self._changed)
            for number, mask, name in events:
                key = self._keys.get(number)
                if mask & _OVERFLOW:
                    self._changed.update(self._watches)
                elif mask & _IGNORED:
                    self._keys.pop(number, None)
                elif key is not None and not name.startswith("."):  # a draft
                    self._changed.add(key)
            return len(self._changed) > before
