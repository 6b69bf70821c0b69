"""Walls of each level this machine has, below the scratch directory that is always hidden, and elsewhere."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.sandbox.walls import Level, Walls, find_walls
from tests.architecture.sources import ROOT
from tests.walls.prison import Prison, get_or_skip


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[Level, Walls]:
    cache = tmp_path_factory.mktemp("walls") / "cache"
    return {level: find_walls(cache, "this boot", wanted=level) for level in Level}


@pytest.fixture(params=["below-tmp", "elsewhere"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "below-tmp":
        yield tmp_path
    else:
        (ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="walls-", dir=ROOT / "build") as directory:
            yield Path(directory)


@pytest.fixture(params=[Level.LANDLOCK, Level.NAMESPACES])
def prison(request: pytest.FixtureRequest, root: Path, found: dict[Level, Walls]) -> Prison:
    return _build(found, request.param, root)


@pytest.fixture
def cell(root: Path, found: dict[Level, Walls]) -> Prison:
    """A prison with the strongest walls only."""
    return _build(found, Level.NAMESPACES, root)


def _build(found: dict[Level, Walls], level: Level, root: Path) -> Prison:
    walls = get_or_skip(found, level)
    return Prison(root, Walls(level, "", str(root / "home"), bubblewrap=walls.bubblewrap)).build()
