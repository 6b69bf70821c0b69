"""What runs in other processes: forked from a small server that has imported the ledger and nothing of pytest."""

import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import apsw

from hivekeeper.domain.events import ConvoySubmitted, TaskAdded
from hivekeeper.errors import HiveError
from hivekeeper.store.ledger import ByPerson, Ledger, create_ledger, open_ledger
from hivekeeper.store.schema import make_ddl
from tests.needs import become_nobody

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["hivekeeper.store.queries"])


@contextmanager
def child(main: Callable[..., None], *arguments: object) -> Iterator[tuple[BaseProcess, Pipe]]:
    """Run `main(pipe, *arguments)` in a process of its own, which does not outlive the block."""
    ours, theirs = SERVER.Pipe()
    process = SERVER.Process(target=main, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        ours.close()


def drain(pipe: Pipe) -> list[tuple[str, int]]:
    """Read everything a process said before it died."""
    said: list[tuple[str, int]] = []
    try:
        while True:
            said.append(pipe.recv())
    except (EOFError, ConnectionError):
        return said


def submit_whole(ledger: Ledger, name: str) -> int:
    """Write a convoy and its two tasks in one transaction; tell the last event's number."""
    with ledger.write(ByPerson(name)) as tx:
        tx.record(ConvoySubmitted(name, f"pipeline_{name}"), why="kill me")
        tx.record(added(name, "one"))
        return tx.record(added(name, "two")).seq


def added(convoy: str, task: str, command: str = "true") -> TaskAdded:
    """Ask for a task without a repository."""
    return TaskAdded(
        task=f"{convoy}/{task}",
        convoy=convoy,
        id=task,
        title="",
        command=command,
        repo=None,
        after=[],
        verify=None,
        priority=0,
        attempts_allowed=3,
        output=None,
        idempotent=False,
        limits={},
    )


def write_until_killed(pipe: Pipe, path: Path, name: str) -> None:
    """Write convoy after convoy, and say so after each write has returned."""
    ledger = open_ledger(path)
    number = 0
    while True:
        number += 1
        seq = submit_whole(ledger, f"{name}-{number}")
        pipe.send((f"{name}-{number}", seq))


def write_for(pipe: Pipe, path: Path, name: str, barrier: Barrier, seconds: float) -> None:
    """Write as often as possible for a while, all writers from the same moment on."""
    ledger = open_ledger(path)
    barrier.wait()
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with ledger.write(ByPerson(name)) as tx:
            tx.record(ConvoySubmitted(f"{name}-{count}", f"p-{name}-{count}"))
        count += 1
    ledger.close()
    pipe.send((name, count))


def create_together(pipe: Pipe, path: Path, barrier: Barrier) -> None:
    """Make the ledger at the same moment as others do, and write to it."""
    barrier.wait()
    create_ledger(path)
    ledger = open_ledger(path)
    pipe.send((submit_whole(ledger, f"by-{os.getpid()}"), 0))
    ledger.close()


def come_and_go(pipe: Pipe, path: Path, barrier: Barrier, times: int) -> None:
    """Open, write and close again and again, as `hive` commands do; tell what went wrong."""
    problems: list[str] = []
    barrier.wait()
    for number in range(times):
        try:
            ledger = open_ledger(path)
            submit_whole(ledger, f"by-{os.getpid()}-{number}")
            ledger.close()
        except HiveError as error:
            problems.append(f"{type(error).__name__}: {error}")
    pipe.send(problems)


def lock_out(pipe: Pipe, path: Path, seconds: float) -> None:
    """Keep everybody out for a moment, as the last one to close does while it writes the log back."""
    raw = apsw.Connection(str(path))
    raw.execute("PRAGMA locking_mode = EXCLUSIVE")
    raw.execute("BEGIN EXCLUSIVE")
    raw.execute("UPDATE head SET seq = seq")
    pipe.send(("locked", 0))
    time.sleep(seconds)  # real time: the others are to wait so long
    raw.execute("ROLLBACK")
    raw.close()


def write_as_nobody(pipe: Pipe, path: Path) -> None:
    """Open and write as a user without rights, and tell how that ended."""
    make_ddl()  # the clone may lie below a home directory that is closed to others
    become_nobody()
    try:
        ledger = open_ledger(path)
        submit_whole(ledger, "nobody")
    except HiveError as error:
        pipe.send((type(error).__name__, error.exit_code))
    except BaseException as error:  # noqa: BLE001 - the test is told whatever it was
        pipe.send((type(error).__name__, -1))
    else:
        pipe.send(("written", 0))


def fill_a_limited_file(pipe: Pipe, path: Path, limit: int) -> None:
    """Write until no file may grow any further, lift that, and write again."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ledger = open_ledger(path)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    number = 0
    try:
        while number < 10_000:
            number += 1
            pipe.send(("written", submit_big(ledger, f"limited-{number}")))
    except HiveError as error:
        pipe.send((type(error).__name__, error.exit_code))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    pipe.send(("again", submit_big(ledger, "again")))
    ledger.close()


def submit_big(ledger: Ledger, name: str, size: int = 20_000) -> int:
    """Write a convoy with a task of some size in one transaction; tell the last event's number."""
    with ledger.write(ByPerson(name)) as tx:
        tx.record(ConvoySubmitted(name, f"pipeline_{name}"))
        return tx.record(added(name, "big", "x" * size)).seq
