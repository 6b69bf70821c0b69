"""One story: the clock was ten years ahead for a while, and nothing waits ten years because of it."""

from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState
from tests.scenarios.conftest import Stage

TEN_YEARS_S = 3653 * 86_400.0


def test_a_convoy_that_ended_while_the_clock_was_ahead_is_archived_today(stage: Stage) -> None:
    stage.submit(TaskSpec("A", "true"))
    assert stage.finish() is ConvoyState.COMPLETE
    stage.clock.advance(-TEN_YEARS_S)
    stage.step_until(lambda: stage.convoy().state is ConvoyState.ARCHIVED)
