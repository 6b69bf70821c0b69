"""Reads are quick: they import what they read with, not the keeper."""

import subprocess
import sys

import pytest

from tests.e2e.conftest import Shell

HEAVY = (
    "hivekeeper.keeper", "hivekeeper.loops", "hivekeeper.doctor", "hivekeeper.testing",
    "hivekeeper.config.plans", "yaml", "jsonschema"
)  # fmt: skip
TELL = """
import sys
from hivekeeper.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sys.modules, file=sys.stderr)
"""


def _list_imports(shell: Shell, *arguments: str) -> set[str]:
    argv = (sys.executable, "-c", TELL, *arguments)
    done = subprocess.run(argv, cwd=shell.root, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_a_read_imports_neither_the_keeper_nor_the_parser_of_plans_and_settings(shell: Shell) -> None:
    assert _list_imports(shell, "convoy", "ls").isdisjoint({*HEAVY, "hivekeeper.config.settings"})


@pytest.mark.parametrize("arguments", [("status", "--json"), ("down",)])
def test_what_needs_settings_or_ends_a_keeper_imports_no_loop(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert "hivekeeper.loops" not in _list_imports(shell, *arguments)
