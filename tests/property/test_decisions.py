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
from hivekeeper.domain import report
from hivekeeper.domain import steps as s
from hivekeeper.domain import train as t
from hivekeeper.domain.convoy import Outcome, decide_outcome, decide_swarm
from hivekeeper.domain.owners import attempt_owner, tree_owner
from hivekeeper.domain.rows import RepoRow, RunRow, TaskRow
from hivekeeper.domain.schema import get_table
from hivekeeper.domain.sequences import RESOLVE, attempt_sequence, gate_sequence
from hivekeeper.domain.states import RepoState, RunState, TaskState
from tests.property.budget import PATIENCE, tries

pytestmark = PATIENCE

AT = "2026-11-15T21:25:35.123456Z"
TASK = "c/a-1"
BOOTS = ("this boot", "the next boot")
ENDED_BY = ("exit", "wall", "silence", "output", "memory", "killed", "could-not-start", "something new")
SIGNALS = (1, 2, 9, 11, 15, 34, 64)
STATUSES = st.one_of(st.just(0), st.integers(0, 255), st.sampled_from(SIGNALS).map(lambda number: -number))


def make_run(kind: str, number: int = 1, boot: str = BOOTS[0], try_number: int = 1) -> RunRow:
    """Intend a run."""
    return RunRow(
        id=attempt_owner(TASK, 1, None).name_run(s.Start(kind, number)), number=number, try_number=try_number,
        kind=kind, task=TASK, attempt=1, repo=None, argv="[]", directory="/",
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


THREE = 3
SAID = st.just("said")
MOST_RUNS = 4 * THREE * 2  # every kind three times, some of them once more for every clone

tasks = st.builds(
    make_task, repo=st.sampled_from([None, "r"]), output=st.sampled_from([None, "out.md"]), idempotent=st.booleans()
)


@given(task=tasks, data=st.data())
@tries(400)
def test_every_attempt_comes_to_a_verdict_and_its_agent_runs_once(task: TaskRow, data: st.DataObject) -> None:
    details = data.draw(st.fixed_dictionaries({}, optional={"setup": SAID, "keep": st.just(["k"]), "backup": SAID}))
    repo = make_repo(details) if task.repo else None
    sequence = attempt_sequence(task, repo, data.draw(st.none() | st.just("c0ffee")))
    runs: list[RunRow] = []
    boots = iter(BOOTS)
    boot = next(boots)
    for _ in range(2 * MOST_RUNS):
        if data.draw(st.integers(0, 9)) == 0:
            boot = next(boots, boot)
        match s.decide(sequence, runs, s.Facts(boot)):
            case s.Start(kind, number, try_number):
                assert number == 1 + sum(run.kind == kind for run in runs)
                made = make_run(kind, number, boot, try_number)
                assert made.id not in {run.id for run in runs}, "one id, one run"
                runs.append(made)
            case s.Wait():
                assert runs[-1].is_open, "it waits for what runs, and for nothing else"
            case s.Failed() as failed:
                see_that_it_is_fair(task, sequence.kinds, runs, a.describe_failure(failed))
                return
            case s.Done():
                see_that_it_is_fair(task, sequence.kinds, runs, a.judge_attempt(task, runs, boot))
                return
            case other:
                pytest.fail(f"{other} of an attempt that may go on")
        if runs[-1].is_open:
            runs[-1] = data.draw(fates(runs[-1]))
        if runs[-1].is_open:  # it does not go on for ever
            values = {name: getattr(runs[-1], name) for name in get_table(RunRow).columns}
            runs[-1] = RunRow(**values | {"state": RunState.LOST, "ended_at": AT, "reason": "gone"})
    pytest.fail(f"no verdict after {len(runs)} runs")


def see_that_it_is_fair(
    task: TaskRow, order: Sequence[str], runs: list[RunRow], verdict: a.Judge | a.Fail | a.LeaveUnknown
) -> None:
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
    run = replace(make_run("agent"), state=RunState.EXITED, exit_status=-9, ended_by=ended_by, ended_at=AT)
    assert isinstance(a.judge_attempt(task, [run], BOOTS[0]), a.Fail)


@pytest.mark.parametrize("status", [1, 2, 127, 128, 129, 141, 255])
def test_a_command_that_ended_by_itself_is_tried_again(status: int) -> None:
    task = make_task(repo=None, output=None, idempotent=False)
    run = replace(make_run("agent"), state=RunState.EXITED, exit_status=status, ended_by="exit", ended_at=AT)
    assert isinstance(a.judge_attempt(task, [run], BOOTS[0]), a.Fail)


def test_every_signal_a_command_may_die_of_can_be_told() -> None:
    """A decision that raises is a pass that fails for ever, for every other task too."""
    for number in range(1, 65):
        run = make_run("agent")
        values = {name: getattr(run, name) for name in get_table(RunRow).columns}
        ended = {"state": RunState.EXITED, "exit_status": -number, "ended_by": "exit", "ended_at": AT}
        assert a.describe_ending(RunRow(**values | ended))


def make_gate_run(start: s.Start, boot: str) -> RunRow:
    """Intend a run that verifies a tree; each try in another check-out."""
    run, slot = make_run(start.kind, start.number, boot, start.try_number), 1 + start.try_number % 2
    values = {name: getattr(run, name) for name in get_table(RunRow).columns}
    name = tree_owner(g.Gate(make_repo({})), "4" * 40).name_run(start, slot)
    return RunRow(**values | {"id": name, "task": None, "attempt": None, "repo": "r", "boot_id": boot, "slot": slot})


SETUPS = st.fixed_dictionaries({}, optional={"setup": SAID, "keep": st.just(["k"])})


@given(details=SETUPS, data=st.data())
@tries(300)
def test_every_tree_comes_to_a_verdict_and_it_is_what_its_runs_said(
    details: dict[str, object], data: st.DataObject
) -> None:
    gate, boot = g.Gate(make_repo(details)), BOOTS[0]
    kinds = gate_sequence(gate.repo).kinds
    runs: list[RunRow] = []
    for _ in range(8 * len(kinds)):
        boot = BOOTS[1] if data.draw(st.integers(0, 19)) == 0 else boot
        found = g.judge(gate, runs, s.Facts(boot))
        see_that_it_was_said(found, runs, boot)
        if found.verdict in (t.Verdict.PASSED, t.Verdict.FAILED, t.Verdict.BROKEN):
            return
        is_open = any(run.is_open for run in runs)
        assert (found.start is None) == is_open, "it waits for what runs, and for nothing else"
        if found.start is not None:
            of_try = [run for run in runs if run.try_number == found.start.try_number]
            assert kinds.index(found.start.kind) == len(of_try), "every kind once, in their order"
            assert (found.verdict is t.Verdict.UNTRIED) == (not of_try)
            runs.append(make_gate_run(found.start, boot))
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
    tries_ = {run.try_number: run for run in runs}
    run = found.run
    if found.verdict is t.Verdict.PASSED:
        assert run is not None
        assert run.kind == "gate"
        assert run.succeeded, "G3: only a gate's own exit code 0 passes"
        before = [other for other in runs if other.try_number == run.try_number]
        assert all(other.succeeded for other in before), "a gate in a check-out that was never made ready"
    elif found.verdict is t.Verdict.FAILED:
        assert run is not None
        assert run.state is RunState.EXITED, "what was lost said nothing"
        assert run.kind in ("setup", "gate"), "a check-out of ours that fails is nobody's fault"
        assert run.ended_by not in ("killed", "could-not-start")
        assert run.kill_requested_at is None, "who was told to end has not failed"
    elif found.verdict is t.Verdict.BROKEN:
        assert len(tries_) >= THREE
        assert not any(
            last.kind == "gate" and last.succeeded and not last.kill_requested_at for last in tries_.values()
        )
    elif found.verdict is t.Verdict.RUNNING:
        assert runs[-1].is_open or runs[-1].boot_id == boot, "a check-out that nobody synced"


@given(data=st.data())
@tries(200)
def test_a_failure_that_was_counted_is_not_counted_again(data: st.DataObject) -> None:
    gate, runs = g.Gate(make_repo({})), list[RunRow]()
    kinds = gate_sequence(gate.repo).kinds
    for number in range(1, data.draw(st.integers(1, 4)) + 1):
        for kind in kinds:
            runs.append(make_ended(make_gate_run(s.Start(kind, number, number), BOOTS[0]), 0))
        runs[-1] = make_ended(runs[-1], data.draw(st.sampled_from([0, 1, 1])))
    found = g.judge(gate, runs, s.Facts(BOOTS[0]))
    statuses = [run.exit_status for run in runs if run.kind == "gate"]
    assert (found.verdict is t.Verdict.PASSED) == (0 in statuses), "what passed once may land"
    assert found.failures == statuses.count(1)
    without = g.judge(gate, runs, s.Facts(BOOTS[0], excused=frozenset({runs[len(kinds) - 1].id})))
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


@given(data=st.data())
@tries(200)
def test_a_conflict_is_settled_by_what_was_kept_or_given_up_in_bounded_runs(data: st.DataObject) -> None:
    runs, boot, used = list[RunRow](), BOOTS[0], frozenset[str]()
    for _ in range(60):
        boot = BOOTS[1] if data.draw(st.integers(0, 19)) == 0 else boot
        match s.decide(RESOLVE, runs, s.Facts(boot, rejected=used)):
            case s.Start() as start:
                see_that_settling_goes_on(runs, start, boot)
                runs.append(make_run(start.kind, start.number, boot, start.try_number))
            case s.Done(run):
                assert run.id not in used, "what was used already is used again"
                made = {other.kind for other in runs if other.try_number == run.try_number and other.succeeded}
                assert made == set(RESOLVE.kinds), "what nobody kept"
                if data.draw(st.booleans()):
                    return
                used |= {run.id}  # it conflicts with what has landed since
            case s.Failed():
                tried = sum(run.kind == "conflict" for run in runs)
                assert tried >= 2, "it has its tries"
                assert tried < 2 + THREE, "what is our own trouble counts apart"
                return
            case s.Wait():
                assert any(run.is_open for run in runs)
            case other:
                pytest.fail(f"{other} of a conflict that may be settled")
        runs = [data.draw(fates(run)) if run.is_open else run for run in runs]
    assert runs[-1].is_open, "neither settled nor given up"


def see_that_settling_goes_on(runs: Sequence[RunRow], start: s.Start, boot: str) -> None:
    """Hold the next run that settles a conflict against those before it."""
    of_try = [run for run in runs if run.try_number == start.try_number]
    assert [*(run.kind for run in of_try), start.kind] == list(RESOLVE.kinds[: len(of_try) + 1]), "out of order"
    assert all(run.succeeded and run.boot_id == boot for run in of_try), "files that nobody synced"


@given(counts=st.dictionaries(st.sampled_from(TaskState), st.integers(1, 3)), data=st.data())
@tries(300)
def test_a_convoy_ends_when_nothing_can_go_on_and_never_before(
    counts: dict[TaskState, int], data: st.DataObject
) -> None:
    ready = data.draw(st.integers(0, counts.get(TaskState.PENDING, 0)))
    outcome = decide_outcome(counts, ready)
    under_way = any(state in counts for state in (TaskState.IN_PROGRESS, TaskState.CANCELLING))
    assert (outcome is Outcome.ACTIVE) == (under_way or ready > 0)
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
    """Have tries at settling a conflict that ended so."""
    runs: list[RunRow] = []
    for number, how in enumerate(rounds, start=1):
        runs.append(make_ended(make_run("conflict", number, try_number=number), 0))
        if how == "reboot":  # before the resolver was asked
            continue
        resolve = make_ended(make_run("resolve", number, try_number=number), 1)
        outcome = report.Outcome.RATE_LIMITED.value if how == "limit" else None
        lost = {"state": RunState.LOST, "exit_status": None, "ended_by": None} if how == "lost" else {}
        runs.append(replace(resolve, outcome=outcome, **lost))  # type: ignore[arg-type]  # columns of a run
    return runs


@pytest.mark.parametrize(
    "rounds", [("refused", "reboot"), ("lost", "lost", "limit"), ("refused", "limit"), ("lost", "refused")]
)
def test_neither_a_reboot_nor_a_limit_uses_up_a_try_at_settling_a_conflict(rounds: tuple[str, ...]) -> None:
    runs, boot = play_rounds(*rounds), BOOTS[1] if rounds[-1] == "reboot" else BOOTS[0]
    number = len(rounds) + 1
    assert s.decide(RESOLVE, runs, s.Facts(boot)) == s.Start("conflict", number, number)


def test_two_refusals_or_three_troubles_of_our_own_end_the_settling_of_a_conflict() -> None:
    for rounds in (("refused", "limit", "refused"), ("lost", "lost", "lost")):
        assert isinstance(s.decide(RESOLVE, play_rounds(*rounds), s.Facts(BOOTS[0])), s.Failed)


def test_check_outs_that_break_after_one_refusal_of_a_branch_are_not_repeated_for_ever() -> None:
    """A refusal that may be a flake is set aside; what follows it still counts."""
    gate = g.Gate(make_repo({}))
    starts = [s.Start(kind) for kind in gate_sequence(gate.repo).kinds]
    refused = [make_ended(make_gate_run(start, BOOTS[0]), int(start.kind == "gate")) for start in starts]
    broken = [make_ended(make_gate_run(s.Start("checkout", n, n), BOOTS[0]), 1) for n in (2, 3, 4)]
    found = g.judge(gate, [*refused, *broken], s.Facts(BOOTS[0], excused=frozenset({refused[-1].id})))
    assert found.verdict is t.Verdict.BROKEN
