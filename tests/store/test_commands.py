"""Commands: what has already happened does not happen again, and of a plan what is new is taken in, or nothing."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivekeeper.commands import attempts, convoys, leases, merges, plans, runs, tasks
from hivekeeper.domain.convoy import Outcome
from hivekeeper.domain.events import ConvoySubmitted
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.plan import Limits, PlanSpec, TaskSpec, find_cycle
from hivekeeper.domain.run import Ending, RunSpec
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.domain.steps import Start
from hivekeeper.errors import HiveError, IllegalTransitionError, InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Authority, Transaction
from tests.store.ledger_kit import BOOT, COMMIT, PERSON, dump_all
from tests.store.ledger_situations import CLAIM, bring_convoy, bring_merge, bring_run, bring_task
from tests.store.ledger_world import REPO, World

Deed = Callable[[Transaction], object]
AT = "2026-01-01T00:00:02.000000Z"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def _on_task(situation: str, deed: Callable[[World, str], Deed]) -> Callable[[World], Deed]:
    def prepare(world: World) -> Deed:
        key = world.add("t", attempts_allowed=1 if situation == "failed" else 3)
        bring_task(world, key, situation)
        return deed(world, key)

    return prepare


def _on_merge(state: str, deed: Callable[[World, str], Deed]) -> Callable[[World], Deed]:
    def prepare(world: World) -> Deed:
        key = world.add("t", attempts_allowed=3)
        bring_merge(world, key, state)
        return deed(world, key)

    return prepare


def _on_run(state: str, deed: Callable[[World], Deed]) -> Callable[[World], Deed]:
    def prepare(world: World) -> Deed:
        bring_run(world, "run", state)
        return deed(world)

    return prepare


def _on_convoy(state: str, deed: Callable[[World], Deed]) -> Callable[[World], Deed]:
    def prepare(world: World) -> Deed:
        bring_convoy(world, "v", state)
        return deed(world)

    return prepare


def _on_repo(deed: Callable[[World], Deed], *, ready: bool = True, publishing: bool = False) -> Callable[[World], Deed]:
    def prepare(world: World) -> Deed:
        world.submit("c", TaskSpec("t", "true", repo="r"), repos=(REPO,))
        if ready:
            world.fetch()
        if publishing:
            with world.keep() as tx:
                merges.begin_publishing(tx, world.repo(), COMMIT)
        return deed(world)

    return prepare


# Every command with the row it is given; called a second time it has that same, by then outdated, row in its hand.
def _cancel_attempt(world: World, key: str) -> Deed:
    task, attempt = world.task(key), world.attempt(key)
    return lambda tx: attempts.cancel_attempt(tx, task, attempt)


def _fail_attempt(world: World, key: str) -> Deed:
    task, attempt = world.task(key), world.attempt(key)
    return lambda tx: attempts.fail_attempt(tx, task, attempt, why="broke", at=AT)


def _leave_unknown(world: World, key: str) -> Deed:
    task, attempt = world.task(key), world.attempt(key)
    return lambda tx: attempts.leave_unknown(tx, task, attempt, why="who knows")


def _submit_attempt(world: World, key: str) -> Deed:
    task, attempt = world.task(key), world.attempt(key)
    return lambda tx: attempts.submit_attempt(tx, task, attempt, COMMIT, at=AT)


def _begin_verifying(world: World, key: str) -> Deed:
    entry = replace(world.merge(key), round=1, base=COMMIT, candidate=COMMIT, tree=COMMIT)
    return lambda tx: merges.begin_verifying(tx, entry)


def _note_landed(world: World, key: str) -> Deed:
    entry, task = world.merge(key), world.task(key)
    return lambda tx: merges.note_landed(tx, entry, task, at=AT)


def _reject(world: World, key: str) -> Deed:
    entry, task, attempt = world.merge(key), world.task(key), world.attempt(key)
    return lambda tx: merges.reject(tx, entry, task, attempt, why="conflict", body={})


def _close_swarm(world: World) -> Deed:
    with world.ledger.read() as connection:
        (swarm,) = queries.list_closable_swarms(connection)
    return lambda tx: convoys.close_swarm(tx, swarm)


def _row(find: Callable[[World, str], object], deed: Callable[..., object]) -> Callable[[World, str], Deed]:
    def prepare(world: World, key: str) -> Deed:
        row = find(world, key)
        return lambda tx: deed(tx, row)

    return prepare


def _of(find: Callable[[World], object], deed: Callable[..., object]) -> Callable[[World], Deed]:
    def prepare(world: World) -> Deed:
        row = find(world)
        return lambda tx: deed(tx, row)

    return prepare


def _run(world: World) -> object:
    return world.run("run")


def _repo(world: World) -> object:
    return world.repo()


def _convoy(world: World) -> object:
    return world.convoy("v")


SPEC = RunSpec(("true",), "/", {}, {})
PLAN = PlanSpec("p", (TaskSpec("a", "true", repo="r"), TaskSpec("b", "true", after=("a",))), (REPO,))
ENDING = Ending(0, "exit", 1, AT)
KEEPERS: dict[str, Callable[[World], Deed]] = {
    "dispatch_task": _on_task("pending", _row(World.task, attempts.dispatch_task)),
    "complete_task": _on_task("working", _row(World.task, lambda tx, row: attempts.complete_task(tx, row, 1, at=AT))),
    "fail_attempt": _on_task("working", _fail_attempt),
    "leave_unknown": _on_task("working", _leave_unknown),
    "submit_attempt": _on_task("working", _submit_attempt),
    "cancel_attempt": _on_task("stopping", _cancel_attempt),
    "sweep_attempt": _on_task("failed", _row(World.attempt, attempts.sweep_attempt)),
    "begin_verifying": _on_merge("QUEUED", _begin_verifying),
    "begin_landing": _on_merge("VERIFYING", _row(World.merge, lambda tx, row: merges.begin_landing(tx, row, at=AT))),
    "requeue": _on_merge("LANDING", _row(World.merge, lambda tx, row: merges.requeue(tx, row, why="moved"))),
    "note_landed": _on_merge("LANDING", _note_landed),
    "reject": _on_merge("VERIFYING", _reject),
    "withdraw": _on_merge("VERIFYING", _row(World.merge, lambda tx, row: merges.withdraw(tx, row, why="off"))),
    "intend_run": lambda _: (
        lambda tx: runs.intend_run(tx, attempt_owner("c/x", 1, None), Start("agent"), SPEC, boot_id=BOOT)
    ),
    "note_started": _on_run("INTENDED", _of(_run, lambda tx, row: runs.note_started(tx, row, CLAIM))),
    "note_ended": _on_run("INTENDED", _of(_run, lambda tx, row: runs.note_ended(tx, row, CLAIM, ENDING))),
    "note_lost": _on_run("RUNNING", _of(_run, lambda tx, row: runs.note_lost(tx, row, "gone"))),
    "request_kill": _on_run("RUNNING", _of(_run, lambda tx, row: runs.request_kill(tx, row, "off"))),
    "end_convoy complete": _on_convoy(
        "ACTIVE", lambda _: lambda tx: convoys.end_convoy(tx, "v", Outcome.COMPLETE, at=AT)
    ),
    "end_convoy failed": _on_convoy("ACTIVE", lambda _: lambda tx: convoys.end_convoy(tx, "v", Outcome.FAILED, at=AT)),
    "close_swarm": _on_convoy("FAILED", _close_swarm),
    "note_fetched": _on_repo(
        _of(_repo, lambda tx, row: merges.note_fetched(tx, row, integration=COMMIT, source=COMMIT)), ready=False
    ),
    "note_fetch_failed": _on_repo(_of(_repo, lambda tx, row: merges.note_fetch_failed(tx, row, "no")), ready=False),
    "delay_fetch": _on_repo(
        _of(_repo, lambda tx, row: merges.delay_fetch(tx, row, "_repos/r.1.fetch", "no", retry_at=AT)), ready=False
    ),
    "fetch_again": _on_repo(_of(_repo, lambda tx, row: merges.fetch_again(tx, row, why="lost"))),
    "begin_publishing": _on_repo(_of(_repo, lambda tx, row: merges.begin_publishing(tx, row, COMMIT))),
    "note_published": _on_repo(
        _of(_repo, lambda tx, row: merges.note_published(tx, row, COMMIT, at=AT)), publishing=True
    ),
    "note_publish_failed": _on_repo(
        _of(_repo, lambda tx, row: merges.note_publish_failed(tx, row, "no", retry_at=AT)), publishing=True
    ),
    "release_lease": lambda world: lambda tx: leases.release_lease(tx, world.keeper.who),
}
PERSONS: dict[str, Callable[[World], Deed]] = {
    "submit_plan": lambda _: lambda tx: plans.submit_plan(tx, PLAN),
    "submit_plan of nothing": lambda _: lambda tx: plans.submit_plan(tx, PlanSpec("empty", ())),
    "add_task": lambda _: lambda tx: plans.add_task(tx, "c", TaskSpec("t", "true")),
    "request_fetch": lambda _: lambda tx: plans.request_fetch(tx, REPO),
    "cancel_task pending": _on_task("pending", _row(World.task, tasks.cancel_task)),
    "cancel_task working": _on_task("working", _row(World.task, tasks.cancel_task)),
    "retry_task failed": _on_task("failed", _row(World.task, tasks.retry_task)),
    "retry_task unknown": _on_task("unknown", _row(World.task, tasks.retry_task)),
    "archive_convoy": _on_convoy("COMPLETE", _of(_convoy, convoys.archive_convoy)),
    "cancel_convoy": _on_convoy("ACTIVE", _of(_convoy, convoys.cancel_convoy)),
}


def do_twice(world: World, who: Authority, prepare: Callable[[World], Deed]) -> None:
    deed = prepare(world)
    before = world.seq()
    with world.ledger.write(who) as tx:
        deed(tx)
    assert world.seq() > before
    after = dump_all(world.ledger)
    with contextlib.suppress(IllegalTransitionError, InputError), world.ledger.write(who) as tx:
        deed(tx)
    assert dump_all(world.ledger) == after


@pytest.mark.parametrize("name", KEEPERS)
def test_a_command_of_the_keeper_called_again_changes_nothing(world: World, name: str) -> None:
    do_twice(world, world.keeper, KEEPERS[name])


@pytest.mark.parametrize("name", PERSONS)
def test_a_command_of_a_person_called_again_changes_nothing(world: World, name: str) -> None:
    do_twice(world, PERSON, PERSONS[name])


@pytest.mark.parametrize("situation", ["pending", "working", "stopping", "failed", "unknown", "cancelled", "complete"])
@pytest.mark.parametrize("command", [tasks.cancel_task, tasks.retry_task])
def test_a_wish_repeated_with_open_eyes_is_answered_with_no(
    world: World, situation: str, command: Callable[..., bool]
) -> None:
    key = world.add("t", attempts_allowed=1 if situation == "failed" else 3)
    bring_task(world, key, situation)
    with contextlib.suppress(InputError), world.ask() as tx:
        command(tx, world.task(key))
    after = dump_all(world.ledger)
    is_done = world.task(key).state is TaskState.COMPLETE
    with contextlib.suppress(*[InputError] if is_done else []), world.ask() as tx:
        assert command(tx, world.task(key)) is False
    assert dump_all(world.ledger) == after


def test_the_same_plan_again_adds_nothing_whatever_has_become_of_its_tasks(world: World) -> None:
    specs = [TaskSpec(name, "true", repo="r", attempts=1) for name in ("a", "b", "c", "d")]
    assert world.submit("p", *specs, repos=(REPO,)) == plans.Submitted("p", 4, 0)
    world.fetch()
    for name, situation in (("a", "complete"), ("b", "failed"), ("c", "working"), ("d", "cancelled")):
        bring_task(world, f"p/{name}", situation)
    before = dump_all(world.ledger)
    assert world.submit("p", *reversed(specs), repos=(REPO,)) == plans.Submitted("p", 0, 4)
    assert dump_all(world.ledger) == before


def test_new_tasks_of_a_plan_are_added_and_wake_an_ended_convoy(world: World) -> None:
    bring_convoy(world, "v", "COMPLETE")
    first, waiting = TaskSpec("first", "true", attempts=1), TaskSpec("waiting", "true", after=("first",))
    assert world.submit("v", first, waiting, TaskSpec("new", "true")) == plans.Submitted("v", 1, 2)
    assert world.convoy("v").state is ConvoyState.ACTIVE


CHANGES: dict[str, dict[str, object]] = {
    "command": {"command": "false"},
    "command and prompt and runner": {"command": "", "prompt": "do it", "runner": "claude"},
    "repo": {"repo": None},
    "verify": {"verify": "make test"},
    "title": {"title": "B"},
    "priority": {"priority": 3},
    "attempts": {"attempts": 7},
    "outputs": {"outputs": ("out.md",)},
    "idempotent": {"idempotent": True},
    "limits": {"limits": Limits(wall_s=1.0)},
    "after": {"after": ("a", "c")},
    "agent": {"agent": "ann"},
    "strengths": {"strengths": ("sql",)},
    "paths": {"paths": ("src/**",)},
    "budget": {"budget": {"tokens": 5}},
}


def test_every_field_of_a_task_is_among_the_changes_tried() -> None:
    assert {field.name for field in fields(TaskSpec)} - {"id"} == {
        name for change in CHANGES.values() for name in change
    }


@pytest.mark.parametrize(("what", "change"), CHANGES.items(), ids=CHANGES.keys())
def test_a_changed_task_stays_as_it_was_is_told_of_and_what_is_new_is_added(
    world: World, what: str, change: dict[str, object]
) -> None:
    a, b, c = TaskSpec("a", "true"), TaskSpec("b", "true", repo="r", after=("a",)), TaskSpec("c", "true")
    world.submit("p", a, b, c, repos=(REPO,))
    before = world.task("p/b")
    changed = replace(b, **change)  # type: ignore[arg-type]  # one field at a time
    told = f"Task 'b' already exists with a different {what}; it was not changed. To add it, use another id."
    assert world.submit("p", TaskSpec("new", "true"), a, changed, repos=(REPO,)) == plans.Submitted("p", 1, 2, (told,))
    assert world.task("p/b") == before
    assert world.task("p/new").state is TaskState.PENDING
    after = dump_all(world.ledger)
    with pytest.raises(InputError, match="To add it, use another id"), world.ask() as tx:
        plans.add_task(tx, "p", changed)
    assert dump_all(world.ledger) == after


def test_limits_that_an_earlier_version_did_not_write_down_are_no_change(world: World) -> None:
    spec = TaskSpec("a", "true", limits=Limits(wall_s=5.0))
    body = plans.to_event("p", spec)
    for name in ("processes", "disk_bytes"):
        del body.limits[name]
    with world.ask() as tx:
        tx.record(ConvoySubmitted("p", "p"))
        tx.record(body)
    assert world.submit("p", spec) == plans.Submitted("p", 0, 1)
    assert world.submit("p", replace(spec, limits=Limits(wall_s=6.0))).unchanged_because


@pytest.mark.parametrize(("old", "new", "is_"), [(None, "x", "no"), ("x", None, "another"), ("x", "y", "another")])
def test_another_accept_command_is_not_taken_and_told_of(
    world: World, old: str | None, new: str | None, is_: str
) -> None:
    spec = TaskSpec("a", "true")
    with world.ask() as tx:
        plans.submit_plan(tx, PlanSpec("p", (spec,), accept=old))
    with world.ask() as tx:
        (told,) = plans.submit_plan(tx, PlanSpec("p", (spec,), accept=new)).unchanged_because
    assert told.startswith(f"Convoy 'p' already exists with {is_} accept command; it was not changed.")
    assert world.convoy("p").accept == old
    with world.ask() as tx:
        assert plans.add_task(tx, "p", TaskSpec("b", "true")), "one task says nothing of its convoy"


REPO_CHANGES: dict[str, object] = {
    "verify": "make test",
    "setup": "make",
    "keep": ("build",),
    "lock": ("a.lock",),
    "backup": "/safe",
}


@pytest.mark.parametrize(("field", "value"), REPO_CHANGES.items())
def test_a_repository_changes_only_when_nothing_is_to_use_it(world: World, field: str, value: object) -> None:
    spec, changed = TaskSpec("a", "true", repo="r"), replace(REPO, **{field: value})  # type: ignore[arg-type]
    world.submit("p", spec, repos=(REPO,))
    submitted = world.submit("q", TaskSpec("b", "true"), repos=(changed,))
    said = f"Repository 'r' already exists with a different {field}, and p/a is to use it; it was not changed."
    assert submitted == plans.Submitted("q", 1, 0, (f"{said} Submit the plan again when nothing uses it.",))
    assert getattr(world.repo("r"), field) == getattr(REPO, field)
    with world.ask() as tx:
        tasks.cancel_task(tx, world.task("p/a"))
    assert world.submit("q", TaskSpec("b", "true"), repos=(changed,)) == plans.Submitted("q", 0, 1)
    assert getattr(world.repo("r"), field) == value
    before = dump_all(world.ledger)
    assert world.submit("q", TaskSpec("b", "true"), repos=(changed,)) == plans.Submitted("q", 0, 1)
    assert dump_all(world.ledger) == before


def test_a_gate_that_was_wrong_is_corrected_once_the_convoy_has_failed(world: World) -> None:
    spec, changed = TaskSpec("a", "true", repo="r", attempts=1), replace(REPO, verify="make test")
    waiting = TaskSpec("z", "true", repo="r", after=("a",))
    world.submit("p", spec, waiting, repos=(REPO,))
    world.fetch()
    bring_task(world, "p/a", "failed")
    assert world.settle("p")
    assert world.convoy("p").state is ConvoyState.FAILED
    assert world.submit("p", spec, waiting, TaskSpec("b", "true", repo="r"), repos=(changed,)).unchanged_because == ()
    assert world.repo("r").verify == "make test"


def test_a_ring_through_old_and_new_tasks_is_refused_whole(world: World) -> None:
    world.submit("p", TaskSpec("a", "true"), TaskSpec("b", "true", after=("a",)))
    before = dump_all(world.ledger)
    with pytest.raises(InputError, match="wait for each other"):
        world.submit("p", TaskSpec("x", "true", after=("y",)), TaskSpec("y", "true", after=("b", "x")))
    assert dump_all(world.ledger) == before


def test_a_ring_closed_by_a_task_that_an_old_one_waits_for_is_refused_whole(world: World) -> None:
    """Where an old task may wait for one that comes later, that one must not wait for it in turn."""
    with contextlib.suppress(InputError):
        world.submit("p", TaskSpec("old", "true", after=("later",)))
    before = dump_all(world.ledger)
    if not before[1]["task"]:
        return
    with pytest.raises(InputError, match="wait for each other"):
        world.submit("p", TaskSpec("later", "true", after=("between",)), TaskSpec("between", "true", after=("old",)))
    assert dump_all(world.ledger) == before


BAD_PLANS: dict[str, tuple[TaskSpec, ...]] = {
    "a task twice": (TaskSpec("t", "true"), TaskSpec("t", "true")),
    "the same predecessor twice": (TaskSpec("a", "true"), TaskSpec("t", "true", after=("a", "a"))),
    "a predecessor nobody knows": (TaskSpec("t", "true", after=("nobody",)),),
    "a repository nobody knows": (TaskSpec("t", "true", repo="nowhere"),),
    "itself as predecessor": (TaskSpec("t", "true", after=("t",)),),
    "neither command nor prompt": (TaskSpec("t"),),
    "command and prompt": (TaskSpec("t", "true", prompt="x", runner="claude"),),
    "a blank prompt": (TaskSpec("t", prompt=" ", runner="claude"),),
    "a prompt for nobody": (TaskSpec("t", prompt="x"),),
    "a runner for a command": (TaskSpec("t", "true", runner="claude"),),
    "paths of no repository": (TaskSpec("t", "true", paths=("src",)),),
    "an output of the hive's own": (TaskSpec("t", "true", outputs=(".hive/ledger.db",)),),
    "an output of two lines": (TaskSpec("t", "true", outputs=("a\nb",)),),
    "an output twice": (TaskSpec("t", "true", outputs=("a", "./a")),),
    "two tasks with one output": (TaskSpec("t", "true", outputs=("a",)), TaskSpec("u", "true", outputs=("a",))),
}


@pytest.mark.parametrize("specs", BAD_PLANS.values(), ids=BAD_PLANS.keys())
def test_a_plan_that_cannot_be_is_the_persons_mistake_and_not_a_damaged_ledger(
    world: World, specs: tuple[TaskSpec, ...]
) -> None:
    """Plans in files are checked before; those of programs (`hivekeeper.api`) and of `hive task add` are not."""
    before = dump_all(world.ledger)
    with pytest.raises(InputError):
        world.submit("p", *specs)
    assert dump_all(world.ledger) == before


def test_ids_of_an_archived_convoy_are_never_run_again(world: World) -> None:
    bring_convoy(world, "v", "ARCHIVED")
    before = dump_all(world.ledger)
    first, waiting = TaskSpec("first", "true", attempts=1), TaskSpec("waiting", "true", after=("first",))
    assert world.submit("v", first, waiting) == plans.Submitted("v", 0, 2), "known for ever"
    refusals: list[Deed] = [
        lambda tx: plans.submit_plan(tx, PlanSpec("v", (first, waiting, TaskSpec("new", "true")))),
        lambda tx: plans.add_task(tx, "v", TaskSpec("new", "true")),
        lambda tx: tasks.retry_task(tx, world.task("v/first")),
    ]
    for refused in refusals:
        with pytest.raises(InputError, match="archived"), world.ask() as tx:
            refused(tx)
    assert dump_all(world.ledger) == before
    with world.ledger.read() as connection:
        assert queries.list_ready_tasks(connection, 100) == []
        assert queries.list_convoys(connection) == []
        assert len(queries.list_convoys(connection, archived=True)) == 1


def test_what_is_done_cannot_be_tried_again(world: World) -> None:
    key = world.add("t", attempts_allowed=3)
    bring_task(world, key, "complete")
    before = dump_all(world.ledger)
    with pytest.raises(InputError), world.ask() as tx:
        tasks.retry_task(tx, world.task(key))
    assert dump_all(world.ledger) == before
    with world.ledger.read() as connection:
        assert key not in [task.key for task in queries.list_ready_tasks(connection, 100)]


def test_a_name_stands_for_one_repository_for_ever(world: World) -> None:
    world.submit("p", TaskSpec("a", "true", repo="r"), repos=(REPO,))
    for other in (replace(REPO, path="/elsewhere"), replace(REPO, branch="next")):
        before = dump_all(world.ledger)
        with pytest.raises(InputError, match="another name"):
            world.submit("q", TaskSpec("b", "true", repo="r"), repos=(other,))
        assert dump_all(world.ledger) == before


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_sequence_of_plans_ever_makes_a_ring(world: World, data: st.DataObject) -> None:
    ids, convoy = "abcde", f"ring-{world.seq()}"
    for _ in range(3):
        names = data.draw(st.lists(st.sampled_from(ids), unique=True, min_size=1, max_size=3))
        after = st.lists(st.sampled_from(ids), unique=True, max_size=2)
        specs = [TaskSpec(name, "true", after=tuple(data.draw(after))) for name in names]
        before = dump_all(world.ledger)
        try:
            world.submit(convoy, *specs)
        except HiveError:
            assert dump_all(world.ledger) == before
    with world.ledger.read() as connection:
        graph = {
            task.key: tuple(queries.list_predecessors(connection, task.key))
            for task in queries.list_tasks_of_convoy(connection, convoy)
        }
    assert find_cycle(graph) is None
