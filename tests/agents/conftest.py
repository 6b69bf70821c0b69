"""Real agent programs; where they could not be installed the tests say so, and in CI that is a failure."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agents.stage import PROGRAMS, Stage, Step, is_installed

LEAST_PROGRAMS = 2


def need(*programs: str) -> None:
    """Leave a test out where its program is not here; in CI only while others are."""
    missing = [program for program in programs if not is_installed(program)]
    if not missing:
        return
    if os.environ.get("CI") and sum(map(is_installed, PROGRAMS)) < LEAST_PROGRAMS:
        pytest.fail(f"{', '.join(missing)} could not be installed, and CI must run at least two programs")
    pytest.skip(f"{', '.join(missing)} could not be installed")


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
