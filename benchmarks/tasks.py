"""`make bench-tasks`: tiny tasks, with the sandbox and without, against bare processes, bare bubblewrap and huey.

Every contestant runs `sh -c :` equally often, in turns. A rate is the median of all rounds, and a ratio that of the
ratios within each round, because how quickly this machine starts a process may change many times over meanwhile.
"""

import importlib.util
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks import Figure
from benchmarks.ledger import Say, measure_single_events
from hivekeeper.api import Coordinator, Task
from hivekeeper.config.values import FILE_NAME
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.run import Ended, Order
from hivekeeper.hive import open_hive
from hivekeeper.keeper.programs import find_hive_isolation
from hivekeeper.runs.local import LocalRuns
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.sandbox.isolation import Level, Mounts
from hivekeeper.specs.sandboxed import make_mounts
from hivekeeper.store.ledger import create_ledger

COMMAND = ("sh", "-c", ":")
FEW, MANY = 8, 32
BARE, HUEY = f"xargs -P {FEW} bwrap", f"huey, {FEW} workers"
MISSING = {BARE: "the sandbox of this machine is not bubblewrap's", HUEY: "huey is not installed"}
ON, OFF = "", '[sandbox]\nlevel = "limits"\n'
WITH_HUEY = Path(__file__).with_name("with_huey.py")

Contestant = Callable[[Path], float]  # does all the tasks in a directory of its own; tells the seconds


def run_all(say: Say, *, directory: Path | None, tasks: int, rounds: int, events: int) -> Iterator[Figure]:
    """Measure everything, in a directory on the disk where the hive would lie."""
    with tempfile.TemporaryDirectory(prefix="hive-bench-", dir=directory) as name:
        root = Path(name)
        contestants = _list_contestants(root, tasks)
        rates: dict[str, list[float]] = {each: [] for each in contestants}
        for number in range(rounds):
            for each, run in contestants.items():
                say(f"round {number + 1} of {rounds}: {tasks} tasks, {each} …")
                # Nothing is removed before the end: that slows ext4's next allocations down for seconds.
                rates[each].append(tasks / run(Path(tempfile.mkdtemp(dir=root))))
        for each, found in rates.items():
            yield Figure(each, statistics.median(found), "tasks/s", "none", reached=True, detail=_list_rounds(found))
        yield from _compare(rates)
        say("single durable events …")
        yield measure_single_events(root, events)


def _list_contestants(root: Path, tasks: int) -> dict[str, Contestant]:
    found: dict[str, Contestant] = {}
    for sandbox, settings in (("with the sandbox", ON), ("without the sandbox", OFF)):
        for workers in (FEW, MANY):
            found[f"{sandbox}, {workers} workers"] = partial(_run_hive, tasks, workers, settings)
    isolated = _isolate(root / "isolated")
    found[f"without the sandbox, no ledger, {FEW} at once"] = partial(_run_wrappers, tasks, None)
    if isolated:
        found[f"with the sandbox, no ledger, {FEW} at once"] = partial(_run_wrappers, tasks, isolated)
        found[BARE] = partial(_run_xargs, tasks, isolated)
    found[f"xargs -P {FEW}"] = partial(_run_xargs, tasks, COMMAND)
    if importlib.util.find_spec("huey"):
        found[HUEY] = partial(_run_huey, tasks)
    return found


def _compare(rates: dict[str, list[float]]) -> Iterator[Figure]:
    for ours, theirs, goal in (
        (f"with the sandbox, {FEW} workers", BARE, 0.6),
        (f"without the sandbox, {FEW} workers", HUEY, 0.5),
        (f"with the sandbox, {MANY} workers", f"with the sandbox, {FEW} workers", 1.0),
        (f"without the sandbox, {MANY} workers", f"without the sandbox, {FEW} workers", 1.0),
        (f"without the sandbox, {FEW} workers", f"xargs -P {FEW}", None),
    ):
        name, wanted = f"{ours} / {theirs}", "none" if goal is None else f"≥ {goal:.2f}"
        if theirs not in rates:
            yield Figure(name, 0.0, "ratio", wanted, reached=False, detail=f"not measured: {MISSING[theirs]}")
            continue
        ratios = [mine / other for mine, other in zip(rates[ours], rates[theirs], strict=True)]
        ratio = statistics.median(ratios)
        yield Figure(name, ratio, "ratio", wanted, goal is None or ratio >= goal, _list_rounds(ratios))


def _list_rounds(values: Sequence[float]) -> str:
    digits = 0 if max(values) >= 10 else 2
    return "rounds " + ", ".join(f"{value:.{digits}f}" for value in values)


def _run_hive(tasks: int, workers: int, settings: str, root: Path) -> float:
    (root / FILE_NAME).write_text(settings)
    with Coordinator("tiny", root, workers=workers) as coordinator:
        started = time.perf_counter()
        coordinator.add(*(Task(f"t{number}", ":") for number in range(tasks)))
        assert coordinator.keep(), "a tiny task failed"
        return time.perf_counter() - started


def _isolate(root: Path) -> tuple[str, ...]:
    """Write the argv that starts a task in its sandbox here; nothing where bubblewrap does not build it."""
    (root / ".hive").mkdir(parents=True)
    create_ledger(root / ".hive" / "ledger.db")
    with closing(open_hive(root)) as hive:
        isolation, mounts = find_hive_isolation(hive, read_boot_id()), make_mounts(hive.places, None, str(root))
    allowed = Mounts(tuple(mounts["write"]), tuple(mounts["read"]), tuple(mounts["hide"]))
    isolated = isolation.wrap(COMMAND, str(root), allowed, {}, Limits().disk_bytes)
    return isolated if isolation.level is Level.NAMESPACES else ()


def _run_wrappers(tasks: int, isolated: tuple[str, ...] | None, root: Path) -> float:
    """Run the same commands through the hive's wrappers, and write nothing down: what a ledger costs beside that."""
    ended = threading.Event()
    waiting = [Order(f"bare/{number}", "agent", COMMAND, str(root), {}, {}) for number in range(tasks)]
    working: list[str] = []
    with closing(LocalRuns(root / "runs", "bench", ended.set)) as runs:
        started = time.perf_counter()
        while waiting or working:
            while waiting and len(working) < FEW:
                working.append(waiting[-1].run)
                runs.start(waiting.pop(), isolated)
            ended.wait(1.0)
            ended.clear()
            working = [run for run in working if not isinstance(runs.look(run), Ended)]
        return time.perf_counter() - started


def _run_xargs(tasks: int, argv: Sequence[str], root: Path) -> float:
    numbers = "\n".join(map(str, range(tasks)))
    started = time.perf_counter()
    subprocess.run(("xargs", "-P", str(FEW), "-n", "1", *argv), input=numbers, text=True, check=True, cwd=root)
    return time.perf_counter() - started


def _run_huey(tasks: int, root: Path) -> float:
    argv = (sys.executable, str(WITH_HUEY), str(root), str(tasks), str(FEW))
    return float(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout)
