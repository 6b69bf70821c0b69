"""Tests are dealt out by their names, so which of them are alone has to be read from their files."""

from tests.architecture.sources import ROOT, read_sources
from tests.conftest import ALONE, list_alone


def test_every_file_with_tests_that_are_alone_is_dealt_out_as_one() -> None:
    sources = [source for source in read_sources(ROOT / "tests") if source.name.rpartition("/")[2].startswith("test_")]
    marked = [f"tests/{source.name}" for source in sources if ALONE in source.text]
    assert "tests/hostile/test_mailboxes.py" in marked
    assert [file for file in marked if not list_alone(file)] == []
