"""What a person may ask of the merge queue: a wish is recorded once, and what cannot be is refused, writing nothing."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from hivekeeper.commands import attempts, convoys, merges, plans, queue
from hivekeeper.domain import events as e
from hivekeeper.domain.merge import HOTFIX_PRIORITY
from hivekeeper.domain.names import is_task_id
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec
from hivekeeper.domain.states import ConvoyState, MergeState, TaskState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction
from hivekeeper.views.queue import list_queue, show_queue
from tests.store.ledger_kit import BOOT, COMMIT, dump_all
from tests.store.ledger_world import REPO, World

SHA = "0123456789" * 4
OTHER = "9876543210" * 4
KEY = "queue/fix-0123456789"
Wish = Callable[[Transaction], object]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.submit("c", TaskSpec("t", "true", repo="r"), repos=(REPO,))
    made.fetch()
    yield made
    made.close()


def bring_entry(
    world: World, key: str, state: str, number: int = 1, tier: str = "clean", conflicts: Sequence[str] = ()
) -> None:
    """Hand in what a task's next attempt made, and bring its entry into a state."""
    world.dispatch(key)
    world.hand_in(key, number)
    with world.keep() as tx:
        if state in ("VERIFYING", "LANDING", "LANDED", "REJECTED"):
            tx.record(e.MergeVerifying(key, number, 1, COMMIT, "c" * 40, "d" * 40, tier))
        if state in ("LANDING", "LANDED"):
            tx.record(e.MergeLanding(key, number))
        if state == "LANDED":
            tx.record(e.MergeLanded(key, number, "r", "c" * 40))
            tx.record(e.TaskCompleted(key, number, "c" * 40, None))
        elif state == "REJECTED":
            tx.record(e.MergeConflicted(key, number, COMMIT, "e" * 40, list(conflicts)))
            tx.record(e.MergeRejected(key, number), why="its gate did not pass")
            attempts.fail_attempt(
                tx, world.task(key), world.attempt(key, number), why="its gate did not pass", at=tx.now
            )
        elif state == "WITHDRAWN":
            tx.record(e.MergeWithdrawn(key, number), why="cancelled")


def _submit(world: World, branch: str = "fix", commit: str = SHA, *, hotfix: bool = False) -> queue.SubmittedBranch:
    with world.ask() as tx:
        return queue.submit_branch(tx, world.repo(), branch, commit, is_hotfix=hotfix)


def _refuse(world: World, wish: Wish) -> str:
    """Have a wish refused; tell how, and that nothing was written."""
    before = dump_all(world.ledger)
    with pytest.raises(InputError) as refusal, world.ask() as tx:
        wish(tx)
    assert dump_all(world.ledger) == before
    return str(refusal.value)


def _ask(world: World, wish: Wish) -> object:
    with world.ask() as tx:
        return wish(tx)


def _hold(world: World, key: str) -> None:
    with world.keep() as tx:
        tx.record(e.MergeHeld(key, 1), why="it changes tox.ini")


def test_a_branch_becomes_a_task_that_is_pinned_to_its_commit(world: World) -> None:
    done = _submit(world)
    assert (done.task, done.commit, done.added) == (KEY, SHA, True)
    task = world.task(KEY)
    assert (task.branch, task.get_details()["commit"], task.repo, task.title) == ("fix", SHA, "r", "fix")
    assert (task.command, task.priority, task.attempts_allowed, task.has_sandbox) == ("", 0, 3, False)
    with world.ledger.read() as connection:
        assert queries.list_ready_branches(connection) == [task]
    assert world.convoy("queue").state is ConvoyState.ACTIVE


def test_a_hotfix_has_the_priority_of_one(world: World) -> None:
    assert "head of the queue" in _submit(world, hotfix=True).said
    assert world.task(KEY).priority == HOTFIX_PRIORITY


@pytest.mark.parametrize(
    ("branch", "task_id"),
    [
        ("feature/login", "feature-login"),
        ("-x", "x"),
        ("--upload-pack=sh", "upload-pack-sh"),
        ("ünï/ cödé", "n-c-d"),
        ("a..b", "a-b"),
        ("日本", "branch"),
        ("x" * 200, "x" * 48),
        (f"{'y' * 47}./z", f"{'y' * 47}."),
    ],
)
def test_whatever_a_branch_is_called_its_task_has_an_id(world: World, branch: str, task_id: str) -> None:
    added = _submit(world, branch).task
    assert added == f"queue/{task_id}-0123456789"
    assert is_task_id(added.partition("/")[2])
    assert world.task(added).branch == branch


def test_a_new_commit_is_a_new_task_and_the_same_one_in_two_repositories_is_two(world: World) -> None:
    world.submit("c", TaskSpec("u", "true", repo="s"), repos=(RepoSpec("s", "/repos/r", "release"),))
    first, second = _submit(world).task, _submit(world, commit=OTHER).task
    with world.ask() as tx:
        third = queue.submit_branch(tx, world.repo("s"), "fix", SHA).task
    assert (first, second, third) == (KEY, "queue/fix-9876543210", "queue/fix-1-0123456789")
    assert world.task(third).repo == "s"


@pytest.mark.parametrize(("state", "said"), [("QUEUED", "in the queue already"), ("LANDED", "landed already, as cccc")])
def test_the_same_commit_again_adds_nothing_and_says_what_became_of_it(world: World, state: str, said: str) -> None:
    _submit(world)
    bring_entry(world, KEY, state)
    before = world.seq()
    for branch in ("fix", "another-name"):
        again = _submit(world, branch, hotfix=True)
        assert (again.task, again.added) == (KEY, False)
        assert said in again.said
    assert world.seq() == before


def test_a_commit_that_was_refused_is_refused_again_with_why_and_what_to_do(world: World) -> None:
    _submit(world)
    bring_entry(world, KEY, "REJECTED", 1)
    assert world.task(KEY).state is TaskState.FAILED
    said = _refuse(world, lambda tx: queue.submit_branch(tx, world.repo(), "fix", SHA))
    assert "fix at 0123456789 was refused: its gate did not pass." in said
    assert "Commit a change to the branch" in said
    assert f"hive queue show {KEY}" in said
    assert _submit(world, commit=OTHER).added


def test_a_commit_that_could_not_be_brought_in_may_be_retried(world: World) -> None:
    _submit(world)
    for number in (1, 2, 3):
        world.dispatch(KEY)
        world.fail(KEY, number)
    said = _refuse(world, lambda tx: queue.submit_branch(tx, world.repo(), "fix", SHA))
    assert "fix at 0123456789 failed: it broke." in said
    assert f"hive task retry {KEY}" in said


def test_a_commit_that_was_cancelled_never_lands(world: World) -> None:
    _submit(world)
    world.cancel(KEY)
    said = _refuse(world, lambda tx: queue.submit_branch(tx, world.repo(), "fix", SHA))
    assert "was cancelled" in said
    assert "Commit a change" in said


def test_the_queues_convoy_is_opened_again_and_has_a_successor_when_it_is_archived(world: World) -> None:
    _submit(world)
    bring_entry(world, KEY, "LANDED")
    assert world.settle("queue")
    assert world.convoy("queue").state is ConvoyState.COMPLETE
    second = _submit(world, commit=OTHER).task
    assert world.convoy("queue").state is ConvoyState.ACTIVE
    world.cancel(second)
    assert world.settle("queue")
    with world.ask() as tx:
        convoys.archive_convoy(tx, world.convoy("queue"))
    assert "landed already" in _submit(world).said
    assert _submit(world, commit="f" * 40).task == "queue-2/fix-ffffffffff"
    assert _submit(world, commit="e" * 40).task == "queue-2/fix-eeeeeeeeee"


def test_what_waits_goes_to_the_head_of_the_queue_once(world: World) -> None:
    keys = [world.add(name) for name in ("a", "b")]
    for key, state in zip(keys, ("VERIFYING", "QUEUED"), strict=True):
        bring_entry(world, key, state)
    assert _ask(world, lambda tx: queue.prioritize_entry(tx, world.task("c/b"), why="urgent")) is True
    with world.ledger.read() as connection:
        assert [row["task"] for row in list_queue(connection)] == ["c/b", "c/a"]
    before = world.seq()
    assert _ask(world, lambda tx: queue.prioritize_entry(tx, world.task("c/b"))) is False
    assert world.seq() == before
    assert _ask(world, lambda tx: queue.prioritize_entry(tx, world.task("c/b"), -1)) is True
    with world.ledger.read() as connection:
        assert [row["task"] for row in list_queue(connection)] == ["c/a", "c/b"]


@pytest.mark.parametrize("state", ["LANDING", "LANDED", "REJECTED", "WITHDRAWN"])
def test_what_no_longer_waits_has_no_other_place_and_needs_nobody(world: World, state: str) -> None:
    key = world.add("a", attempts_allowed=3)
    bring_entry(world, key, state)
    for wish in (queue.prioritize_entry, queue.approve_entry):
        said = _refuse(world, lambda tx, wish=wish: wish(tx, world.task(key)))  # type: ignore[misc]
        assert f"c/a does not wait in the merge queue: it is {state} there." in said


def test_what_has_not_come_to_the_queue_has_no_place_there(world: World) -> None:
    said = _refuse(world, lambda tx: queue.prioritize_entry(tx, world.task("c/t")))
    assert "it has not been submitted to the queue" in said
    assert "hive task why c/t" in said


@pytest.mark.parametrize("state", ["QUEUED", "VERIFYING"])
def test_what_is_held_may_land_once_a_person_says_so(world: World, state: str) -> None:
    key = world.add("a")
    bring_entry(world, key, state)
    assert "does not wait for you" in _refuse(world, lambda tx: queue.approve_entry(tx, world.task(key)))
    _hold(world, key)
    assert _ask(world, lambda tx: queue.approve_entry(tx, world.task(key))) is True
    entry = world.merge(key)
    assert (entry.held, entry.approved, entry.state.value) == (None, 1, state)
    before = world.seq()
    assert _ask(world, lambda tx: queue.approve_entry(tx, world.task(key))) is False
    assert world.seq() == before


def test_a_queue_is_paused_and_goes_on_once_for_each_wish(world: World) -> None:
    wishes = ((queue.resume_queue, False), (queue.pause_queue, True), (queue.pause_queue, False))
    for wish, is_new in (*wishes, (queue.resume_queue, True), (queue.resume_queue, False)):
        before = world.seq()
        assert _ask(world, lambda tx, wish=wish: wish(tx, world.repo())) is is_new  # type: ignore[misc]
        assert world.seq() - before == is_new
    assert not world.repo().paused


def test_a_stopped_queue_goes_on_and_verifies_anew(world: World) -> None:
    with world.keep() as tx:
        tx.record(e.RepoStopped("r"), why="main does not pass")
    assert _ask(world, lambda tx: queue.resume_queue(tx, world.repo())) is True
    assert world.repo().stopped is None
    assert world.repo().resumptions == world.seq()


def test_the_queue_is_listed_in_the_order_it_lands_with_what_becomes_of_each(world: World) -> None:
    for name in ("landing", "first", "second", "held", "suspect", "flaky"):
        world.add(name)
    bring_entry(world, "c/landing", "LANDING")
    for key in ("c/first", "c/second", "c/held", "c/suspect", "c/flaky"):
        bring_entry(world, key, "QUEUED")
    _submit(world)
    _ask(world, lambda tx: queue.prioritize_entry(tx, world.task("c/second")))
    _hold(world, "c/held")
    with world.keep() as tx:
        tx.record(e.MergeVerifying("c/second", 1, 1, "c" * 40, "2" * 40, "d" * 40, "rules"))
        tx.record(e.MergeVerifying("c/first", 1, 1, "2" * 40, "1" * 40, "d" * 40))
        tx.record(e.MergeVerifying("c/suspect", 1, 1, COMMIT, "3" * 40, "d" * 40))
        tx.record(e.MergeVerifying("c/flaky", 1, 1, COMMIT, "4" * 40, "d" * 40))
        tx.record(e.MergeFailed("c/suspect", 1, "run"), why="its gate failed")
        tx.record(e.MergeFailed("c/flaky", 1, "run"), why="its gate failed")
        tx.record(e.MergeFlaked("c/flaky", 1, "run"))
    with world.ledger.read() as connection:
        rows = [(row["position"], row["task"], row["doing"]) for row in list_queue(connection)]
    assert rows == [
        (1, "c/landing", "has passed and is landing"),
        (2, "c/second", "verifying on top of c/landing"),
        (3, "c/first", "verifying on top of c/second"),
        (4, "c/held", "waiting for approval: it changes tox.ini"),
        (5, "c/suspect", "failed once; verifying it alone"),
        (6, "c/flaky", "waiting"),
        (None, KEY, "fix is to be fetched"),
    ]
    with world.keep() as tx:
        tx.record(e.MergeVerifying("c/flaky", 1, 2, COMMIT, "5" * 40, "d" * 40))
        attempts.dispatch_task(tx, world.task(KEY))
    with world.ledger.read() as connection:
        doing = {row["task"]: row["doing"] for row in list_queue(connection)}
    assert doing["c/flaky"] == "verifying on top of what has landed"
    assert doing[KEY] == "fix is to be fetched"


def _run(world: World, key: str, attempt: int, kind: str, seconds: int) -> None:
    """Have had a run of so many seconds."""
    run, at = f"{key}.{attempt}.{kind}-{seconds}", "2026-01-01T00:00:{:02}.000000Z"
    with world.keep() as tx:
        tx.record(e.RunIntended(run, kind, key, attempt, "r", ["true"], "/", {}, {}, BOOT, owner=run))
        tx.record(e.RunStarted(run, 1, 1, BOOT), occurred_at=at.format(0))
        tx.record(e.RunExited(run, kind, 0, "exit", 0), occurred_at=at.format(seconds))


def test_use_success_and_time_of_each_tier_are_counted(world: World) -> None:
    for name, tier, end in (("a", "clean", "LANDED"), ("b", "rules", "LANDED"), ("d", "ai", "REJECTED")):
        bring_entry(world, world.add(name, attempts_allowed=3), end, tier=tier)
    with world.keep() as tx:
        tx.record(e.MailAccepted("c/d/1", "REWORK_REQUEST", "queue", "c.worker-1", "c/d", 1, {"mode": "anew"}, "c/d/1"))
        tx.record(
            e.MailAccepted("c/d/2", "PRIORITY_MERGE", "queue", "c.worker-1", "c/d", 1, {"mode": "rework"}, "c/d/2")
        )
    _run(world, "c/d", 1, "resolve", 7)
    _run(world, "c/d", 1, "agent", 40)
    assert "anew" not in _tally(world), "nobody has taken it up yet"
    _run(world, "c/d", 2, "agent", 5)
    assert _tally(world) == {"clean": (1, 1, 0.0), "rules": (1, 1, 0.0), "ai": (1, 0, 7.0), "anew": (1, 0, 5.0)}
    bring_entry(world, "c/d", "LANDED", 2)
    assert _tally(world) == {"clean": (2, 2, 0.0), "rules": (1, 1, 0.0), "ai": (1, 0, 7.0), "anew": (1, 1, 5.0)}
    world.add("waiting")
    bring_entry(world, "c/waiting", "QUEUED")
    assert _tally(world)["clean"] == (2, 2, 0.0), "one that was not tried yet has come to no tier"


@pytest.mark.parametrize(("path", "tier"), [("uv.lock", "regenerated"), ("main.py", "ai"), ("uv.lock\nmain.py", "ai")])
def test_a_tier_whose_runs_tried_in_vain_was_used_too(world: World, path: str, tier: str) -> None:
    repo = RepoSpec("s", "/repos/s", regenerate={"*.lock": "uv lock"})
    world.submit("v", TaskSpec("t", "true", repo="s"), repos=(repo,))
    bring_entry(world, "v/t", "REJECTED", conflicts=path.split("\n"))
    assert _tally(world, "s") == {"clean": (1, 0, 0.0)}
    for number in (1, 2):
        _run(world, "v/t", 1, "resolve", number)
    assert _tally(world, "s") == {tier: (1, 0, 3.0)}


def _tally(world: World, repo: str = "r") -> dict[str, tuple[int, int, float]]:
    with world.ledger.read() as connection:
        tiers = show_queue(connection, [world.repo(repo)])["tiers"]
    return {row["tier"]: (row["used"], row["landed"], row["seconds"]) for row in tiers if row["used"]}


def test_what_is_over_is_listed_when_asked_for_also_of_archived_convoys(world: World) -> None:
    bring_entry(world, world.add("old", convoy="v"), "LANDED")
    world.settle("v")
    with world.ask() as tx:
        convoys.archive_convoy(tx, world.convoy("v"))
    bring_entry(world, world.add("a"), "REJECTED")
    bring_entry(world, world.add("b"), "QUEUED")
    with world.ledger.read() as connection:
        now = show_queue(connection, [world.repo()])
        ever = show_queue(connection, [world.repo()], ended=True)
        elsewhere = show_queue(connection, [], ended=True)
    assert [row["task"] for row in now["entries"]] == ["c/b"]
    shown = [(row["task"], row["state"], row["doing"]) for row in ever["entries"]]
    assert shown == [
        ("c/b", MergeState.QUEUED, "waiting"),
        ("v/old", MergeState.LANDED, "landed as cccccccccc"),
        ("c/a", MergeState.REJECTED, "rejected: its gate did not pass"),
    ]
    assert elsewhere["entries"] == []


def test_a_landing_that_is_noted_late_does_not_take_the_integration_branch_back(world: World) -> None:
    with world.ask() as tx:
        plans.submit_plan(tx, PlanSpec("more", (TaskSpec("u", "true", repo="r"),), (REPO,)))
    for key in ("c/t", "more/u"):
        bring_entry(world, key, "LANDING")
    with world.keep() as tx:
        merges.note_landed(tx, world.merge("more/u"), world.task("more/u"), at=tx.now, head="e" * 40)
        merges.note_landed(tx, world.merge("c/t"), world.task("c/t"), at=tx.now, head="e" * 40)
    assert world.repo().integration == "e" * 40
    assert world.task("c/t").commit_id == "c" * 40
