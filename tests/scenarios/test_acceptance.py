"""One story: a convoy is tried as a whole before it is complete."""

from hivekeeper.commands.plans import submit_plan
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.domain.states import ConvoyState
from hivekeeper.store import queries
from tests.scenarios.conftest import ME, Repository, Stage


def submit(stage: Stage, repository: Repository, accept: str) -> None:
    tasks = (TaskSpec("A", "echo a > a", repo="app"), TaskSpec("B", "echo b > b", repo="app"))
    with stage.hive.ledger.write(ME) as tx:
        submit_plan(tx, PlanSpec("work", tasks, (repository.spec(),), accept=accept))


def test_a_convoy_is_complete_when_its_command_passes_on_all_that_landed(stage: Stage, repository: Repository) -> None:
    submit(stage, repository, "test -f app/a && test -f app/b && test ! -e app/.git")
    assert stage.finish() is ConvoyState.COMPLETE
    assert not any((stage.hive.places.hive / "gates").glob("*/*"))


def test_a_convoy_that_is_not_accepted_has_failed_until_it_is_handed_in_again(
    stage: Stage, repository: Repository
) -> None:
    flag = stage.root / "now-it-works"
    submit(stage, repository, f"test -e {flag} || {{ echo not yet; exit 4; }}")
    assert stage.finish() is ConvoyState.FAILED
    with stage.hive.ledger.read() as connection:
        failed = [event for event in queries.list_events_about(connection, "work", after=0, until=10_000, limit=-1)
                  if event.body.kind == "convoy.failed"]  # fmt: skip
    assert failed[-1].why == "it was not accepted: the command ended with exit code 4, saying: not yet"
    flag.touch()
    submit(stage, repository, f"test -e {flag} || {{ echo not yet; exit 4; }}")
    assert stage.finish() is ConvoyState.COMPLETE
    assert [len(stage.attempts(task)) for task in ("A", "B")] == [1, 1]
