"""The pure decisions, followed to their end: an attempt and a merge whose runs have any fate there is.

What single facts lead to is in the tests of each decision; here each answer is acted upon and the next one asked for.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivekeeper.domain import attempt as a
from hivekeeper.domain import merge as m
from hivekeeper.domain.convoy import Outcome, decide_outcome, decide_swarm
from hivekeeper.domain.names import attempt_run_id
from hivekeeper.domain.rows import MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.states import MergeState, RepoState, RunState, TaskState, may_move
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
    values = {name: getattr(run, name) for name in RunRow.__slots__} | {"state": state, "reason": reason}
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
    ready: dict[str, Any] = dict.fromkeys(RepoRow.__slots__) | {"name": "r", "state": RepoState.READY}
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
            values = {name: getattr(runs[-1], name) for name in RunRow.__slots__}
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
    if task.has_room and agents:
        ready = {run.kind for run in runs[last_clone:] if run.succeeded}
        assert ready >= set(order[: order.index("agent")]), "no agent before its clone is ready"
        assert "snapshot" in made, "S6: what an agent made is kept before it is judged"
    if isinstance(verdict, a.Judge):
        assert agents[0].succeeded
        assert not task.has_room or any(run.kind == "snapshot" and run.succeeded for run in runs), "judged before kept"
    else:
        assert isinstance(verdict, a.Fail | a.LeaveUnknown)
        assert verdict.why
    may_have_run = bool(agents) and agents[0].state is RunState.LOST
    if may_have_run and not task.repo and not task.idempotent:
        assert isinstance(verdict, a.LeaveUnknown), "S9: maybe ran is UNKNOWN"
    if task.repo or task.idempotent:
        assert not isinstance(verdict, a.LeaveUnknown), "what harms nobody is tried again"


def test_every_signal_a_command_may_die_of_can_be_told() -> None:
    """A decision that raises is a pass that fails for ever, for every other task too."""
    for number in range(1, 65):
        run = make_run("agent", "agent")
        values = {name: getattr(run, name) for name in RunRow.__slots__}
        ended = {"state": RunState.EXITED, "exit_status": -number, "ended_by": "exit", "ended_at": AT}
        assert a.describe_ending(RunRow(**values | ended))


def make_entry(state: MergeState, number: int) -> MergeRow:
    """Have an entry of the merge queue."""
    return MergeRow(
        task=TASK, attempt=1, repo="r", commit_id="1" * 40, priority=0, position=1, state=state, round=number,
        base="2" * 40, candidate="3" * 40, tree="4" * 40, reason="", queued_at=AT,
        ended_at=None,
    )  # fmt: skip


@given(has_gate=st.booleans(), data=st.data())
@tries(150)
def test_only_a_candidate_whose_own_gate_passed_lands(*, has_gate: bool, data: st.DataObject) -> None:
    entry = make_entry(MergeState.QUEUED, 0)
    runs = [data.draw(fates(make_run("agent", "agent")))]
    boot = BOOTS[0]
    for _ in range(60):
        boot = BOOTS[1] if data.draw(st.integers(0, 19)) == 0 else boot
        step = m.decide_merge(entry, runs, has_gate=has_gate, boot_id=boot)
        of_round = {run.kind: run for run in runs if run.id.endswith(f".{run.kind}-{entry.round}")}
        still_open = any(run.is_open for run in of_round.values())
        if entry.state is not MergeState.QUEUED:
            assert isinstance(step, m.Wait) == still_open, "it waits for what runs, and for nothing else"
        match step:
            case m.Build():
                assert entry.state is MergeState.QUEUED
                entry = make_entry(MergeState.VERIFYING, entry.round + 1)
            case m.IntendRun(kind):
                assert kind not in of_round, "one id, one run"
                if kind == "gate":
                    assert of_round["checkout"].succeeded, "a gate without its tree"
                    assert of_round["checkout"].boot_id == boot, "a tree that nobody synced"
                runs.append(make_run(kind, m.run_kind(kind, entry), boot))
            case m.Land():
                assert not has_gate or (of_round["checkout"].succeeded and of_round["gate"].succeeded), "G3"
                entry = make_entry(MergeState.LANDING, entry.round)
            case m.LookAtBranch():
                assert not of_round["land"].is_open
                if data.draw(st.booleans()):
                    return
                entry = make_entry(MergeState.QUEUED, entry.round)
            case m.Requeue():
                restarted = any(run.boot_id != boot for run in of_round.values())
                assert entry.round < m.MAX_ROUNDS or restarted or entry.state is MergeState.LANDING
                entry = make_entry(MergeState.QUEUED, entry.round)
            case m.Reject(why, _, run):
                assert why
                assert may_move(entry.state, MergeState.REJECTED), "a landing may have happened, and is never refused"
                blamed = {other.id for other in of_round.values() if not other.succeeded}
                assert run in blamed or entry.round >= m.MAX_ROUNDS, "it has its rounds"
                return
            case m.Wait():
                pass
        runs = [data.draw(fates(run)) if run.is_open else run for run in runs]


def test_nothing_more_is_done_for_an_entry_that_is_over() -> None:
    for state in (MergeState.LANDED, MergeState.REJECTED, MergeState.WITHDRAWN):
        assert m.decide_merge(make_entry(state, 1), [], has_gate=True, boot_id=BOOTS[0]) == m.Wait()


@given(counts=st.dictionaries(st.sampled_from(TaskState), st.integers(1, 3)), data=st.data())
@tries(300)
def test_a_convoy_ends_when_nothing_can_go_on_and_never_before(
    counts: dict[TaskState, int], data: st.DataObject
) -> None:
    ready = data.draw(st.integers(0, counts.get(TaskState.PENDING, 0)))
    outcome = decide_outcome(counts, ready)
    under_way = any(state in counts for state in (TaskState.IN_PROGRESS, TaskState.CANCELLING))
    assert (outcome is Outcome.GOING_ON) == (under_way or ready > 0)
    assert (outcome is Outcome.COMPLETE) == (set(counts) <= {TaskState.COMPLETE})


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
