"""The small process that forks the wrappers of runs and hands each of them one run after another.

It is a script for a bare interpreter (-I -S) and loads the wrapper's file and little of Python: what it holds, every
wrapper holds with it.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False  # type checkers know the name; the module that has it would cost more memory than a run
if TYPE_CHECKING:
    from hivekeeper.runs import wrapper
else:
    sys.path.append(__file__.rpartition("/")[0])
    import wrapper

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_FREE_WRAPPERS_LEAVE_AFTER_S = 5.0
_MAX_ORDER = 1 << 16  # what a socket surely takes at once; more is given to a new wrapper as it is forked


def _be_wrapper(first: bytes, channel: socket.socket, tell: int) -> None:
    """Wrap one run after another, one at a time, until the nursery is gone."""
    os.setsid()
    with contextlib.suppress(
        OSError
    ):  # where we may: whoever is to end a fork bomb must not wait for its turn behind it
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    wrapper.libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wrapper.libc.prctl(_PR_SET_NAME, b"hive-run", 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # between runs there is nothing to stop
    wrapper.identity.update(pid=os.getpid(), start_ticks=wrapper.read_start_ticks(os.getpid()))
    lines = channel.makefile("rb")
    line = first
    while line.endswith(b"\n"):  # half a line is a nursery's last word
        wrapper.run(json.loads(line), tell)
        try:
            channel.sendall(b".")
        except OSError:
            return
        line = lines.readline()


class _Nursery:
    """Forks wrappers and hands runs to those that are free."""

    def __init__(self) -> None:
        self.free: list[tuple[socket.socket, float]] = []
        self.all: dict[int, socket.socket] = {}
        self.handed: dict[int, bytes] = {}
        self.poll = select.poll()

    def serve(self) -> None:
        """Hand on every line asked on standard input until it is closed; then whoever is busy finishes alone."""
        self.poll.register(0, select.POLLIN)
        rest = b""
        while True:
            for descriptor, _ in self.poll.poll(self._send_away_idle()):
                if descriptor == 0:
                    chunk = os.read(0, 1 << 20)
                    if not chunk:
                        return
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._hand_on(line + b"\n")
                elif descriptor in self.all:
                    self._hear(self.all[descriptor])

    def _send_away_idle(self) -> float | None:
        """Let go of who has been free for long; tell how long to wait for the next to be."""
        now = time.monotonic()
        while self.free and now - self.free[0][1] >= _FREE_WRAPPERS_LEAVE_AFTER_S:
            self._forget(self.free.pop(0)[0])
        return (_FREE_WRAPPERS_LEAVE_AFTER_S - (now - self.free[0][1])) * 1000 + 1 if self.free else None

    def _hear(self, channel: socket.socket) -> None:
        try:
            heard = channel.recv(64)
        except BlockingIOError:  # the news was of another that had this number
            return
        except OSError:
            heard = b""
        if heard:
            self.handed.pop(channel.fileno(), None)
            self.free.append((channel, time.monotonic()))
            return
        line = self.handed.get(channel.fileno())
        self._forget(channel)
        wrapper.say(1, {"gone": True})
        if line is not None:  # it may have died before it claimed; if not, asking again comes to nothing
            self._hand_on(line, once_more=False)

    def _forget(self, channel: socket.socket) -> None:
        self.poll.unregister(channel.fileno())
        del self.all[channel.fileno()]
        self.handed.pop(channel.fileno(), None)
        self.free = [pair for pair in self.free if pair[0] is not channel]
        channel.close()

    def _hand_on(self, line: bytes, *, once_more: bool = True) -> None:
        """Give a line to a free wrapper or a new one; one that dies over it is followed by one other, no more."""
        while self.free and len(line) <= _MAX_ORDER:
            channel, _ = self.free.pop()
            try:
                if channel.send(line) == len(line):
                    self.handed.update({channel.fileno(): line} if once_more else {})
                    return
            except OSError:
                pass
            self._forget(channel)  # dead, or too stiff to take a line
        try:
            descriptor = self._fork(line)
            self.handed.update({descriptor: line} if once_more else {})
        except OSError as error:  # no more processes or descriptors: the keeper asks again
            wrapper.say(1, {"run": json.loads(line)["run"], "problem": str(error)})

    def _fork(self, line: bytes) -> int:
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            ours.close()
            self._become_wrapper(line, theirs)
        theirs.close()
        ours.settimeout(0)
        self.all[ours.fileno()] = ours
        self.poll.register(ours.fileno(), select.POLLIN)
        return ours.fileno()

    def _become_wrapper(self, line: bytes, theirs: socket.socket) -> None:
        code = 1
        try:
            # Only these three stay open: a channel of another wrapper held here would hide the nursery's end from it.
            tell, channel = os.dup(1), theirs.detach()
            for descriptor in self.all:
                os.close(descriptor)
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            os.close(null)
            _be_wrapper(line, socket.socket(fileno=channel), tell)
            code = 0
        finally:
            os._exit(code)


def main() -> None:
    """Be the nursery until standard input is closed."""
    # Whatever the keeper blocked or ignored is not for those we start.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in wrapper.SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a keeper that is gone is an error to be caught, not our end
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # wrappers are nobody's to wait for: their exit record speaks
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the keeper
    gc.freeze()
    gc.disable()
    _Nursery().serve()


if __name__ == "__main__":
    main()
