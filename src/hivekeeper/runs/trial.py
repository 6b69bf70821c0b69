"""A command run to its end while a person waits: trying an agent program out, asking it for its version."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hivekeeper.clock import SystemClock
from hivekeeper.runs.local import INHERITED

MAX_KEPT = 4 << 20
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Tried:
    """How it went; `ended_by` is `silence` when it was ended because it took too long."""

    status: int
    ended_by: str
    output: bytes
    took_s: float


def try_out(argv: Sequence[str], directory: str, environment: Mapping[str, str], *, at_most_s: float) -> Tried:
    """Run a command with nobody's standard input, and all of its processes no longer than this."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    clock = SystemClock()
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
    ended_by = "exit"
    try:
        output, _ = process.communicate(timeout=at_most_s)
    except subprocess.TimeoutExpired:
        ended_by = "silence"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            output, _ = process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired as late:  # somebody of it is elsewhere, and holds its output open
            output = late.output or b""
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return Tried(process.returncode, ended_by, output[-MAX_KEPT:], clock.monotonic() - started)
