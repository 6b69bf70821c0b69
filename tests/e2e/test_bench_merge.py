"""The benchmark of the merge queue, in small: it measures all it promises, and leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.architecture.sources import ROOT
from tests.e2e.test_bench_workers import _list_processes_at

SHARE, CHECK_OUT = "git's share of a landing, {} files", "fresh worktree / check-out for the gate, {} files"
AGAINST = f"fresh worktree and git merge / {SHARE}"
MEASURED = {
    f"{SHARE}, p50".format(20): "≤ 50",
    AGAINST.format(20): "≥ 10",
    CHECK_OUT.format(20): "≥ 10",
    f"{SHARE}, p50".format(100): "≤ 50",
    AGAINST.format(100): "≥ 100",
    CHECK_OUT.format(100): "≥ 10",
    "git's share of a landing, 100 files / 20": "≤ 2",
    "4 branches behind a gate of 0.1 s, one at a time / four at once": "≥ 2.5",
}
WRONG = "strict, {} at once, simulated: good changes refused when 5 % of all runs fail for nothing"
SIMULATED = {
    "strict, 2 at once / one at a time, simulated": "≥ 1.7",
    "strict, 4 at once / one at a time, simulated": "≥ 3",
    "strict, 8 at once / one at a time, simulated": "≥ 4",
    **{WRONG.format(slots): "≤ 0.5" for slots in (1, 2, 4, 8)},
}


def measure(*arguments: str) -> list[dict[str, Any]]:
    """Measure; the exit code says whether all goals are reached, and each figure whether its own is."""
    argv = (sys.executable, "-m", "benchmarks", *arguments, "--json")
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in (0, 1), done.stderr
    figures: list[dict[str, Any]] = json.loads(done.stdout)
    for row in figures:
        than, _, goal = row["goal"].partition(" ")
        assert row["reached"] == (row["value"] <= float(goal) if than == "≤" else row["value"] >= float(goal)), row
    assert done.returncode == (0 if all(row["reached"] for row in figures) else 1)
    return figures


def test_every_figure_is_there_with_its_goal_and_nothing_is_left_behind(tmp_path: Path) -> None:
    figures = measure("merge", "--small", "--directory", str(tmp_path))
    assert {row["name"]: row["goal"] for row in figures} == MEASURED
    assert all(row["value"] > 0 for row in figures), "time passes"
    assert list(tmp_path.iterdir()) == []
    assert _list_processes_at(tmp_path) == []


def test_the_policy_reaches_its_goals_in_virtual_time() -> None:
    figures = measure("simulate", "--seeds", "2")
    assert {row["name"]: row["goal"] for row in figures} == SIMULATED
    assert [row["name"] for row in figures if not row["reached"]] == []
