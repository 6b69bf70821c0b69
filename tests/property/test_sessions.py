"""Sessions of an attempt, followed to their end: whatever each comes to, nothing is asked of who is held up."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.domain import session as s
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.report import Outcome
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.run import BUDGET, LIMIT, MESSAGE, PERSON
from hivekeeper.domain.states import AttemptState, RunState, TaskState
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
    attempt = AttemptRow("c/a-1", 1, "c", 1, 1, "PRESENT", AttemptState.WORKING, AT)
    now, runs, holds = to_seconds(AT), list[RunRow](), dict[tuple[str, str, str], HoldRow]()
    runner, number = RUNNERS[0], 0
    for _ in range(MOST_STEPS):
        if not runs or runs[-1].is_open:
            fate = fates[number % len(fates)] if number < 2 * len(fates) else Outcome.DONE
            number += 1
            now += 1
            began = make_run("agent", f"agent-{number}")
            runs.append(end(began, fate, runner, number, now))
        now += 1
        facts = s.Facts(
            task, attempt, runs, list(holds.values()), (), dict.fromkeys(RUNNERS, True), to_text(now), BOOTS[0]
        )
        match s.decide_session(facts):
            case s.Finished():
                return
            case s.Hold() as hold:
                until = None if hold.in_s is None else to_text(now + hold.in_s)
                placed = (hold.cause, until, hold.strikes, "", to_text(now), 0)
                holds[hold.scope, hold.name, hold.cause] = HoldRow(hold.scope, hold.name, *placed)
            case s.Park():
                attempt = replace(attempt, parked_at=to_text(now))
                assert any(hold.is_active(to_text(now)) for hold in holds.values()), "parked for nothing"
                waits = [hold for hold in holds.values() if hold.is_active(to_text(now))]
                now = max([now, *(to_seconds(hold.until) for hold in waits if hold.until)]) + 1
                holds |= {key: replace(hold, lifted=1) for key, hold in holds.items() if hold.until is None}
            case s.StartSession(chosen, session, resume):
                held = {hold.name for hold in holds.values() if hold.scope == "runner" and hold.is_active(to_text(now))}
                assert chosen not in held
                assert resume == bool(session)
                assert not resume or chosen == runner
                runner, runs = chosen, [*runs[:-1], replace(runs[-1])]
                number += 1
                fate = fates[number % len(fates)] if number < len(fates) else Outcome.DONE
                began = make_run("agent", f"agent-{number}")
                now += 1
                runs.append(end(began, fate, runner, number, now))
            case s.Unread():
                raise AssertionError("all of it was read")
    raise AssertionError("it goes on for ever")


def test_a_persons_kill_is_the_end_and_one_for_a_message_or_a_budget_is_not() -> None:
    task = make_task(*RUNNERS)
    attempt = AttemptRow("c/a-1", 1, "c", 1, 1, "PRESENT", AttemptState.WORKING, AT)
    for cause in CAUSES:
        run = replace(end(make_run("agent", "agent"), Outcome.KILLED, "claude", 0, to_seconds(AT)), kill_cause=cause)
        step = s.decide_session(s.Facts(task, attempt, [run], (), (), dict.fromkeys(RUNNERS, True), AT, BOOTS[0]))
        assert step == (s.Finished() if cause == PERSON else s.StartSession("claude", "s", resume=True)), cause
