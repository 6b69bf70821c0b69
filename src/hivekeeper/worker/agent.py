"""The agent program's process: how it is started, how its frames are read whatever it writes, and how it is ended.

Some programs are a wrapper that dies while its child holds the pipes open, and some leave a shell command running
after a cancel. So the return code is looked at instead of waiting for the pipes, and what descends from the process is
ended with it.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_FRAME = 64 << 20  # a program may send a long answer as one frame
MAX_NONSENSE = 1000  # lines that are no frames, after which a program is not listened to any more
MAX_LOGGED_NONSENSE = 20
MAX_KEPT_FRAMES = 32 << 20
EOF_WAIT_S, TERM_WAIT_S, LOOK_EVERY_S = 10.0, 3.0, 0.05
_CHUNK = 1 << 18


class Frames:
    """The program's frames, as the transport of a connection; `problem` says why they are not read any more.

    A line that is no JSON-RPC message is handed to `log`. All that is read is kept in a file, up to a size.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, log: Callable[[str], None], keep: Path
    ) -> None:
        self.problem = ""
        self.nonsense = 0
        self._reader, self._writer, self._log = reader, writer, log
        self._rest = bytearray()
        self._lines: list[bytes] = []
        self._kept = 0
        self._file = None
        with contextlib.suppress(OSError):
            keep.parent.mkdir(parents=True, exist_ok=True)
            self._file = keep.open("ab")
            self._kept = keep.stat().st_size

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        data = json.dumps(message).encode() + b"\n"
        self._keep(data)
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise ConnectionError(f"the agent program does not read any more: {error}") from error

    async def receive(self) -> dict[str, Any] | None:
        """Receive the next message; None if there will be none."""
        while (line := await self._next_line()) is not None:
            if (message := read_message(line)) is not None:
                self._keep(line + b"\n")
                return message
            if line.strip():
                self.nonsense += 1
                if self.nonsense <= MAX_LOGGED_NONSENSE:
                    self._log(line[:2000].decode("utf-8", "replace"))
            if self.nonsense > MAX_NONSENSE:
                self.problem = f"it wrote {MAX_NONSENSE} lines that are no messages of the protocol"
                return None
        return None

    async def close(self) -> None:
        """Let go of the program's input."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    async def finish(self) -> None:
        """Read what is left to its end, so that nothing stays open."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(TERM_WAIT_S):
                while await self._reader.read(_CHUNK):
                    pass

    async def _next_line(self) -> bytes | None:
        while not self._lines:
            try:
                words = await self._reader.read(_CHUNK)
            except OSError:
                words = b""
            if not words:
                last, self._rest = bytes(self._rest), bytearray()
                return last or None
            if b"\n" in words:
                *self._lines, rest = (bytes(self._rest) + words).split(b"\n")
                self._rest = bytearray(rest)
            else:
                self._rest += words
            if len(self._rest) > MAX_FRAME:
                self.problem = f"it wrote a line of more than {MAX_FRAME >> 20} MiB"
                return None
        return self._lines.pop(0)

    def _keep(self, data: bytes) -> None:
        if self._file is not None and self._kept < MAX_KEPT_FRAMES:
            self._kept += len(data)
            with contextlib.suppress(OSError):
                self._file.write(data)
                self._file.flush()


def read_message(line: bytes) -> dict[str, Any] | None:
    """Read a JSON-RPC message; None for anything else. What the connection could not cope with is straightened."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("id"), int | str | None):
        return None
    if "method" in message:
        return message if isinstance(message["method"], str) else None
    if "id" not in message:
        return None
    error = message.get("error")
    if error is not None and not (isinstance(error, dict) and isinstance(error.get("code", 0), int)):
        message["error"] = {"code": -32603, "message": str(error)[:2000]}
    return message


class AgentProcess:
    """A running agent program."""

    def __init__(self, process: asyncio.subprocess.Process, frames: Frames, errors: asyncio.Task[None]) -> None:
        self._process, self.frames, self._errors = process, frames, errors

    @property
    def returncode(self) -> int | None:
        """Its return code; None while it runs."""
        return self._process.returncode

    def list_descendants(self) -> set[int]:
        """List the processes that descend from it."""
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is needed
            if name.isdigit() and (parent := _find_parent(name)) is not None:
                children.setdefault(parent, []).append(int(name))
        found, todo = set[int](), [self._process.pid]
        while todo:
            new = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
            found.update(new)
            todo += new
        return found

    async def end(self, *, eof_wait_s: float) -> None:
        """End it: close its input, then SIGTERM, then SIGKILL for its group and for whatever descends from it."""
        left = self.list_descendants()
        await self.frames.close()
        if not await self._ends_within(eof_wait_s):
            left |= self.list_descendants()
            self._signal(signal.SIGTERM)
            await self._ends_within(TERM_WAIT_S)
        self._signal(signal.SIGKILL)
        kill_all(left)
        await self._ends_within(TERM_WAIT_S)
        await self.frames.finish()
        await asyncio.wait({self._errors}, timeout=TERM_WAIT_S)
        self._errors.cancel()

    async def _ends_within(self, seconds: float) -> bool:
        deadline = asyncio.get_running_loop().time() + seconds
        while self.returncode is None and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(LOOK_EVERY_S)
        return self.returncode is not None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


async def start_agent(
    argv: Sequence[str], environment: Mapping[str, str], directory: Path, log: Callable[[str], None], keep: Path
) -> AgentProcess:
    """Start an agent program in a group of its own; OSError if it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=environment,
        cwd=directory,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    frames = Frames(process.stdout, process.stdin, log, keep)
    return AgentProcess(process, frames, asyncio.create_task(_pass_on(process.stderr, log)))


def kill_all(pids: set[int]) -> None:
    """Kill processes; they are stopped first, so that no shell goes on to its next command meanwhile."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


async def _pass_on(errors: asyncio.StreamReader, log: Callable[[str], None]) -> None:
    """Hand on what the program says beside the protocol, line by line."""
    rest = b""
    while words := await errors.read(_CHUNK):
        *lines, rest = (rest + words).split(b"\n")
        for line in lines:
            log(line[:2000].decode("utf-8", "replace"))
        rest = rest[-2000:]
    log(rest.decode("utf-8", "replace"))


def _find_parent(pid: str) -> int | None:
    try:
        # The name of the program is in brackets, and may contain some.
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return int(stat.rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
