"""Isolation at each level this machine has, below the scratch directory that is always hidden, and elsewhere."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.sandbox.isolation import Isolation, Level, find_isolation
from tests.architecture.sources import ROOT
from tests.sandbox.prison import Prison, get_or_skip


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[Level, Isolation]:
    cache = tmp_path_factory.mktemp("isolation") / "cache"
    return {level: find_isolation(cache, "this boot", wanted=level) for level in Level}


@pytest.fixture(params=["below-tmp", "elsewhere"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "below-tmp":
        yield tmp_path
    else:
        (ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="isolation-", dir=ROOT / "build") as directory:
            yield Path(directory)


@pytest.fixture(params=[Level.LANDLOCK, Level.NAMESPACES])
def prison(request: pytest.FixtureRequest, root: Path, found: dict[Level, Isolation]) -> Prison:
    return _build(found, request.param, root)


@pytest.fixture
def cell(root: Path, found: dict[Level, Isolation]) -> Prison:
    """A prison with the strongest isolation only."""
    return _build(found, Level.NAMESPACES, root)


def _build(found: dict[Level, Isolation], level: Level, root: Path) -> Prison:
    isolation = get_or_skip(found, level)
    return Prison(root, Isolation(level, "", str(root / "home"), bubblewrap=isolation.bubblewrap)).build()
