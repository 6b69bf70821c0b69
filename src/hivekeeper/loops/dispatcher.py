"""The dispatcher: gives ready tasks to workers and decides what the end of their runs means.

Rules:
1. A task is dispatched when all its predecessors are COMPLETE and a worker is free; never when it has ended.
2. Dispatch and the first run's intent are one commit, before anything starts.
3. Evidence decides. On a repository: the agent ended well *and* the tree changed; then the change goes to the merge
   queue. Without one: the agent ended well and the promised output was written during this attempt.
4. What a worker made is kept before its attempt is judged, whatever the agent's end was.
5. A cancelled task's runs are ended first; only then is it CANCELLED.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from hivekeeper.clock import to_seconds
from hivekeeper.commands import attempts as commands
from hivekeeper.commands.runs import intend_run, request_kill
from hivekeeper.domain import attempt as a
from hivekeeper.domain import events as e
from hivekeeper.domain.names import attempt_run_id
from hivekeeper.domain.rows import AttemptRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.run import Order
from hivekeeper.domain.states import AttemptState, TaskState
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror
from hivekeeper.loops import Counts, is_end_of
from hivekeeper.places import Places
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import ByKeeper, Ledger, Transaction


@dataclass(frozen=True, slots=True)
class Settings:
    """`workers`: how many attempts may work at once."""

    workers: int = 4
    interval_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Proven:
    """The attempt made something: a commit to merge, or its task's output."""

    commit: str | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Unproven:
    """The agent said it is done, and it is not."""

    why: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """A cancelled task's attempt has nothing running any more."""


@dataclass(frozen=True, slots=True)
class EndRuns:
    """A cancelled task's attempt still has runs."""

    runs: tuple[RunRow, ...]


Action = a.Intend | a.Fail | a.LeaveUnknown | Proven | Cancel | EndRuns
Decision = tuple[TaskRow, AttemptRow, Sequence[RunRow], Action]


_WOKEN_BY = (
    e.TaskAdded,
    e.TaskRetryRequested,
    e.TaskCancelRequested,
    e.TaskCompleted,
    e.AttemptFailed,
    e.RepoFetched,
)


class Dispatcher:
    """Dispatches and judges."""

    name = "dispatcher"
    rest_s = 0.0

    def __init__(self, ledger: Ledger, authority: ByKeeper, places: Places, boot_id: str, settings: Settings) -> None:
        self.interval_s = settings.interval_s
        self._ledger = ledger
        self._authority = authority
        self._places = places
        self._boot_id = boot_id
        self._settings = settings

    def hears(self, body: e.Body) -> bool:
        return isinstance(body, _WOKEN_BY) or is_end_of(body, "sandbox", "agent", "snapshot")

    def run_once(self) -> Counts:
        """Judge what has ended, then fill the free workers."""
        with self._ledger.read() as connection:
            working = queries.list_open_attempts(connection, AttemptState.WORKING)
            runs = queries.list_runs_of_open_attempts(connection, AttemptState.WORKING)
            decisions = list(self._decide(connection, working, runs))
            leaving = sum(not isinstance(action, a.Intend | EndRuns) for *_, action in decisions)
            free = self._settings.workers - len(working) + leaving
            ready = queries.list_ready_tasks(connection, free) if free > 0 else []
            repos = {repo.name: repo for repo in queries.list_repos(connection)}
        if not decisions and not ready:
            return {}
        with self._ledger.write(self._authority) as tx:
            for task, attempt, of_attempt, action in decisions:
                self._settle(tx, task, attempt, of_attempt, action, repos)
            for task in ready:
                number = commands.dispatch_task(tx, task)
                self._intend(tx, task, number, a.Intend("sandbox" if task.repo else "agent", 1), repos)
        return {"judged": len(decisions), "dispatched": len(ready)}

    def _decide(
        self,
        connection: Connection,
        working: Sequence[tuple[AttemptRow, TaskRow]],
        runs: dict[tuple[str, int], list[RunRow]],
    ) -> Sequence[Decision]:
        decisions: list[Decision] = []
        for attempt, task in working:
            of_attempt = runs.get((attempt.task, attempt.number), [])
            action = self._decide_one(connection, task, attempt, of_attempt)
            if action is not None:
                decisions.append((task, attempt, of_attempt, action))
        return decisions

    def _decide_one(
        self, connection: Connection, task: TaskRow, attempt: AttemptRow, runs: Sequence[RunRow]
    ) -> Action | None:
        step = a.decide_step(task, runs, boot_id=self._boot_id)
        if step == a.Intend("sandbox", 2) and self._has_begun(task, attempt):
            step = a.Intend("agent", 1)
        if task.state is TaskState.CANCELLING:
            ours = [run for run in runs if run.is_open and run.kind != "snapshot"]
            to_end = tuple(run for run in ours if run.kill_requested_at is None)
            if to_end:
                return EndRuns(to_end)
            if isinstance(step, a.Intend) and step.kind == "snapshot":
                return step  # cancelled or not, what it made is kept
            return None if isinstance(step, a.WaitForRun) else Cancel()
        match step:
            case a.WaitForRun():
                return None
            case a.Judge():
                evidence = self._look_at_work(connection, task, attempt, runs)
                return a.Fail(evidence.why) if isinstance(evidence, Unproven) else evidence
            case _:
                return step

    def _has_begun(self, task: TaskRow, attempt: AttemptRow) -> bool:
        """Tell whether an agent the ledger does not know of was here: what it left is not to be made anew, but adopted.

        That is so when an older ledger was put back.
        """
        return (self._places.runs / attempt_run_id(task.key, attempt.number, "agent") / "claim").exists()

    def _look_at_work(
        self, connection: Connection, task: TaskRow, attempt: AttemptRow, runs: Sequence[RunRow]
    ) -> Proven | Unproven:
        """Believe the repository and the disk, not the exit code."""
        if task.repo is not None:
            repo = queries.find_repo(connection, task.repo)
            assert repo is not None
            return self._look_at_commit(task, attempt, repo)
        if task.output is None:
            return Proven()
        try:
            return self._look_at_output(task.output, self._tell_start(attempt, runs[-1]))
        except OSError as error:  # one file that cannot be read must not keep all others from being judged
            return Unproven(f"it ended with exit code 0 but {task.output} cannot be read: {error.strerror}")

    def _look_at_output(self, output: str, began_ns: int) -> Proven | Unproven:
        path = self._places.root / output
        if not path.is_file():
            return Unproven(f"it ended with exit code 0 but there is no {output}")
        if path.stat().st_mtime_ns < began_ns:
            return Unproven(f"it ended with exit code 0 but {output} is older than the attempt")
        _make_durable(path)
        return Proven(output=output)

    def _tell_start(self, attempt: AttemptRow, agent: RunRow) -> int:
        """Tell when an agent began, by the clock that dates files: the kernel's own is some milliseconds slow."""
        try:
            return (self._places.runs / agent.id / "claim").stat().st_mtime_ns
        except FileNotFoundError:
            return int(to_seconds(agent.started_at or attempt.started_at) * 1e9)

    def _look_at_commit(self, task: TaskRow, attempt: AttemptRow, repo: RepoRow) -> Proven | Unproven:
        mirror = Mirror(self._places.mirror(repo.name))
        commit = mirror.find_commit(orders.attempt_ref(task.key, attempt.number))
        if commit is None:
            return Unproven("what it left was not kept in the mirror")
        base = mirror.find_merge_base(commit, orders.integration_ref(repo.branch))
        if base is None:
            return Unproven("what it made shares no history with the integration branch")
        if mirror.get_tree(base) == mirror.get_tree(commit):
            return Unproven("it ended with exit code 0 but changed nothing")
        return Proven(commit=commit)

    def _settle(
        self,
        tx: Transaction,
        task: TaskRow,
        attempt: AttemptRow,
        runs: Sequence[RunRow],
        action: Action,
        repos: dict[str, RepoRow],
    ) -> None:
        ended_at = max((run.ended_at for run in runs if run.ended_at and run.kind == "agent"), default=tx.now)
        match action:
            case a.Intend():
                self._intend(tx, task, attempt.number, action, repos)
            case a.Fail(why):
                commands.fail_attempt(tx, task, attempt, why=why, at=ended_at)
            case a.LeaveUnknown(why):
                commands.leave_unknown(tx, task, attempt, why=why)
            case Proven(commit, output):
                if commit is not None:
                    commands.submit_attempt(tx, task, attempt, commit, at=ended_at)
                else:
                    commands.complete_task(tx, task, attempt.number, at=ended_at, output=output)
            case Cancel():
                commands.cancel_attempt(tx, task, attempt)
            case EndRuns(to_end):
                for run in to_end:
                    request_kill(tx, run, task.reason)
            case _:
                assert_never(action)

    def _intend(self, tx: Transaction, task: TaskRow, attempt: int, step: a.Intend, repos: dict[str, RepoRow]) -> None:
        suffix = step.kind if step.number == 1 else f"{step.kind}-{step.number}"
        order = self._order(task, attempt, step.kind, attempt_run_id(task.key, attempt, suffix), repos)
        intend_run(tx, order, boot_id=self._boot_id, task=task.key, attempt=attempt, repo=task.repo)

    def _order(self, task: TaskRow, attempt: int, kind: str, run: str, repos: dict[str, RepoRow]) -> Order:
        root = str(self._places.root)
        if kind == "agent":
            sandbox = self._places.sandbox(task.key, attempt)
            directory = str(sandbox) if task.repo else root
            argv: tuple[str, ...] = ("sh", "-c", task.command)
            return Order(run, kind, argv, directory, _agent_environment(task, attempt), task.get_limits())
        assert task.repo is not None
        mirror, sandbox = self._places.mirror(task.repo), self._places.sandbox(task.key, attempt)
        if kind == "sandbox":
            argv = orders.make_sandbox(mirror, repos[task.repo].branch, sandbox)
        else:
            ref = orders.attempt_ref(task.key, attempt)
            argv = orders.snapshot_attempt(mirror, sandbox, ref, sandbox.with_name(f"{sandbox.name}.index"))
        return Order(run, kind, argv, root, dict(orders.CLEAN_ENVIRONMENT), {"wall_s": 3600.0, "grace_s": 5.0})


def _make_durable(path: Path) -> None:
    """Sync a promised file and its name: what is recorded as done must be there after a power cut."""
    for place in (path, path.parent):
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _agent_environment(task: TaskRow, attempt: int) -> dict[str, str]:
    return {
        "HIVE_CONVOY": task.convoy,
        "HIVE_TASK": task.id,
        "HIVE_ATTEMPT": str(attempt),
        "GIT_AUTHOR_NAME": "hive worker",
        "GIT_AUTHOR_EMAIL": "worker@localhost",
        "GIT_COMMITTER_NAME": "hive worker",
        "GIT_COMMITTER_EMAIL": "worker@localhost",
    }
