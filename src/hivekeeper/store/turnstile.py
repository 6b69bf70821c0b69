"""A lock between processes in which nobody starves.

SQLite's own busy loop lets a waiting writer lose again and again, and so does a plain `flock`: who releases it and
wants it back wins against sleepers. Two locks in a row mend that: whoever waits for the second one already holds the
first, so the last winner has to queue behind.
"""

import fcntl
import os
import threading
import weakref
from pathlib import Path


class Turnstile:
    """Holds the write door for one thread of one process at a time."""

    def __init__(self, path: Path) -> None:
        self._thread_lock = threading.Lock()
        self._holder: int | None = None
        self._gate = os.open(path.with_suffix(".gate"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._door = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Also when nobody closes it: a program that opens ledger after ledger would run out of descriptors.
        self._close = weakref.finalize(self, _close_both, self._gate, self._door)

    def __enter__(self) -> None:
        if self._holder == threading.get_ident():
            raise RuntimeError("A write inside a write would wait for itself for ever.")
        self._thread_lock.acquire()
        self._holder = threading.get_ident()
        try:
            fcntl.flock(self._gate, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._door, fcntl.LOCK_EX)
            finally:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
        except BaseException:
            self._holder = None
            self._thread_lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._door, fcntl.LOCK_UN)
        self._holder = None
        self._thread_lock.release()

    def close(self) -> None:
        """Close both files, which also lets go of the locks."""
        self._close()


def _close_both(gate: int, door: int) -> None:
    os.close(gate)
    os.close(door)
