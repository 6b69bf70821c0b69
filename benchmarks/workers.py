"""`make bench-workers`: what a crowd costs, how soon a task has its agent, a sandbox against `git worktree add`."""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks import Figure
from benchmarks.ledger import BENCHED_BY, Say
from hivekeeper.clock import SystemClock, to_seconds
from hivekeeper.commands.plans import submit_plan
from hivekeeper.config.values import FILE_NAME
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.states import RunState, TaskState
from hivekeeper.domain.steps import Start
from hivekeeper.domain.workers import WorkerState
from hivekeeper.errors import UnavailableError
from hivekeeper.git import orders
from hivekeeper.hive import open_hive
from hivekeeper.places import Places
from hivekeeper.runs import wrapper
from hivekeeper.runs.local import LocalRuns
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import create_ledger, read_head
from hivekeeper.views.workers import list_workers

ROUNDS = 7
SMALL = 20
SLEEP = "exec sleep 3600"
_PR_SET_CHILD_SUBREAPER = 36
_DEADLINE_S = 300.0
_STEPS = ("to its sandbox's run", "the sandbox", "to the agent", "to its first word")


@dataclass(frozen=True, slots=True)
class Process:
    """What the kernel tells of a process."""

    pid: int
    parent: int
    name: str
    cpu_s: float


def run_all(
    say: Say, *, directory: Path | None, workers: int, files: int, tasks: int, seconds: float
) -> Iterator[Figure]:
    """Measure everything, in a directory on the disk where the hive would lie."""
    with tempfile.TemporaryDirectory(prefix="hive-bench-", dir=directory) as name, _end_all():
        root = Path(name)
        say(f"a repository of {files} files …")
        source = _make_repository(root / "app", files)
        say("sandboxes and worktrees …")
        yield from measure_sandboxes(root / "sandboxes", source)
        say(f"{tasks} tasks one after another …")
        yield from measure_dispatch(root / "dispatch", source, tasks)
        say(f"{workers} workers for {seconds:g} s …")
        yield from measure_crowd(root / "crowd", _make_repository(root / "small", SMALL), workers, seconds)


def measure_sandboxes(root: Path, source: Path) -> Iterator[Figure]:
    """Hold a worker's sandbox against a worktree of the same repository, in turns."""
    places, clean = Places(root), orders.CLEAN_ENVIRONMENT
    mirror, public = places.mirror("app"), places.public("app")
    _run(orders.fetch_repository(mirror, public, str(source), "main"), clean)
    # As git does it by itself: ours is not to win by syncing less, or by another's settings.
    plain = {name: clean[name] for name in ("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL")}
    took: dict[str, list[float]] = {"worktree": [], "sandbox": []}
    for number in range(ROUNDS):
        for kind in sorted(took, reverse=bool(number % 2)):
            directory = places.sandbox(f"{kind}/{number}", 1)
            worktree = ("git", "-C", str(source), "worktree", "add", "--quiet", "--detach", str(directory))
            sandbox = orders.make_sandbox(directory, public, "main", mirror, "", "")
            argv, environment = (worktree, plain) if kind == "worktree" else (sandbox, orders.NO_FSYNC_ENV)
            took[kind].append(_run(argv, environment))
    milliseconds = {kind: statistics.median(times) * 1000 for kind, times in took.items()}
    # Round by round: how long a file takes to be made may change many times over while this goes on.
    ratios = [mine / git for mine, git in zip(took["sandbox"], took["worktree"], strict=True)]
    ratio, rounds = statistics.median(ratios), ", ".join(f"{each:.2f}" for each in ratios)
    detail = f"{milliseconds['sandbox']:.0f} ms and {milliseconds['worktree']:.0f} ms; rounds {rounds}"
    yield Figure("sandbox / git worktree add", ratio, "ratio", "≤ 1.00", ratio <= 1.0, detail)


def measure_dispatch(root: Path, source: Path, tasks: int) -> Iterator[Figure]:
    """Time tasks to their agent's start, one after another."""
    with _keep(root, "", workers=2) as hive:
        hive.submit("held", TaskSpec("hold", SLEEP), source=source)
        steps = [_dispatch(hive, f"task-{number}") for number in range(tasks)]
        p50, detail = _sum_up(steps)
        yield Figure("dispatch to agent running, p50", p50, "ms", "< 200", p50 < 200, detail)


def _dispatch(hive: "_Hive", task: str) -> list[float]:
    """Hand in a task when all is quiet; when it has landed, tell the moments of its beginning."""
    hive.wait("a quiet hive", lambda: hive.is_quiet(agents=1))
    hive.submit("held", TaskSpec(task, f"echo begun | tee {task}", "app"))
    hive.wait("a task done", lambda: hive.is_done(f"held/{task}"))
    return hive.list_moments(f"held/{task}")


def _sum_up(moments: Sequence[Sequence[float]]) -> tuple[float, str]:
    to_agent = [(each[3] - each[0]) * 1000 for each in moments]
    p90 = statistics.quantiles(to_agent, n=10, method="inclusive")[8]
    spans = zip(*([after - before for before, after in pairwise(each)] for each in moments), strict=True)
    steps = ", ".join(f"{name} {statistics.median(span) * 1000:.0f}" for name, span in zip(_STEPS, spans, strict=True))
    detail = f"p90 {p90:.0f}; medians: {steps} ms"
    return statistics.median(to_agent), detail


def measure_crowd(root: Path, source: Path, workers: int, seconds: float) -> Iterator[Figure]:
    """Let so many workers sleep; see what that costs, then kill the keeper and see how soon another has them all."""
    # One more than the crowd: whoever adopts it has a task to dispatch too.
    with _keep(root, "", workers=workers + 1) as hive:
        crowd = (TaskSpec(f"t{number}", SLEEP, "app") for number in range(workers))
        hive.submit("crowd", *crowd, source=source)
        hive.wait(f"{workers} agents at work", lambda: hive.is_quiet(agents=workers))
        agents = hive.list_agents()
        before = _list_processes()
        time.sleep(seconds)
        after = _list_processes()
        spent = {pid: (each.cpu_s - before[pid].cpu_s) / seconds * 100 for pid, each in after.items() if pid in before}
        keeper, wrappers = hive.keeper.pid, [run.pid or 0 for run in agents]
        share, memory = spent[keeper], _memory_mb(keeper, "Rss")
        yield Figure(f"keeper of {workers} workers, share of a core", share, "%", "< 10", share < 10)
        yield Figure(f"keeper of {workers} workers, memory", memory, "MB", "< 200", memory < 200)
        yield _weigh(after, keeper, wrappers)
        total = sum(spent[pid] for pid in wrappers)
        yield Figure(f"{workers} wrappers, share of a core", total, "%", "none", reached=True)
        took = _replace_keeper(hive, agents)
        yield Figure(f"{workers} workers adopted after kill -9", took, "s", "< 2", took < 2)


class _Hive:
    """A hive of the benchmark's own, and the keeper that keeps it now."""

    def __init__(self, root: Path, settings: str, workers: int) -> None:
        self.places, self._workers = Places(root), workers
        self.places.hive.mkdir(parents=True)
        create_ledger(self.places.ledger)
        self._opened = open_hive(root)
        with self.read() as connection:
            self.runs = LocalRuns(self.places.runs, read_head(connection).hive)
        self.start(settings)

    def start(self, settings: str = "") -> None:
        (self.places.root / FILE_NAME).write_text(settings)
        argv = (sys.executable, "-m", "hivekeeper", "up", "--workers", str(self._workers))
        with self.places.log.open("ab") as log:
            self.keeper = subprocess.Popen(argv, cwd=self.places.root, stdout=log, stderr=log)

    def close(self) -> None:
        self.keeper.kill()
        self.keeper.wait()
        self.runs.close()
        self._opened.close()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._opened.ledger.read() as connection:
            yield connection

    def submit(self, convoy: str, *tasks: TaskSpec, source: Path | None = None, repo: RepoSpec | None = None) -> None:
        """Hand in a plan; the first one names the repository, and with every one that does it is fetched."""
        repos = (repo,) if repo else (RepoSpec("app", str(source)),) if source else ()
        with self._opened.ledger.write(BENCHED_BY) as tx:
            submit_plan(tx, PlanSpec(convoy, tasks, repos))

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not is_so():
            if self.keeper.poll() is not None or time.monotonic() > deadline:
                said = self.places.log.read_text("utf-8", "replace").splitlines()
                advice = "The keeper's last words:\n" + "\n".join(said[-5:])
                raise UnavailableError(f"The benchmark waited for {what}, and it did not come to that.", advice=advice)
            time.sleep(0.01)

    def list_open(self) -> list[RunRow]:
        with self.read() as connection:
            return queries.list_open_runs(connection)

    def list_agents(self) -> list[RunRow]:
        return [run for run in self.list_open() if run.kind == "agent" and run.state is RunState.RUNNING]

    def is_quiet(self, agents: int) -> bool:
        """Tell whether so many agents are at work, and nothing else goes on."""
        return len(self.list_agents()) == len(self.list_open()) == agents

    def is_done(self, task: str) -> bool:
        with self.read() as connection:
            found = queries.find_task(connection, task)
        return found is not None and found.state is TaskState.COMPLETE

    def list_moments(self, task: str) -> list[float]:
        """Tell when a task was dispatched, its sandbox's run began and ended, its agent began, and first spoke."""
        with self.read() as connection:
            found = queries.find_task(connection, task)
            sandbox, agent = (queries.find_run(connection, _name(task, kind)) for kind in ("sandbox", "agent"))
        texts = [found and found.dispatched_at, sandbox and sandbox.started_at, sandbox and sandbox.ended_at]
        moments = [to_seconds(text) for text in (*texts, agent and agent.started_at) if text]
        return [*moments, (self.places.runs / _name(task, "agent") / "output").stat().st_mtime]


@contextmanager
def _keep(root: Path, settings: str, workers: int) -> Iterator[_Hive]:
    hive = _Hive(root, settings, workers)
    try:
        yield hive
    finally:
        hive.close()


@contextmanager
def _end_all() -> Iterator[None]:
    """Be the parent of whatever outlives its own, and end it with us, also when we are told to stop."""
    wrapper.libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        with contextlib.suppress(ChildProcessError):
            while True:
                wrapper.kill_tree(os.getpid())
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
                time.sleep(0.01)


def _weigh(processes: Mapping[int, Process], keeper: int, wrappers: Sequence[int]) -> Figure:
    """Weigh all of ours that is there for workers: each page shared by several is divided among them."""
    nursery = [each.pid for each in processes.values() if each.parent == keeper]
    sandboxes, above = list[int](), list(wrappers)
    for parent in above:  # it grows while we walk it
        inside = [each.pid for each in processes.values() if each.parent == parent and each.name == "bwrap"]
        sandboxes += inside
        above += inside
    parts = {"wrappers": wrappers, "sandboxes": sandboxes, "nursery": nursery}
    weights = {name: sum(_memory_mb(pid, "Pss") for pid in pids) / len(wrappers) for name, pids in parts.items()}
    total, detail = sum(weights.values()), ", ".join(f"{name} {weight:.2f}" for name, weight in weights.items())
    return Figure("memory a worker beside its agent", total, "MB", "< 3", total < 3, detail)


def _replace_keeper(hive: _Hive, agents: Sequence[RunRow]) -> float:
    """Kill the keeper; time its successor until it watches every worker, all live, and has dispatched a task."""
    hive.keeper.kill()
    hive.keeper.wait()
    with hive.read() as connection:
        epoch = read_head(connection).epoch
    hive.submit("next", TaskSpec("t", "true"))
    started = time.perf_counter()
    hive.start()
    hive.wait("every worker adopted", lambda: _is_adopted(hive, epoch, len(agents)))
    took = time.perf_counter() - started
    if [(run.id, run.pid) for run in hive.list_agents() if run.task != "next/t"] != [
        (run.id, run.pid) for run in agents
    ]:
        what = "A worker was lost or started anew when the keeper was replaced, which must not be."
        raise UnavailableError(what, advice=f"Look at what was done in {hive.places.root}: hive log")
    return took


def _is_adopted(hive: _Hive, epoch: int, workers: int) -> bool:
    with hive.read() as connection:
        task = queries.find_task(connection, "next/t")
        if read_head(connection).epoch == epoch or task is None or task.dispatched_at is None:
            return False
        if _count_watched(hive.keeper.pid) < workers:
            return False
        seen = list_workers(connection, hive.runs, now=SystemClock().now())
    return len([row for row in seen if row["state"] == WorkerState.WORKING]) >= workers


def _count_watched(pid: int) -> int:
    """Count the processes whose end a process would be told of."""
    count = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += "pidfd" in str(path.readlink())
    return count


def _make_repository(path: Path, files: int) -> Path:
    """Make a repository of so many files of some kilobytes, packed as a clone would be."""
    for number in range(files):
        file = path / f"part-{number // 50}" / f"file-{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"line {line} of file {number}\n" for line in range(150)))
    for arguments in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "--all"),
        ("commit", "--quiet", "--message=first"),
        ("repack", "-a", "-d", "--quiet"),
    ):
        _run(("git", "-C", str(path), *arguments), orders.NO_FSYNC_ENV)
    return path


def _run(argv: Sequence[str], environment: Mapping[str, str]) -> float:
    """Run a command to its end; tell how long that took."""
    started = time.perf_counter()
    subprocess.run(argv, env={**os.environ, **environment}, check=True)
    return time.perf_counter() - started


def _list_processes() -> dict[int, Process]:
    found, ticks = dict[int, Process](), os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            head, _, rest = path.read_text("utf-8", "replace").rpartition(")")
            fields, pid = rest.split(), int(path.parent.name)
            cpu_s = (int(fields[11]) + int(fields[12])) / ticks
            found[pid] = Process(pid, int(fields[1]), head.partition("(")[2], cpu_s)
    return found


def _memory_mb(pid: int, kind: str) -> float:
    """Tell how much memory a process has: resident (`Rss`), or with its share of what others have too (`Pss`)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")) * 1024 / 1e6


def _name(task: str, kind: str) -> str:
    return attempt_owner(task, 1, None).name_run(Start(kind))
