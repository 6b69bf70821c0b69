"""Waking the keeper from any process: one datagram after a commit, without waiting and without caring who listens."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path


def nudge(path: Path) -> None:
    """Tell a keeper, if there is one, that something was written."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0)
        with _address(path) as address:
            sender.sendto(b".", address)


class NudgeSocket:
    """Receives nudges."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)  # the lease is ours, so a socket left behind is nobody's
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with _address(path) as address:
            self._socket.bind(address)

    def listen(self, heard: Callable[[], None], *, poll_s: Callable[[], float], is_over: Callable[[], bool]) -> None:
        """Call `heard` for every nudge, and `is_over` at least every `poll_s()`, until that says so."""
        while not is_over():
            self._socket.settimeout(poll_s())
            with contextlib.suppress(TimeoutError):
                self._socket.recv(16)
                heard()

    def close(self) -> None:
        """Stop hearing."""
        self._socket.close()
        self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Name a socket in at most the 107 bytes the kernel takes, however deep its directory."""
    directory = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
