"""Sessions of an attempt, followed to their end: whatever each comes to, nothing is asked of who is held up."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.domain import session as s
from hivekeeper.domain.admission import Admitted, Held, may_start, need_of_task
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.report import Outcome
from hivekeeper.domain.rows import RunRow, TaskRow
from hivekeeper.domain.run import BUDGET, LIMIT, MESSAGE, PERSON
from hivekeeper.domain.states import RunState, TaskState
from tests.property.budget import PATIENCE, tries
from tests.property.test_decisions import AT, BOOTS, make_run

pytestmark = PATIENCE
RUNNERS = ("claude", "codex")
CAUSES = (MESSAGE, BUDGET, LIMIT, PERSON)
MOST_STEPS = 400


def make_task(*runners: str) -> TaskRow:
    named = ", ".join(f'"{name}"' for name in runners)
    return TaskRow(
        key="c/a-1", convoy="c", id="a-1", title="", command="", repo="app", verify=None, priority=0, attempts=1,
        attempts_planned=3, attempts_allowed=3, output=None, idempotent=0, limits="{}", state=TaskState.IN_PROGRESS,
        position=1, reason="", added_at=AT, dispatched_at=AT, completed_at=None, commit_id=None, output_path=None,
        details=f'{{"runner": [{named}]}}',
    )  # fmt: skip


def end(run: RunRow, fate: Outcome, runner: str, number: int, now: float) -> RunRow:
    """End a session, as somebody who read it would tell."""
    ended_by, cause = ("killed", CAUSES[number % 4]) if fate is Outcome.KILLED else ("exit", None)
    told = {"outcome": fate.value, "runner": runner, "session": "s", "reported_at": to_text(now)}
    times = {"intended_at": to_text(now - 1), "ended_at": to_text(now - 0.5)}
    return replace(run, state=RunState.EXITED, ended_by=ended_by, kill_cause=cause, **told, **times)  # type: ignore[arg-type]


@tries(300)
@given(fates=st.lists(st.sampled_from(list(Outcome)), min_size=40, max_size=60), two=st.booleans())
def test_sessions_come_to_an_end_and_nobody_is_asked_who_is_held_up(fates: list[Outcome], two: bool) -> None:  # noqa: FBT001 - drawn
    task = make_task(*(RUNNERS if two else RUNNERS[:1]))
    now, runs, holds = to_seconds(AT), list[RunRow](), dict[tuple[str, str, str], HoldRow]()
    runner, is_due = RUNNERS[0], True
    for _ in range(MOST_STEPS):
        now += 1
        if is_due:
            fate = fates[len(runs)] if len(runs) < len(fates) else Outcome.DONE
            runs.append(end(make_run("agent", len(runs) + 1), fate, runner, len(runs), now))
            hold_for(runs, holds, to_text(now))
        next_session = s.decide_next_session(task, runs, (), BOOTS[0])
        if next_session is None:
            return
        match may_start(need_of_task(task, RUNNERS), holds.values(), to_text(now), runner):
            case Held(hold):
                assert hold is not None, "parked for nothing"
                assert hold.is_active(to_text(now)), "parked for nothing"
                waits, is_due = [each for each in holds.values() if each.is_active(to_text(now))], False
                now = max([now, *(to_seconds(hold.until) for hold in waits if hold.until)]) + 1
                holds |= {key: replace(hold, lifted=1) for key, hold in holds.items() if hold.until is None}
            case Admitted(chosen):
                assert chosen is not None
                held = {hold.name for hold in holds.values() if hold.scope == "runner" and hold.is_active(to_text(now))}
                assert chosen not in held
                session = s.choose_session(next_session, runs[-1], chosen, can_resume=True)
                assert session.resume == bool(session.session)
                assert not session.resume or chosen == runner
                runner, is_due = chosen, True
    raise AssertionError("it goes on for ever")


def hold_for(runs: list[RunRow], holds: dict[tuple[str, str, str], HoldRow], now: str) -> None:
    """Place what the last session's end holds, as it is recorded with its report."""
    last, outcome = runs[-1], Outcome(str(runs[-1].outcome))
    scope, name = ("task", str(last.task)) if outcome is Outcome.SERVER_ERROR else ("runner", str(last.runner))
    earlier = sum(run.outcome == last.outcome for run in runs[:-1])
    hold = s.decide_hold(last, outcome, holds.get((scope, name, outcome.value)), earlier, now)
    if hold is not None:
        until = None if hold.in_s is None else to_text(to_seconds(now) + hold.in_s)
        row = HoldRow(hold.scope, hold.name, hold.cause, until, hold.strikes, "", now)
        assert (row.scope, row.name, row.cause) == (scope, name, outcome.value)
        holds[scope, name, outcome.value] = row


def test_a_persons_kill_is_the_end_and_one_for_a_message_or_a_budget_is_not() -> None:
    task = make_task(*RUNNERS)
    for cause in CAUSES:
        run = replace(end(make_run("agent"), Outcome.KILLED, "claude", 0, to_seconds(AT)), kill_cause=cause)
        next_session = s.decide_next_session(task, [run], (), BOOTS[0])
        assert next_session == (None if cause == PERSON else s.NextSession(resume=True)), cause
