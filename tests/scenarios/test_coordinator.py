"""A coordinator of one's own that says something else than it said before its death."""

from pathlib import Path

import pytest

from hivekeeper.api import Coordinator, Task
from hivekeeper.errors import InputError


def test_a_program_that_was_changed_is_warned_of_what_stays_and_goes_on_with_what_is_new(tmp_path: Path) -> None:
    with Coordinator("orders", tmp_path) as coordinator:
        assert coordinator.add(Task("one", ["echo", "a b"], output="one.md")) == 1
    with Coordinator("orders", tmp_path) as coordinator:
        assert coordinator.add(Task("one", "echo 'a b'", output="one.md")) == 0
        with pytest.warns(
            UserWarning, match="Task 'one' already exists with a different command and outputs; it was not changed"
        ):
            assert coordinator.add(Task("one", "true"), Task("two", "true", after=["one"])) == 1
        assert [task["task_id"] for task in coordinator.ledger()["tasks"]] == ["one", "two"]


@pytest.mark.parametrize("output", ["/etc/x", "../x", ".hive/ledger.db", "hive.toml", "a\nb"])
def test_a_program_cannot_have_an_output_collected_over_something_else(tmp_path: Path, output: str) -> None:
    with Coordinator("orders", tmp_path) as coordinator, pytest.raises(InputError, match="cannot promise"):
        coordinator.add(Task("one", "true", output=output))
