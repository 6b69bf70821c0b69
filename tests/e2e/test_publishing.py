"""What landed and is not published is not done: a run says why and what to type, and later it is published at once."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell
from tests.git import git

SOON_S = 20.0  # without a look at the cause, a refused publish is repeated after a minute


@pytest.fixture
def checkout(source: Path) -> Path:
    """A person's check-out, in the middle of a change, in a directory whose name has a space."""
    checkout = source.rename(source.with_name("my app"))
    (checkout / "README").write_text("hello\n")
    git(checkout, "add", "README")
    git(checkout, "commit", "-q", "-m", "read me")
    (checkout / "README").write_text("my own words\n")
    return checkout


def plan(checkout: Path) -> str:
    repo = f"{{path: '{checkout}', publish: checkout}}"
    return f"convoy: c\nrepos:\n  app: {repo}\ntasks:\n  - {{id: A, repo: app, command: 'echo a > a'}}\n"


def tips(checkout: Path) -> tuple[int, str]:
    return int(git(checkout, "rev-list", "--count", "main")), (checkout / "README").read_text()


def test_a_run_whose_check_out_is_in_use_exits_with_1_and_says_why_and_what_to_type(
    shell: Shell, checkout: Path
) -> None:
    said = shell.hive("run", shell.plan(plan(checkout)), code=1)
    assert "COMPLETE  1/1 complete" in said
    assert tips(checkout) == (2, "my own words\n")
    assert f"Could not update main in {checkout}: README is modified." in said
    [typed] = [line.partition("→ ")[2] for line in said.splitlines() if "→ git" in line]
    assert typed == f"git -C '{checkout}' status"
    pasted = subprocess.run(("sh", "-c", typed), cwd="/", capture_output=True, text=True, check=True)
    assert "modified:   README" in pasted.stdout
    assert f"app: not everything that landed is in branch main of {checkout} yet" in said
    for told in (shell.hive("status"), shell.hive("-C", str(shell.root), "status", cwd=Path("/"))):
        assert f"Could not update main in {checkout}: README is modified." in told
        assert f"→ {typed}\n" in told
    assert shell.json("status")["needs_me"] == [
        {"what": f"Could not update main in {checkout}: README is modified.", "type": typed}
    ]
    assert f"→ {typed}\n" in shell.hive("run", "plan.yaml", code=1), "there is nothing new to do, and it is not done"


def test_once_the_check_out_is_clean_it_is_published_within_seconds_and_needs_nobody(
    shell: Shell, checkout: Path
) -> None:
    shell.hive("run", shell.plan(plan(checkout)), code=1)
    shell.start("up")
    shell.wait(shell.keeper_is_active)
    git(checkout, "checkout", "--", "README")
    began_s = time.monotonic()
    shell.wait(lambda: shell.json("status")["needs_me"] == [])
    assert time.monotonic() - began_s < SOON_S
    assert tips(checkout) == (3, "hello\n")
    assert git(checkout, "status", "--porcelain") == ""
    assert (checkout / "a").read_text() == "a\n"
    assert f"app: everything that landed is in branch main of {checkout}" in shell.hive("status")
    shell.hive("down")
    shell.hive("run", "plan.yaml")
