"""What holds for every test: nobody's git configuration, no hive around it, and a count for each tier at the end."""

import fcntl
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.budget import LINES, SEED, TALLY

# How long an example takes says something about the machine, nothing about the property.
settings.register_profile("hive", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hive")

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")

# Where several files are tried at once, those that take minutes begin first, so that nobody waits for them at the end.
LONG = (
    "crash/test_crash.py",
    "crash/test_mutants.py",
    "crash/test_random_kills.py",
    "rehearsal/test_rehearse.py",
    "power/test_power.py",
    "e2e/test_bad_input.py",
    "e2e/test_workers.py",
    "e2e/test_history_commands.py",
)
# Those that hold something against the clock, or are about who comes first, are alone on the machine, after all others.
ALONE = (
    "doctor/test_examination.py",
    "doctor/test_mending.py",
    "e2e/test_promptness.py",
    "lease/test_lease_processes.py",
    "rehearsal/test_demo.py",
    "runs/test_bad_files.py",
    "runs/test_disk_limit.py",
    "runs/test_exclusive.py",
    "runs/test_limits.py",
    "runs/test_on_change.py",
    "runs/test_pool.py",
    "runs/test_process_limit.py",
    "runs/test_stop.py",
    "runs/test_trees.py",
    "runs/test_walled.py",
    "store/test_ledger_together.py",
    "walls/test_rooms.py",
)

# Started in the background of a shell we would be deaf to Ctrl-C, and with us every command that is tried here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Some machines forbid it, and every hive that is started here would compile itself anew: a third of its time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(scope="session", autouse=True)
def _plain_environment() -> Iterator[None]:
    """Give git an author and nobody's settings, and hide the hive a test run may itself be a worker of."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("GIT_", "HIVE_")):
                patch.delenv(name)
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "A Test")
            patch.setenv(f"GIT_{role}_EMAIL", "test@localhost")
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first and those that are alone last; all else stays in its order."""
    items.sort(key=lambda item: LONG.index(name) if (name := name_file(item)) in LONG else len(LONG) + (name in ALONE))


def name_file(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).as_posix()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let those that are alone wait for all others, before their time limit begins to run."""
    if not hasattr(item.config, "workerinput"):  # nobody else is at work
        return (yield)
    door = os.open(Path(item.config.getoption("basetemp")).parent, os.O_RDONLY)  # which all of this run have in common
    try:
        fcntl.flock(door, fcntl.LOCK_EX if name_file(item) in ALONE else fcntl.LOCK_SH)
        return (yield)
    finally:
        fcntl.flock(door, fcntl.LOCK_UN)  # whatever was forked meanwhile has the door open too
        os.close(door)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what was counted here to the process that tells it."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output.update(tally=dict(TALLY), lines=LINES)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - a process of pytest-xdist
    """Take what another process has counted."""
    output = getattr(node, "workeroutput", {})  # one that died has none
    TALLY.update(output.get("tally", {}))
    LINES.extend(output.get("lines", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how each tier went, above pytest's own last line."""
    tiers: dict[str, Counter[str]] = {}
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, ()):
            tier = report.nodeid.removeprefix("tests/").partition("/")[0]
            tiers.setdefault(tier, Counter())[outcome] += 1
    for tier, counts in sorted(tiers.items()):
        told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
        terminalreporter.write_line(f"{tier:<14}{told}")
    for line in LINES:
        terminalreporter.write_line(line)
    for what, count in TALLY.items():
        terminalreporter.write_line(f"{what}: {count}")
    if TALLY:
        again = f"the same choice again: HIVE_SEED={SEED} make test; another: HIVE_SEED=random make test"
        terminalreporter.write_line(f"Chosen by seed {SEED}; {again}")
