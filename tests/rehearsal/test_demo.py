"""`hive demo`, as a person types it: agents crash, hang and lie, a keeper is killed, nothing is lost or done twice."""

import subprocess
import sys
from pathlib import Path

import pytest

from hivekeeper.testing.demo import run_demo
from tests.budget import choose

DEADLINE_S = 100.0


def play_story(tmp_path: Path, _capfd: pytest.CaptureFixture[str]) -> None:
    argv = (
        sys.executable,
        "-m",
        "hivekeeper",
        "demo",
        "--tasks",
        "15",
        "--workers",
        "8",
        "--keep",
        str(tmp_path / "kept"),
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert "26 tasks: nothing lost, nothing done twice" in said
    assert "one keeper killed" in said
    assert "*** kill -9 " in said
    for ending in ("exit code 1", "longer than its silence limit", "exit code 0 but changed nothing"):
        assert ending in said
    assert "Every worker is in a sandbox: " in said or "Workers are not isolated, only limited: " in said
    assert len((tmp_path / "kept" / "signs" / "marks").read_text().splitlines()) >= 15 + 9


def play_chaos(_tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every agent begins badly, and three keepers die."""
    rows, wrong, _ = run_demo(tasks=12, workers=6, keep=None, chaos=True)
    assert wrong == []
    assert {(row["status"], row["landed"]) for row in rows} == {("COMPLETE", 1)}
    said = capfd.readouterr().out
    assert said.count("*** kill -9 ") == 3
    assert "more processes than its limit" in said
    assert "more to disk than its limit" in said


DEMOS = {"story": play_story, "chaos": play_chaos}  # one of them for each commit


@pytest.mark.parametrize("demo", choose("demos", DEMOS))
def test_the_demo_ends_well_and_says_what_happened_in_it(
    demo: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    DEMOS[demo](tmp_path, capfd)
