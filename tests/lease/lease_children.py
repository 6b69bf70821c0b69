"""Keepers in processes of their own: each takes the lease, tells how that went, and does what it is told."""

import os
import signal
import socket
import subprocess
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

from hivekeeper.clock import SystemClock
from hivekeeper.domain.events import ConvoySubmitted
from hivekeeper.errors import HiveError
from hivekeeper.keeper import lease
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.store.ledger import Ledger, open_ledger
from hivekeeper.store.schema import make_ddl
from tests.needs import become_nobody
from tests.store.ledger_children import child

LOCK = "keeper.lock"
PATIENCE_S = 20.0
Answer = tuple[str, int]  # what happened, and the epoch or exit code that goes with it


@dataclass(frozen=True)
class Candidate:
    """Another process that wants to be, or is, the keeper."""

    process: BaseProcess
    pipe: Pipe

    @property
    def pid(self) -> int:
        """Its process."""
        assert self.process.pid is not None
        return self.process.pid

    def ask(self, order: str) -> Answer:
        """Tell it to do something, and hear how it went."""
        self.pipe.send(order)
        return self.hear()

    def hear(self) -> Answer:
        """Hear what it has to say."""
        if not self.pipe.poll(PATIENCE_S):
            raise AssertionError(f"keeper {self.pid} says nothing")
        what, number = self.pipe.recv()
        return str(what), int(number)

    def stop(self) -> None:
        """Freeze it, and come back when it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_for_state(self.pid, "T")

    def go_on(self) -> None:
        """Thaw it."""
        os.kill(self.pid, signal.SIGCONT)

    def is_alive(self) -> bool:
        """Tell whether it lives, frozen or not."""
        return read_state(self.pid) not in ("Z", "X", "")


@contextmanager
def candidate(directory: Path, abandoned_after_s: float = 60.0, *, nobody: bool = False) -> Iterator[Candidate]:
    """Start a process that obeys `take`, `write`, `beat`, `release` and the like."""
    with child(obey, directory, abandoned_after_s, nobody) as (process, pipe):
        yield Candidate(process, pipe)


def obey(pipe: Pipe, directory: Path, abandoned_after_s: float, nobody: bool) -> None:  # noqa: FBT001 - over a pipe
    """Do as told until the pipe ends."""
    # Loads what somebody else may not read: this clone may lie below a home directory that is closed to others.
    read_boot_id(), socket.gethostname(), make_ddl(), traceback.format_exc()
    if nobody:
        become_nobody()
    keeper = _Keeper(pipe, open_ledger(directory / "ledger.db"), directory / LOCK, abandoned_after_s)
    while True:
        try:
            order = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(getattr(keeper, order)())
        except HiveError as error:
            pipe.send((type(error).__name__, error.exit_code))
        except BaseException as error:  # noqa: BLE001 - the test is told whatever it was
            pipe.send((f"raw {type(error).__name__}: {error}", -1))


class _Keeper:
    def __init__(self, pipe: Pipe, ledger: Ledger, lock: Path, abandoned_after_s: float) -> None:
        self.pipe, self.ledger, self.lock, self.abandoned_after_s = pipe, ledger, lock, abandoned_after_s
        self.clock = SystemClock()
        self.lease: lease.Lease | None = None
        self.old: list[lease.Lease] = []

    @property
    def held(self) -> lease.Lease:
        assert self.lease is not None
        return self.lease

    def take(self) -> Answer:
        taken = lease.take(self.ledger, self.lock, self.clock, abandoned_after_s=self.abandoned_after_s)
        if self.lease is not None:
            self.old.append(self.lease)
        self.lease = taken
        return "taken", taken.authority.epoch

    def write(self) -> Answer:
        with self.ledger.write(self.held.authority) as tx:
            name = f"{os.getpid()}-{tx.head.seq}"
            return "written", tx.record(ConvoySubmitted(name, name)).seq

    def beat(self) -> Answer:
        with self.ledger.write(self.held.authority) as tx:
            tx.beat(boot_id=read_boot_id(), monotonic_s=self.clock.monotonic())
        return "beaten", self.held.authority.epoch

    def stall_in_a_write(self) -> Answer:
        """Say so in the middle of a transaction, and leave it only when spoken to again."""
        with self.ledger.write(self.held.authority) as tx:
            tx.record(ConvoySubmitted("half written", "half written"))
            self.pipe.send(("in the middle", 0))
            self.pipe.recv()
        return "written", 0

    def release(self) -> Answer:
        self.held.release()
        return "released", self.held.authority.epoch

    def start_a_program(self) -> Answer:
        """Start a program that outlives this process, and hand it every file that is not closed on purpose."""
        program = subprocess.Popen(["sleep", "60"], close_fds=False, start_new_session=True)
        return "started", program.pid

    def count_files(self) -> Answer:
        return "open", len(list(Path("/proc/self/fd").iterdir()))


def race(pipe: Pipe, directory: Path, barrier: Barrier, rounds: int, abandoned_after_s: float) -> None:
    """Want the lease at the same moment as all the others, round after round."""
    ledger, clock = open_ledger(directory / "ledger.db"), SystemClock()
    for _ in range(rounds):
        barrier.wait(PATIENCE_S)
        won = None
        try:
            won = lease.take(ledger, directory / LOCK, clock, abandoned_after_s=abandoned_after_s)
            pipe.send(("taken", won.authority.epoch))
        except HiveError as error:
            pipe.send((type(error).__name__, error.exit_code))
        except BaseException as error:  # noqa: BLE001 - the test is told whatever it was
            pipe.send((f"raw {type(error).__name__}: {error}", -1))
        barrier.wait(PATIENCE_S)
        if won is not None:
            won.release()
        barrier.wait(PATIENCE_S)


def read_state(pid: int) -> str:
    """Tell a process's state in the kernel's letter; nothing when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_for_state(pid: int, *states: str) -> None:
    """Wait until the kernel has a process in one of these states."""
    end = time.monotonic() + PATIENCE_S
    while read_state(pid) not in states:
        assert time.monotonic() < end, f"{pid} is {read_state(pid)!r}"
        time.sleep(0.002)  # real time: a signal takes the kernel a moment
