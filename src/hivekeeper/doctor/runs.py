"""Runs: rows, directories and processes that do not belong together."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from hivekeeper.doctor.facts import Facts, list_directory
from hivekeeper.doctor.findings import REPAIR, Check, Finding, KillProcesses, RemoveFile, fail, or_ok, warn
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.run import Gone, Unclaimed
from hivekeeper.domain.states import RunState
from hivekeeper.domain.wording import say_count
from hivekeeper.runs.wrapper import read_start_ticks

_DRAFT = re.compile(r"claim\.(?P<pid>\d+)|exit\.(?P<writer>\d+)\.\d+", re.ASCII)
# Without its claim the keeper would start the run a second time (docs/adr/0006).
_ADOPTED = "the keeper adopts what is there when it comes to this run. If none is running, type: hive up"


def check_runs(facts: Facts) -> Iterator[Finding]:
    """Compare open runs with their wrappers, and directories with rows."""
    found = (*_check_dead(facts), *_check_directories(facts), *_check_drafts(facts))
    open_runs = say_count(len(facts.records.open_runs), "open run")
    directories = say_count(len(facts.run_directories), "directory", "directories")
    return or_ok(found, Check.RUNS, f"{open_runs}, {directories}, all of known runs")


def _check_dead(facts: Facts) -> Iterator[Finding]:
    if facts.records.keeper is not None:
        return  # it is settling them now
    for run in facts.records.open_runs:
        if _is_dead(facts, run):
            what = f"Run {run.id} is {run.state} in the ledger, and its wrapper is dead; the keeper is not running."
            yield warn(Check.RUNS, what, "The next keeper settles it. Type: hive up")


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
            what = f"{path} is the directory of a run that is not in the ledger; perhaps an older ledger was restored."
            yield warn(Check.RUNS, what, f"Leave it: {_ADOPTED}")


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
                yield warn(Check.RUNS, what, REPAIR, RemoveFile(path))


def check_processes(facts: Facts) -> Iterator[Finding]:
    """Find processes that outlive their run."""
    found = (finding for run, pids in facts.processes.items() for finding in _judge_processes(facts, run, pids))
    what = f"living processes of {say_count(len(facts.processes), 'run')}, each of them open"
    return or_ok(found, Check.PROCESSES, what)


def _judge_processes(facts: Facts, run: str, pids: tuple[int, ...]) -> Iterator[Finding]:
    row, who = facts.records.runs[run], " ".join(map(str, pids))
    inside = os.environ.get("HIVE_RUN") == f"{facts.records.head.hive}/{run}"
    if row is None:
        what = f"Processes {who} say they belong to run {run}, which is not in the ledger."
        look = f"ps -fp {who.replace(' ', ',')}"
        advice = f"Leave them (to see them: {look}): if an older ledger was restored, {_ADOPTED}"
        yield fail(Check.PROCESSES, what, advice)
    elif not row.is_open and inside:
        what = f"Run {run} has ended, and this command runs inside it."
        yield fail(Check.PROCESSES, what, "Leave this shell and type it in another.")
    elif not row.is_open:
        what = f"Run {run} is {row.state}, and processes {who} of it are alive."
        yield fail(Check.PROCESSES, what, REPAIR, KillProcesses(run, pids))
