"""One story: a convoy is tried as a whole before it is complete."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hivekeeper.commands.plans import submit_plan
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.store import queries
from hivekeeper.store.ledger import Authority, Ledger, Transaction
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository


def submit(stage: Scene, repository: Repository, accept: str) -> None:
    tasks = (TaskSpec("A", "echo a > a", repo="app"), TaskSpec("B", "echo b > b", repo="app"))
    with stage.hive.ledger.write(ME) as tx:
        submit_plan(tx, PlanSpec("work", tasks, (repository.spec(),), accept=accept))


def test_a_convoy_is_complete_when_its_command_passes_on_all_that_landed(stage: Scene, repository: Repository) -> None:
    submit(stage, repository, "test -f app/a && test -f app/b && test ! -e app/.git")
    assert stage.finish() is ConvoyState.COMPLETE
    assert not any((stage.hive.places.hive / "gates").glob("*/*"))


def test_a_convoy_that_is_not_accepted_has_failed_until_it_is_handed_in_again(
    stage: Scene, repository: Repository
) -> None:
    flag = stage.root / "now-it-works"
    submit(stage, repository, f"test -e {flag} || {{ echo not yet; exit 4; }}")
    assert stage.finish() is ConvoyState.FAILED
    with stage.hive.ledger.read() as connection:
        failed = [event for event in queries.list_events_about(connection, "work", after=0, until=10_000, limit=-1)
                  if event.body.kind == "convoy.failed"]  # fmt: skip
    assert failed[-1].why == "its accept command failed: exit code 4; last output: not yet"
    flag.touch()
    submit(stage, repository, f"test -e {flag} || {{ echo not yet; exit 4; }}")
    assert stage.finish() is ConvoyState.COMPLETE
    assert [len(stage.attempts(task)) for task in ("A", "B")] == [1, 1]


def test_a_task_added_while_its_convoy_is_being_ended_is_not_stranded(
    stage: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.submit(TaskSpec("A", "true"))
    loops = {loop.name: loop for loop in stage.take().loops}
    janitor, write = loops.pop("janitor"), Ledger.write
    while stage.task("A").state is not TaskState.COMPLETE:
        stage.changed.clear()
        moved = [loop.run_once() for loop in loops.values()]
        stage.changed.wait(0.0 if any(moved) else 0.1)

    @contextmanager
    def write_later(ledger: Ledger, authority: Authority) -> Iterator[Transaction]:
        monkeypatch.undo()
        stage.submit(TaskSpec("B", "true"))
        with write(ledger, authority) as tx:
            yield tx

    monkeypatch.setattr(Ledger, "write", write_later)
    janitor.run_once()
    assert stage.finish() is ConvoyState.COMPLETE
    assert stage.states() == {"A": TaskState.COMPLETE, "B": TaskState.COMPLETE}
