"""On a terminal: live progress, and an agent's words that stay words."""

import json
import os
import pty
import re
import signal
import subprocess
import sys

from tests.e2e.conftest import Shell

CLEARED = "\x1b[2J\x1b[H"


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


def test_a_watched_status_is_drawn_anew_in_its_place_until_ctrl_c(shell: Shell) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    # With a terminal of its own, so that Ctrl-C comes from there, as when a person types it.
    argv = ("setsid", "--ctty", sys.executable, "-m", "hivekeeper", "status", "--watch")
    process = subprocess.Popen(
        argv, cwd=shell.root, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, text=True
    )
    shell.started.append(process)
    os.close(theirs)
    shown = ""
    while shown.count("Keeper: not running") < 2:
        shown += os.read(ours, 65536).decode()
    os.write(ours, b"\x03")
    assert process.wait(30) == 0
    os.close(ours)
    _, *pictures = re.sub(r"\x1b\[[0-9;]*m", "", shown).split(CLEARED)
    assert [picture.splitlines()[:2] for picture in pictures] == [["Nothing needs you.", "Keeper: not running"]] * 2


def test_a_watched_status_that_is_piped_is_one_after_the_other_without_escapes(shell: Shell) -> None:
    process = shell.start("status", "--watch")
    assert process.stdout is not None
    lines = list[str]()
    while lines.count("Keeper: not running\n") < 2:
        lines.append(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    said = "".join(lines) + process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert said.count("Nothing needs you.\nKeeper: not running\n") == 2
    assert "\x1b" not in said
    assert "Traceback" not in said


def test_a_watched_status_for_programs_is_a_line_each_time(shell: Shell) -> None:
    process = shell.start("status", "--watch", "--json")
    assert process.stdout is not None
    assert [json.loads(process.stdout.readline())["needs_me"] for _ in range(2)] == [[], []]
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == ""
    assert process.returncode == 0
