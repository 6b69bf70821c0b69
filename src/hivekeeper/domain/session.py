"""Decides what follows the end of an agent program's session: another session of its attempt, or the attempt's end.

An attempt's sessions are its runs of kind `agent`, one after another in one sandbox. After a usage limit the runner is
put on hold for every task, and the attempt continues when the hold ends, or with another runner that may take the
prompt. A conversation that grew too long is followed by a fresh one that is told what was done so far. A failing
service is retried later. A message interrupts the session, which resumes with the message. One that asked for help
resumes with the reply. Any other end is final, and evidence decides. `domain/admission.py` decides whether a session
may start now.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.report import LIMITED, NEEDS_PERSON, Outcome
from hivekeeper.domain.rows import RunRow, TaskRow
from hivekeeper.domain.run import FINISHED, HANDED_OFF, PERSON
from hivekeeper.domain.runner import RUNNER_VARIABLE
from hivekeeper.domain.states import RunState

MAX_FRESH_SESSIONS = 3
MAX_SERVER_ERRORS = 5
MAX_NO_ANSWERS = 5
FIRST_BACKOFF_S = {
    Outcome.RATE_LIMITED: 60.0,
    Outcome.NO_ANSWER: 60.0,
    Outcome.QUOTA: 900.0,
    Outcome.SERVER_ERROR: 30.0,
}
MAX_BACKOFF_S = 3600.0


@dataclass(frozen=True, slots=True)
class Hold:
    """What is put on hold: `scope` and `name`, for `in_s` seconds, or until a person lifts it."""

    scope: str
    name: str
    cause: str
    in_s: float | None
    strikes: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class StartSession:
    """A session of an attempt with this runner: the same conversation, or a fresh one."""

    runner: str
    session: str = ""
    resume: bool = False


@dataclass(frozen=True, slots=True)
class NextSession:
    """Another session follows, with the same conversation if possible."""

    resume: bool


def decide_next_session(
    task: TaskRow, agents: Sequence[RunRow], told: Sequence[MailRow], boot_id: str, *, waits_for_help: bool = False
) -> NextSession | None:
    """Decide whether another session follows the last one of an attempt, whose report was recorded."""
    last = agents[-1]
    outcome = last.outcome or (Outcome.SETUP if last.was_not_found else None)
    if outcome is None or last.state is RunState.LOST:
        return None  # only its exit code is known, or not even that
    if task.has_sandbox and last.boot_id != boot_id:
        return None  # the files in its sandbox are not trusted after a restart
    match Outcome(outcome):
        case Outcome.RATE_LIMITED | Outcome.QUOTA | Outcome.AUTH:
            return NextSession(resume=True)
        case Outcome.SETUP:
            return NextSession(resume=False)  # a program that did not start has no conversation
        case Outcome.NO_ANSWER:  # a limit would have passed by then
            return NextSession(resume=True) if _count(agents, Outcome.NO_ANSWER) <= MAX_NO_ANSWERS else None
        case Outcome.SERVER_ERROR:
            return NextSession(resume=True) if _count(agents, Outcome.SERVER_ERROR) <= MAX_SERVER_ERRORS else None
        case Outcome.CONTEXT_LIMIT:
            return NextSession(resume=False) if _count(agents, Outcome.CONTEXT_LIMIT) <= MAX_FRESH_SESSIONS else None
        case Outcome.KILLED if last.ended_by == "killed":
            # A stop by a person is final; one for a message, a limit or a budget is not.
            if last.kill_cause in (None, PERSON, FINISHED):
                return None
            return NextSession(resume=last.kill_cause != HANDED_OFF)
        case Outcome.DONE | Outcome.EMPTY | Outcome.REFUSED:
            # A message came in before it ended, and it has not seen it.
            is_told = any(message.seq > last.intended_seq for message in told)
            return NextSession(resume=True) if is_told or waits_for_help else None
        case _:
            return None


def choose_session(next_session: NextSession, last: RunRow, runner: str, *, can_resume: bool) -> StartSession:
    """Choose the conversation of the next session of an attempt, with this runner."""
    is_same = next_session.resume and runner == last.runner and bool(last.session) and can_resume
    return StartSession(runner, str(last.session) if is_same else "", resume=is_same)


def decide_hold(run: RunRow, outcome: Outcome, before: HoldRow | None, earlier: int, now: str) -> Hold | None:
    """Decide the hold after a session, longer each time: on its runner after a limit, on its task after a server error.

    `before` is the last hold for that cause, `earlier` how many of the attempt's sessions ended the same way before.
    """
    if before is not None and before.is_active(now):
        return None
    if outcome is Outcome.SERVER_ERROR and run.kind == "agent" and earlier < MAX_SERVER_ERRORS:
        return Hold("task", str(run.task), outcome.value, _back_off_s(outcome, earlier + 1), earlier + 1)
    if outcome not in LIMITED or (outcome is Outcome.NO_ANSWER and run.kind == "agent" and earlier >= MAX_NO_ANSWERS):
        return None
    strikes = before.strikes + 1 if before else 1
    in_s = None if outcome in NEEDS_PERSON else _back_off_s(outcome, strikes)
    return Hold("runner", str(run.runner), outcome.value, in_s, strikes)


def decide_hold_by_code(run: RunRow, holds: Sequence[HoldRow]) -> Hold | None:
    """Decide the hold after a session without a report, whose command was not found; None if its runner was held since.

    Its report would have placed the hold. The runner is named in its environment.
    """
    name, cause = json.loads(run.environment).get(RUNNER_VARIABLE), Outcome.SETUP.value
    if run.outcome is not None or name is None:
        return None
    same = (hold for hold in holds if (hold.scope, hold.name, hold.cause) == ("runner", name, cause))
    return None if any(hold.placed_seq > run.intended_seq for hold in same) else Hold("runner", name, cause, None, 1)


def _back_off_s(limit: Outcome, strikes: int) -> float:
    return min(FIRST_BACKOFF_S[limit] * 2.0 ** (strikes - 1), MAX_BACKOFF_S)


def _count(agents: Sequence[RunRow], outcome: Outcome) -> int:
    return sum(run.outcome == outcome for run in agents)
