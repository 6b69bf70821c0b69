"""The whole examination, and the mending of what is provably safe to mend.

Mending holds the coordinator's lease, so no keeper can begin meanwhile; under it everything is looked at again, and
only what is still found is mended. The log gets `lease.taken` and `lease.released`, and nothing else.
"""

import os
import select
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import assert_never

from hivekeeper.clock import Clock, SystemClock
from hivekeeper.config.settings import load_settings
from hivekeeper.doctor.facts import Facts, find_marker, gather
from hivekeeper.doctor.findings import (
    Check,
    DropCheckpoint,
    Finding,
    KillProcesses,
    Level,
    RemoveFile,
    RemoveTree,
    Report,
    Say,
    WorldFix,
    is_distrusted,
)
from hivekeeper.doctor.lease import check_lease
from hivekeeper.doctor.ledger import check_ledger
from hivekeeper.doctor.locks import check_locks
from hivekeeper.doctor.machine import check_machine, check_settings
from hivekeeper.doctor.mirrors import check_mirrors
from hivekeeper.doctor.public import check_public
from hivekeeper.doctor.repos import check_repos, check_waits
from hivekeeper.doctor.runs import check_processes, check_runs
from hivekeeper.doctor.sandboxes import check_sandboxes
from hivekeeper.errors import AnotherKeeperError, HiveError, LedgerRefusedError
from hivekeeper.hive import find_living_holder
from hivekeeper.keeper.lease import take
from hivekeeper.places import Places
from hivekeeper.runs.local import LocalRuns
from hivekeeper.settings import Settings
from hivekeeper.store.ledger import open_ledger
from hivekeeper.store.sqlite import reading_only

NEVER_S = float("inf")
WAIT_FOR_DEATH_MS = 5000


def _say_nothing(_what: str) -> None:
    pass


def examine(root: Path, *, say: Say = _say_nothing, clock: Clock | None = None) -> Report:
    """Look at everything and change nothing."""
    still = _check_still(root, say)
    return Report((*still, *_check_world(root, clock or SystemClock(), say, still)))


def _check_still(root: Path, say: Say) -> tuple[Finding, ...]:
    """Look at what mending does not change."""
    places = Places(root.resolve())
    machine = check_machine(places, _load_settings(root))
    return (*check_settings(root), *machine, *check_ledger(places.ledger, say))


def _is_current(findings: Iterable[Finding]) -> bool:
    return any(finding.check is Check.LEDGER and finding.level is Level.OK for finding in findings)


def _check_world(root: Path, clock: Clock, say: Say, still: Iterable[Finding]) -> Iterator[Finding]:
    """Look at runs, sandboxes and mirrors, if there is a ledger to hold them against."""
    if not _is_current(still):
        return
    say("runs and sandboxes")
    try:
        facts = gather(Places(root.resolve()), clock)
        yield from check_lease(facts, _load_settings(root).abandoned_after_s)
        yield from _check_mendable(facts)
        yield from check_repos(facts)
        yield from check_waits(facts)
        yield from check_mirrors(facts, say)
        yield from check_public(facts, say)
    except LedgerRefusedError as error:
        yield Finding(Check.TABLES, Level.FAIL, error.what, error.advice)
    except HiveError as error:
        yield Finding(Check.DIRECTORY, Level.FAIL, error.what, error.advice)
    except OSError as error:
        what = f"The hive cannot be looked at: {error}."
        yield Finding(Check.DIRECTORY, Level.FAIL, what, "Check permissions, memory and limits (ulimit -a).")


def _load_settings(root: Path) -> Settings:
    try:
        return load_settings(root)
    except HiveError:  # which is a finding of its own
        return Settings()


def _check_mendable(facts: Facts) -> Iterator[Finding]:
    yield from check_processes(facts)
    yield from check_runs(facts)
    yield from check_sandboxes(facts)
    yield from check_locks(facts)


def mend(root: Path, *, say: Say = _say_nothing, clock: Clock | None = None) -> Report:
    """Examine, mend what is provably safe, and look again at what may have changed."""
    places, clock = Places(root.resolve()), clock or SystemClock()
    _leave_to_keeper(places)
    still = _check_still(root, say)
    before = Report((*still, *_check_world(root, clock, say, still)))
    if doubt := _doubt_mending(before.findings):
        return Report(before.findings, left=(f"Nothing was touched: {doubt}.",))
    if not any(finding.fix for finding in before.findings):
        return before
    with ExitStack() as stack:
        ledger = stack.enter_context(closing(open_ledger(places.ledger, clock)))
        # A keeper that is alive but silent is for `hive up` to end, not for us.
        held = take(ledger, places.keeper_lock, clock, abandoned_after_s=NEVER_S)
        stack.callback(held.release)
        done, left = _mend(places, clock)
        # Not looked at again, which takes as long as the log is: a state that was put by is never put by anew.
        for seq in (finding.fix.seq for finding in still if isinstance(finding.fix, DropCheckpoint)):
            with ledger.write(held.authority) as tx:
                tx.drop_checkpoint(seq)
            done.append(f"Dropped the checkpoint at event {seq}.")
    still = tuple(finding for finding in still if finding.fix is None)
    return Report((*still, *_check_world(root, clock, say, still)), tuple(done), tuple(left))


def _leave_to_keeper(places: Places) -> None:
    try:
        with reading_only(places.ledger) as connection:
            keeper = find_living_holder(connection)
    except HiveError:
        return  # what is wrong with the ledger the examination says
    if keeper is not None:
        raise AnotherKeeperError(f"Another keeper is active: {keeper.holder}.", advice="Nothing was touched.")


def _doubt_mending(findings: Iterable[Finding]) -> str | None:
    if is_distrusted(findings):
        return "the ledger is not to be trusted"
    if any(finding.check is Check.DIRECTORY and finding.level is Level.FAIL for finding in findings):
        return "the hive cannot be written, or not looked at as a whole"
    return None


def _mend(places: Places, clock: Clock) -> tuple[list[str], list[str]]:
    done: list[str] = []
    left: list[str] = []
    # Processes first: while one lives, no lock is certain to be nobody's.
    for kinds in (KillProcesses, RemoveFile | RemoveTree):
        facts = gather(places, clock, mending=True)
        for finding in list(_check_mendable(facts)):
            if isinstance(finding.fix, kinds):
                try:
                    done.append(_apply(finding.fix, facts))
                except (OSError, HiveError) as error:
                    left.append(f"{finding.what} That could not be mended: {error}.")
    return done, left


def _apply(fix: WorldFix, facts: Facts) -> str:
    match fix:
        case RemoveFile(path):
            path.unlink(missing_ok=True)
            return f"Removed {path}."
        case RemoveTree(path):
            shutil.rmtree(path)
            return f"Removed {path} and everything in it."
        case KillProcesses(run, pids):
            for pid in pids:
                _kill(facts, run, pid)
            return f"Killed processes {' '.join(map(str, pids))} of run {run}."
        case _:
            assert_never(fix)


def _kill(facts: Facts, run: str, pid: int) -> None:
    """Kill a process that is still who it was, and wait for its end."""
    hive = facts.records.head.hive
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if find_marker(pid) != f"{hive}/{run}":
            return  # the pid belongs to somebody else by now
        with closing(LocalRuns(facts.places.runs, hive)) as runs:
            runs.kill_leftovers((pid,))
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(WAIT_FOR_DEATH_MS):
            raise HiveError(f"process {pid} was killed and does not die")
    finally:
        os.close(descriptor)
