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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from hivekeeper.clock import to_seconds
from hivekeeper.commands import attempts as commands
from hivekeeper.commands.mail import assign_mail, deliver_mail, end_mail_of_attempt
from hivekeeper.commands.runs import request_kill
from hivekeeper.commands.sessions import park_attempt, place_hold, resume_attempt
from hivekeeper.domain import attempt as a
from hivekeeper.domain import events as e
from hivekeeper.domain import steps
from hivekeeper.domain.admission import Admitted, Held, may_start, need_of_task
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.run import HELP, PERSON, RunSpec, Unclaimed
from hivekeeper.domain.runner import Runner
from hivekeeper.domain.sequences import WORK
from hivekeeper.domain.session import (
    Hold,
    NextSession,
    StartSession,
    choose_session,
    decide_hold_by_code,
    decide_next_session,
)
from hivekeeper.domain.states import AttemptState, TaskState
from hivekeeper.domain.steps import Cancelled
from hivekeeper.domain.waits import has_passed
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.specs.attempt import Work, specify_agent, specify_step
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction, read_head
from hivekeeper.working.assigning import assign_agents
from hivekeeper.working.choosing import choose_tasks
from hivekeeper.working.evidence import Succeeded, check_work, choose_start
from hivekeeper.working.gathering import gather_work
from hivekeeper.working.telling import awaits_router, find_delivered, list_told, tell


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


@dataclass(frozen=True, slots=True)
class StopRuns:
    """Stop runs of the attempt."""

    runs: tuple[RunRow, ...]
    why: str
    cause: str


Move = StartRun | PlaceHold | Park | StopRuns | Cancelled | Succeeded | a.Fail | a.LeaveUnknown
_WOKEN_BY = (
    e.TaskAdded,
    e.TaskRetryRequested,
    e.TaskCancelRequested,
    e.TaskCompleted,
    e.AttemptFailed,
    e.AttemptParked,
    e.AttemptFinished,
    e.RepoFetched,
    e.RunReported,
    e.HoldLifted,
)


MAX_WAIT_FOR_ROUTER_S = 60.0
_OF_MAIL = (e.MailAccepted, e.MailSettled, e.MailHandled)


class Dispatcher(Loop):
    """Dispatches tasks and judges attempts."""

    name = "dispatcher"
    order = 50
    wakes = Wakes(_WOKEN_BY, ends_of=(*WORK.kinds, "save"))
    saves_work = True
    interval_s = 5.0

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._awaiting: dict[str, float] = {}  # tasks whose messages have to be recorded first, and since when

    def is_woken_by(self, body: e.Body) -> bool:
        """Whether this event wakes the loop; one of a message only if a message is waited for."""
        return bool(self._awaiting) if isinstance(body, _OF_MAIL) else super().is_woken_by(body)

    def run_once(self) -> Counts:
        """Judge ended attempts, save work in progress, then fill the free workers."""
        shutdown = self._parts.shutdown
        with self._ledger.read() as connection:
            seen = read_head(connection).seq
            repos = {repo.name: repo for repo in queries.list_repos(connection)}
            holds = queries.list_holds(connection)
            runs = queries.list_runs_of_open_attempts(connection, AttemptState.WORKING)
            working = queries.list_open_attempts(connection, AttemptState.WORKING)
            works = [
                gather_work(self._settings, t, a.number, a.start, repos, runs.get((t.key, a.number), []), a)
                for a, t in working
            ]
            delivered = list(find_delivered(works, queries.list_open_mail(connection)))
            moves: list[tuple[AttemptRow, Work, Move]] = []
            for (attempt, _), work in zip(working, works, strict=True):
                move = self._decide(connection, work, holds)
                if move is not None and (not shutdown.is_closing or _is_saving(move)):
                    moves.append((attempt, work, move))
            freed = sum(_is_end(move) or isinstance(move, Park) for _, _, move in moves)
            is_open = not shutdown.since and not shutdown.is_closing
            free = max(0, self._settings.workers - len(working) + freed) if is_open else 0
            chosen = choose_tasks(connection, self._settings, free, now=self._clock.now(), branches=is_open)
            dispatched: list[tuple[Work, Move | None]] = []
            for task, choice in assign_agents(connection, self._settings, chosen.ready):
                start = choose_start(self._places, connection, task, repos.get(task.repo or ""))
                work = gather_work(self._settings, task, task.attempts + 1, start, repos, []).choosing(choice)
                dispatched.append((work, self._decide(connection, work, holds)))
        if not moves and not dispatched and not chosen.resumed and not chosen.exhausted and not delivered:
            return {}
        with self._ledger.write(self._authority) as tx:
            for message, run in delivered:
                deliver_mail(tx, message, run)
            for attempt, work, move in moves:
                if not _is_outdated(tx, work, seen):
                    self._record(tx, attempt, work, move)
            for hold, why in chosen.exhausted:
                place_hold(tx, hold, why=why)
            for parked in chosen.resumed:
                resume_attempt(tx, parked)
            for work, first in dispatched:
                if not _is_outdated(tx, work, seen):
                    self._dispatch(tx, work, first)
        counts = {
            "judged": len(moves),
            "dispatched": len(dispatched),
            "resumed": len(chosen.resumed),
            "held": len(chosen.exhausted),
        }
        return {**counts, "delivered": len(delivered)}

    # --- one attempt ------------------------------------------------------------------------------------------------

    def _decide(self, connection: Connection, work: Work, holds: Sequence[HoldRow]) -> Move | None:
        """Decide what comes next for an attempt; None if it has to wait."""
        task, admission = work.task, self._admit(work, holds)
        next_session = self._find_next_session(connection, work, holds)
        is_cancelling = task.state is TaskState.CANCELLING
        facts = steps.Facts(
            self._boot_id, admission, is_cancelling=is_cancelling, repeats_last_step=next_session is not None
        )
        action = steps.decide(work.sequence, work.runs, facts)
        if not is_cancelling and self._awaits_router(connection, work):
            return None
        if next_session is not None and work.agent is not None and (hold := decide_hold_by_code(work.agent, holds)):
            return PlaceHold(hold, a.describe_ending(work.agent))
        if action == steps.Start("sandbox", 2, 2) and self._was_started(work):
            action = steps.Park(admission) if isinstance(admission, Held) else steps.Start("agent")
        match action:
            case steps.Wait():
                return self._dismiss_if_due(work, holds) or self._save_if_due(work)
            case steps.Park() | steps.Start("agent") if next_session is not None and (saving := self._save_first(work)):
                return saving if isinstance(saving, StartRun) else None
            case steps.Start() | steps.Park() if work.agent is None and _lacks_runner(work, self._settings.runners):
                return _fail_without_runner(task)
            case steps.Park(held):
                return Park(held.why)
            case steps.Start() as start:
                return self._start(connection, work, start, next_session, admission)
            case steps.Later():
                return None
            case _:
                return self._end(work, action)

    def _end(self, work: Work, action: steps.Failed | steps.Done | steps.Stop | Cancelled) -> Move:
        match action:
            case steps.Failed():
                return a.describe_failure(action)
            case steps.Done():
                return self._judge(work)
            case steps.Stop(running):
                return StopRuns(running, work.task.reason, PERSON)
            case Cancelled():
                return action
            case _:
                assert_never(action)

    def _awaits_router(self, connection: Connection, work: Work) -> bool:
        """Whether messages have to be recorded first; what the router cannot read in time is left."""
        if not awaits_router(self._places, connection, work):
            self._awaiting.pop(work.task.key, None)
            return False
        now_s = self._clock.monotonic()  # time without a keeper does not count
        return now_s - self._awaiting.setdefault(work.task.key, now_s) < MAX_WAIT_FOR_ROUTER_S

    def _admit(self, work: Work, holds: Sequence[HoldRow]) -> Admitted | Held:
        """Decide whether an agent may start now; a command always may."""
        if not work.needs_prompt:
            return Admitted()
        need = need_of_task(work.task, self._settings.runners)
        return may_start(need, holds, self._clock.now(), str(work.agent.runner) if work.agent else "")

    def _find_next_session(self, connection: Connection, work: Work, holds: Sequence[HoldRow]) -> NextSession | None:
        """Find whether another session follows the last one; never after the snapshot or a cancellation."""
        agent = work.agent
        if agent is None or not work.needs_prompt or agent.is_open or agent.is_unread or work.count("snapshot"):
            return None
        if work.task.state is TaskState.CANCELLING or work.is_finished or _lacks_runner(work, self._settings.runners):
            return None
        told = list_told(connection, work)
        waits_for_help = _find_help(work, holds) is not None
        return decide_next_session(work.task, work.agents, told, self._boot_id, waits_for_help=waits_for_help)

    def _start(
        self,
        connection: Connection,
        work: Work,
        start: steps.Start,
        next_session: NextSession | None,
        admission: Admitted | Held,
    ) -> Move:
        """Start the next run; a runner whose program is missing is put on hold."""
        if start.kind != "agent":
            return StartRun(start, specify_step(self._places, work, start))
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

    def _dismiss_if_due(self, work: Work, holds: Sequence[HoldRow]) -> StopRuns | None:
        """Stop an agent that has said that it is finished, or that it waits for help, and that has not ended."""
        help_hold = _find_help(work, holds)
        found = a.find_dismissal(work.agent, work.row, help_hold.placed_at if help_hold else None)
        is_due = found and has_passed(to_seconds(self._clock.now()), to_seconds(found.since), a.FINISH_GRACE_S)
        return StopRuns((found.agent,), found.why, found.cause) if found and is_due else None

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
        verdict = a.judge_attempt(work.task, work.runs, self._boot_id, is_finished=work.is_finished)
        if not isinstance(verdict, a.Judge):
            return verdict
        if not self._settings.queue and (unpushed := a.find_backup_problem(work.runs)):
            return a.Fail(f"its branch could not be pushed to {work.repo and work.repo.backup}: {unpushed}")
        if work.repo is None:
            return Succeeded(output=work.task.output)  # collected and synced, or it would not be judged
        return check_work(self._places, work, work.repo)

    # --- recording --------------------------------------------------------------------------------------------------

    def _dispatch(self, tx: Transaction, work: Work, first: Move | None) -> None:
        commands.dispatch_task(tx, work.task, start=work.start, choice=work.choice)
        assign_mail(tx, work.task, work.number)
        if isinstance(first, StartRun):  # whatever else follows is decided by the next pass
            self._intend(tx, work.owner, first.start, first.spec)

    def _record(self, tx: Transaction, attempt: AttemptRow, work: Work, move: Move) -> None:
        _record_mail(tx, attempt, work, move)
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
            case StopRuns(to_stop, why, cause):
                for run in to_stop:
                    request_kill(tx, run, why, cause)
            case _:
                assert_never(move)


def _record_mail(tx: Transaction, attempt: AttemptRow, work: Work, move: Move) -> None:
    """Record what a move means for messages to the worker."""
    if isinstance(move, StartRun) and move.start.kind == "agent":
        assign_mail(tx, work.task, work.number)
    if _is_end(move):
        end_mail_of_attempt(tx, work.task, attempt, is_reported=work.has_mailbox and work.agent is not None)


def _is_outdated(tx: Transaction, work: Work, seen: int) -> bool:
    """Whether a message or a person was faster than a decision: then the next pass decides again."""
    return queries.has_changed(tx.connection, work.task.key, work.task.agent, seen)


def _is_end(move: Move) -> bool:
    """Whether an attempt's sessions are over."""
    return not isinstance(move, StartRun | StopRuns | PlaceHold | Park)


def _lacks_runner(work: Work, runners: Mapping[str, Runner]) -> bool:
    return work.needs_prompt and not runners.keys() & {*work.task.runners}


def _find_help(work: Work, holds: Sequence[HoldRow]) -> HoldRow | None:
    """Find the hold of a task whose worker has asked for help and does not go on without."""
    found = (hold for hold in holds if (hold.scope, hold.name, hold.cause) == ("task", work.task.key, HELP))
    return next((hold for hold in found if not hold.lifted), None)


def _is_saving(move: Move) -> bool:
    """Whether a move stops or saves something, and starts no agent."""
    return not isinstance(move, StartRun) or move.start.kind in ("snapshot", "backup", "save")


def _fail_without_runner(task: TaskRow) -> a.Fail:
    """Fail an attempt because the hive has none of its task's runners."""
    names = ", ".join(f"'{name}'" for name in task.runners)
    return a.Fail(f"there is no runner {names}; name one of those that hive runner ls shows")
