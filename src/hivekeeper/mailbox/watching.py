"""Watches mailboxes: a thread that tells which of them have changed, and wakes whoever reads them."""

import contextlib
import threading
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import watchfiles

K = TypeVar("K", bound=Hashable)
# The library waits this long for more changes before it tells of one: by default most of a second.
_DEBOUNCE_MS, _STEP_MS = 4, 1
_LOOK_MS = 500  # how soon it notices that it is to stop, should it miss the event
_RETRY_S = 5.0


class Watcher(Generic[K]):
    """Collects the keys of what has changed, from whichever thread; a change that it misses is nobody's loss."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: set[K] = set()
        self._paths: dict[str, K] = {}
        self._again = threading.Event()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_watching = False

    def start(self, wake: Callable[[], None]) -> None:
        """Watch from now on, and call `wake` at each change."""
        self._is_over.clear()
        self._thread = threading.Thread(target=self._run, args=(wake,), name="mailboxes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._is_over.set()
        self._again.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def set_paths(self, paths: Mapping[str, K]) -> None:
        """Watch these directories, each with its key, and no others."""
        with self._lock:
            if self._paths == paths:
                return
            self._paths = dict(paths)
        self._again.set()

    def take_changed(self) -> set[K]:
        """Take the keys of what has changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed

    def _run(self, wake: Callable[[], None]) -> None:
        while not self._is_over.is_set():
            self._again.clear()
            with self._lock:
                paths = dict(self._paths)
            there = [path for path in paths if Path(path).is_dir()]
            if not there:
                self._again.wait(_RETRY_S)
                continue
            try:
                self._watch(there, paths, wake)
            except OSError:  # too many watches, or a directory that was removed meanwhile
                self.is_watching = False
                self._again.wait(_RETRY_S)

    def _watch(self, there: list[str], paths: Mapping[str, K], wake: Callable[[], None]) -> None:
        self.is_watching = True
        with self._lock:  # what happened before they were watched
            self._changed.update(paths[path] for path in there)
        wake()
        for changes in watchfiles.watch(
            *there,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            rust_timeout=_LOOK_MS,
            stop_event=self._again,
            recursive=False,
            raise_interrupt=False,
        ):
            keys = {paths[above] for _, path in changes if (above := path.rpartition("/")[0]) in paths}
            keys |= {paths[path] for _, path in changes if path in paths}
            with self._lock:
                self._changed |= keys
            if keys:
                with contextlib.suppress(RuntimeError):
                    wake()
