"""Runs: rows, directories and processes that do not belong together."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from hivekeeper.doctor.facts import Facts, list_directory
from hivekeeper.doctor.findings import MEND, Check, Finding, KillProcesses, Level, RemoveFile
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.run import Gone, Unclaimed
from hivekeeper.domain.states import RunState
from hivekeeper.runs.wrapper import read_start_ticks

_DRAFT = re.compile(r"claim\.(?P<pid>\d+)|exit\.(?P<writer>\d+)\.\d+", re.ASCII)
# Without its claim the keeper would start the run a second time (docs/adr/0006).
_ADOPTED = "the keeper adopts what is there when it comes to this run. If none is up, type: hive up"


def check_runs(facts: Facts) -> Iterator[Finding]:
    """Hold open runs against their wrappers, and directories against rows."""
    found = [*_check_dead(facts), *_check_directories(facts), *_check_drafts(facts)]
    yield from found
    if not found:
        what = f"{len(facts.records.open_runs)} open runs, {len(facts.run_directories)} directories, none astray"
        yield Finding(Check.RUNS, Level.OK, what)


def _check_dead(facts: Facts) -> Iterator[Finding]:
    if facts.records.keeper is not None:
        return  # it is settling them this very moment
    for run in facts.records.open_runs:
        if _is_dead(facts, run):
            what = f"Run {run.id} is {run.state} in the ledger, and its wrapper is dead; nobody keeps this hive."
            yield Finding(Check.RUNS, Level.WARN, what, "The next keeper settles it. Type: hive up")


def _is_dead(facts: Facts, run: RunRow) -> bool:
    match facts.looks[run.id]:
        case Gone():
            return True
        case Unclaimed():
            return run.state is RunState.RUNNING or run.boot_id != facts.boot_id
        case _:
            return False


def _check_directories(facts: Facts) -> Iterator[Finding]:
    for run in facts.run_directories:
        path = facts.places.runs / run
        if facts.records.runs[run] is None and path.exists():
            what = f"{path} is the directory of a run that is not in the ledger; perhaps an older ledger was put back."
            yield Finding(Check.RUNS, Level.WARN, what, f"Leave it: {_ADOPTED}")


def _check_drafts(facts: Facts) -> Iterator[Finding]:
    if facts.records.keeper is not None:
        return  # its wrappers write drafts all the time
    for run in facts.run_directories:
        if (directory := facts.places.runs / run).is_symlink():
            continue  # it may lead anywhere
        for entry in list_directory(directory):
            draft = _DRAFT.fullmatch(entry.name)
            pid = int(draft["pid"] or draft["writer"]) if draft else 0
            if pid and entry.is_file(follow_symlinks=False) and read_start_ticks(pid) is None:
                path = Path(entry.path)
                what = f"{path} is a draft whose writer, process {pid}, is dead."
                yield Finding(Check.RUNS, Level.WARN, what, MEND, RemoveFile(path))


def check_processes(facts: Facts) -> Iterator[Finding]:
    """Find processes that outlive their run."""
    found = [finding for run, pids in facts.processes.items() for finding in _judge_processes(facts, run, pids)]
    yield from found
    if not found:
        yield Finding(Check.PROCESSES, Level.OK, f"{len(facts.processes)} runs have living processes, all of them open")


def _judge_processes(facts: Facts, run: str, pids: tuple[int, ...]) -> Iterator[Finding]:
    row, who = facts.records.runs[run], " ".join(map(str, pids))
    inside = os.environ.get("HIVE_RUN") == f"{facts.records.head.hive}/{run}"
    if row is None:
        what = f"Processes {who} say they belong to run {run}, which is not in the ledger."
        look = f"ps -fp {who.replace(' ', ',')}"
        advice = f"Leave them (to look: {look}): if an older ledger was put back, {_ADOPTED}"
        yield Finding(Check.PROCESSES, Level.FAIL, what, advice)
    elif not row.is_open and inside:
        what = f"Run {run} has ended, and this very command runs inside it."
        yield Finding(Check.PROCESSES, Level.FAIL, what, "Leave this shell and type it in another one.")
    elif not row.is_open:
        what = f"Run {run} is {row.state}, and processes {who} of it are alive."
        yield Finding(Check.PROCESSES, Level.FAIL, what, MEND, KillProcesses(run, pids))
