"""Usage limits, budgets and long conversations, with a program that plays a script and a clock moved by hand."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from hivekeeper.commands.mail import send_as_person
from hivekeeper.commands.sessions import lift_hold, raise_budget
from hivekeeper.commands.tasks import cancel_task
from hivekeeper.domain.budget import MICRO, Cap
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.runner import PromptBy, Reach, Runner
from hivekeeper.domain.states import AttemptState, ConvoyState, RunState, TaskState
from hivekeeper.store import queries
from hivekeeper.views.runners import show_costs
from hivekeeper.views.status import show_status
from hivekeeper.views.tasks import show_why
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository

THREAD = '{"type":"thread.started","thread_id":"t-1"}'
HOUR = 3600.0


def said(*events: dict[str, object]) -> str:
    """Write the command that says something as codex would."""
    lines = "\n".join([THREAD, *map(json.dumps, events)])
    return f"cat <<'END'\n{lines}\nEND"


def failing(words: str) -> str:
    return said({"type": "turn.failed", "error": {"message": words}})


def done(tokens: int = 100) -> str:
    deed: dict[str, object] = {"type": "item.completed", "item": {"type": "command_execution"}}
    return said(deed, {"type": "turn.completed", "usage": {"input_tokens": tokens, "output_tokens": 10}})


def play(*sessions: str) -> str:
    """Make a program that does another thing each time it is started in a sandbox; it tells what it was asked."""
    cases = "\n".join(f"{number}) {{ {script}\n}} ;;" for number, script in enumerate(sessions, 1))
    count = 'n=$(( $(cat "$HOME/n" 2>/dev/null || echo 0) + 1 )); echo $n > "$HOME/n"; cat > "$HOME/asked.$n"'
    return f"{count}\ncase $n in\n{cases}\n*) {{ {sessions[-1]}\n}} ;;\nesac"


LIMITED = "429 Too Many Requests, try again in 2 hours"
WORK = f"echo $HIVE_TASK > $HIVE_TASK.txt; {done()}"


@pytest.fixture
def hire(stage: Scene) -> Callable[..., None]:
    def hiring(day: Cap | None = None, resolver: str | None = None, **programs: str) -> None:
        runners = {
            name: Runner(
                name,
                script,
                PromptBy.STDIN,
                resume=f"echo {{session}} >> $HOME/resumed\n{script}",
                output="codex",
                reach=Reach.INTERRUPT,
            )
            for name, script in programs.items()
        }
        cap = day or Cap()
        money = None if cap.microusd is None else cap.microusd / MICRO
        settings = replace(stage.hive.settings, runners=runners, resolver=resolver, tokens=cap.tokens, money=money)
        stage.hive = replace(stage.hive, settings=settings)

    return hiring


def prompt(name: str, runner: str | tuple[str, ...] = "agent", **more: object) -> TaskSpec:
    return TaskSpec(name, repo="app", prompt="Do it.", runner=runner, **more)  # type: ignore[arg-type]


def is_parked(stage: Scene, name: str) -> Callable[[], bool]:
    return lambda: bool(stage.attempts(name)) and stage.attempts(name)[-1].state is AttemptState.PARKED


def holds(stage: Scene) -> list[HoldRow]:
    with stage.hive.ledger.read() as connection:
        return [hold for hold in queries.list_holds(connection) if hold.is_active(stage.clock.now())]


def agents(stage: Scene, name: str, attempt: int = 1) -> list[RunRow]:
    return [run for run in stage.runs(name, attempt) if run.kind == "agent"]


def rest(stage: Scene, passes: int = 5) -> None:
    for _ in range(passes):
        assert stage.keeper is not None
        stage.keeper.step()


def test_a_limit_parks_until_the_moment_it_tells_and_the_session_goes_on_in_its_sandbox(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(agent=play(f"echo half > $HIVE_TASK.txt; {failing(LIMITED)}", f"grep -q half $HIVE_TASK.txt && {WORK}"))
    stage.submit(prompt("A"), prompt("B"), TaskSpec("shell", "true"), repos=(repository.spec(),))
    stage.take(workers=1)
    stage.step_until(is_parked(stage, "A"))
    stage.step_until(lambda: stage.task("shell").state is TaskState.COMPLETE)
    assert stage.attempts("B") == [], "everybody else who needs that runner waits too"
    assert [(hold.scope, hold.name, hold.cause) for hold in holds(stage)] == [("runner", "agent", "rate-limited")]
    with stage.hive.ledger.read() as connection:
        why = show_why(connection, stage.task("B"), keeper_is_alive=True, now=stage.clock.now())
        parked = show_why(connection, stage.task("A"), keeper_is_alive=True, now=stage.clock.now())
    assert "waits: agent is rate-limited until" in why
    assert "is parked" in parked
    stage.clock.advance(2 * HOUR - 120)
    rest(stage)
    assert len(agents(stage, "A")) == 1, "not before"
    stage.clock.advance(240)
    stage.step_until(lambda: stage.task("A").state is TaskState.COMPLETE)
    sandbox = stage.hive.places.sandbox("work/A", 1)
    assert len(stage.attempts("A")) == 1
    assert [run.session for run in agents(stage, "A")] == ["t-1", "t-1"]
    assert not sandbox.exists() or (sandbox / "home" / "resumed").read_text() == "t-1\n"
    stage.step_until(is_parked(stage, "B"))
    stage.clock.advance(3 * HOUR)
    assert stage.finish() is ConvoyState.COMPLETE


def test_without_a_moment_the_wait_doubles_with_every_limit_in_a_row_and_ends_with_success(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(agent=play(*[failing("429 Too Many Requests")] * 3, WORK))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    waits = []
    for strike in range(3):
        stage.step_until(lambda strike=strike: is_parked(stage, "A")() and len(agents(stage, "A")) == strike + 1)  # type: ignore[misc]
        (hold,) = holds(stage)
        waits.append(hold.strikes)
        stage.clock.advance(60.0 * 2**strike + 1)
    stage.step_until(lambda: stage.task("A").state is TaskState.COMPLETE)
    assert waits == [1, 2, 3]
    with stage.hive.ledger.read() as connection:
        (hold,) = queries.list_holds(connection)
    assert (hold.lifted, hold.strikes) == (1, 0)


def test_the_next_runner_goes_on_in_the_same_sandbox_and_is_told_what_was_done(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    told = repository.path.parent / "told"
    hire(agent=f"echo half > A.txt; {failing(LIMITED)}", other=f"cat > {told}.$HIVE_TASK; grep -q half A.txt && {WORK}")
    stage.submit(prompt("A", ("agent", "other")), prompt("B", ("agent", "other")), repos=(repository.spec(),))
    stage.take(workers=1)
    stage.step_until(lambda: stage.task("A").state is TaskState.COMPLETE)
    assert [run.runner for run in agents(stage, "A")] == ["agent", "other"]
    words = told.with_name("told.A").read_text()
    assert "# Your task\n\nDo it.\n" in words
    assert "What was done so far" in words
    assert "- A.txt" in words
    stage.step_until(lambda: bool(agents(stage, "B")))
    assert agents(stage, "B")[0].runner == "other", "who is held up is not asked first"


def test_a_long_conversation_is_followed_by_fresh_ones_but_not_for_ever(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(agent=failing("maximum context length is 128000 tokens"))
    stage.submit(prompt("A", attempts=1), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.FAILED
    assert len(agents(stage, "A")) == 4
    assert all(run.outcome == "context-limit" for run in agents(stage, "A"))
    assert "its conversation grew too long" in stage.task("A").reason


def test_a_failing_service_is_tried_again_later_and_given_up_in_the_end(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(agent=failing("503 service unavailable"))
    stage.submit(prompt("A", attempts=1), TaskSpec("shell", "true"), repos=(repository.spec(),))
    for tried in range(1, 6):
        stage.step_until(lambda tried=tried: is_parked(stage, "A")() and len(agents(stage, "A")) == tried)  # type: ignore[misc]
        assert [(hold.scope, hold.cause) for hold in holds(stage)] == [("task", "server-error")]
        stage.clock.advance(HOUR)
    assert stage.finish() is ConvoyState.FAILED
    assert len(agents(stage, "A")) == 6
    assert "the model's service failed" in stage.task("A").reason


def test_who_is_not_signed_in_waits_for_a_person_and_says_so_first(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(agent=play(failing("401 Unauthorized"), WORK))
    stage.submit(prompt("A"), TaskSpec("bad", "false", attempts=1), repos=(repository.spec(),))
    stage.step_until(is_parked(stage, "A"))
    stage.step_until(lambda: stage.task("bad").state is TaskState.FAILED)
    stage.clock.advance(30 * 24 * HOUR)
    rest(stage)
    with stage.hive.ledger.read() as connection:
        needs = show_status(connection, KeeperState.ACTIVE, now=stage.clock.now())["needs_me"]
    assert needs[0]["what"].startswith("agent is not signed in")
    assert len(agents(stage, "A")) == 1
    with stage.hive.ledger.write(ME) as tx:
        assert lift_hold(tx, "runner", "agent")
        assert not lift_hold(tx, "runner", "agent"), "once"
    stage.step_until(lambda: stage.task("A").state is TaskState.COMPLETE)


def test_a_parked_task_that_is_cancelled_is_kept_and_over(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(agent=f"echo half > A.txt; {failing(LIMITED)}")
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(is_parked(stage, "A"))
    with stage.hive.ledger.write(ME) as tx:
        cancel_task(tx, stage.task("A"), why="off")
    stage.step_until(lambda: stage.task("A").state is TaskState.CANCELLED and stage.is_quiet())
    assert "snapshot" in [run.kind for run in stage.runs("A")]
    assert stage.attempts("A")[0].sandbox == "REMOVED"


def test_a_parked_task_is_found_by_the_next_keeper(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(agent=play(failing(LIMITED), WORK))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(is_parked(stage, "A"))
    assert stage.keeper is not None
    stage.keeper.close()
    stage.take()
    stage.clock.advance(3 * HOUR)
    stage.step_until(lambda: stage.task("A").state is TaskState.COMPLETE)
    assert [run.session for run in agents(stage, "A")] == ["t-1", "t-1"]


def test_over_its_own_its_convoys_or_the_days_budget_nothing_begins(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(Cap(tokens=250), agent=WORK)
    stage.submit(*(prompt(name) for name in "ABCD"), repos=(repository.spec(),))
    stage.take(workers=1)
    stage.step_until(lambda: bool(holds(stage)))
    (hold,) = holds(stage)
    assert (hold.scope, hold.cause) == ("day", "budget")
    assert "the day's budget of 250 tokens is spent" in hold.why
    begun = sum(bool(stage.attempts(name)) for name in "ABCD")
    assert begun == 3, "110 tokens each"
    rest(stage)
    assert sum(bool(stage.attempts(name)) for name in "ABCD") == begun
    stage.clock.advance(24 * HOUR)  # the next day has a budget of its own
    stage.finish()
    assert set(stage.states().values()) == {TaskState.COMPLETE}


def test_what_a_clock_ahead_dated_is_not_spent_on_the_day_that_it_is_set_back_to(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(Cap(tokens=50), agent=WORK)
    stage.submit(prompt("A"), prompt("B"), repos=(repository.spec(),))
    stage.take(workers=1)
    stage.step_until(lambda: bool(holds(stage)))
    stage.clock.advance(-3650 * 24 * HOUR)
    stage.finish()
    assert set(stage.states().values()) == {TaskState.COMPLETE}


def test_what_may_be_spent_is_raised_by_a_person_and_sums_agree_however_they_are_made(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(agent=WORK)
    stage.submit(prompt("A"), prompt("B", agent="bee"), repos=(repository.spec(),))
    with stage.hive.ledger.write(ME) as tx:
        raise_budget(tx, "convoy", "work", Cap(tokens=100))
    stage.take(workers=1)
    stage.step_until(lambda: stage.task("A").state is TaskState.COMPLETE and bool(holds(stage)))
    rest(stage)
    assert [(hold.scope, hold.name, hold.cause) for hold in holds(stage)] == [("convoy", "work", "budget")]
    assert stage.attempts("B") == []
    with stage.hive.ledger.write(ME) as tx:
        raise_budget(tx, "convoy", "work", Cap(tokens=1000))
    assert stage.finish() is ConvoyState.COMPLETE
    with stage.hive.ledger.read() as connection:
        costs = show_costs(connection)
    assert (costs["sessions"], costs["tokens_in"], costs["tokens_out"]) == (2, 200, 20)
    for way in ("task", "agent", "runner", "convoy"):
        for what in ("tokens_in", "tokens_out", "money"):
            assert sum(row[what] for row in costs[f"by_{way}"]) == costs[what], (way, what)
    assert {row["agent"] for row in costs["by_agent"]} == {"bee", "(no agent named)"}


def test_a_hive_with_nothing_to_do_starts_nothing_in_ten_minutes(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(agent=WORK)
    stage.submit(prompt("A"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    with stage.hive.ledger.read() as connection:
        before = connection.rows("SELECT count(*) FROM run")
    for _ in range(120):
        stage.clock.advance(5.0)
        rest(stage, 1)
    with stage.hive.ledger.read() as connection:
        assert connection.rows("SELECT count(*) FROM run") == before


def test_a_conflict_goes_to_the_resolver_only_within_the_budget(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    answer: dict[str, object] = {"type": "agent_message", "text": json.dumps({"settled": True, "why": "both"})}
    ended: dict[str, object] = {"type": "turn.completed", "usage": {"input_tokens": 5, "output_tokens": 5}}
    settle = said({"type": "item.completed", "item": answer}, ended)
    hire(
        Cap(tokens=200),
        "judge",
        agent=f"echo $HIVE_TASK > README; {done()}",
        judge=f"echo both > README; {settle}",
    )
    stage.submit(prompt("A"), prompt("B"), repos=(repository.spec(verify="test -s README"),))
    stage.take(workers=2)  # both begin before anything is spent
    stage.step_until(lambda: TaskState.COMPLETE in stage.states().values() and bool(holds(stage)))
    rest(stage)
    (hold,) = holds(stage)
    assert (hold.scope, hold.cause) == ("day", "budget")
    with stage.hive.ledger.read() as connection:
        assert not connection.rows("SELECT id FROM run WHERE kind = 'resolve'"), "nobody is asked who may not spend"
    stage.clock.advance(24 * HOUR)
    stage.finish()
    assert set(stage.states().values()) == {TaskState.COMPLETE}
    assert repository.git("show", "hive/main:README") == "both"


def test_what_a_session_was_told_and_had_no_time_to_hear_the_fresh_one_after_it_is_told(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    go, told = repository.path.parent / "go", repository.path.parent / "told"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    hire(
        agent=play(f"{wait}; {failing('maximum context length is 128000 tokens')}", f"cp $HOME/asked.2 {told}; {WORK}")
    )
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(lambda: bool(agents(stage, "A")) and agents(stage, "A")[0].state is RunState.RUNNING)
    with stage.hive.ledger.write(ME) as tx:
        send_as_person(tx, stage.hive.settings.protocol, "inform", "work/A", {"text": "Mind the gap."})
    go.touch()
    assert stage.finish() is ConvoyState.COMPLETE
    assert [run.outcome for run in agents(stage, "A")] == ["context-limit", "done"]
    assert "# Your task\n\nDo it.\n" in told.read_text()
    assert "Mind the gap." in told.read_text()


def test_a_program_that_tells_totals_of_its_whole_conversation_is_counted_once(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    first = said(
        {"type": "turn.completed", "usage": {"input_tokens": 100, "output_tokens": 10}},
        {"type": "turn.failed", "error": {"message": LIMITED}},
    )
    hire(agent=play(first, f"echo $HIVE_TASK > $HIVE_TASK.txt; {done(250)}"))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(is_parked(stage, "A"))
    stage.clock.advance(3 * HOUR)
    assert stage.finish() is ConvoyState.COMPLETE
    assert [run.session for run in agents(stage, "A")] == ["t-1", "t-1"]
    with stage.hive.ledger.read() as connection:
        costs = show_costs(connection)
    assert (costs["sessions"], costs["tokens_in"], costs["tokens_out"]) == (2, 250, 10)


def test_a_runner_that_hive_toml_has_no_more_is_passed_over(
    stage: Scene, repository: Repository, hire: Callable[..., None]
) -> None:
    hire(agent=WORK)
    stage.submit(prompt("A", ("gone", "agent")), prompt("B", "gone", attempts=1), repos=(repository.spec(),))
    stage.finish()
    assert stage.states() == {"A": TaskState.COMPLETE, "B": TaskState.FAILED}
    assert "there is no runner 'gone'" in stage.task("B").reason
