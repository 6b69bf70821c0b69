"""The pure decisions, followed to their end: an attempt, a gate and a landing whose runs have any fate there is.

What single facts lead to is in the tests of each decision; here each answer is acted upon and the next one asked for.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivekeeper.domain import attempt as a
from hivekeeper.domain import gate as g
from hivekeeper.domain import merge as m
from hivekeeper.domain import report
from hivekeeper.domain import train as t
from hivekeeper.domain.convoy import Outcome, decide_outcome, decide_swarm
from hivekeeper.domain.names import attempt_run_id, gate_run_id
from hivekeeper.domain.rows import MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.schema import get_table
from hivekeeper.domain.states import MergeState, RepoState, RunState, TaskState
from tests.property.budget import PATIENCE, tries

pytestmark = PATIENCE

AT = "2026-11-15T21:25:35.123456Z"
TASK = "c/a-1"
BOOTS = ("this boot", "the next boot")
ENDED_BY = ("exit", "wall", "silence", "output", "memory", "killed", "could-not-start", "something new")
SIGNALS = (1, 2, 9, 11, 15, 34, 64)
STATUSES = st.one_of(st.just(0), st.integers(0, 255), st.sampled_from(SIGNALS).map(lambda number: -number))


def make_run(kind: str, suffix: str, boot: str = BOOTS[0]) -> RunRow:
    """Intend a run."""
    return RunRow(
        id=attempt_run_id(TASK, 1, suffix), kind=kind, task=TASK, attempt=1, repo=None, argv="[]", directory="/",
        environment="{}", limits="{}", boot_id=boot, state=RunState.INTENDED, pid=None, start_ticks=None,
        exit_status=None, ended_by=None, output_bytes=None, reason="", intended_at=AT, started_at=None, ended_at=None,
        kill_requested_at=None,
    )  # fmt: skip


@st.composite
def fates(draw: st.DrawFn, run: RunRow) -> RunRow:
    """What a run may be when somebody looks at it the next time."""
    state = draw(st.sampled_from(RunState))
    reason = draw(st.sampled_from(["", "because"]))
    values = {name: getattr(run, name) for name in get_table(RunRow).columns} | {"state": state, "reason": reason}
    if state is RunState.EXITED:
        ended_by = draw(st.sampled_from(("exit", "exit", *ENDED_BY)))
        values |= {"exit_status": draw(STATUSES), "ended_by": ended_by}
    if state in (RunState.EXITED, RunState.LOST):
        values |= {"ended_at": AT}
    return RunRow(**values)


def make_task(*, repo: str | None, output: str | None, idempotent: bool) -> TaskRow:
    """Have a task in progress."""
    return TaskRow(
        key=TASK, convoy="c", id="a-1", title="", command="true", repo=repo, verify=None, priority=0, attempts=1,
        attempts_planned=1, attempts_allowed=1, output=output, idempotent=int(idempotent), limits="{}",
        state=TaskState.IN_PROGRESS, position=1, reason="", added_at=AT, dispatched_at=AT, completed_at=None,
        commit_id=None, output_path=None,
    )  # fmt: skip


def make_repo(details: Mapping[str, object]) -> RepoRow:
    """Have a repository that is ready."""
    ready: dict[str, Any] = dict.fromkeys(get_table(RepoRow).columns) | {"name": "r", "state": RepoState.READY}
    return RepoRow(**ready | {"details": json.dumps(details)})


SAID = st.just("said")
MOST_RUNS = 4 * a.MAX_INFRASTRUCTURE_TRIES * 2  # every kind three times, some of them once more for every clone

tasks = st.builds(
    make_task, repo=st.sampled_from([None, "r"]), output=st.sampled_from([None, "out.md"]), idempotent=st.booleans()
)


@given(task=tasks, data=st.data())
@tries(400)
def test_every_attempt_comes_to_a_verdict_and_its_agent_runs_once(task: TaskRow, data: st.DataObject) -> None:
    details = data.draw(st.fixed_dictionaries({}, optional={"setup": SAID, "keep": st.just(["k"]), "backup": SAID}))
    kinds = a.list_kinds(task, make_repo(details) if task.repo else None, data.draw(st.none() | st.just("c0ffee")))
    runs: list[RunRow] = []
    boots = iter(BOOTS)
    boot = next(boots)
    for _ in range(2 * MOST_RUNS):
        if data.draw(st.integers(0, 9)) == 0:
            boot = next(boots, boot)
        step = a.decide_step(task, runs, kinds, boot_id=boot)
        assert step == a.decide_step(task, tuple(runs), kinds, boot_id=boot), "the same facts, another answer"
        still_open = [run for run in runs if run.is_open]
        assert isinstance(step, a.WaitForRun) == bool(still_open), "it waits for what runs, and for nothing else"
        if isinstance(step, a.Intend):
            suffix = step.kind if step.number == 1 else f"{step.kind}-{step.number}"
            assert step.number == 1 + sum(run.kind == step.kind for run in runs)
            assert attempt_run_id(TASK, 1, suffix) not in {run.id for run in runs}, "one id, one run"
            runs.append(make_run(step.kind, suffix, boot))
        elif not isinstance(step, a.WaitForRun):
            see_that_it_is_fair(task, kinds, runs, step)
            return
        if runs[-1].is_open:
            runs[-1] = data.draw(fates(runs[-1]))
        if runs[-1].is_open:  # it does not go on for ever
            values = {name: getattr(runs[-1], name) for name in get_table(RunRow).columns}
            runs[-1] = RunRow(**values | {"state": RunState.LOST, "ended_at": AT, "reason": "gone"})
    pytest.fail(f"no verdict after {len(runs)} runs")


def see_that_it_is_fair(task: TaskRow, order: Sequence[str], runs: list[RunRow], verdict: a.Step) -> None:
    """Hold a verdict against what happened."""
    kinds = [run.kind for run in runs]
    agents = [run for run in runs if run.kind == "agent"]
    assert len(agents) <= 1, "an attempt's agent runs once"
    assert len(runs) <= MOST_RUNS
    last_clone = max((place for place, kind in enumerate(kinds) if kind == "sandbox"), default=0)
    made = kinds[last_clone:]
    assert sorted(made, key=order.index) == made, "out of order"
    assert set(kinds) <= set(order)
    if task.has_sandbox and agents:
        ready = {run.kind for run in runs[last_clone:] if run.succeeded}
        assert ready >= set(order[: order.index("agent")]), "no agent before its clone is ready"
        assert "snapshot" in made, "S6: what an agent made is kept before it is judged"
    if isinstance(verdict, a.Judge):
        assert agents[0].succeeded
        is_kept = any(run.kind == "snapshot" and run.succeeded for run in runs)
        assert is_kept or not task.has_sandbox, "judged before kept"
    else:
        assert isinstance(verdict, a.Fail | a.LeaveUnknown)
        assert verdict.why
    may_have_run = bool(agents) and (agents[0].state is RunState.LOST or died_of_a_signal(agents[0]))
    if may_have_run and not task.repo and not task.idempotent:
        assert isinstance(verdict, a.LeaveUnknown), "S9: maybe ran is UNKNOWN"
    if task.repo or task.idempotent:
        assert not isinstance(verdict, a.LeaveUnknown), "what harms nobody is tried again"


def died_of_a_signal(agent: RunRow) -> bool:
    """Tell whether a command was killed, by its own status, by that of a shell around it, or because somebody asked."""
    by_signal = agent.ended_by == "exit" and ((agent.exit_status or 0) < 0 or agent.exit_status in (137, 139, 143))
    return by_signal or agent.ended_by == "killed"


@pytest.mark.parametrize("ended_by", ["wall", "silence", "output", "memory", "processes", "disk"])
def test_a_command_that_its_own_limit_ended_is_tried_again(ended_by: str) -> None:
    task = make_task(repo=None, output=None, idempotent=False)
    run = replace(make_run("agent", "agent"), state=RunState.EXITED, exit_status=-9, ended_by=ended_by, ended_at=AT)
    assert isinstance(a.decide_step(task, [run], ("agent",), boot_id=BOOTS[0]), a.Fail)


@pytest.mark.parametrize("status", [1, 2, 127, 128, 129, 141, 255])
def test_a_command_that_ended_by_itself_is_tried_again(status: int) -> None:
    task = make_task(repo=None, output=None, idempotent=False)
    run = replace(make_run("agent", "agent"), state=RunState.EXITED, exit_status=status, ended_by="exit", ended_at=AT)
    assert isinstance(a.decide_step(task, [run], ("agent",), boot_id=BOOTS[0]), a.Fail)


def test_every_signal_a_command_may_die_of_can_be_told() -> None:
    """A decision that raises is a pass that fails for ever, for every other task too."""
    for number in range(1, 65):
        run = make_run("agent", "agent")
        values = {name: getattr(run, name) for name in get_table(RunRow).columns}
        ended = {"state": RunState.EXITED, "exit_status": -number, "ended_by": "exit", "ended_at": AT}
        assert a.describe_ending(RunRow(**values | ended))


def make_entry(state: MergeState, number: int) -> MergeRow:
    """Have an entry of the merge queue."""
    return MergeRow(
        task=TASK, attempt=1, repo="r", commit_id="1" * 40, priority=0, position=1, state=state, round=number,
        base="2" * 40, candidate="3" * 40, tree="4" * 40, reason="", queued_at=AT,
        ended_at=None,
    )  # fmt: skip


def make_gate_run(kind: str, number: int, boot: str) -> RunRow:
    """Intend a run that verifies a tree; each try in another check-out."""
    run = make_run(kind, "")
    values = {name: getattr(run, name) for name in get_table(RunRow).columns}
    run_id = gate_run_id("r", "4" * 40, "5" * 64, f"{number}.{1 + number % 2}.{kind}")
    return RunRow(**values | {"id": run_id, "task": None, "attempt": None, "repo": "r", "boot_id": boot})


SETUPS = st.fixed_dictionaries({}, optional={"setup": SAID, "keep": st.just(["k"])})


@given(details=SETUPS, data=st.data())
@tries(300)
def test_every_tree_comes_to_a_verdict_and_it_is_what_its_runs_said(
    details: dict[str, object], data: st.DataObject
) -> None:
    kinds, boot = g.Gate(make_repo(details)).kinds, BOOTS[0]
    runs: list[RunRow] = []
    for _ in range(8 * len(kinds)):
        boot = BOOTS[1] if data.draw(st.integers(0, 19)) == 0 else boot
        found = g.judge(runs, kinds, boot_id=boot)
        assert found == g.judge(tuple(runs), kinds, boot_id=boot), "the same facts, another answer"
        see_that_it_was_said(found, runs, boot)
        if found.verdict is t.Verdict.UNTRIED:
            runs.append(make_gate_run(kinds[0], found.tries + 1, boot))
        elif found.verdict is not t.Verdict.RUNNING:
            return
        else:
            assert found.under_way is not None
            kind = g.next_kind(found.under_way, kinds)
            assert (kind is None) == found.under_way.last.is_open, "it waits for what runs, and for nothing else"
            if kind is not None:
                assert kinds.index(kind) == len(found.under_way.runs), "every kind once, in their order"
                runs.append(make_gate_run(kind, found.under_way.number, boot))
        assert len({run.id for run in runs}) == len(runs), "one id, one run"
        runs = [data.draw(gate_fates(run)) if run.is_open else run for run in runs]
    assert any(run.kill_requested_at or run.is_open for run in runs), "no verdict, and nobody asked for its end"


@st.composite
def gate_fates(draw: st.DrawFn, run: RunRow) -> RunRow:
    """As of any run; now and then its end was asked for."""
    fate = draw(fates(run))
    values = {name: getattr(fate, name) for name in get_table(RunRow).columns}
    return RunRow(**values | {"kill_requested_at": AT}) if draw(st.integers(0, 9)) == 0 else fate


def see_that_it_was_said(found: g.Found, runs: Sequence[RunRow], boot: str) -> None:
    """Hold a verdict against the runs it was drawn from."""
    tries_, run = g.list_tries(runs), found.run
    if found.verdict is t.Verdict.PASSED:
        assert run is not None
        assert run.kind == "gate"
        assert run.succeeded, "G3: only a gate's own exit code 0 passes"
        before = next(each for each in tries_ if run in each.runs).runs
        assert all(other.succeeded for other in before), "a gate in a check-out that was never made ready"
    elif found.verdict is t.Verdict.FAILED:
        assert run is not None
        assert run.state is RunState.EXITED, "what was lost said nothing"
        assert run.kind in ("setup", "gate"), "a check-out of ours that fails is nobody's fault"
        assert run.ended_by not in ("killed", "could-not-start")
        assert run.kill_requested_at is None, "who was told to end has not failed"
    elif found.verdict is t.Verdict.BROKEN:
        assert len(tries_) >= a.MAX_INFRASTRUCTURE_TRIES
        assert not any(each.last.kind == "gate" and each.last.succeeded for each in tries_ if not was_stopped(each))
    elif found.verdict is t.Verdict.RUNNING:
        assert found.under_way is not None
        last = found.under_way.last
        assert last.is_open or last.boot_id == boot, "a check-out that nobody synced"


def was_stopped(each: g.Try) -> bool:
    """Tell whether somebody asked for a try's end."""
    return each.last.kill_requested_at is not None


@given(data=st.data())
@tries(200)
def test_a_failure_that_was_counted_is_not_counted_again(data: st.DataObject) -> None:
    kinds, runs = g.Gate(make_repo({})).kinds, list[RunRow]()
    for number in range(1, data.draw(st.integers(1, 4)) + 1):
        for kind in kinds:
            runs.append(make_ended(make_gate_run(kind, number, BOOTS[0]), 0))
        runs[-1] = make_ended(runs[-1], data.draw(st.sampled_from([0, 1, 1])))
    found = g.judge(runs, kinds, boot_id=BOOTS[0])
    statuses = [run.exit_status for run in runs if run.kind == "gate"]
    assert (found.verdict is t.Verdict.PASSED) == (0 in statuses), "what passed once may land"
    assert found.failures == statuses.count(1)
    without = g.judge(runs, kinds, boot_id=BOOTS[0], without=runs[len(kinds) - 1].id)
    if statuses == [1]:
        assert without.verdict is t.Verdict.UNTRIED, "a suspect is tried once more"
    elif 0 not in statuses:
        assert without.verdict is t.Verdict.FAILED
        assert without.run is not None
        assert without.run.id != runs[len(kinds) - 1].id, "refused by its second failure, never by the first alone"


def make_ended(run: RunRow, status: int) -> RunRow:
    """Have a run end with an exit code."""
    values = {name: getattr(run, name) for name in get_table(RunRow).columns}
    return RunRow(**values | {"state": RunState.EXITED, "exit_status": status, "ended_by": "exit", "ended_at": AT})


@given(number=st.integers(1, 9), data=st.data())
@tries(150)
def test_a_landing_is_looked_at_once_its_own_run_has_ended_well_and_never_refused(
    number: int, data: st.DataObject
) -> None:
    entry = make_entry(MergeState.LANDING, number)
    runs = [make_ended(make_run("land", f"land-{number - 1}"), 0)] if number > 1 else []
    assert m.decide_landing(entry, runs) == m.IntendRun("land", number), "another round's landing is not its own"
    land = data.draw(fates(make_run("land", f"land-{number}")))
    step = m.decide_landing(entry, [*runs, land])
    assert isinstance(step, m.Wait) == land.is_open, "it waits for what runs, and for nothing else"
    assert isinstance(step, m.LookAtBranch) == land.succeeded, "before that nobody knows what is safe on disk"
    assert isinstance(step, m.Requeue) == (not land.is_open and not land.succeeded)


@given(most=st.integers(0, 3), data=st.data())
@tries(200)
def test_a_conflict_is_settled_by_what_was_kept_or_given_up_in_bounded_runs(most: int, data: st.DataObject) -> None:
    runs, boot, spent = list[RunRow](), BOOTS[0], 0
    for _ in range(60):
        boot = BOOTS[1] if data.draw(st.integers(0, 19)) == 0 else boot
        step = m.decide_settling(runs, most=most, spent=spent, boot_id=boot)
        assert isinstance(step, m.Wait) == any(run.is_open for run in runs)
        match step:
            case m.IntendRun(kind, number):
                see_that_settling_goes_on(runs, kind, number, boot)
                runs.append(make_run(kind, f"{kind}-{number}", boot))
            case m.LookAtSettled(number):
                assert number > spent, "what was used already is used again"
                made = {run.kind for run in runs if run.id.endswith(f"-{number}") and run.succeeded}
                assert made == set(m.SETTLING), "what nobody kept"
                if data.draw(st.booleans()):
                    return
                spent = number  # it conflicts with what has landed since
            case m.GiveUp():
                tried = sum(run.kind == "conflict" for run in runs)
                assert tried >= most, "it has its tries"
                assert tried < most + a.MAX_INFRASTRUCTURE_TRIES, "what is our own trouble counts apart"
                return
            case m.Wait():
                pass
        runs = [data.draw(fates(run)) if run.is_open else run for run in runs]
    assert runs[-1].is_open, "neither settled nor given up"


def see_that_settling_goes_on(runs: Sequence[RunRow], kind: str, number: int, boot: str) -> None:
    """Hold the next run that settles a conflict against those before it."""
    assert not any(run.id.endswith(f".{kind}-{number}") for run in runs), "one id, one run"
    if kind != "conflict":
        before = runs[-1]
        assert before.succeeded
        assert before.id.endswith(f".{m.SETTLING[m.SETTLING.index(kind) - 1]}-{number}"), "out of order"
        assert before.boot_id == boot, "files that nobody synced"


@given(counts=st.dictionaries(st.sampled_from(TaskState), st.integers(1, 3)), data=st.data())
@tries(300)
def test_a_convoy_ends_when_nothing_can_go_on_and_never_before(
    counts: dict[TaskState, int], data: st.DataObject
) -> None:
    ready = data.draw(st.integers(0, counts.get(TaskState.PENDING, 0)))
    outcome = decide_outcome(counts, ready)
    under_way = any(state in counts for state in (TaskState.IN_PROGRESS, TaskState.CANCELLING))
    assert (outcome is Outcome.GOING_ON) == (under_way or ready > 0)
    assert (outcome is Outcome.COMPLETE) == (set(counts) <= {TaskState.COMPLETE, TaskState.CANCELLED})


@given(last=st.lists(st.integers(0, 3), min_size=1, max_size=40))
@tries(200)
def test_no_task_is_twice_in_one_batch_and_batches_have_the_next_number(last: list[int]) -> None:
    current, of_task = 0, dict[int, int]()
    for task in last:
        number = decide_swarm(current, of_task.get(task))
        assert number in (current, current + 1)
        assert number >= 1
        assert number != of_task.get(task), "a task tried again goes into another batch"
        current, of_task[task] = number, number


def play_rounds(*rounds: str) -> list[RunRow]:
    """Have rounds of settling a conflict that ended so."""
    runs: list[RunRow] = []
    for number, how in enumerate(rounds, start=1):
        runs.append(make_ended(make_run("conflict", f"conflict-{number}", BOOTS[0]), 0))
        if how == "reboot":  # before the resolver was asked
            continue
        resolve = make_ended(make_run("resolve", f"resolve-{number}", BOOTS[0]), 1)
        outcome = report.Outcome.RATE_LIMITED.value if how == "limit" else None
        lost = {"state": RunState.LOST, "exit_status": None, "ended_by": None} if how == "lost" else {}
        runs.append(replace(resolve, outcome=outcome, **lost))  # type: ignore[arg-type]  # columns of a run
    return runs


@pytest.mark.parametrize(
    "rounds", [("refused", "reboot"), ("lost", "lost", "limit"), ("refused", "limit"), ("lost", "refused")]
)
def test_neither_a_reboot_nor_a_limit_uses_up_a_try_at_settling_a_conflict(rounds: tuple[str, ...]) -> None:
    runs, boot = play_rounds(*rounds), BOOTS[1] if rounds[-1] == "reboot" else BOOTS[0]
    assert m.decide_settling(runs, most=2, spent=0, boot_id=boot) == m.IntendRun("conflict", len(rounds) + 1)


def test_two_refusals_or_three_troubles_of_our_own_end_the_settling_of_a_conflict() -> None:
    for rounds in (("refused", "limit", "refused"), ("lost", "lost", "lost")):
        assert isinstance(m.decide_settling(play_rounds(*rounds), most=2, spent=0, boot_id=BOOTS[0]), m.GiveUp)


def test_check_outs_that_break_after_one_refusal_of_a_branch_are_not_repeated_for_ever() -> None:
    """A refusal that may be a flake is set aside; what follows it still counts."""
    gate = g.Gate(make_repo({}))
    refused = [make_ended(make_gate_run(kind, 1, BOOTS[0]), int(kind == "gate")) for kind in gate.kinds]
    broken = [make_ended(make_gate_run("checkout", number, BOOTS[0]), 1) for number in (2, 3, 4)]
    found = g.judge([*refused, *broken], gate.kinds, boot_id=BOOTS[0], without=refused[-1].id)
    assert found.verdict is t.Verdict.BROKEN
