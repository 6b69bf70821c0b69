"""The whole examination, and the repair of what is safe to repair.

A repair holds the coordinator's lease, so no keeper can start meanwhile; under it everything is checked again, and only
what is still found is repaired. The log gets `lease.taken` and `lease.released`, and nothing else.
"""

import os
import select
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import chain
from pathlib import Path
from typing import assert_never

from hivekeeper.clock import Clock, SystemClock
from hivekeeper.doctor.archive import check_archive, rebuild_archive
from hivekeeper.doctor.facts import Facts, find_marker, gather
from hivekeeper.doctor.findings import (
    Check,
    DropCheckpoint,
    Finding,
    KillProcesses,
    Level,
    RebuildArchive,
    RebuildIndex,
    RemoveFile,
    RemoveTree,
    Report,
    Say,
    WorldFix,
    fail,
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
from hivekeeper.doctor.seance import check_seance, rebuild_index
from hivekeeper.errors import AnotherKeeperError, HiveError, LedgerRefusedError, UnavailableError
from hivekeeper.hive import find_living_holder
from hivekeeper.keeper.lease import take
from hivekeeper.places import Places
from hivekeeper.runs.local import LocalRuns
from hivekeeper.settings import Settings
from hivekeeper.store.ledger import open_ledger
from hivekeeper.store.sqlite import reading_only

NEVER_S = float("inf")
WAIT_FOR_DEATH_MS = 5000
_REBUILDS = RebuildArchive | RebuildIndex


def examine(root: Path, *, say: Say = lambda _what: None, clock: Clock | None = None) -> Report:
    """Check everything and change nothing."""
    places, (settings, finding) = Places(root.resolve()), check_settings(root)
    fixed = (finding, *_check_ledger_and_machine(places, settings, say))
    return Report((*fixed, *_check_world(places, settings, clock or SystemClock(), say, fixed)))


def _check_ledger_and_machine(places: Places, settings: Settings, say: Say) -> Iterator[Finding]:
    """Check what repairs do not change."""
    return chain(check_machine(places, settings), check_ledger(places.ledger, say))


def _check_world(
    places: Places, settings: Settings, clock: Clock, say: Say, fixed: Iterable[Finding]
) -> Iterator[Finding]:
    """Check runs, sandboxes and mirrors, if there is a current ledger to compare them with."""
    if not any(finding.check is Check.LEDGER and finding.level is Level.OK for finding in fixed):
        return
    say("runs and sandboxes")
    try:
        facts = gather(places, clock)
        yield from check_lease(facts, settings.abandoned_after_s)
        yield from _check_repairable(facts)
        if not is_distrusted(fixed):
            yield from _check_rebuildable(facts, settings, say)
        yield from check_repos(facts)
        yield from check_waits(facts)
        yield from check_mirrors(facts, say)
        yield from check_public(facts, say)
    except LedgerRefusedError as error:
        yield fail(Check.TABLES, error.what, error.advice)
    except HiveError as error:
        yield fail(Check.DIRECTORY, error.what, error.advice)
    except OSError as error:
        advice = "Check permissions, memory and limits (ulimit -a)."
        yield fail(Check.DIRECTORY, f"The hive cannot be checked: {error}.", advice)


def _check_repairable(facts: Facts) -> Iterator[Finding]:
    return chain(check_processes(facts), check_runs(facts), check_sandboxes(facts), check_locks(facts))


def _check_rebuildable(facts: Facts, settings: Settings, say: Say = lambda _what: None) -> Iterator[Finding]:
    yield from check_archive(facts, settings, say)
    yield from check_seance(facts, settings, say)


def repair(root: Path, *, say: Say = lambda _what: None, clock: Clock | None = None) -> Report:
    """Check everything, repair what is safe to repair, and check again what may have changed."""
    places, clock, (settings, finding) = Places(root.resolve()), clock or SystemClock(), check_settings(root)
    with suppress(LedgerRefusedError, UnavailableError), reading_only(places.ledger) as connection:
        if keeper := find_living_holder(connection):
            raise AnotherKeeperError(f"Another keeper is active: {keeper.holder}.", advice="Nothing was changed.")
    fixed = (finding, *_check_ledger_and_machine(places, settings, say))
    before = Report((*fixed, *_check_world(places, settings, clock, say, fixed)))
    if doubt := _doubt_repairs(before.findings):
        return Report(before.findings, left=(f"Nothing was changed: {doubt}.",))
    if not any(finding.fix for finding in before.findings):
        return before
    with ExitStack() as stack:
        ledger = stack.enter_context(closing(open_ledger(places.ledger, clock)))
        # A keeper that is alive but silent is for `hive up` to end, not for us.
        held = take(ledger, places.keeper_lock, clock, abandoned_after_s=NEVER_S)
        stack.callback(held.release)
        done, left = _repair_world(places, settings, clock)
        # Not checked again, which would replay the whole log: a dropped checkpoint is never made again.
        for seq in (finding.fix.seq for finding in fixed if isinstance(finding.fix, DropCheckpoint)):
            with ledger.write(held.authority) as tx:
                tx.delete_checkpoint(seq)
            done.append(f"Dropped the checkpoint at event {seq}.")
    fixed = tuple(finding for finding in fixed if finding.fix is None)
    return Report((*fixed, *_check_world(places, settings, clock, say, fixed)), tuple(done), tuple(left))


def _doubt_repairs(findings: Iterable[Finding]) -> str | None:
    if is_distrusted(findings):
        return "the ledger cannot be trusted"
    if any(finding.check is Check.DIRECTORY and finding.level is Level.FAIL for finding in findings):
        return "the hive cannot be written, or not checked as a whole"
    return None


def _repair_world(places: Places, settings: Settings, clock: Clock) -> tuple[list[str], list[str]]:
    done: list[str] = []
    left: list[str] = []
    # Processes first: while one lives, no lock is certain to be left over.
    for kinds in (KillProcesses, RemoveFile | RemoveTree, _REBUILDS):
        facts = gather(places, clock, is_keeper=True)
        found = _check_rebuildable(facts, settings) if kinds == _REBUILDS else _check_repairable(facts)
        for finding in list(found):
            if isinstance(finding.fix, kinds):
                try:
                    done.append(_apply(finding.fix, facts, settings))
                except (OSError, HiveError) as error:
                    left.append(f"{finding.what} That could not be repaired: {error}.")
    return done, left


def _apply(fix: WorldFix, facts: Facts, settings: Settings) -> str:
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
        case RebuildArchive():
            return rebuild_archive(facts)
        case RebuildIndex(is_new):
            return rebuild_index(facts, settings, is_new=is_new)
        case _:
            assert_never(fix)


def _kill(facts: Facts, run: str, pid: int) -> None:
    """Kill a process if it still belongs to the run, and wait for its end."""
    hive = facts.records.head.hive
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if find_marker(pid) != f"{hive}/{run}":
            return  # the pid is another process's by now
        with closing(LocalRuns(facts.places.runs, hive)) as runs:
            runs.kill_leftovers((pid,))
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(WAIT_FOR_DEATH_MS):
            raise HiveError(f"process {pid} was killed and does not die")
    finally:
        os.close(descriptor)
