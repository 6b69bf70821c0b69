"""Watches mailboxes: a thread that tells which of them have changed, and wakes whoever reads them.

The kernel (inotify) is asked about open directories, never about paths: a link in the way of one leads nowhere. One
mailbox more or less costs a call or two, however many there are, and while nothing changes nothing is done.
"""

import contextlib
import os
import select
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from inotify_simple import Event, INotify, flags

K = TypeVar("K", bound=Hashable)
_MASK = flags.CLOSE_WRITE | flags.MOVED_TO | flags.CREATE | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR


def watch_directory(inotify: INotify, directory: int, mask: int = _MASK) -> int:
    """Watch an open directory; return its number, which is the same if it is watched already."""
    return int(inotify.add_watch(f"/proc/self/fd/{directory}", mask))


class Watcher(Generic[K]):
    """Collects the keys of what has changed, from whichever thread; a change that it misses is nobody's loss."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: set[K] = set()
        self._keys: dict[int, K] = {}
        self._watches: dict[K, set[int]] = {}
        self._refused: set[K] = set()  # there are too many watches
        self._inotify: INotify | None = None
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
            numbers = {watch_directory(inotify, directory) for directory in directories}
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

    def _begin(self) -> INotify:
        if self._inotify is None:
            self._inotify = INotify(nonblocking=True)
            self._stop = os.eventfd(0, os.EFD_CLOEXEC)
            self._thread = threading.Thread(target=self._run, args=(self._inotify,), name="mailboxes", daemon=True)
            self._thread.start()
        return self._inotify

    def _remove(self, inotify: INotify, numbers: Iterable[int]) -> None:
        for number in numbers:
            with contextlib.suppress(OSError):  # the directory is gone, which is as well
                inotify.rm_watch(number)
            self._keys.pop(number, None)

    def _run(self, inotify: INotify) -> None:
        poll = select.poll()
        for descriptor in (inotify.fileno(), self._stop):
            poll.register(descriptor, select.POLLIN)
        while self._stop not in {descriptor for descriptor, _ in poll.poll()}:
            if self._note(inotify.read(timeout=0)) and (wake := self._wake) is not None:
                wake()

    def _note(self, events: Iterable[Event]) -> bool:
        """Note what has changed; whether anybody needs to know."""
        with self._lock:
            before = len(self._changed)
            for number, mask, _, name in events:
                key = self._keys.get(number)
                if mask & flags.Q_OVERFLOW:
                    self._changed.update(self._watches)
                elif mask & flags.IGNORED:
                    self._keys.pop(number, None)
                elif key is not None and not name.startswith("."):  # a draft
                    self._changed.add(key)
            return len(self._changed) > before
