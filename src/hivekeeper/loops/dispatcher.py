"""The dispatcher: gives ready tasks to workers and decides what the end of their runs means.

Rules:
1. A task is dispatched when all its predecessors are COMPLETE and a worker is free; never when it has ended.
2. Dispatch and the first run's intent are one commit, before anything starts.
3. Evidence decides. With a repository, the agent succeeded *and* changed the tree, only within its allowed paths; then
   the change goes to the merge queue. Without one, the agent succeeded and all its outputs were collected.
4. A worker's work is saved at intervals, and before its attempt is judged, however the agent ended. The successor of a
   worker that was cut off continues from there.
5. A usage limit does not end an attempt: its work is saved, it is parked, and its session resumes in the same sandbox
   when the hold ends; or another runner that may take the prompt continues. Nothing starts over its budget.
6. A cancelled task's runs are stopped first; only then is it CANCELLED.

A pass loads attempts, runs and holds, decides for each attempt (`domain/steps.py`), chooses tasks for the free workers,
and records everything in one transaction.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from hivekeeper.clock import to_seconds
from hivekeeper.commands import attempts as commands
from hivekeeper.commands.mail import deliver_mail, end_mail_of_attempt
from hivekeeper.commands.runs import request_kill
from hivekeeper.commands.sessions import Budgets, park_attempt, place_hold, resume_attempt
from hivekeeper.domain import attempt as a
from hivekeeper.domain import events as e
from hivekeeper.domain import steps
from hivekeeper.domain.admission import Admitted, Held, may_start, need_of_task
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.rows import AttemptRow, MailRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.run import RunSpec, Unclaimed
from hivekeeper.domain.sequences import WORK
from hivekeeper.domain.session import Hold, NextSession, StartSession, choose_session, decide_next_session
from hivekeeper.domain.states import AttemptState, TaskState
from hivekeeper.domain.steps import Cancelled, Stop
from hivekeeper.domain.waits import has_passed
from hivekeeper.loops import Counts, Loop, Wakes
from hivekeeper.specs.attempt import Work, specify_agent, specify_step
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction
from hivekeeper.working.evidence import Succeeded, check_work, choose_start
from hivekeeper.working.telling import find_delivered, list_told, tell


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start a run of the attempt."""

    start: steps.Start
    spec: RunSpec


@dataclass(frozen=True, slots=True)
class PlaceHold:
    """Put something on hold."""

    hold: Hold
    why: str


@dataclass(frozen=True, slots=True)
class Park:
    """Nothing can start now: free the worker."""

    why: str


Move = StartRun | PlaceHold | Park | Stop | Cancelled | Succeeded | a.Fail | a.LeaveUnknown
_WOKEN_BY = (
    e.TaskAdded,
    e.TaskRetryRequested,
    e.TaskCancelRequested,
    e.TaskCompleted,
    e.AttemptFailed,
    e.AttemptParked,
    e.RepoFetched,
    e.RunReported,
    e.HoldLifted,
)


class Dispatcher(Loop):
    """Dispatches tasks and judges attempts."""

    name = "dispatcher"
    order = 50
    wakes = Wakes(_WOKEN_BY, ends_of=(*WORK.kinds, "save"))
    saves_work = True
    interval_s = 5.0

    def run_once(self) -> Counts:
        """Judge ended attempts, save work in progress, then fill the free workers."""
        shutdown = self._parts.shutdown
        with self._ledger.read() as connection:
            repos = {repo.name: repo for repo in queries.list_repos(connection)}
            holds = queries.list_holds(connection)
            runs = queries.list_runs_of_open_attempts(connection, AttemptState.WORKING)
            working = queries.list_open_attempts(connection, AttemptState.WORKING)
            mail = queries.list_open_mail(connection)
            delivered: list[tuple[MailRow, RunRow]] = []
            moves: list[tuple[AttemptRow, Work, Move]] = []
            for attempt, task in working:
                of_attempt = runs.get((task.key, attempt.number), [])
                work = self._gather(task, attempt.number, attempt.start, repos, of_attempt)
                delivered += find_delivered(work, mail)
                move = self._decide(connection, work, holds)
                if move is not None and (not shutdown.is_closing or _is_saving(move)):
                    moves.append((attempt, work, move))
            freed = sum(_is_end(move) or isinstance(move, Park) for _, _, move in moves)
            is_stopping = shutdown.since or shutdown.is_closing
            free = 0 if is_stopping else max(0, self._settings.workers - len(working) + freed)
            resumed, ready, exhausted = self._choose(connection, free)
            dispatched: list[tuple[Work, Move | None]] = []
            for task in ready:
                start = choose_start(self._places, connection, task, repos.get(task.repo or ""))
                work = self._gather(task, task.attempts + 1, start, repos, [])
                dispatched.append((work, self._decide(connection, work, holds)))
        if not moves and not dispatched and not resumed and not exhausted and not delivered:
            return {}
        with self._ledger.write(self._authority) as tx:
            for message, run in delivered:
                deliver_mail(tx, message, run)
            for attempt, work, move in moves:
                if _is_end(move):
                    end_mail_of_attempt(tx, work.task.key, attempt.number)
                self._record(tx, attempt, work, move)
            for over_budget in exhausted:
                place_hold(tx, over_budget.hold, why=over_budget.why)
            for parked in resumed:
                resume_attempt(tx, parked)
            for work, first in dispatched:
                commands.dispatch_task(tx, work.task, start=work.start)
                if isinstance(first, StartRun):  # whatever else follows is decided by the next pass
                    self._intend(tx, work.owner, first.start, first.spec)
        counts = {"judged": len(moves), "dispatched": len(dispatched), "resumed": len(resumed), "held": len(exhausted)}
        return {**counts, "delivered": len(delivered)}

    def _gather(
        self, task: TaskRow, number: int, start: str | None, repos: dict[str, RepoRow], runs: Sequence[RunRow]
    ) -> Work:
        repo = repos[task.repo] if task.repo else None
        if repo is not None and not self._settings.queue and repo.backup is None:
            repo = replace(repo, details=e.encode_json({**json.loads(repo.details), "backup": repo.path}))
        known = (self._settings.runners[name] for name in task.runners if name in self._settings.runners)
        ignore = tuple(dict.fromkeys(pattern for runner in known for pattern in runner.ignore))
        return Work(task, number, start, repo, runs, ignore)

    # --- one attempt ------------------------------------------------------------------------------------------------

    def _decide(self, connection: Connection, work: Work, holds: Sequence[HoldRow]) -> Move | None:
        """Decide what comes next for an attempt; None if it has to wait."""
        task, admission = work.task, self._admit(work, holds)
        next_session = self._find_next_session(connection, work)
        is_cancelling = task.state is TaskState.CANCELLING
        facts = steps.Facts(
            self._boot_id, admission, is_cancelling=is_cancelling, repeats_last_step=next_session is not None
        )
        action = steps.decide(work.sequence, work.runs, facts)
        if action == steps.Start("sandbox", 2, 2) and self._was_started(work):
            action = steps.Park(admission) if isinstance(admission, Held) else steps.Start("agent")
        match action:
            case steps.Wait():
                return self._save_if_due(work)
            case steps.Park() | steps.Start("agent") if next_session is not None and (saving := self._save_first(work)):
                return saving if isinstance(saving, StartRun) else None
            case steps.Start() | steps.Park() if work.agent is None and self._lacks_runner(work):
                return _fail_without_runner(task)
            case steps.Park(held):
                return Park(held.why)
            case steps.Start("agent") as start:
                return self._start_agent(connection, work, start, next_session, admission)
            case steps.Start() as start:
                return StartRun(start, specify_step(self._places, work, start))
            case steps.Failed() as failed:
                return a.describe_failure(failed)
            case steps.Done():
                return self._judge(work)
            case steps.Stop() | steps.Cancelled():
                return action
            case steps.Later():
                return None
            case _:
                assert_never(action)

    def _admit(self, work: Work, holds: Sequence[HoldRow]) -> Admitted | Held:
        """Decide whether an agent may start now; a command always may."""
        if not work.needs_prompt:
            return Admitted()
        need = need_of_task(work.task, self._settings.runners)
        return may_start(need, holds, self._clock.now(), str(work.agent.runner) if work.agent else "")

    def _lacks_runner(self, work: Work) -> bool:
        return work.needs_prompt and not self._settings.runners.keys() & {*work.task.runners}

    def _find_next_session(self, connection: Connection, work: Work) -> NextSession | None:
        """Find whether another session follows the last one; never after the snapshot or a cancellation."""
        agent = work.agent
        if agent is None or not agent.runner or agent.is_open or agent.is_unread or work.count("snapshot"):
            return None
        if work.task.state is TaskState.CANCELLING or self._lacks_runner(work):
            return None
        told = list_told(connection, work.task.key, work.number)
        return decide_next_session(work.task, work.agents, told, self._boot_id)

    def _start_agent(
        self,
        connection: Connection,
        work: Work,
        start: steps.Start,
        next_session: NextSession | None,
        admission: Admitted | Held,
    ) -> Move:
        """Start a command, or a session of a runner; a runner whose program is missing is put on hold."""
        name = admission.runner if isinstance(admission, Admitted) else None
        if name is None:
            return StartRun(start, specify_agent(self._places, work, start, tell(self._places, connection, work, None)))
        runner, last = self._settings.runners[name], work.agent
        if problem := self._parts.find_problem(runner):
            return PlaceHold(Hold("runner", name, "missing", None, 1), problem)
        session = StartSession(name)
        if last is not None and next_session is not None:
            session = choose_session(next_session, last, name, can_resume=runner.can_resume)
        told = tell(self._places, connection, work, session)
        return StartRun(start, specify_agent(self._places, work, start, told, session, runner))

    def _was_started(self, work: Work) -> bool:
        """Whether an agent ran that the ledger does not know of: after a restore of the ledger, its work is adopted."""
        return not isinstance(self._runs.look(work.owner.name_run(steps.Start("agent"))), Unclaimed)

    # --- saving -----------------------------------------------------------------------------------------------------

    def _save_if_due(self, work: Work) -> StartRun | None:
        """Save a working agent's work: at intervals, and once more when the keeper shuts down."""
        since = a.get_last_save(work.runs) if work.task.repo is not None else None
        if since is None:
            return None
        now_s, stopping_since = to_seconds(self._clock.now()), self._parts.shutdown.since
        if stopping_since:
            is_due = since <= stopping_since
        else:
            is_due = has_passed(now_s, to_seconds(since), self._settings.snapshot_every_s)
        return self._save(work) if is_due else None

    def _save_first(self, work: Work) -> StartRun | steps.Wait | None:
        """Save a session's work before anything follows; None once that is done, or was tried."""
        saves, agent = [run for run in work.runs if run.kind == "save"], work.agent
        assert agent is not None
        if work.task.repo is None or (saves and not saves[-1].is_open and saves[-1].intended_seq > agent.reported_seq):
            return None
        return steps.Wait() if saves and saves[-1].is_open else self._save(work)

    def _save(self, work: Work) -> StartRun:
        start = steps.Start("save", work.count("save") + 1)
        return StartRun(start, specify_step(self._places, work, start))

    # --- evidence ---------------------------------------------------------------------------------------------------

    def _judge(self, work: Work) -> Move:
        """Judge an attempt by the repository and the disk, not by the exit code."""
        verdict = a.judge_attempt(work.task, work.runs, self._boot_id)
        if not isinstance(verdict, a.Judge):
            return verdict
        if not self._settings.queue and (unpushed := a.find_backup_problem(work.runs)):
            return a.Fail(f"its branch could not be pushed to {work.repo and work.repo.backup}: {unpushed}")
        if work.repo is None:
            return Succeeded(output=work.task.output)  # collected and synced, or it would not be judged
        return check_work(self._places, work, work.repo)

    # --- filling free workers ---------------------------------------------------------------------------------------

    def _choose(self, connection: Connection, free: int) -> tuple[list[AttemptRow], list[TaskRow], list[PlaceHold]]:
        """Choose attempts for the free workers, parked ones first, then new ones; and find what is over its budget."""
        now = self._clock.now()
        budgets = Budgets(connection, self._settings.day, now=now)
        holds: dict[tuple[str, str], PlaceHold] = {}

        def is_affordable(task: TaskRow) -> bool:
            reached = budgets.find_exhausted(task) if task.runners and task.state is not TaskState.CANCELLING else None
            if reached:
                holds[reached[0].scope, reached[0].name] = PlaceHold(*reached)
            return reached is None

        # A cancelled attempt takes no worker: its work is only saved.
        parked = queries.list_resumable(connection, max(free, 1), now=now, runners=self._settings.runners)
        resumed = [
            attempt
            for attempt, task in parked
            if (free > 0 or task.state is TaskState.CANCELLING) and is_affordable(task)
        ]
        free -= len(resumed)
        found = queries.list_ready_tasks(connection, free, now=now, runners=self._settings.runners) if free > 0 else []
        ready = [task for task in found if is_affordable(task)]
        if not self._parts.shutdown.since and not self._parts.shutdown.is_closing:  # these need no worker
            known = {task.key for task in ready}
            ready += [task for task in queries.list_ready_branches(connection) if task.key not in known]
        return resumed, ready, list(holds.values())

    # --- recording --------------------------------------------------------------------------------------------------

    def _record(self, tx: Transaction, attempt: AttemptRow, work: Work, move: Move) -> None:
        task, agent = work.task, work.agent
        ended_at = (agent and agent.ended_at) or tx.now
        match move:
            case StartRun(start, spec):
                self._intend(tx, work.owner, start, spec)
            case PlaceHold(hold, why):
                place_hold(tx, hold, why=why)
            case Park(why):
                park_attempt(tx, attempt, why=why)
            case a.Fail(why):
                commands.fail_attempt(tx, task, attempt, why=why, at=ended_at)
            case a.LeaveUnknown(why):
                commands.leave_unknown(tx, task, attempt, why=why)
            case Succeeded(commit, output):
                if commit is not None and self._settings.queue:
                    commands.submit_attempt(tx, task, attempt, commit, at=ended_at)
                else:
                    commands.complete_task(tx, task, attempt.number, at=ended_at, commit=commit, output=output)
            case Cancelled():
                commands.cancel_attempt(tx, task, attempt)
            case Stop(to_stop):
                for run in to_stop:
                    request_kill(tx, run, task.reason)
            case _:
                assert_never(move)


def _is_end(move: Move) -> bool:
    """Whether an attempt's sessions are over."""
    return not isinstance(move, StartRun | Stop | PlaceHold | Park)


def _is_saving(move: Move) -> bool:
    """Whether a move stops or saves something, and starts no agent."""
    return not isinstance(move, StartRun) or move.start.kind in ("snapshot", "backup", "save")


def _fail_without_runner(task: TaskRow) -> a.Fail:
    """Fail an attempt because the hive has none of its task's runners."""
    names = ", ".join(f"'{name}'" for name in task.runners)
    return a.Fail(f"there is no runner {names}; name one of those that hive runner ls shows")
