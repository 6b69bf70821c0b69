"""A command run to its end while a person waits: asking an agent program something, or for its version."""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hivekeeper.clock import Clock, SystemClock
from hivekeeper.runs.local import INHERITED

MAX_KEPT = 64 << 10
_CHUNK = 64 << 10
_PATIENCE_S = 5.0

Take = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Tried:
    """How it went; `output` is its end. `ended_by` is `silence` if it took too long, and `limit` if it was stopped."""

    status: int
    ended_by: str
    output: bytes
    took_s: float


def try_out(
    argv: Sequence[str], directory: str, environment: Mapping[str, str], *, at_most_s: float, take: Take | None = None
) -> Tried:
    """Run a command with nobody's standard input, and all of its processes no longer than this.

    `take` gets its output as it comes, and stops it by answering True.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    clock, kept = SystemClock(), bytearray()
    started = clock.monotonic()
    process = subprocess.Popen(  # noqa: S603 - the person's own program
        list(argv),
        cwd=directory,
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )

    def keep(chunk: bytes) -> object:
        kept.extend(chunk)
        del kept[:-MAX_KEPT]
        return take(chunk) if take is not None else None

    assert process.stdout is not None
    with process.stdout as output:
        try:
            ended_by = _read(output.fileno(), keep, clock, started + at_most_s)
            if ended_by == "exit" and not _wait(process, started + at_most_s - clock.monotonic()):
                ended_by = "silence"
            if ended_by != "exit":
                _kill(process)
                # Somebody of it may be elsewhere, and hold its output open.
                _read(output.fileno(), keep, clock, clock.monotonic() + _PATIENCE_S)
        except BaseException:
            _kill(process)
            raise
    return Tried(process.wait(), ended_by, bytes(kept), clock.monotonic() - started)


def _read(descriptor: int, take: Take, clock: Clock, deadline: float) -> str:
    """Read until the end, until a moment, or until it is enough; tell which of them came."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while (left := deadline - clock.monotonic()) > 0:
        if poll.poll(left * 1000):
            chunk = os.read(descriptor, _CHUNK)
            if not chunk:
                return "exit"
            if take(chunk) is True:
                return "limit"
    return "silence"


def _wait(process: "subprocess.Popen[bytes]", left_s: float) -> bool:
    try:
        process.wait(max(0.0, left_s))
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
