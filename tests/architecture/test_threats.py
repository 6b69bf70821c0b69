"""The threat page names tests that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explain" / "threats.md").read_text("utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED)))
def test_every_test_that_the_threat_page_names_is_there(file: str, test: str) -> None:
    assert f"\ndef {test}(" in (ROOT / file).read_text("utf-8")


def test_every_line_of_its_tables_names_one() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| It cannot")]
    assert rows
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py::\w+`", row)] == []
