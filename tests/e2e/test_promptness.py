"""What is held against the clock, and is therefore tried alone."""

import json

import pytest

from hivekeeper.clock import to_seconds
from tests.e2e.conftest import Shell
from tests.e2e.test_keepers import begin_slow

pytestmark = pytest.mark.alone


def test_an_exit_is_recorded_within_a_second_of_it_happening(shell: Shell) -> None:
    begin_slow(shell)
    (shell.root / "go").touch()
    assert shell.started[0].wait(30) == 0
    lines = shell.hive("log", "-n", "100", "--json").splitlines()
    ended = [line for line in lines if '"run.exited"' in line]
    assert len(ended) == 1
    event = json.loads(ended[0])
    assert to_seconds(event["recorded_at"]) - to_seconds(event["occurred_at"]) < 1.0
