"""What follows from how a session ended: go on with it, begin another, wait, or take it for over.

An attempt's sessions are its runs of kind `agent`, one after another in one sandbox. A usage limit holds its runner up
for everybody and parks the attempt, unless another runner may take the prompt; a conversation that grew too long is
followed by a fresh one that is told what was done so far; a failing service is tried again later; a message interrupts
and is what the session goes on with. Everything else is the end, and evidence decides what that was.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hivekeeper.domain.budget import DAY
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.report import FOR_A_PERSON, Outcome
from hivekeeper.domain.rows import AttemptRow, MessageRow, RunRow, TaskRow
from hivekeeper.domain.run import PERSON
from hivekeeper.domain.states import RunState

TOLD = "TOLD"
MAX_FRESH_SESSIONS = 3
MOST_SERVER_ERRORS = 5
MOST_NO_ANSWERS = 5
FIRST_BACKOFF_S = {
    Outcome.RATE_LIMITED: 60.0,
    Outcome.NO_ANSWER: 60.0,
    Outcome.QUOTA: 900.0,
    Outcome.SERVER_ERROR: 30.0,
}
LONGEST_BACKOFF_S = 3600.0


@dataclass(frozen=True, slots=True)
class Unread:
    """What the program said has not been read to its end."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The session is over, well or not."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Something is to be held up first: `scope` and `name`, until a moment, or until a person lifts it."""

    scope: str
    name: str
    cause: str
    in_s: float | None
    strikes: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Park:
    """Nothing can go on now: the worker is free for others."""

    why: str


@dataclass(frozen=True, slots=True)
class StartSession:
    """A further session, by this runner: the same conversation, or a fresh one that is told what was done."""

    runner: str
    session: str
    resume: bool


SessionStep = Unread | Finished | Hold | Park | StartSession


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known when a session has ended; `runners` tells of each there is whether it can resume one."""

    task: TaskRow
    attempt: AttemptRow
    agents: Sequence[RunRow]
    holds: Sequence[HoldRow]
    told: Sequence[MessageRow]
    runners: Mapping[str, bool]
    now: str
    boot_id: str


def choose_runner(
    task: TaskRow, holds: Sequence[HoldRow], now: str, known: Collection[str], prefer: str = ""
) -> str | None:
    """Choose who takes a prompt: who had it before, or the best of those that are here and nothing holds up."""
    held = {hold.name for hold in holds if hold.scope == "runner" and hold.is_active(now)}
    here = [name for name in task.runners if name in known] or task.runners  # where none is, whoever starts it says so
    free = [name for name in here if name not in held]
    return prefer if prefer in free else next(iter(free), None)


def find_hold(task: TaskRow, holds: Sequence[HoldRow], now: str) -> HoldRow | None:
    """Find what holds a task up, whoever would take it."""
    wanted = {("task", task.key), ("convoy", task.convoy), ("day", DAY), ("repo", task.repo or "")}
    return next((hold for hold in holds if (hold.scope, hold.name) in wanted and hold.is_active(now)), None)


def decide_session(facts: Facts) -> SessionStep:
    """Decide what follows from the last session of an attempt that works."""
    last = facts.agents[-1]
    if last.is_unread:
        return Unread()
    if last.outcome is None or last.state is RunState.LOST:
        return Finished()  # no agent program, or nobody knows what became of it
    if facts.task.has_sandbox and last.boot_id != facts.boot_id:
        return Finished()  # nothing in its sandbox is believed any more
    match Outcome(last.outcome):
        case Outcome.NO_ANSWER if sum(run.outcome == Outcome.NO_ANSWER for run in facts.agents) > MOST_NO_ANSWERS:
            return Finished()  # a limit would have passed by now
        case Outcome.RATE_LIMITED | Outcome.QUOTA | Outcome.AUTH | Outcome.NO_ANSWER | Outcome.SETUP as limit:
            return _after_limit(facts, last, limit)
        case Outcome.SERVER_ERROR:
            return _after_failure(facts, last)
        case Outcome.CONTEXT_LIMIT:
            fresh = sum(run.outcome == Outcome.CONTEXT_LIMIT for run in facts.agents)
            return Finished() if fresh > MAX_FRESH_SESSIONS else _go_on(facts, last, resume=False)
        case Outcome.KILLED if last.ended_by == "killed":
            # A person's kill is the end; for a message, a limit or an empty budgets it is not.
            is_end = last.kill_cause in (None, PERSON)
            return Finished() if is_end else _go_on(facts, last, resume=True)
        case Outcome.DONE | Outcome.EMPTY | Outcome.REFUSED if _list_untold(facts, last):
            return _go_on(facts, last, resume=True)  # it was told something, and ended before it could hear that
        case _:
            return Finished()


def _after_limit(facts: Facts, last: RunRow, limit: Outcome) -> SessionStep:
    """Hold the runner up for everybody, once for each limit it ran into; then whoever is free goes on."""
    hold = _get(facts, "runner", str(last.runner), limit.value)
    dealt_with = max(hold.placed_seq if hold else 0, facts.attempt.parked_seq)
    if dealt_with < last.reported_seq and not (hold and hold.is_active(facts.now)):
        return decide_hold(str(last.runner), limit, hold)
    return _go_on(facts, last, resume=limit is not Outcome.SETUP)  # who did not start has no conversation


def decide_hold(runner: str, limit: Outcome, before: HoldRow | None) -> Hold:
    """Decide how long a runner waits that ran into a limit: longer each time, or for a person to put it in order."""
    strikes = before.strikes + 1 if before else 1
    return Hold("runner", runner, limit.value, None if limit in FOR_A_PERSON else _back_off(limit, strikes), strikes)


def _after_failure(facts: Facts, last: RunRow) -> SessionStep:
    """Have this task wait: others may fare better."""
    failed = sum(run.outcome == Outcome.SERVER_ERROR for run in facts.agents)
    if failed > MOST_SERVER_ERRORS:
        return Finished()
    hold = _get(facts, "task", facts.task.key, Outcome.SERVER_ERROR.value)
    if (hold.placed_seq if hold else 0) < last.reported_seq:
        return Hold("task", facts.task.key, Outcome.SERVER_ERROR.value, _back_off(Outcome.SERVER_ERROR, failed), failed)
    return _go_on(facts, last, resume=True)


def _back_off(limit: Outcome, strikes: int) -> float:
    return min(FIRST_BACKOFF_S[limit] * 2.0 ** (strikes - 1), LONGEST_BACKOFF_S)


def _go_on(facts: Facts, last: RunRow, *, resume: bool) -> SessionStep:
    if (hold := find_hold(facts.task, facts.holds, facts.now)) is not None:
        return Park(f"{hold.cause}: {hold.why}")
    runner = choose_runner(facts.task, facts.holds, facts.now, facts.runners, prefer=str(last.runner))
    if runner is None:
        held = next((h for h in facts.holds if h.name == last.runner and h.is_active(facts.now)), None)
        return Park(f"{held.cause}: {held.why}" if held else "nobody is free to take it")
    same = resume and runner == last.runner and bool(last.session) and facts.runners.get(runner, False)
    return StartSession(runner, str(last.session) if same else "", resume=same)


def _get(facts: Facts, scope: str, name: str, cause: str) -> HoldRow | None:
    return next((hold for hold in facts.holds if (hold.scope, hold.name, hold.cause) == (scope, name, cause)), None)


def _list_untold(facts: Facts, last: RunRow) -> list[MessageRow]:
    return [message for message in facts.told if message.seq > last.intended_seq]
