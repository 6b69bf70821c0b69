"""`hive demo`, as a person types it: agents crash, hang and lie, a keeper is killed, nothing is lost or done twice."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hivekeeper.cli import rehearse
from hivekeeper.testing import demo as story
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
    status, card, log = look_around(said)
    assert "Nothing needs you." in status
    assert "25/25 complete" in card, "the hotfix is in a convoy of its own"
    assert log.count("\ncommit ") + 1 >= 26


def look_around(said: str) -> list[str]:
    """Type elsewhere what the last line says one may type; give what each said."""
    _, found, typed = said.splitlines()[-1].partition("Look around:  ")
    assert found, said
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return [
        subprocess.run(
            ("sh", "-c", words), cwd="/", env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
        ).stdout
        for words in typed.split(";  ")
    ]


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


def test_where_it_is_kept_can_be_looked_at_from_anywhere_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"task": "part-01", "status": "COMPLETE", "attempts": 1, "began": 1, "landed": 1}
    monkeypatch.setattr(story, "run_demo", lambda **_: ([row], [], 1.0))
    monkeypatch.chdir(tmp_path)
    rehearse.demo(tasks=4, workers=4, chaos=False, keep=Path("my demo"))
    last = capsys.readouterr().out.splitlines()[-1]
    place = tmp_path / "my demo"
    kept, _, typed = last.partition(" Look around:  ")
    assert kept == f"Everything is kept in {place}."
    assert [shlex.split(words) for words in typed.split(";  ")] == [
        ["hive", "-C", str(place / "hive"), "status"],
        ["hive", "-C", str(place / "hive"), "convoy", "show", "shop"],
        ["git", "-C", str(place / "shop"), "log", "hive/main"],
    ]
    rehearse.demo(tasks=4, workers=4, chaos=False, keep=None)
    assert "Look around" not in capsys.readouterr().out
