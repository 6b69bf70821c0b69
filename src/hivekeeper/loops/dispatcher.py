"""The dispatcher: gives ready tasks to workers and decides what the end of their runs means.

Rules:
1. A task is dispatched when all its predecessors are COMPLETE and a worker is free; never when it has ended.
2. Dispatch and the first run's intent are one commit, before anything starts.
3. Evidence decides. On a repository: the agent ended well *and* the tree changed, only where it may; then the change
   goes to the merge queue. Without one: the agent ended well and all it promised was collected from its sandbox.
4. What a worker made is kept now and then, and before its attempt is judged, whatever the agent's end was. A worker
   that was cut off has a successor that goes on from there.
5. A usage limit is no end: what was made is kept, the attempt parked, and its session resumed in the same sandbox when
   nothing holds it up any more; or another runner that may take the prompt goes on. Nothing begins over its budget.
6. A cancelled task's runs are ended first; only then is it CANCELLED.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from hivekeeper.clock import to_seconds
from hivekeeper.commands import attempts as commands
from hivekeeper.commands.dialogue import Sessions, find_feedback, lack_runner, needs_prompt
from hivekeeper.commands.runs import request_kill
from hivekeeper.commands.sessions import Budgets, park_attempt, place_hold, resume_attempt
from hivekeeper.commands.work import Work, intend_step
from hivekeeper.domain import attempt as a
from hivekeeper.domain import events as e
from hivekeeper.domain import session as sessions
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.merge import REWORK
from hivekeeper.domain.names import attempt_run_id
from hivekeeper.domain.plan import find_stray
from hivekeeper.domain.rows import AttemptRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.runner import make_shell_argv
from hivekeeper.domain.states import AttemptState, TaskState
from hivekeeper.domain.waits import has_passed
from hivekeeper.git import orders
from hivekeeper.git.mirror import EMPTY_TREE, Mirror, list_refs
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.settings import Settings
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction


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


Action = a.Intend | a.Fail | a.LeaveUnknown | Proven | Cancel | EndRuns | sessions.Hold | sessions.Park
Decision = tuple[Work, Action]


class Dispatcher(Loop):
    """Dispatches and judges."""

    name = "dispatcher"
    order = 50
    wakes = Wakes(
        (
            e.TaskAdded,
            e.TaskRetryRequested,
            e.TaskCancelRequested,
            e.TaskCompleted,
            e.AttemptFailed,
            e.AttemptParked,
            e.RepoFetched,
            e.RunReported,
            e.HoldLifted,
        ),
        ends_of=("sandbox", "setup", "stash", "agent", "snapshot", "backup", "save"),
    )
    saves_work = True
    interval_s = 5.0

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        runners = parts.settings.runners
        self._sessions = Sessions(self._places, self._clock, self._boot_id, runners, parts.find_problem)

    def run_once(self) -> Counts:
        """Judge what has ended, keep what is being made, then fill the free workers."""
        with self._ledger.read() as connection:
            now = self._clock.now()
            working = queries.list_open_attempts(connection, AttemptState.WORKING)
            runs = queries.list_runs_of_open_attempts(connection, AttemptState.WORKING)
            repos = {repo.name: repo for repo in queries.list_repos(connection)}
            decisions = list(self._decide(connection, working, runs, repos))
            if self._parts.leaving.is_closing:
                decisions = [(work, action) for work, action in decisions if _is_keeping(action)]
            leaving = sum(not isinstance(action, a.Intend | EndRuns | sessions.Hold) for _, action in decisions)
            is_leaving = self._parts.leaving.since or self._parts.leaving.is_closing
            free = 0 if is_leaving else max(0, self._settings.workers - len(working) + leaving)
            resumed, ready, holds = self._choose(connection, free, now)
            starts = {
                task.key: self._choose_start(connection, task, repos[task.repo])
                for task in ready
                if task.attempts and task.repo and task.branch is None
            }
            decisions = [
                (
                    self._sessions.tell(connection, work)
                    if isinstance(action, a.Intend) and action.kind == "agent"
                    else work,
                    action,
                )
                for work, action in decisions
            ]
        if not decisions and not ready and not resumed and not holds:
            return {}
        with self._ledger.write(self._authority) as tx:
            for work, action in decisions:
                self._settle(tx, work, action)
            for hold, why in holds:
                place_hold(tx, hold, why=why)
            for parked in resumed:
                resume_attempt(tx, parked)
            for task in ready:
                attempt = commands.dispatch_task(tx, task, start=starts.get(task.key))
                work = _gather(task, attempt, [], repos, self._settings)
                if task.has_sandbox:  # the others are given their prompt by the next pass, with everything else
                    intend_step(tx, self._places, work, a.Intend("sandbox", 1), boot_id=self._boot_id)
                elif work.argv and not needs_prompt(task):
                    told = self._sessions.tell(tx.connection, work)
                    intend_step(tx, self._places, told, a.Intend("agent", 1), boot_id=self._boot_id)
        return {"judged": len(decisions), "dispatched": len(ready), "resumed": len(resumed), "held": len(holds)}

    def _choose(
        self, connection: Connection, free: int, now: str
    ) -> tuple[list[AttemptRow], list[TaskRow], list[tuple[sessions.Hold, str]]]:
        """Choose who has the free workers: first those that were parked, then new ones; and what is over its budget."""
        budgets = Budgets(connection, self._settings.day, now=now)
        holds: dict[tuple[str, str], tuple[sessions.Hold, str]] = {}

        def is_affordable(task: TaskRow) -> bool:
            reached = budgets.find_exhausted(task) if task.runners and task.state is not TaskState.CANCELLING else None
            if reached:
                holds[reached[0].scope, reached[0].name] = reached
            return reached is None

        # A cancelled one takes no worker: it is only put in order.
        parked = queries.list_resumable(connection, max(free, 1), now=now)
        resumed = [
            attempt
            for attempt, task in parked
            if (free > 0 or task.state is TaskState.CANCELLING) and is_affordable(task)
        ]
        free -= len(resumed)
        ready = (
            [task for task in queries.list_ready_tasks(connection, free, now=now) if is_affordable(task)]
            if free > 0
            else []
        )
        if not self._parts.leaving.since and not self._parts.leaving.is_closing:  # these wait for no worker
            known = {task.key for task in ready}
            ready += [task for task in queries.list_ready_branches(connection) if task.key not in known]
        return resumed, ready, list(holds.values())

    def _decide(
        self,
        connection: Connection,
        working: Sequence[tuple[AttemptRow, TaskRow]],
        runs: dict[tuple[str, int], list[RunRow]],
        repos: dict[str, RepoRow],
    ) -> Iterator[Decision]:
        holds = queries.list_holds(connection) if any(task.runners for _, task in working) else []
        for attempt, task in working:
            of_attempt = runs.get((attempt.task, attempt.number), [])
            work = _gather(task, attempt, of_attempt, repos, self._settings)
            action: Action | None
            if (
                work.agent is not None
                and work.agent.runner
                and not work.agent.is_open
                and not _is_over(task, of_attempt)
            ):
                work, action = self._follow(connection, work, of_attempt, holds)
            else:
                work, action = self._decide_one(work, of_attempt, holds)
            if action is not None:
                yield work, action

    def _follow(
        self, connection: Connection, work: Work, runs: Sequence[RunRow], holds: Sequence[HoldRow]
    ) -> tuple[Work, Action | None]:
        """Decide what follows from how an agent program's session ended, if more than its attempt's end."""
        followed = self._sessions.follow(connection, work, runs, holds)
        return self._decide_one(work, runs, holds) if followed is None else followed

    def _decide_one(self, work: Work, runs: Sequence[RunRow], holds: Sequence[HoldRow]) -> tuple[Work, Action | None]:
        task, attempt = work.task, work.attempt
        kinds = a.list_kinds(task, work.repo, attempt.start)
        step = a.decide_step(task, runs, kinds, boot_id=self._boot_id)
        if step == a.Intend("sandbox", 2) and self._has_begun(task, attempt):
            step = a.Intend("agent", 1)
        if task.state is TaskState.CANCELLING:
            return work, _cancel(step, runs)
        match step:
            case a.WaitForRun():
                return work, self._decide_save(task, runs)
            case a.Judge() if not self._settings.queue and (unpushed := a.find_unpushed(runs)):
                return work, a.Fail(f"its branch could not be pushed to {work.repo and work.repo.backup}: {unpushed}")
            case a.Judge():
                evidence = self._look_at_work(work)
                return work, a.Fail(evidence.why) if isinstance(evidence, Unproven) else evidence
            case a.Intend("agent") if not work.argv:
                return self._sessions.begin(work, step, holds)
            case a.Intend() if not work.argv and not self._settings.runners.keys() & set(task.runners):
                return work, lack_runner(task)
            case _:
                return work, step

    def _decide_save(self, task: TaskRow, runs: Sequence[RunRow]) -> a.Intend | None:
        """Decide whether to keep what a working agent has made so far: now and then, and once more before we leave."""
        since = a.find_unsaved_since(runs) if task.repo is not None else None
        if since is None:
            return None
        now_s, leaving, every_s = (
            to_seconds(self._clock.now()),
            self._parts.leaving.since,
            self._settings.snapshot_every_s,
        )
        is_due = since <= leaving if leaving else has_passed(now_s, to_seconds(since), every_s)
        return a.Intend("save", sum(run.kind == "save" for run in runs) + 1) if is_due else None

    def _has_begun(self, task: TaskRow, attempt: AttemptRow) -> bool:
        """Tell whether an agent the ledger does not know of was here: what it left is not to be made anew, but adopted.

        That is so when an older ledger was put back.
        """
        return (self._places.runs / attempt_run_id(task.key, attempt.number, "agent") / "claim").exists()

    def _choose_start(self, connection: Connection, task: TaskRow, repo: RepoRow) -> str | None:
        """Choose what an attempt goes on from: what its predecessor left at its end, or else when it was last saved."""
        attempts = queries.list_attempts_of_task(connection, task.key)
        runs = queries.list_runs_of_attempt(connection, task.key, task.attempts)
        mirror = Mirror(self._places.mirror(repo.name))
        left = mirror.find_commit(orders.attempt_ref(task.key, task.attempts))
        saved = list(list_refs(mirror.path, orders.save_ref(task.key, task.attempts)).values()) if left is None else []
        kept = left or (saved[-1] if saved else None)
        body = find_feedback(connection, task, task.attempts + 1)
        if body and attempts:
            return attempts[-1].commit_id if body["mode"] == REWORK else None
        if kept and mirror.find_merge_base(kept, orders.integration_ref(repo.branch)) is None:
            kept = None  # its git directory was gone: what is not there may be deleted, or never have been looked at
        return a.decide_start(attempts[-1] if attempts else None, runs, kept)

    def _look_at_work(self, work: Work) -> Proven | Unproven:
        """Believe the repository and the disk, not the exit code."""
        task, attempt, repo = work.task, work.attempt, work.repo
        if repo is None:
            return Proven(output=task.output)  # collected, whole and synced, or the attempt would not be judged
        mirror = Mirror(self._places.mirror(repo.name))
        commit = mirror.find_commit(orders.attempt_ref(task.key, attempt.number))
        if commit is None:
            return Unproven("what it left was not kept in the mirror")
        if task.remakes:  # it has landed before, wherever the branch is now
            return Proven(commit=commit)
        base = mirror.find_merge_base(commit, orders.integration_ref(repo.branch))
        if base is None:
            return Unproven("what it made shares no history with the integration branch")
        if mirror.get_tree(commit) in {mirror.get_tree(base), mirror.get_tree(attempt.start or base)}:
            return Unproven("it ended with exit code 0 but changed nothing")
        if not mirror.list_changed(EMPTY_TREE, commit):
            return Unproven("it ended with exit code 0 but left nothing")
        if stray := find_stray(mirror.list_changed(base, commit), task.get_details().get("paths", ())):
            return Unproven(f"it changed {stray}, outside its allowed `paths`")
        return Proven(commit=commit)

    def _settle(self, tx: Transaction, work: Work, action: Action) -> None:
        task, attempt = work.task, work.attempt
        ended_at = (work.agent and work.agent.ended_at) or tx.now
        match action:
            case a.Intend():
                intend_step(tx, self._places, work, action, boot_id=self._boot_id)
            case sessions.Hold():
                words = work.agent.words if work.agent else ""
                place_hold(
                    tx,
                    action,
                    why=action.why or words or action.cause,
                    retry_at=work.agent.retry_at if work.agent else None,
                )
            case sessions.Park(why):
                park_attempt(tx, attempt, why=why)
            case a.Fail(why):
                commands.fail_attempt(tx, task, attempt, why=why, at=ended_at)
            case a.LeaveUnknown(why):
                commands.leave_unknown(tx, task, attempt, why=why)
            case Proven(commit, output):
                if commit is not None and self._settings.queue:
                    commands.submit_attempt(tx, task, attempt, commit, at=ended_at)
                else:
                    commands.complete_task(tx, task, attempt.number, at=ended_at, commit=commit, output=output)
            case Cancel():
                commands.cancel_attempt(tx, task, attempt)
            case EndRuns(to_end):
                for run in to_end:
                    request_kill(tx, run, task.reason)
            case _:
                assert_never(action)


def _gather(
    task: TaskRow, attempt: AttemptRow, runs: Sequence[RunRow], repos: dict[str, RepoRow], settings: Settings
) -> Work:
    agent = next((run for run in reversed(runs) if run.kind == "agent"), None)
    argv = make_shell_argv(task.command or ":") if task.command or task.branch else ()
    repo = repos[task.repo] if task.repo else None
    if repo is not None and not settings.queue and repo.backup is None:
        repo = replace(repo, details=e.encode_json({**json.loads(repo.details), "backup": repo.path}))
    known = (settings.runners[name] for name in task.runners if name in settings.runners)
    ignore = tuple(dict.fromkeys(pattern for runner in known for pattern in runner.ignore))
    return Work(task, attempt, repo, argv, agent=agent, ignore=ignore)


def _is_keeping(action: Action) -> bool:
    """Tell whether something ends or keeps what is there, and starts nobody."""
    return not isinstance(action, a.Intend) or action.kind in ("snapshot", "backup", "save")


def _is_over(task: TaskRow, runs: Sequence[RunRow]) -> bool:
    """Tell whether no session can follow: the attempt is being put in order, or what it made is being kept."""
    return task.state is TaskState.CANCELLING or any(run.kind == "snapshot" for run in runs)


def _cancel(step: a.Step, runs: Sequence[RunRow]) -> a.Intend | Cancel | EndRuns | None:
    """Decide how a cancelled task's attempt ends: what runs is ended, what it made is kept."""
    ours = [run for run in runs if run.is_open and run.kind not in ("snapshot", "backup")]
    to_end = tuple(run for run in ours if run.kill_requested_at is None)
    if to_end:
        return EndRuns(to_end)
    if isinstance(step, a.Intend) and step.kind in ("snapshot", "backup"):
        return step
    return None if isinstance(step, a.WaitForRun) else Cancel()
