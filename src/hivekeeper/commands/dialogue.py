"""The sessions of an attempt: who takes its prompt, what each is told, and what follows from how one ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from hivekeeper.clock import Clock
from hivekeeper.commands.sessions import describe_resumption, describe_so_far, describe_told
from hivekeeper.commands.work import Work, write_prompt
from hivekeeper.domain import attempt as a
from hivekeeper.domain import session as sessions
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.merge import REWORK_REQUEST, describe_rework
from hivekeeper.domain.rows import RunRow, TaskRow
from hivekeeper.domain.runner import Runner
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror, list_refs
from hivekeeper.places import Places
from hivekeeper.store import queries
from hivekeeper.store.database import Connection

Next = a.Intend | a.Fail | sessions.Hold | sessions.Park


@dataclass(frozen=True, slots=True)
class Sessions:
    """Whoever starts sessions in this boot."""

    places: Places
    clock: Clock
    boot_id: str
    runners: Mapping[str, Runner]
    find_problem: Callable[[Runner], str | None] = lambda _: None

    def follow(
        self, connection: Connection, work: Work, runs: Sequence[RunRow], holds: Sequence[HoldRow]
    ) -> tuple[Work, Next | None] | None:
        """Decide what follows from how a session ended; None where it is its attempt's end."""
        task, attempt, last = work.task, work.attempt, work.agent
        assert last is not None
        agents = [run for run in runs if run.kind == "agent"]
        messages = queries.list_messages(connection, task.key, attempt.number)
        told = [message for message in messages if message.kind == sessions.TOLD]
        runners = {name: runner.can_resume for name, runner in self.runners.items()}
        facts = sessions.Facts(task, attempt, agents, holds, told, runners, self.clock.now(), self.boot_id)
        step = sessions.decide_session(facts)
        match step:
            case sessions.Unread():
                return work, None
            case sessions.Hold():
                return work, step
            case sessions.Park() | sessions.StartSession() if (saving := _save_first(task, runs, last)) is not None:
                return work, saving if isinstance(saving, a.Intend) else None
            case sessions.Park():
                return work, step
            case sessions.StartSession(name, session, resume):
                runner = self.runners.get(name)
                if runner and (missing := self._hold_missing(runner)):
                    return work, missing
                begun = replace(work, runner=runner, session=session, resume=resume)
                return begun, a.Intend("agent", len(agents) + 1) if runner else a.Fail(f"there is no runner '{name}'")
            case sessions.Finished():
                return None
            case _:
                assert_never(step)

    def begin(self, work: Work, step: a.Intend, holds: Sequence[HoldRow]) -> tuple[Work, Next]:
        """Choose who takes the prompt; while nobody may, the attempt is parked before it has begun."""
        task, now = work.task, self.clock.now()
        name = sessions.choose_runner(task, holds, now, self.runners)
        hold = sessions.find_hold(task, holds, now)
        if name is None or hold is not None:
            held = hold or next((h for h in holds if h.scope == "runner" and h.name in task.runners), None)
            return work, sessions.Park(f"{held.cause}: {held.why}") if held else lack_runner(task)
        runner = self.runners.get(name)
        if runner and (missing := self._hold_missing(runner)):
            return work, missing
        return (replace(work, runner=runner), step) if runner else (work, lack_runner(task))

    def _hold_missing(self, runner: Runner) -> sessions.Hold | None:
        """Have a runner wait for a person whose program cannot be started: no attempt of anybody is worth that."""
        problem = self.find_problem(runner)
        return sessions.Hold("runner", runner.name, "missing", None, 1, problem) if problem else None

    def tell(self, connection: Connection, work: Work) -> Work:
        """Put what an agent is told where it can read it."""
        task, number, last = work.task, work.attempt.number, work.agent
        body = find_feedback(connection, task, number)
        feedback = describe_rework(body) if body else ""
        prompt = queries.find_prompt(connection, task.key) if needs_prompt(task) else ""
        words = f"{prompt}\n\n{feedback}" if prompt and feedback else prompt
        told = [m for n in (number - 1, number) for m in queries.list_messages(connection, task.key, n)]
        told = [message for message in told if message.kind == sessions.TOLD]
        if last is not None and work.resume:
            words = describe_resumption([message for message in told if message.seq > last.intended_seq])
        elif work.runner is not None:
            # Whoever begins has heard nothing of what others were told.
            parts = [describe_so_far(last, self._list_changed(work))] if last is not None else []
            words = "\n\n".join([words, *parts, *([describe_told(told)] if told else [])])
        elif told:
            feedback = "\n\n".join(filter(None, (feedback, describe_told(told))))  # a command hears it there
        return replace(
            work,
            prompt=write_prompt(self.places, words) if words else None,
            feedback=write_prompt(self.places, feedback) if feedback else None,
        )

    def _list_changed(self, work: Work) -> Sequence[str]:
        """List what an attempt has changed, as it was last kept."""
        if work.repo is None:
            return ()
        mirror = Mirror(self.places.mirror(work.repo.name))
        saved = list(list_refs(mirror.path, orders.save_ref(work.task.key, work.attempt.number)).values())
        base = mirror.find_merge_base(saved[-1], orders.integration_ref(work.repo.branch)) if saved else None
        return mirror.list_changed(base, saved[-1]) if base else ()


def find_feedback(connection: Connection, task: TaskRow, attempt: int) -> dict[str, Any] | None:
    """Find why the try before this one did not land."""
    messages = queries.list_messages(connection, task.key, attempt - 1)
    return next((message.get_body() for message in reversed(messages) if message.kind == REWORK_REQUEST), None)


def _save_first(task: TaskRow, runs: Sequence[RunRow], last: RunRow) -> a.Intend | a.WaitForRun | None:
    """Keep what a session has made before anything follows; None once that is done, or could not be."""
    saves = [run for run in runs if run.kind == "save"]
    if task.repo is None or (saves and not saves[-1].is_open and saves[-1].intended_seq > last.reported_seq):
        return None
    return a.WaitForRun() if saves and saves[-1].is_open else a.Intend("save", len(saves) + 1)


def lack_runner(task: TaskRow) -> a.Fail:
    """Say that nobody here takes a task's prompt."""
    names = ", ".join(f"'{name}'" for name in task.runners)
    return a.Fail(f"there is no runner {names}; name one of those that hive runner ls shows")


def needs_prompt(task: TaskRow) -> bool:
    """Tell whether a task is something to be said, and not something to be run."""
    return not task.command and task.branch is None
