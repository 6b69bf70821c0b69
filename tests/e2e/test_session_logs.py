"""The log that an agent program keeps of its session, read while it works and after its sandbox is gone."""

import os
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell

# Like aider: it keeps its log beside the files, and the hive neither lands it nor takes it for work.
PROGRAM = """\
#!/bin/sh
echo "Aider v0.86.1"
printf '#### make it\\nmade \\033[31mit\\n' > .aider.chat.history.md
while ! test -f {go}; do sleep 0.02; done
echo done > made
echo "Applied edit to made"
echo "Tokens: 1.2k sent, 20 received."
"""
SAID = ["#### make it", "made  [31mit"]


@pytest.fixture
def at_work(shell: Shell, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A hive in which an agent program is at work, and has written its log."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "aider").write_text(PROGRAM.format(go=shell.root / "go"))
    (programs / "aider").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (shell.root / "hive.toml").write_text(f"[sandbox]\nread = ['{shell.root}', '{programs}']\n")
    tasks = "  - {id: A, repo: app, prompt: 'make it', runner: aider}\n  - {id: B, command: 'true'}\n"
    shell.start("run", shell.plan(f"convoy: c\nrepos: {{app: {{path: {source}}}}}\ntasks:\n{tasks}"))
    shell.wait((shell.root / ".hive/sandboxes/c/A.1/work/.aider.chat.history.md").exists)
    return shell


def test_a_sessions_own_log_is_shown_harmless_while_it_works_and_after_its_sandbox_is_gone(at_work: Shell) -> None:
    asked = ("worker", "log", "A", "--session")
    assert at_work.hive(*asked).splitlines() == [*SAID, ".aider.chat.history.md:"]
    assert at_work.hive("worker", "log", "c/A", "--session", "-n", "1").splitlines()[0] == SAID[1]
    (at_work.root / "go").touch()
    assert at_work.started[0].wait(30) == 0
    assert not (at_work.root / ".hive/sandboxes/c/A.1").exists()
    assert at_work.hive(*asked, "--attempt", "1").splitlines() == [*SAID, ".aider.chat.history.md:"]
    assert at_work.hive(*asked, "-n", "0") == ".aider.chat.history.md:\n"


def test_where_there_is_no_log_of_a_session_that_is_said(at_work: Shell) -> None:
    at_work.wait(lambda: bool(at_work.json("task", "show", "B")["attempts"]))
    said = at_work.hive("worker", "log", "B", "--session")
    assert said == "There is no session log of c/B (attempt 1).\n"


def test_a_log_that_is_a_database_is_told_by_its_place(at_work: Shell) -> None:
    log = at_work.root / ".hive/sandboxes/c/A.1/work/.aider.chat.history.md"
    log.write_bytes(b"SQLite format 3\0\x1b[2J")
    said = at_work.hive("worker", "log", "A", "--session")
    assert said == (
        f".aider.chat.history.md:\nIt is a database, not text. It is here: {at_work.root / '.hive/sandboxes/c/A.1'}\n"
    )
