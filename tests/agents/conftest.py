"""Real agent programs; where they could not be installed the tests say so, and in CI that is a failure."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.agents.stage import Desk, Step, is_installed

# Of these files some stories are told for each commit; with every program that it names the first is told each time.
STORIES = ("test_landing.py", "test_answers.py", "test_acp.py", "test_planning.py")
EVERY_TIME = ("test_it_edits_commits_and_lands_and_what_it_used_is_counted",)
HERE = Path(__file__).parent


def need(*programs: str) -> None:
    """Leave a test out where its program is not here, but not in CI."""
    missing = [program for program in programs if not is_installed(program)]
    needs.need(not missing, f"{', '.join(missing)} could not be installed: make .agents")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the stories that are told for other commits."""
    stories = {
        item: item.name.partition("[")[0]
        for item in items
        if item.path.parent == HERE and item.path.name in STORIES and not item.name.startswith(EVERY_TIME)
    }
    needs.leave_out(config, items, "agents", stories)


@pytest.fixture
def set_stage(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """A maker of stages; each is closed at the end."""
    made: list[Desk] = []

    def make(*rules: Step) -> Desk:
        stage = Desk(tmp_path / f"stage-{len(made)}", rules)
        made.append(stage)
        return stage

    yield make
    for stage in made:
        stage.close()
