"""One story: the clock was ten years ahead for a while, and nothing waits ten years because of it."""

import itertools

import pytest

from hivekeeper.commands.sessions import place_hold
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.domain.session import Hold
from hivekeeper.domain.states import ConvoyState, RunState, TaskState
from tests.scenarios.conftest import Scene
from tests.stage import Repository

TEN_YEARS_S = 3653 * 86_400.0


def test_a_convoy_that_ended_while_the_clock_was_ahead_is_archived_today(stage: Scene) -> None:
    stage.submit(TaskSpec("A", "true"))
    assert stage.finish() is ConvoyState.COMPLETE
    stage.clock.advance(-TEN_YEARS_S)
    stage.step_until(lambda: stage.convoy().state is ConvoyState.ARCHIVED)


@pytest.mark.parametrize("jumps", [(TEN_YEARS_S,), (-TEN_YEARS_S,), (TEN_YEARS_S, -TEN_YEARS_S)], ids=str)
def test_work_goes_on_whenever_the_clock_jumps(stage: Scene, repository: Repository, jumps: tuple[float, ...]) -> None:
    """Two tasks in a row, the first refused once by its gate: every order of steps is that of their events."""
    spec = RepoSpec("app", str(repository.path), "main", verify="! test -e bad", setup="touch made", keep=("made",))
    command = 'if [ -z "$HIVE_FEEDBACK" ]; then touch bad; else rm -f bad; fi; touch a$HIVE_ATTEMPT'
    first = TaskSpec("A", command, repo="app", attempts=2)
    stage.submit(first, TaskSpec("B", "touch b", repo="app", after=("A",)), repos=(spec,))
    later = itertools.cycle(jumps)

    def is_over() -> bool:
        stage.clock.advance(next(later) / 100)
        return stage.convoy().state is not ConvoyState.ACTIVE and stage.is_quiet()

    stage.step_until(is_over)
    assert stage.states() == {"A": TaskState.COMPLETE, "B": TaskState.COMPLETE}
    assert [len(stage.attempts(task)) for task in "AB"] == [2, 1]


def test_what_a_worker_makes_is_saved_though_the_last_save_was_noted_years_ahead(
    stage: Scene, repository: Repository
) -> None:
    stage.submit(TaskSpec("A", "touch x; while :; do sleep 0.05; done", repo="app"), repos=(repository.spec(),))

    def count_saves() -> int:
        return sum(run.kind == "save" and not run.is_open for run in stage.runs("A"))

    stage.step_until(lambda: any(run.kind == "agent" and run.state is RunState.RUNNING for run in stage.runs("A")))
    stage.clock.advance(TEN_YEARS_S)
    stage.step_until(lambda: count_saves() == 1)
    stage.clock.advance(-TEN_YEARS_S)
    stage.step_until(lambda: count_saves() == 2)


def test_a_worker_that_was_parked_by_a_clock_ahead_goes_on_when_it_is_set_right(stage: Scene) -> None:
    hold = Hold("task", "work/A", "server-error", 60.0, 1)
    stage.submit(TaskSpec("A", "true"))
    stage.clock.advance(TEN_YEARS_S)
    with stage.hive.ledger.write((stage.keeper or stage.take()).authority) as tx:
        place_hold(tx, hold, why="it was away")
    stage.clock.advance(-TEN_YEARS_S)
    assert stage.finish() is ConvoyState.COMPLETE
