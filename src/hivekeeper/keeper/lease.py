"""The coordinator's lease: a kernel lock that dies with its holder, plus the epoch in every write.

A lock that is free is taken at once, so a restart after `kill -9` works immediately. A lock that is held is left
alone, unless its holder is ABANDONED: then the holder is killed first, because a frozen process keeps its lock.
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
from pathlib import Path

from hivekeeper.clock import Clock
from hivekeeper.commands.leases import release_lease, take_lease
from hivekeeper.domain.hive_rows import LeaseRow
from hivekeeper.domain.lease import KillFirst, Leave, Take, decide_lease
from hivekeeper.errors import AnotherKeeperError, StaleEpochError, UnavailableError
from hivekeeper.runs.wrapper import read_boot_id, read_start_ticks
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByKeeper, BySuccessor, Ledger

_WAIT_FOR_DEATH_S = 10.0


class Lease:
    """Held from `take` to `release` or to the process's end, whichever comes first."""

    def __init__(self, ledger: Ledger, lock: int, authority: ByKeeper) -> None:
        self._ledger = ledger
        self._lock: int | None = lock
        self.authority = authority

    def release(self) -> None:
        """Give it back, if it is still ours."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        try:
            with contextlib.suppress(StaleEpochError), self._ledger.write(self.authority) as tx:
                release_lease(tx, self.authority.who)
        finally:
            os.close(lock)  # also on a full disk: the kernel's lock is what the next keeper asks for


def take(ledger: Ledger, lock_path: Path, clock: Clock, *, abandoned_after_s: float) -> Lease:
    """Become the coordinator, or say who is."""
    try:
        lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        what = f"The keeper's lock {lock_path} cannot be opened: {error.strerror}."
        raise UnavailableError(what, advice="Check who owns the .hive folder and whether it can be written.") from None
    try:
        why = _acquire(ledger, lock, clock, abandoned_after_s)
        pid, boot_id = os.getpid(), read_boot_id()
        holder = f"keeper {pid} on {socket.gethostname()}"
        with ledger.write(BySuccessor(holder)) as tx:
            ticks = read_start_ticks(pid) or 0
            authority = take_lease(tx, holder=holder, pid=pid, start_ticks=ticks, boot_id=boot_id, why=why)
            tx.beat(boot_id=boot_id, monotonic_s=clock.monotonic())
    except BaseException:
        os.close(lock)
        raise
    return Lease(ledger, lock, authority)


def _acquire(ledger: Ledger, lock: int, clock: Clock, abandoned_after_s: float) -> str:
    with ledger.read() as connection:
        lease, heartbeat = queries.find_lease(connection), queries.find_heartbeat(connection)
    verdict = decide_lease(
        lock_is_free=_try_lock(lock),
        lease=lease,
        heartbeat=heartbeat,
        boot_id=read_boot_id(),
        monotonic_s=clock.monotonic(),
        abandoned_after_s=abandoned_after_s,
    )
    match verdict:
        case Take():
            ended = lease is None or lease.released_at is not None
            return "" if ended else f"{lease.holder if lease else ''} died without releasing the lease"
        case Leave(why):
            advice = "Nothing was touched. Type: hive status"
            raise AnotherKeeperError(f"Another keeper is active: {why}.", advice=advice)
        case KillFirst(pid) if pid == os.getpid():
            raise AnotherKeeperError(
                "This process already runs a keeper for this hive.", advice="Close that one first."
            )
        case KillFirst(pid, start_ticks, why):
            _kill(pid, start_ticks)
            if not _try_lock(lock):
                what = f"{why}; it was killed, but another process took the lease first."
                raise AnotherKeeperError(what, advice="Nothing was touched. Type: hive status")
            return why


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kill(pid: int, start_ticks: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if read_start_ticks(pid) != start_ticks:
            return  # the pid belongs to somebody else by now
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(_WAIT_FOR_DEATH_S * 1000):
            what = f"The abandoned keeper {pid} was killed and does not die."
            raise UnavailableError(what, advice="It hangs in the kernel, perhaps on a dead disk. Check dmesg.")
    except ProcessLookupError:
        return  # it died meanwhile
    except PermissionError:
        what = f"The abandoned keeper {pid} belongs to another user and cannot be stopped by you."
        raise AnotherKeeperError(what, advice=f"Have its owner type: kill -9 {pid}") from None
    finally:
        os.close(descriptor)


def ask_to_stop(lease: LeaseRow, wait_s: float) -> bool:
    """Ask a keeper to stop and wait for its end; False when it takes longer."""
    try:
        descriptor = os.pidfd_open(lease.pid)
    except ProcessLookupError:
        return True
    try:
        if read_start_ticks(lease.pid) == lease.start_ticks:
            signal.pidfd_send_signal(descriptor, signal.SIGINT)
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return bool(poll.poll(wait_s * 1000))
    except ProcessLookupError:
        pass  # it died meanwhile
    finally:
        os.close(descriptor)
    return True
