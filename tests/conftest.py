"""What holds for every test: nobody's git configuration, no hive around it, and a count for each tier at the end."""

import ast
import fcntl
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from hivekeeper.domain.events import BODIES, Body
from hivekeeper.store.ledger import Transaction
from tests.budget import CPU_MS, KINDS, LINES, SEED, TALLY, read_cpu_s

# How long an example takes says something about the machine, nothing about the property.
settings.register_profile("hive", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hive")

ROOT = Path(__file__).parents[1]
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")

# Where several files are tried at once, those that take minutes begin first, so that nobody waits for them at the end.
LONG = (
    "crash/test_crash.py",
    "agents/test_outcomes.py",
    "agents/test_landing.py",
    "agents/test_answers.py",
    "power/test_power.py",
    "crash/test_mutants.py",
    "crash/test_random_kills.py",
    "rehearsal/test_rehearse.py",
)
# Of these every test is on its own; the tests of any other file follow one another in one process.
SPLIT = (
    "crash/test_mutants.py",
    "rehearsal/test_rehearse.py",
    "agents/test_outcomes.py",
    "agents/test_landing.py",
    "agents/test_answers.py",
)
# With this mark it holds something against the clock, or is about who comes first. It runs after all others, beside at
# most two of its kind: most of them wait.
ALONE, SIDES = "pytest.mark.alone", 3
# Between them these come to every kind of event; one that they do not come to is one that nobody has seen at work.
SHOWING = ("scenarios", "property")
TIER = [""]  # of the test that runs
MOST_LEAKED = 12  # descriptors that a test may leave open: what a whole file shares is opened by its first

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
    items.sort(key=lambda item: (is_alone(item), LONG.index(name) if (name := name_file(item)) in LONG else len(LONG)))


def name_file(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).as_posix()


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def pytest_collection_finish() -> None:
    """Look for garbage rarely, and never in what was collected, which stays until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


class Dealer(LoadScopeScheduling):  # type: ignore[misc]
    """Deals tests out to processes: those that are alone to one, a file to one, and some files test by test."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        alone = list_alone(file)
        if "pytestmark" in alone or test.partition("[")[0] in alone:
            return f"alone {choose_side(file)}"
        return nodeid if file.removeprefix("tests/") in SPLIT else file


def choose_side(file: str) -> int:
    """Choose the side of a test file whose tests are alone: those of a side never run at once."""
    return crc32(Path(file).name.encode()) % SIDES


@cache
def list_alone(file: str) -> set[str]:
    """Read which functions of a file have the mark: whoever deals out knows tests by their names only."""
    found = set()
    for node in ast.parse((ROOT / file).read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == ALONE for each in node.decorator_list):
            found.add(node.name)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            found.update("pytestmark" for mark in marks if ast.unparse(mark) == ALONE)
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Dealer:  # noqa: ANN401 - of pytest-xdist
    return Dealer(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let those that are alone wait for all others, before their time limit begins to run."""
    if not hasattr(item.config, "workerinput"):  # nobody else is at work
        with counting(item):
            return (yield)
    file = Path(item.config.getoption("basetemp")).parent / "door"  # which all of this run have in common
    with file.open("a+b") as door:
        if is_alone(item):  # its own side of the door, through which nobody else may pass
            fcntl.lockf(door, fcntl.LOCK_EX, 1, choose_side(name_file(item)))
        else:
            fcntl.lockf(door, fcntl.LOCK_SH, SIDES)
        with counting(item):
            return (yield)


@contextmanager
def counting(item: pytest.Item) -> Iterator[None]:
    """Count the CPU seconds of a test for its tier."""
    before = read_cpu_s()
    TIER[0] = name_file(item).partition("/")[0]
    yield
    CPU_MS[TIER[0]] += round(1000 * (read_cpu_s() - before))


@pytest.fixture(scope="session", autouse=True)
def _kinds() -> Iterator[None]:
    """Note every kind of event that is written in this process."""
    record = Transaction.record

    def note(tx: Transaction, body: Body, **more: Any) -> Any:  # noqa: ANN401 - as it is
        if TIER[0] in SHOWING:
            KINDS.add(body.kind)
        return record(tx, body, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "record", note)
        yield


@pytest.fixture(autouse=True)
def _no_leak() -> Iterator[None]:
    """Fail a test that leaves many files, pipes or sockets open: the next ones would run out of them."""
    before = list_open()
    yield
    if len(list_open()) - len(before) > MOST_LEAKED:
        gc.collect()
        left = {number: what for number, what in list_open().items() if number not in before}
        assert len(left) <= MOST_LEAKED, f"it leaves {len(left)} descriptors open: {sorted(left.values())[:20]}"


def list_open() -> dict[str, str]:
    """List the open descriptors of this process, and what each is."""
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one by which we look
            found[path.name] = str(path.readlink())
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what was counted here to the process that tells it; there, fail if a kind of event was never seen."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output.update(tally=dict(TALLY), lines=LINES, cpu_ms=dict(CPU_MS), kinds=sorted(KINDS))
    elif (unseen := list_unseen(session.config)) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        LINES.append(f"FAILED: no scenario and no random history comes to {', '.join(unseen)}")


def list_unseen(config: pytest.Config) -> list[str]:
    """List the kinds of event that nobody came to, if all were run that could."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    passed = {report.nodeid.partition("::")[0] for report in reporter.stats.get("passed", ())} if reporter else set()
    files = {path.relative_to(ROOT).as_posix() for tier in SHOWING for path in ROOT.glob(f"tests/{tier}/test_*.py")}
    return sorted(BODIES.keys() - KINDS) if files <= passed and not config.option.keyword else []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - a process of pytest-xdist
    """Take what another process has counted."""
    output = getattr(node, "workeroutput", {})  # one that died has none
    TALLY.update(output.get("tally", {}))
    LINES.extend(output.get("lines", ()))
    CPU_MS.update(output.get("cpu_ms", {}))
    KINDS.update(output.get("kinds", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how each tier went, above pytest's own last line."""
    tiers: dict[str, Counter[str]] = {}
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, ()):
            tier = report.nodeid.removeprefix("tests/").partition("/")[0]
            tiers.setdefault(tier, Counter())[outcome] += 1
    for tier, counts in sorted(tiers.items()):
        told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
        terminalreporter.write_line(f"{tier:<14}{CPU_MS[tier] / 1000:>7.0f} CPU-s   {told}")
    for line in LINES:
        terminalreporter.write_line(line)
    for what, count in TALLY.items():
        terminalreporter.write_line(f"{what}: {count}")
    if TALLY:
        again = f"the same choice again: HIVE_SEED={SEED} make test; another: HIVE_SEED=random make test"
        terminalreporter.write_line(f"Chosen by seed {SEED}; {again}")
