"""Real agent programs; where they could not be installed the tests say so, and in CI that is a failure."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.agents.stage import Stage, Step, is_installed


def need(*programs: str) -> None:
    """Leave a test out where its program is not here, but not in CI."""
    missing = [program for program in programs if not is_installed(program)]
    needs.need(not missing, f"{', '.join(missing)} could not be installed: make .agents")


@pytest.fixture
def set_stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """A maker of stages; each is closed at the end."""
    made: list[Stage] = []

    def make(*rules: Step) -> Stage:
        stage = Stage(tmp_path / f"stage-{len(made)}", rules)
        made.append(stage)
        return stage

    yield make
    for stage in made:
        stage.close()
