"""On a terminal: live progress, and an agent's words that stay words."""

import os
import pty
import subprocess
import sys

from tests.e2e.conftest import Shell


def _run_on_a_terminal(shell: Shell, *arguments: str, columns: int = 120) -> str:
    """Type a command on a terminal of its own and give everything that appeared there."""
    ours, theirs = pty.openpty()
    argv = (sys.executable, "-m", "hivekeeper", *arguments)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    process = subprocess.Popen(argv, cwd=shell.root, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the terminal ends with the last who writes to it
        pass
    os.close(ours)
    process.wait()
    return shown.decode("utf-8", "replace")


def test_a_run_on_a_terminal_shows_a_bar_and_keeps_an_agents_markup_and_escapes_as_text(shell: Shell) -> None:
    said = r"printf '[red]boom[/red]\\033]0;owned\\007\\n'; exit 3"
    plan = shell.plan(
        f"convoy: c\ntasks:\n  - {{id: A, command: \"{said}\", attempts: 1}}\n  - {{id: B, command: 'true'}}\n"
    )
    shown = _run_on_a_terminal(shell, "run", plan)
    assert "1/2" in shown
    assert "last output: [red]boom[/red]" in shown
    assert "\x1b]0;owned" not in shown
