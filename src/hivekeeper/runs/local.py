"""Runs on this machine: starting through the nursery, looking, stopping, and noticing ends at once.

Everything that matters is on disk (claim, ending); what this object remembers only saves time. So any keeper can
look at any run, whoever started it.
"""

import contextlib
import errno
import json
import os
import select
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, Protocol, TypeVar

from hivekeeper.clock import to_text
from hivekeeper.domain.run import Alive, Claim, Ended, Ending, Gone, Look, Order, Unclaimed
from hivekeeper.errors import UnavailableError
from hivekeeper.runs import wrapper

# What a run inherits of the keeper's environment; everything else it must be given by name.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")


class Outputs(Protocol):
    """What runs have written, for whoever only reads."""

    def open_output(self, run: str) -> BinaryIO | None:
        """Open what a run has written; None when there is nothing."""
        ...

    def name_output(self, run: str) -> str:
        """Name the place of what a run has written, for a person."""
        ...


class Runs(Outputs, Protocol):
    """Where runs run."""

    boot_id: str

    def start(self, order: Order, isolated: tuple[str, ...] | None = None) -> None:
        """Ask for a run; `isolated` is its argv in a sandbox, if it has one. Asking twice starts it once."""
        ...

    def look(self, run: str, known: Claim | None = None) -> Look:
        """Look at the world, not at memory; `known` is the claim the ledger has, should the file be gone."""
        ...

    def stop(self, run: str, *, hard: bool = False) -> None:
        """Have a living run's wrapper end the whole tree; `hard` when the wrapper itself does not answer."""
        ...

    def forbid(self, run: str) -> None:
        """Make sure a run that nobody claimed never starts."""
        ...

    def kill_leftovers(self, pids: tuple[int, ...]) -> None:
        """Kill processes a dead wrapper left behind."""
        ...

    def read_output(self, run: str, tail_bytes: int = 65536) -> str:
        """Read the end of what a run said."""
        ...

    def close(self) -> None:
        """Let go; runs go on."""
        ...


P = ParamSpec("P")
R = TypeVar("R")


def _translate_os_errors(act: Callable[P, R]) -> Callable[P, R]:
    """Say a shortage (descriptors, memory, disk) as one: whoever asks again later gets the truth, never a guess."""

    @wraps(act)
    def acting(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return act(*args, **kwargs)
        except OSError as error:
            what = f"Cannot manage runs right now: {error.strerror or error}."
            raise UnavailableError(what, advice="Check disk space, memory and limits (ulimit -a).") from error

    return acting


class LocalOutputs:
    """Outputs as files of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @_translate_os_errors
    def open_output(self, run: str) -> BinaryIO | None:
        """Open it without following links; None also for what is no file."""
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._root / run / "output", flags)
        except OSError as error:
            if error.errno in (*_NOT_A_FILE, errno.ENOENT, errno.ENOTDIR):
                return None
            raise
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
        return None

    def name_output(self, run: str) -> str:
        return str(self._root / run / "output")


class LocalRuns(LocalOutputs):
    """Runs as processes of this machine."""

    def __init__(self, root: Path, hive: str, on_change: Callable[[], None] = lambda: None) -> None:
        super().__init__(root.resolve())
        self.boot_id = wrapper.read_boot_id()
        self._hive = hive
        self._on_change = on_change
        self._nursery: subprocess.Popen[bytes] | None = None
        self._nursery_output = -1
        self._lock = threading.Lock()
        self._watched: dict[tuple[int, int], int] = {}
        self._watch_lock = threading.Lock()
        self._claims: dict[str, Claim] = {}
        self._epoll = select.epoll()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._epoll.register(self._wake_read, select.EPOLLIN)
        self._closing = False
        self._watcher = threading.Thread(target=self._watch, name="runs", daemon=True)
        self._watcher.start()

    @_translate_os_errors
    def start(self, order: Order, isolated: tuple[str, ...] | None = None) -> None:
        request = {
            "run": order.run,
            "run_directory": f"{self._root}/{order.run}",
            "claim": {"boot_id": self.boot_id, "order": order.digest},
            "argv": isolated or order.argv,
            "directory": order.directory,
            "environment": self._environment(order),
            "limits": order.limits,
            "measured": order.mounts["own"] if order.mounts else [order.directory],
            "isolated": Path(*(isolated or order.argv)[:1]).name == "bwrap",
        }
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            for _ in range(2):  # a nursery that died is replaced once
                if self._nursery is None:
                    self._open_nursery()
                assert self._nursery is not None
                assert self._nursery.stdin is not None
                with contextlib.suppress(BrokenPipeError, TimeoutError):
                    _write_in_time(self._nursery.stdin.fileno(), line)
                    return
                self._close_nursery()
        what = "The run launcher exits immediately."
        raise UnavailableError(what, advice="Check memory and process limits (ulimit -u), then start the hive again.")

    @_translate_os_errors
    def look(self, run: str, known: Claim | None = None) -> Look:
        directory = f"{self._root}/{run}"
        claim = self._claims.get(run)
        if claim is None:
            claim_text = _read(f"{directory}/claim")
            if claim_text is None and known is None:
                return Unclaimed()
            if claim_text == _FORBIDDEN:
                return Gone(None, why="it was cancelled before it started")
            claim = _to_claim(claim_text or "") or known
        # Alive first, ending second: a wrapper writes its ending before it dies or moves on.
        alive = claim is not None and claim.boot_id == self.boot_id and self._is_alive(claim.pid, claim.start_ticks)
        ending = _to_ending(_read(f"{directory}/exit"))
        if claim is not None and alive and ending is None:
            self._claims[run] = claim  # a claim never changes: no need to read it at every look
            return Alive(claim)
        self._claims.pop(run, None)
        if claim is not None and ending is not None:
            return Ended(claim, ending)
        return Gone(claim, self._find_leftovers(run))

    @_translate_os_errors
    def stop(self, run: str, *, hard: bool = False) -> None:
        look = self.look(run)
        if isinstance(look, Alive) and not hard and _touch(f"{self._root}/{run}/kill"):
            _send(look.claim.pid, signal.SIGTERM)
        elif isinstance(look, Alive):
            # Held still, so that it cannot finish this run and take another between the look and the kill.
            _send(look.claim.pid, signal.SIGSTOP)
            if isinstance(self.look(run), Alive):
                wrapper.kill_tree(look.claim.pid)
                _send(look.claim.pid, signal.SIGKILL)
            _send(look.claim.pid, signal.SIGCONT)

    @_translate_os_errors
    def forbid(self, run: str) -> None:
        wrapper.write_claim(f"{self._root}/{run}", json.loads(_FORBIDDEN))

    @_translate_os_errors
    def kill_leftovers(self, pids: tuple[int, ...]) -> None:
        for pid in pids:
            wrapper.kill_tree(pid)
            _send(pid, signal.SIGKILL)

    @_translate_os_errors
    def read_output(self, run: str, tail_bytes: int = 65536) -> str:
        return _read(f"{self._root}/{run}/output", tail_bytes=tail_bytes) or ""

    def close(self) -> None:
        self._closing = True
        os.write(self._wake_write, b".")
        self._watcher.join()
        with self._lock:
            self._close_nursery()
        for descriptor in (*self._watched.values(), self._wake_read, self._wake_write):
            os.close(descriptor)
        self._epoll.close()

    def _environment(self, order: Order) -> dict[str, str]:
        names = (*INHERITED, *(order.mounts or {}).get("inherit", ()))
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        environment = {**inherited, **order.environment, "HIVE_RUN": f"{self._hive}/{order.run}"}
        if programs := environment.get("HIVE_BIN"):
            environment["PATH"] = f"{programs}:{environment.get('PATH', os.defpath)}"
        return environment

    def _open_nursery(self) -> None:
        argv = [sys.executable, "-I", "-S", str(Path(wrapper.__file__).with_name("nursery.py"))]
        environment = {"PATH": os.environ.get("PATH", os.defpath)}
        self._root.mkdir(parents=True, exist_ok=True)
        # Its complaints go to a file: wrappers outlive us, and must not hold open the terminal or pipe we speak to.
        with self._open_log() as complaints:
            self._nursery = subprocess.Popen(  # noqa: S603 - our own interpreter and our own file
                argv,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        assert self._nursery.stdout is not None
        assert self._nursery.stdin is not None
        os.set_blocking(self._nursery.stdin.fileno(), False)
        self._nursery_output = self._nursery.stdout.fileno()
        os.set_blocking(self._nursery_output, False)
        self._epoll.register(self._nursery_output, select.EPOLLIN)

    def _open_log(self) -> BinaryIO:
        try:
            return (self._root / "nursery.log").open("ab")
        except OSError:  # a full disk: better no complaints than no runs
            return Path(os.devnull).open("ab")

    def _close_nursery(self) -> None:
        """Let the nursery leave; its wrappers finish what they have."""
        if self._nursery is not None:
            assert self._nursery.stdin is not None
            assert self._nursery.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                self._nursery.stdin.close()
            try:
                self._nursery.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:  # frozen, say; its wrappers are none the worse for its death
                self._nursery.kill()
                self._nursery.wait()
            with self._watch_lock:
                self._nursery_output = -1
                self._nursery.stdout.close()
            self._nursery = None

    def _is_alive(self, pid: int, start_ticks: int) -> bool:
        with self._watch_lock:
            return self._is_watched_alive((pid, start_ticks))

    def _is_watched_alive(self, key: tuple[int, int]) -> bool:
        pid, start_ticks = key
        if key not in self._watched:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                return False
            # The pidfd pins whoever has the pid now; the start time says whether that is who we mean.
            if wrapper.read_start_ticks(pid) != start_ticks:
                os.close(descriptor)
                return False
            self._watched[key] = descriptor
            self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        poll = select.poll()
        poll.register(self._watched[key], select.POLLIN)
        if not poll.poll(0):
            return True
        os.close(self._watched.pop(key))
        return False

    def _watch(self) -> None:
        """Turn every sign of change into a nudge: a wrapper's word, a wrapper's death, the nursery's end."""
        while not self._closing:
            for descriptor, _ in self._epoll.poll():
                if descriptor == self._wake_read:
                    return
                with self._watch_lock:  # so that nobody closes, and somebody else reuses, its number meanwhile
                    self._take_news(descriptor)
            self._on_change()

    def _take_news(self, descriptor: int) -> None:
        """Read away the nursery's words, or close the pidfd of a wrapper that is dead: the disk says the rest."""
        if descriptor == self._nursery_output:
            with contextlib.suppress(BlockingIOError):
                if not os.read(descriptor, 1 << 16):
                    self._epoll.unregister(descriptor)
        for key, watched in list(self._watched.items()):
            if watched == descriptor:
                os.close(self._watched.pop(key))

    def _find_leftovers(self, run: str) -> tuple[int, ...]:
        marker = f"HIVE_RUN={self._hive}/{run}".encode()
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                    environ = (process / "environ").read_bytes()
                    if marker in environ.split(b"\0") and wrapper.read_start_ticks(int(process.name)) is not None:
                        found.append(int(process.name))
        return tuple(found)


def _write_in_time(descriptor: int, line: bytes) -> None:
    """Write to a pipe that somebody should be reading; nothing waits long inside a pass."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    rest = memoryview(line)
    while rest:
        if not poll.poll(_PATIENCE_S * 1000):
            raise TimeoutError
        with contextlib.suppress(BlockingIOError):
            rest = rest[os.write(descriptor, rest) :]


def _touch(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))
    except OSError:
        return os.path.lexists(path)
    return True


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


_FORBIDDEN = '{"forbidden": true}'


def _read(path: str, *, tail_bytes: int = 1 << 16) -> str | None:
    """Read the end of a file of a run; None when there is none, nothing when it is no plain file of ours."""
    # A hostile worker may have put anything here: no link is followed, no FIFO waited for, nothing large is read.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return ""
        raise  # out of descriptors, say: what is there must not be taken for nothing
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return ""
        return os.pread(descriptor, tail_bytes, max(0, found.st_size - tail_bytes)).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def _to_mapping(text: str | None) -> Mapping[str, Any] | None:
    # A power cut may leave an empty or torn file behind: as good as none.
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _to_claim(text: str) -> Claim | None:
    value = _to_mapping(text) or {}
    match value:
        case {"pid": int(pid), "start_ticks": int(ticks), "boot_id": str(boot), "at": int() | float() as at} if (
            0 < pid < _LARGEST_PID and abs(ticks) < _LARGEST_INTEGER and 0 <= at < _LATEST_S
        ):
            return Claim(int(pid), int(ticks), boot, to_text(at), str(value.get("order", "")))
        case _:
            return None


def _to_ending(text: str | None) -> Ending | None:
    value = _to_mapping(text) or {}
    match value:
        case {
            "status": int(status),
            "ended_by": str(by),
            "output_bytes": int(size),
            "at": int() | float() as at,
        } if abs(status) < _LARGEST_STATUS and 0 <= size < _LARGEST_INTEGER and 0 <= at < _LATEST_S:
            return Ending(int(status), by, int(size), to_text(at), problem=str(value.get("problem", "")))
        case _:
            return None


_PATIENCE_S = 1.0
_NOT_A_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV)
_LARGEST_PID = 1 << 31
_LARGEST_INTEGER = 1 << 63
_LARGEST_STATUS = 1 << 16
_LATEST_S = 32_503_680_000.0  # the year 3000
