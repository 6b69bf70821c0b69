"""`make bench-ledger`: the ledger against the disk, tasks against `kill -9`, start and status against history."""

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks import Figure
from hivekeeper.commands.history import save_due_checkpoint
from hivekeeper.commands.leases import take_lease
from hivekeeper.commands.plans import submit_plan
from hivekeeper.domain import events as e
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.hive import open_hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.store import queries
from hivekeeper.store.database import Parameters
from hivekeeper.store.ledger import ByKeeper, ByPerson, BySuccessor, Ledger, create_ledger, open_ledger, read_head
from hivekeeper.store.sqlite import SqliteConnection, SqliteDatabase
from hivekeeper.views.history import show_status_at

Say = Callable[[str], None]
ROUNDS, EVENTS_A_ROUND, WARM_UP_ROUNDS = 5, 600, 10
PROCESSES, EVENTS_A_PROCESS = 8, 200
IDLE_S = 10.0
MOMENTS = 20
IN_SIGHT = 3  # complete convoys that are not archived yet, and so are in every state put by
BENCHED_BY = ByPerson("bench")


def run_all(say: Say, *, directory: Path | None, history: int, tasks: int, at_once: int) -> Iterator[Figure]:
    """Measure everything, in a directory on the disk that is to be judged."""
    with tempfile.TemporaryDirectory(prefix="hive-bench-", dir=directory) as name:
        root = Path(name)
        say("single durable events …")
        yield measure_single_events(root)
        yield measure_batch(root)
        say("eight processes writing …")
        yield measure_processes(root)
        say(f"{tasks} tiny tasks with a kill -9 in the middle …")
        yield measure_killed(root / "killed", tasks, at_once)
        say("an idle keeper …")
        yield from measure_idle(root)
        say(f"a history of {history} events …")
        yield from measure_history(root, history)
        yield measure_help()


def measure_single_events(root: Path, events: int = EVENTS_A_ROUND) -> Figure:
    """Hold single durable events against overwriting and syncing one block, in interleaved rounds.

    Beside it the ceiling: the very same statements, worked out beforehand, against the same disk.
    """
    ledger, keeper = _new_ledger(root / "single")
    bodies = _lives()
    for _ in range(WARM_UP_ROUNDS * events):  # until the write-ahead log has grown to its size and is overwritten
        _append(ledger, keeper, bodies)
    ratios, ceilings = [], []
    with _block(root / "block") as overwrite, _same_statements(root, events) as repeat:
        for _ in range(ROUNDS):
            disk = _rate(overwrite, events)
            ratios.append(_rate(lambda: _append(ledger, keeper, bodies), events) / disk)
            ceilings.append(_rate(repeat, events) / disk)
    median = statistics.median(ratios)
    spread = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    name, ceiling = "single durable events / disk overwrites", statistics.median(ceilings)
    detail = f"rounds {spread}; the same statements worked out beforehand: {ceiling:.2f}"
    ledger.close()
    return Figure(name, median, "ratio", "≥ 0.50", median >= 0.5, detail)


def measure_batch(root: Path) -> Figure:
    """Tell the CPU time of an event among many in one transaction."""
    ledger, keeper = _new_ledger(root / "batch")
    bodies, count, started = _lives(), 20_000, time.process_time()
    with ledger.write(keeper) as tx:
        for _ in range(count):
            tx.record(next(bodies))
    micros = (time.process_time() - started) / count * 1e6
    ledger.close()
    return Figure("CPU an event in a batch", micros, "µs", "≤ 100", micros <= 100)


def measure_processes(root: Path) -> Figure:
    """Let eight processes write at once; nobody may fail or starve."""
    ledger, _ = _new_ledger(root / "many")
    argv = (sys.executable, str(Path(__file__).with_name("writer.py")), str(root / "many" / "ledger.db"))
    writers = [
        subprocess.Popen((*argv, str(number), str(EVENTS_A_PROCESS)), stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    times = [float(writer.communicate()[0]) for writer in writers]
    with ledger.read() as connection:
        missing = PROCESSES * EVENTS_A_PROCESS - connection.rows("SELECT count(*) FROM convoy")[0][0]
    ledger.close()
    slowest = max(times) / statistics.mean(times)
    detail = f"{missing} events missing, {PROCESSES * EVENTS_A_PROCESS / max(times):.0f} events/s in all"
    return Figure("slowest of eight writers / mean", slowest, "×", "≤ 3.0", slowest <= 3 and missing == 0, detail)


def measure_killed(hive: Path, tasks: int, at_once: int) -> Figure:
    """Kill the keeper when half of the tasks have run, let another do the rest, and count the marks they left."""
    _hive(hive, "init")
    specs = tuple(TaskSpec(f"t{number}", f"echo {number} >> marks") for number in range(tasks))
    with closing(open_hive(hive)) as opened:
        with opened.ledger.write(BENCHED_BY) as tx:
            submit_plan(tx, PlanSpec("tiny", specs))
        _keep_until(hive, at_once, tasks // 2)
        with closing(Keeper(opened, workers=at_once)) as keeper:
            keeper.start()
            while not _is_idle(opened.ledger):
                keeper.wait_for_commit(1.0)
    marks = Counter((hive / "marks").read_text().split())
    lost, twice = tasks - len(marks), sum(count > 1 for count in marks.values())
    detail = f"{lost} lost, {twice} run twice of {tasks}"
    return Figure("lost or run twice with kill -9 in the middle", lost + twice, "tasks", "0", lost + twice == 0, detail)


def measure_idle(root: Path) -> Iterator[Figure]:
    """Let a keeper do nothing and see what that costs."""
    hive = root / "idle"
    _hive(hive, "init")
    keeper = subprocess.Popen(_argv("up"), cwd=hive, stdout=subprocess.DEVNULL)
    try:
        time.sleep(2.0)
        before = _cpu_seconds(keeper.pid)
        time.sleep(IDLE_S)
        share = (_cpu_seconds(keeper.pid) - before) / IDLE_S * 100
        memory = _resident_mb(keeper.pid)
    finally:
        keeper.terminate()
        keeper.wait()
    yield Figure("idle keeper, share of a core", share, "%", "< 1", share < 1)
    yield Figure("idle keeper, memory", memory, "MB", "< 80", memory < 80)


def measure_history(root: Path, history: int) -> Iterator[Figure]:
    """Start and ask a hive with a long history, against one with a short one."""
    short, long = root / "short", root / "long"
    for hive, events in ((short, 1000), (long, history)):
        _hive(hive, "init")
        _grow(hive, events)
    started = time.time()
    keeper = subprocess.Popen(_argv("up"), cwd=long, stdout=subprocess.DEVNULL)
    try:
        first = _wait_for_first_dispatch(long) - started
    finally:
        keeper.terminate()
        keeper.wait()
    yield Figure(f"start to first dispatch with {history} events", first, "s", "< 2", first < 2)
    times = {hive: min(_time_hive(hive, "status", "--json") for _ in range(5)) for hive in (short, long)}
    ratio, detail = times[long] / times[short], f"{times[short]:.2f} s and {times[long]:.2f} s"
    yield Figure(f"status --json at {history} events / at 1000", ratio, "×", "< 5", ratio < 5, detail)
    yield measure_past(long)


def measure_past(hive: Path) -> Figure:
    """Look at random moments of a hive's history, as `hive replay --at` does."""
    ledger, chance, times = open_ledger(hive / ".hive" / "ledger.db"), random.Random(1), []  # noqa: S311 - chance of no secret
    with ledger.read() as connection:
        head = read_head(connection).seq
        for _ in range(MOMENTS):
            seq = chance.randint(1, head)
            started = time.perf_counter()
            show_status_at(connection, seq)
            times.append(time.perf_counter() - started)
    ledger.close()
    name, slowest = f"state at a moment of {head} events, slowest of {MOMENTS} random moments", max(times)
    return Figure(name, slowest, "s", "< 1", slowest < 1, f"median {statistics.median(times):.2f} s")


def measure_help() -> Figure:
    """Time the first thing anybody types."""
    seconds = statistics.median(_time_hive(Path.cwd(), "--help") for _ in range(5))
    return Figure("hive --help", seconds, "s", "< 0.6", seconds < 0.6)


def _new_ledger(hive: Path) -> tuple[Ledger, ByKeeper]:
    hive.mkdir(parents=True)
    create_ledger(hive / "ledger.db")
    ledger = open_ledger(hive / "ledger.db")
    with ledger.write(BySuccessor("bench")) as tx:
        return ledger, take_lease(tx, holder="bench", pid=1, start_ticks=1, boot_id="bench", why="")


def _lives() -> Iterator[e.Body]:
    """Tell the lives of runs, one after another: what the ledger writes most."""
    number = 0
    while True:
        number += 1
        run = f"bench/task-{number}.1.agent"
        argv = ["sh", "-c", "echo hello"]
        yield e.RunIntended(run, "agent", f"bench/task-{number}", 1, None, argv, "/", {}, {}, "bench")
        yield e.RunStarted(run, 4711, 4711, "bench")
        yield e.RunExited(run, "agent", 0, "exit", 6)


def _append(ledger: Ledger, keeper: ByKeeper, bodies: Iterator[e.Body]) -> None:
    with ledger.write(keeper) as tx:
        tx.record(next(bodies))


@contextmanager
def _block(path: Path) -> Iterator[Callable[[], None]]:
    descriptor, block = os.open(path, os.O_RDWR | os.O_CREAT), b"x" * 4096
    os.write(descriptor, block)
    os.fsync(descriptor)

    def overwrite() -> None:
        os.pwrite(descriptor, block, 0)
        os.fdatasync(descriptor)

    yield overwrite
    os.close(descriptor)


@contextmanager
def _same_statements(root: Path, events: int) -> Iterator[Callable[[], None]]:
    """Write down the statements of many events; give what repeats them on another ledger, one event a call."""
    written: list[list[tuple[str, Parameters]]] = []

    class Listening(SqliteConnection):
        def run(self, sql: str, parameters: Parameters = ()) -> int:
            written[-1].append((sql, parameters))
            return super().run(sql, parameters)

    first, keeper = _new_ledger(root / "first")
    second, _ = _new_ledger(root / "second")
    second.close()
    bodies = _lives()
    for _ in range((WARM_UP_ROUNDS + ROUNDS) * events):
        written.append([])
        with first.write(keeper) as tx:
            tx.connection = Listening(tx.connection.raw)  # type: ignore[attr-defined]  # SQLite's, here
            tx.record(next(bodies))
    first.close()
    database, transactions = SqliteDatabase(root / "second" / "ledger.db"), iter(written)

    def repeat() -> None:
        with database.writing() as connection:
            for sql, parameters in next(transactions):
                connection.run(sql, parameters)

    for _ in range(WARM_UP_ROUNDS * events):
        repeat()
    yield repeat
    database.close()


def _rate(act: Callable[[], None], count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        act()
    return count / (time.perf_counter() - started)


def _keep_until(hive: Path, at_once: int, marks: int) -> None:
    keeper = subprocess.Popen(_argv("up", "--workers", str(at_once)), cwd=hive, stdout=subprocess.DEVNULL)
    path = hive / "marks"
    while not path.exists() or path.read_bytes().count(b"\n") < marks:
        time.sleep(0.002)
    keeper.send_signal(signal.SIGKILL)
    keeper.wait()


def _is_idle(ledger: Ledger) -> bool:
    with ledger.read() as connection:
        return queries.count_open_work(connection) == (0, 0, 0)


def _grow(hive: Path, events: int) -> None:
    """Give a hive a past: finished tasks, in the events, rows and states put by that they really leave."""
    ledger = open_ledger(hive / ".hive" / "ledger.db")
    with ledger.write(BySuccessor("bench")) as tx:
        keeper = take_lease(tx, holder="bench", pid=1, start_ticks=1, boot_id="bench", why="")
    convoy, number, in_convoy = 0, 0, 1000
    while number * 6 < events:
        convoy += 1
        name = f"past-{convoy}"
        with ledger.write(keeper) as tx:
            tx.record(e.ConvoySubmitted(name, f"pipeline_{name}"))
            tx.record(e.SwarmOpened(name, 1))
            for worker in range(1, min(in_convoy, max(1, (events - number * 6) // 6)) + 1):
                number += 1
                _live_through(tx.record, f"{name}/t{number}", name, f"t{number}", worker)
            tx.record(e.SwarmClosed(name, 1))
            tx.record(e.ConvoyCompleted(name))
            if convoy > IN_SIGHT:
                tx.record(e.ConvoyArchived(f"past-{convoy - IN_SIGHT}"))
            save_due_checkpoint(tx)
    with ledger.write(keeper) as tx:
        for number in range(max(1, convoy - IN_SIGHT + 1), convoy + 1):
            tx.record(e.ConvoyArchived(f"past-{number}"))
        tx.record(e.LeaseReleased("bench"))
    with ledger.write(BENCHED_BY) as tx:
        submit_plan(tx, PlanSpec("now", tuple(TaskSpec(f"t{index}", "true") for index in range(10))))
    ledger.close()


def _live_through(record: Callable[[e.Body], object], task: str, convoy: str, name: str, worker: int) -> None:
    run, limits = f"{task}.1.agent", {"wall_s": None}
    record(e.TaskAdded(task, convoy, name, "", "true", None, [], None, 0, 3, None, idempotent=False, limits=limits))
    record(e.TaskDispatched(task, convoy, 1, 1, worker, sandbox=False))
    record(e.RunIntended(run, "agent", task, 1, None, ["sh", "-c", "true"], "/", {}, {}, "bench"))
    record(e.RunStarted(run, 4711, 4711, "bench"))
    record(e.RunExited(run, "agent", 0, "exit", 0))
    record(e.TaskCompleted(task, 1, None, None))


def _wait_for_first_dispatch(hive: Path) -> float:
    ledger = open_ledger(hive / ".hive" / "ledger.db")
    while True:
        with ledger.read() as connection:
            task = queries.find_task(connection, "now/t0")
        if task is not None and task.dispatched_at is not None:
            ledger.close()
            return time.time()
        time.sleep(0.01)


def _argv(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "hivekeeper", *arguments)


def _hive(hive: Path, *arguments: str) -> None:
    hive.mkdir(exist_ok=True)
    subprocess.run(_argv(*arguments), cwd=hive, check=True, stdout=subprocess.DEVNULL)


def _time_hive(directory: Path, *arguments: str) -> float:
    started = time.perf_counter()
    subprocess.run(_argv(*arguments), cwd=directory, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
