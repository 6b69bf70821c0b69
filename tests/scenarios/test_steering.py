"""A person steers: what says whether work passes waits for them, and a task that nobody works on is changed."""

from hivekeeper.commands.plans import submit_plan
from hivekeeper.commands.queue import approve_entry
from hivekeeper.commands.tasks import edit_task
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.domain.states import ConvoyState, MergeState, TaskState
from hivekeeper.store import queries
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository


def test_a_change_of_what_its_gate_runs_waits_for_a_person_and_lands_when_they_say_so(
    stage: Scene, repository: Repository
) -> None:
    repository.commit({"check.sh": "exit 0\n"}, "a gate")
    task = TaskSpec("A", "echo 'exit 0 # easier' > check.sh", repo="app")
    stage.submit(task, repos=(repository.spec(verify="sh check.sh"),))

    def find_held() -> str | None:
        with stage.hive.ledger.read() as connection:
            return next((entry.held for entry in queries.list_open_merges(connection)), None)

    stage.step_until(lambda: find_held() is not None)
    assert "check.sh" in str(find_held())
    for _ in range(10):  # it waits, however often it is looked at
        assert stage.keeper
        stage.keeper.step()
    assert stage.states() == {"A": TaskState.IN_PROGRESS}
    with stage.hive.ledger.write(ME) as tx:
        assert approve_entry(tx, stage.task("A"))
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.landed() == ["A"]
    with stage.hive.ledger.read() as connection:
        entry = queries.find_merge(connection, "work/A", 1)
    assert entry is not None
    assert entry.state is MergeState.LANDED


def test_a_task_that_was_edited_before_it_began_does_what_it_says_now(stage: Scene, repository: Repository) -> None:
    first, second = TaskSpec("A", "echo a > a", repo="app"), TaskSpec("B", "exit 1", repo="app", after=("A",))
    with stage.hive.ledger.write(ME) as tx:
        submit_plan(tx, PlanSpec("work", (first, second), (repository.spec(),), defaults={"attempts": 1}))
    with stage.hive.ledger.write(ME) as tx:
        assert edit_task(tx, stage.task("B"), command="echo b > b")
    with stage.hive.ledger.write(ME) as tx:
        assert not edit_task(tx, stage.task("B"), command="echo b > b"), "it is that already"
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.landed() == ["A", "B"]
    assert stage.convoy().get_defaults() == {"attempts": 1}
