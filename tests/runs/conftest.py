"""A bench for runs: real directories, real processes, and nothing of them left when a test is over."""

import contextlib
import ctypes
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from hivekeeper.domain.run import Alive, Claim, Ended, Gone, Look, Order
from hivekeeper.runs.local import LocalRuns

PATIENCE_S = 15.0
SOURCE = str(Path(__file__).parents[2] / "src")
_PR_SET_CHILD_SUBREAPER = 36


def poll_until(seen: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait for a fact of the world; say which one never came."""
    deadline = time.monotonic() + timeout_s
    while not seen():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout_s} s: {what}")
        time.sleep(0.005)  # real time: other processes get on with it


def stays(seen: Callable[[], bool], seconds: float) -> bool:
    """Tell whether a fact holds for a while."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not seen():
            return False
        time.sleep(0.01)  # real time: absence cannot be waited for in any other way
    return True


def read_stat(pid: int) -> tuple[str, int] | None:
    """Read state and parent of a process; None when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0].decode(), int(fields[1])


def is_running(pid: int) -> bool:
    """Tell whether a process has any living thread; a zombie leader with other threads does run."""
    stat = read_stat(pid)
    if stat is None or stat[0] not in "ZX":
        return stat is not None
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    return False


def list_children(pid: int) -> dict[int, str]:
    """List the children of a process with their states."""
    return _read_families().get(pid, {})


def list_descendants(*roots: int) -> list[int]:
    """List everything below some processes that runs."""
    families = _read_families()
    found, todo = [], list(roots)
    while todo:
        for pid in families.get(todo.pop(), {}):
            todo.append(pid)
            if is_running(pid):
                found.append(pid)
    return found


def _read_families() -> dict[int, dict[int, str]]:
    families: dict[int, dict[int, str]] = {}
    for pid in list_pids():
        if (stat := read_stat(pid)) is not None:
            families.setdefault(stat[1], {})[pid] = stat[0]
    return families


def list_pids() -> list[int]:
    """List every process there is."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def list_nurseries(parent: int) -> list[int]:
    """List the processes that fork wrappers for a process; wrappers that lost theirs have a name of their own."""
    found = []
    for pid, state in list_children(parent).items():
        with contextlib.suppress(OSError):
            is_ours = b"nursery.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
            if is_ours and state != "Z" and Path(f"/proc/{pid}/comm").read_text() != "hive-run\n":
                found.append(pid)
    return found


def find_nursery(parent: int | None = None) -> int:
    """Find the one process that forks wrappers for a process, this one unless told."""
    # For a moment after its start a process has no command line yet.
    found: list[int] = []

    def is_one() -> bool:
        found[:] = list_nurseries(parent or os.getpid())
        return len(found) == 1

    poll_until(is_one, "one nursery", 3.0)
    return found[0]


def list_descriptors(pid: int | None = None) -> list[int]:
    """List the open descriptors of a process, this one unless told."""
    return [int(path.name) for path in Path(f"/proc/{pid or os.getpid()}/fd").iterdir()]


def list_marks(path: Path) -> list[str]:
    """Read the lines that programs appended to a file."""
    return path.read_text().splitlines() if path.exists() else []


class Bench:
    """A directory of runs and one keeper's hold on it."""

    def __init__(self, root: Path) -> None:
        self.place = root
        self.root = root / "runs"
        self.hive = secrets.token_hex(6)
        self.changes: list[float] = []
        self._opened: list[LocalRuns] = []
        self._keepers: list[subprocess.Popen[bytes]] = []
        self.runs = self.open()

    def open(self, on_change: Callable[[], None] | None = None) -> LocalRuns:
        """Hold the same directory once more, as another keeper would."""
        runs = LocalRuns(self.root, self.hive, on_change or (lambda: self.changes.append(time.monotonic())))
        self._opened.append(runs)
        return runs

    def reopen(self) -> None:
        """Be the next keeper: let go properly and hold the same directory afresh."""
        self._opened.remove(self.runs)
        self.runs.close()
        self.runs = self.open()

    def close(self) -> None:
        """Let go of everything this process holds."""
        for runs in self._opened:
            runs.close()
        for keeper in self._keepers:
            keeper.kill()
            keeper.communicate()

    def order(
        self,
        run: str,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        /,
        **limits: float | None,
    ) -> Order:
        """Say exactly what is to run."""
        return Order(run, "test", tuple(argv), str(directory or self.place), dict(environment or {}), limits)

    def shell(self, run: str, script: str, **limits: float | None) -> Order:
        """Start a shell script."""
        order = self.order(run, ("sh", "-c", script), **limits)
        self.runs.start(order)
        return order

    def python(self, run: str, program: str, through: Sequence[str] = (), **limits: float | None) -> Order:
        """Start a Python program."""
        order = self.order(run, (*through, sys.executable, "-ISc", textwrap.dedent(program)), **limits)
        self.runs.start(order)
        return order

    def wait_alive(self, run: str) -> Claim:
        """Wait until a run's wrapper lives and has it."""
        poll_until(lambda: isinstance(self.runs.look(run), Alive), f"{run} alive: {self.runs.look(run)}")
        look = self.runs.look(run)
        assert isinstance(look, Alive)
        return look.claim

    def wait_ended(self, run: str, timeout_s: float = PATIENCE_S) -> Ended:
        """Wait until a run's ending is on disk."""
        poll_until(lambda: isinstance(self.runs.look(run), Ended), f"{run} ended", timeout_s)
        look = self.runs.look(run)
        assert isinstance(look, Ended)
        return look

    def wait_gone(self, run: str) -> Gone:
        """Wait until a run's wrapper is dead without an ending."""
        poll_until(lambda: isinstance(self.runs.look(run), Gone), f"{run} gone")
        look = self.runs.look(run)
        assert isinstance(look, Gone)
        return look

    def wait_mark(self, name: str, lines: int = 1) -> list[str]:
        """Wait until programs have written so many lines to a file beside the runs."""
        path = self.place / name
        poll_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= lines, f"{lines} lines in {name}")
        return list_marks(path)

    def finish_and_rest(self, run: str, script: str, **limits: float | None) -> Ended:
        """Run a shell script to its end and wait until its wrapper is known to be free for the next."""
        ended = self.finish(run, script, **limits)
        # After its exit record a wrapper only sleeps to wait for the next run, and its nursery when it knows of that.
        for pid in (ended.claim.pid, find_nursery()):
            poll_until(lambda pid=pid: (read_stat(pid) or ("", 0))[0] == "S", f"{pid} rests")  # type: ignore[misc]
        return ended

    def finish(self, run: str, script: str, **limits: float | None) -> Ended:
        """Run a shell script to its end."""
        self.shell(run, script, **limits)
        return self.wait_ended(run)

    def write(self, run: str, name: str, content: object) -> Path:
        """Put a file into a run's directory: bytes as they are, anything else as JSON."""
        path = self.root / run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    def find_marked(self, run: str) -> list[int]:
        """Find every process that carries a run's name in its environment."""
        found = []
        for pid in filter(is_running, list_pids()):
            with contextlib.suppress(OSError):
                if f"HIVE_RUN={self.hive}/{run}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(pid)
        return found

    def keeper_argv(self, program: str, **names: object) -> list[str]:
        """Write a program that holds the same runs as `runs` and can order shell scripts with `shell`."""
        prelude = f"""
            import os, sys, time
            from pathlib import Path
            sys.path.insert(0, {SOURCE!r})
            from hivekeeper.domain.run import Alive, Ended, Gone, Order, Unclaimed
            from hivekeeper.runs.local import LocalRuns
            place, hive = Path({str(self.place)!r}), {self.hive!r}
            runs = LocalRuns(place / "runs", hive)
            def shell(run, script, **limits):
                runs.start(Order(run, "test", ("sh", "-c", script), str(place), {{}}, limits))
            """
        given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        return [sys.executable, "-c", textwrap.dedent(prelude) + given + textwrap.dedent(program)]

    def spawn_keeper(self, program: str, through: Sequence[str] = (), **names: object) -> subprocess.Popen[bytes]:
        """Start another process that holds the same runs; what it complains of is in `keepers.log`."""
        argv, pipe = [*through, *self.keeper_argv(program, **names)], subprocess.PIPE
        with (self.place / "keepers.log").open("ab") as log:
            keeper = subprocess.Popen(argv, stderr=log, stdin=pipe, stdout=pipe)
        self._keepers.append(keeper)
        return keeper

    def read_exit(self, run: str) -> dict[str, object]:
        """Read an exit record as it lies on disk."""
        value = json.loads((self.root / run / "exit").read_text())
        assert isinstance(value, dict)
        return value


def read_cpu_s(pid: int) -> float:
    """Tell how much processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_dead(pid: int, what: str = "") -> None:
    """Wait for a process's end."""
    poll_until(lambda: not is_running(pid), f"the end of {pid} {what}")


def look_of(runs: LocalRuns, run: str) -> Look:
    """Look afresh; a function, so that type checkers do not remember the last look."""
    return runs.look(run)


def wait_for_end(pid: int, timeout_s: float) -> None:
    """Wait until a process has ended; `select` would refuse a descriptor above 1023, which `poll` takes."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(timeout_s * 1000)
    finally:
        os.close(descriptor)


def kill_and_wait(pid: int) -> None:
    """End a process that need not be a child of ours."""
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid, 10.0)


def kill_and_reap(pids: Sequence[int]) -> None:
    """End processes of ours for good."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            wait_for_end(pid, 1.0)
            os.waitpid(pid, os.WNOHANG)


@pytest.fixture
def clean_end() -> Iterator[None]:
    """Whatever a test's runs leave behind becomes this process's child, and is ended with the test."""
    libc = ctypes.CDLL(None)
    before = set(list_children(os.getpid()))
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    while left := set(list_children(os.getpid())) - before:
        kill_and_reap([*left, *list_descendants(*left)])
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def bench(tmp_path: Path, clean_end: None) -> Iterator[Bench]:
    """A bench with one keeper on it."""
    made = Bench(tmp_path)
    yield made
    made.close()
