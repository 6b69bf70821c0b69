"""A plan played with scripted agents: in a scratch hive, on clones, with faults and killed keepers, and judged.

Rules:
1. Nothing of the person's is written to: repositories are cloned first, and only the clones are known to the hive.
   Nothing is backed up.
2. Everything of the plan is kept but its commands and prompts, its limits (small, so that what hangs or grows ends) and
   the number of attempts (more than an agent has faults).
3. The keeper is the installed command in a process of its own; it is killed when so many agents have begun, and a
   little later, both chosen by the seed.
4. What happened is told by those who do not know each other: the ledger, the marks of the agents, the branches, the
   processes that live and the sandboxes that lie there. Which faults there were follows from the seed, and no attempt
   may be complete whose agent had one that it cannot have been complete with. No trap of an agent may have sprung.
"""

import contextlib
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from hivekeeper.commands.plans import submit_plan
from hivekeeper.doctor.facts import find_marker, list_directory
from hivekeeper.domain.events import RunExited, TaskAdded, TaskCompleted
from hivekeeper.domain.names import task_key
from hivekeeper.domain.plan import Limits, PlanSpec, RepoSpec, TaskSpec, find_stray, is_url, split_path
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.git.mirror import find_source_problem
from hivekeeper.places import Places
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByPerson, create_ledger, open_ledger, read_head
from hivekeeper.testing.history import History, Key, check_history, read_history
from hivekeeper.testing.scratch import (
    count_tasks,
    find_isolation,
    git,
    make_directory,
    read_lines,
    start_hive,
    write_settings,
)
from hivekeeper.testing.scripted import HARMLESS, LAST_FAULTY_ATTEMPT, LEFT_BY_TRAPS, Fault, Rates, choose_fault

DEFAULT_FAULTS = (
    "crash=0.1,hang=0.05,lie=0.1,flood=0.05,die=0.05,fork=0.05,half=0.05,deaf=0.05"
    ",bomb=0.05,fill=0.05,vandal=0.05,trap=0.05"
)

_LIMITS = Limits(wall_s=20.0, silence_s=2.0, output_bytes=1 << 20, processes=32, disk_bytes=4 << 20, grace_s=1.0)
_SETUP_SILENCE_S = 30.0  # a setup is held to the limits of its task, and is the person's own
_THEIR_OWN = ("setup", "gate", "accept")
# The first that has no fault may still be unlucky: a busy machine can keep an agent silent for too long.
_ATTEMPTS = LAST_FAULTY_ATTEMPT + 3
_PATIENCE_S = 45.0  # longer than any loop rests and any agent runs
_LAST_PROCESSES_S = 5.0
_MAX_PAUSE_BEFORE_KILL_S = 0.5


@dataclass(frozen=True, slots=True)
class Settings:
    """How a plan is rehearsed; `verify` keeps its setups, gates and acceptance, `keep` is where to leave everything."""

    seed: int
    rates: Rates
    workers: int = 4
    kills: int = 1
    verify: bool = True
    keep: Path | None = None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How it went; `endings` counts what ended agents, `kept` is where everything can still be looked at."""

    seed: int
    isolation: str
    convoy: ConvoyState
    tasks: Sequence[dict[str, Any]]
    attempts: int
    faults: dict[str, int]
    endings: dict[str, int]
    keepers_killed: int
    seconds: float
    violations: Sequence[str]
    processes_left: Sequence[str]
    sandboxes_left: Sequence[str]
    kept: str | None = None

    @property
    def unfinished(self) -> list[dict[str, Any]]:
        """Tasks that did not get done."""
        return [task for task in self.tasks if task["status"] != TaskState.COMPLETE]

    @property
    def is_right(self) -> bool:
        """Tell whether the hive kept every promise, whatever became of the tasks."""
        return not (self.violations or self.processes_left or self.sandboxes_left)


def rehearse_plan(plan: PlanSpec, settings: Settings, out: TextIO) -> Rehearsal:
    """Play a plan to its end and judge it; what happens meanwhile is said to `out`."""
    problems = [
        f"repo '{repo.name}': {problem}"
        for repo in plan.repos
        if not is_url(repo.path) and (problem := find_source_problem(repo.path, repo.branch))
    ]
    if problems:
        raise InputError("\n".join(problems), advice="Nothing was rehearsed.")
    directory = make_directory(settings.keep, "rehearsal")
    is_kept = settings.keep is not None
    try:
        scene = _Scene(directory, plan, settings, out)
        try:
            rehearsal = scene.play()
        finally:
            scene.close()
        is_kept = is_kept or not rehearsal.is_right
        return replace(rehearsal, kept=str(directory) if is_kept else None)
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)


class _Scene:
    """One rehearsal under way, seen from outside its hive."""

    def __init__(self, directory: Path, plan: PlanSpec, settings: Settings, out: TextIO) -> None:
        self._started = time.monotonic()
        self._directory = directory
        self._plan = plan
        self._settings = settings
        self._out = out
        self._signs = directory / "signs"
        self._signs.mkdir()
        self._marks = self._signs / "marks"
        self._marks.touch()
        self._places = Places(directory / "hive")
        self._places.hive.mkdir(parents=True)
        write_settings(self._places.root, self._signs)
        self._sizes: dict[str | None, dict[str, int]] = {}
        self._keeper: subprocess.Popen[bytes] | None = None
        self._killed = 0
        self._trouble: list[str] = []
        create_ledger(self._places.ledger)
        self._ledger = open_ledger(self._places.ledger)
        with self._ledger.read() as connection:
            self._marker = f"{read_head(connection).hive}/"
        self._isolation = find_isolation(self._places.root)

    def play(self) -> Rehearsal:
        """Clone, submit, keep, kill, keep on to the end, judge."""
        repos = tuple(self._clone(repo) for repo in self._plan.repos)
        tasks = tuple(self._recast(task) for task in self._plan.tasks)
        accept = self._plan.accept if self._settings.verify else None
        with self._ledger.write(ByPerson("hive rehearse")) as tx:
            submit_plan(tx, replace(self._plan, repos=repos, tasks=tasks, accept=accept), why="hive rehearse")
        for begun, pause_s in self._choose_kills():
            if not self._keep_until(partial(self._have_begun, begun)):
                break
            time.sleep(pause_s)
            self._kill_keeper()
        else:
            self._keep_until(self._is_over)
        self._stop_keeper()
        self._wait_for_last_processes()
        return self._judge()

    def close(self) -> None:
        """Leave nobody behind, also when somebody lost patience in the middle."""
        self._ledger.close()
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait()
        for pid, _ in self._list_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _clone(self, repo: RepoSpec) -> RepoSpec:
        clone = self._directory / "repos" / f"{repo.name}.git"
        options = ("--quiet", "--bare", "--no-hardlinks", "--single-branch", "--template=", "--branch", repo.branch)
        try:
            git("clone", *options, "--", repo.path, str(clone))
        except subprocess.CalledProcessError as error:
            raise UnavailableError(f"repo '{repo.name}' cannot be cloned: {error.stderr.strip()}") from None
        self._sizes[repo.name] = _list_sizes(clone, repo.branch)
        theirs = repo if self._settings.verify else replace(repo, verify=None, setup=None, keep=(), lock=())
        return replace(theirs, path=str(clone), backup=None)

    def _recast(self, task: TaskSpec) -> TaskSpec:
        """Give a task's part to a scripted agent."""
        rates = ",".join(f"{fault}={rate}" for fault, rate in self._settings.rates.items()) or "none"
        # -P: nothing in the directory it works in is taken for a module of ours.
        argv = [sys.executable, "-P", "-m", "hivekeeper.testing.scripted", "--seed", str(self._settings.seed)]
        argv += ["--faults", rates, "--marks", str(self._marks)]
        argv += [f"--file={path}" for path in self._choose_files(task)]
        return replace(
            task,
            command=f"exec {shlex.join(argv)}",
            prompt="",
            runner="",
            verify=task.verify if self._settings.verify else None,
            attempts=max(task.attempts, _ATTEMPTS),
            limits=self._choose_limits(task),
        )

    def _choose_files(self, task: TaskSpec) -> list[str]:
        return choose_files(task, self._sizes.get(task.repo, {}))

    def _choose_limits(self, task: TaskSpec) -> Limits:
        if any(self._is_set_up(repo) for repo in self._plan.repos if repo.name == task.repo):
            return replace(task.limits, wall_s=None, silence_s=_SETUP_SILENCE_S, grace_s=_LIMITS.grace_s)
        tree = sum(self._sizes.get(task.repo, {}).values())
        return replace(_LIMITS, disk_bytes=(_LIMITS.disk_bytes or 0) + 2 * tree)

    def _choose_kills(self) -> list[tuple[int, float]]:
        """Choose after how many beginnings of agents, and how much later, each keeper is killed."""
        chance = random.Random(self._settings.seed)  # noqa: S311 - a choice, not a secret
        begun = sorted(chance.randrange(len(self._plan.tasks)) for _ in range(self._settings.kills))
        return [(number, chance.uniform(0, _MAX_PAUSE_BEFORE_KILL_S)) for number in begun]

    def _keep_until(self, is_enough: Callable[[], bool]) -> bool:
        """Have a keeper keep until it is enough; False when it ended by itself, or when nothing moved for long."""
        if self._keeper is None:
            self._keeper = start_hive(self._places.root, "up", "--workers", str(self._settings.workers), out=self._out)
        seen, moved = -1, time.monotonic()
        while not is_enough():
            with self._ledger.read() as connection:
                head = read_head(connection).seq
                theirs = any(run.kind in _THEIR_OWN for run in queries.list_open_runs(connection))
            if head != seen or theirs:  # what is the person's own may take its time
                seen, moved = head, time.monotonic()
            if self._keeper.poll() is not None:
                self._trouble.append(f"the keeper ended by itself with exit code {self._keeper.returncode}")
                return False
            if time.monotonic() - moved > _PATIENCE_S:
                return False
            time.sleep(0.05)
        return True

    def _kill_keeper(self) -> None:
        assert self._keeper is not None
        self._keeper.kill()
        self._keeper.wait()
        self._killed += 1
        self._out.write(f"*** kill -9 {self._keeper.pid}: the keeper is dead; another one takes over ***\n")
        self._out.flush()
        self._keeper = None

    def _stop_keeper(self) -> None:
        assert self._keeper is not None
        self._keeper.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_PATIENCE_S)
            self._keeper = None
            return
        self._trouble.append(f"the keeper did not stop within {_PATIENCE_S:g} s of being asked to")

    def _have_begun(self, agents: int) -> bool:
        return len(read_lines(self._marks)) >= agents or self._is_over()

    def _is_over(self) -> bool:
        """Tell whether the convoy has ended and everything that follows from it is done."""
        with self._ledger.read() as connection:
            convoy = queries.find_convoy(connection, self._plan.convoy)
            _, attempts, runs = queries.count_open_work(connection)
            repos = queries.list_repos(connection)
        if convoy is None or convoy.state is ConvoyState.ACTIVE or attempts or runs:
            return False
        published = all(repo.published == repo.integration or repo.publish_problem for repo in repos)
        return published and not self._list_sandboxes()

    def _list_sandboxes(self) -> list[str]:
        found = (path for pattern in ("sandboxes/*/*", "gates/*/*") for path in self._places.hive.glob(pattern))
        return sorted(str(path.relative_to(self._places.hive)) for path in found)

    def _list_processes(self) -> Iterator[tuple[int, str]]:
        for pid in (int(entry.name) for entry in list_directory("/proc") if entry.name.isdecimal()):
            marker = find_marker(pid)
            if marker is not None and marker.startswith(self._marker):
                yield pid, marker.removeprefix(self._marker)

    def _wait_for_last_processes(self) -> None:
        """Give what is dying the time to die: with the keeper gone nothing new begins."""
        deadline = time.monotonic() + _LAST_PROCESSES_S
        while any(self._list_processes()) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _judge(self) -> Rehearsal:
        told = [f"submitted {self._plan.convoy}"]
        history = read_history(self._places.root, marks=read_lines(self._marks), acknowledged=told)
        faults = choose_all(history, self._settings)
        reasons = {task.id: task.reason for task in history.tasks if task.state is not TaskState.COMPLETE}
        with self._ledger.read() as connection:
            convoy = queries.find_convoy(connection, self._plan.convoy)
        ends = (event.body for event in history.events)
        endings = Counter(body.ended_by for body in ends if isinstance(body, RunExited) and body.run_kind == "agent")
        return Rehearsal(
            seed=self._settings.seed,
            isolation=self._isolation.level,
            convoy=convoy.state if convoy else ConvoyState.ACTIVE,
            tasks=[{**row, "reason": reasons.get(row["task"], "")} for row in count_tasks(history)],
            attempts=sum(task.attempts for task in history.tasks),
            faults=dict(sorted(Counter(map(str, faults.values())).items())),
            endings=dict(sorted(endings.items())),
            keepers_killed=self._killed,
            seconds=round(time.monotonic() - self._started, 1),
            violations=[*self._trouble, *map(str, check_history(history)), *self._look_around(history, faults)],
            processes_left=[f"{run} (process {pid})" for pid, run in self._list_processes()],
            sandboxes_left=self._list_sandboxes(),
        )

    def _look_around(self, history: History, faults: Mapping[Key, Fault]) -> Iterator[str]:
        """Find what the judge of histories does not look at."""
        yield from check_faults(history, faults)
        yield from (f"a trap has sprung: {line}" for line in read_lines(self._signs / "canary"))
        begun = {task for task, _ in history.begun}
        done = {task.id for task in history.tasks if task.state is TaskState.COMPLETE}
        yield from (
            f"{task} is complete, and no agent of it ever began"
            for task in sorted(done)
            if task_key(self._plan.convoy, task) not in begun
        )
        for repo in self._plan.repos:
            tasks = [task for task in self._plan.tasks if task.repo == repo.name]
            made = {path for task in tasks if task.id in done for path in self._choose_files(task)}
            if not made:
                continue
            there = set(_list_sizes(self._places.mirror(repo.name), repo.branch))
            for path in sorted({*self._sizes[repo.name], *made} - there):
                yield f"{repo.name}: {path} was there or was made, and is not on {repo.branch}"
            if not self._is_set_up(repo):
                for path in sorted(there - {*self._sizes[repo.name], *made, *LEFT_BY_TRAPS}):
                    yield f"{repo.name}: {path} is on {repo.branch}, and no task that is complete was to make it"

    def _is_set_up(self, repo: RepoSpec) -> bool:
        return self._settings.verify and bool(repo.setup)


def _list_sizes(repository: Path, branch: str) -> dict[str, int]:
    """List the files of a branch, each with its size."""
    listed = ("ls-tree", "-r", "-z", "--format=%(objectsize) %(path)", f"refs/heads/{branch}")
    pairs = (line.split(" ", 1) for line in git("--git-dir", str(repository), *listed).split("\0") if line)
    return {path: int(size) if size.isdecimal() else 0 for size, path in pairs}


def choose_files(task: TaskSpec, there: Mapping[str, int]) -> list[str]:
    """Choose what a task's agent makes, where `there` are the files of its repository: what is promised, or allowed."""
    if task.outputs and find_stray(task.outputs, task.paths) is None:
        return [f"{path}{task.id}.txt" if path.endswith("/") else path for path in task.outputs]
    path = "/".join(split_path(task.paths[0])) if task.paths else "rehearsed"
    if path in there:
        return [path]
    if not re.search(r"[*?[]", path):
        return [f"{path}/{task.id}.txt"]
    # One that the pattern matches: a letter where it says which, any where it does not, and the task's name.
    return [re.sub(r"\*+", task.id, re.sub(r"\[(.)[^]]*\]", r"\1", path).replace("?", "x"))]


def choose_all(history: History, settings: Settings) -> dict[Key, Fault]:
    """Tell what was wrong with each attempt that began, as its agent itself found out."""
    chosen = {
        (task, attempt): choose_fault(settings.seed, task.partition("/")[2], attempt, settings.rates)
        for task, attempt in history.begun
    }
    return {key: fault for key, fault in chosen.items() if fault is not None}


def check_faults(history: History, faults: Mapping[Key, Fault]) -> Iterator[str]:
    """Check that no attempt is complete whose agent cannot have done it."""
    promising = set()
    for body in (event.body for event in history.events):
        match body:
            case TaskAdded() if body.repo or body.output:
                promising.add(body.task)
            case TaskCompleted():
                fault = faults.get((body.task, body.attempt))
                is_true = fault is Fault.LIE and body.task not in promising  # where nothing was, a lie is none
                if fault is not None and fault not in HARMLESS and not is_true:
                    yield f"{body.task}: attempt {body.attempt} is complete, and its agent had the fault '{fault}'"
            case _:
                pass
