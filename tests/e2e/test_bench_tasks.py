"""The benchmark of tiny tasks, in small: it measures all it promises, and leaves nothing behind."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT
from tests.e2e.test_bench_workers import _list_processes_at
from tests.needs import need_program
from tests.runs.conftest import poll_until

ARGV = (sys.executable, "-m", "benchmarks", "tasks", "--tasks", "10", "--rounds", "1", "--events", "20", "--json")
AGAINST_HUEY = "without the sandbox, 8 workers / huey, 8 workers"
GOALS = {
    "with the sandbox, 8 workers / xargs -P 8 bwrap": "≥ 0.60",
    AGAINST_HUEY: "≥ 0.50",
    "with the sandbox, 32 workers / with the sandbox, 8 workers": "≥ 1.00",
    "without the sandbox, 32 workers / without the sandbox, 8 workers": "≥ 1.00",
    "single durable events / disk overwrites": "≥ 0.50",
}


def test_every_figure_is_there_with_its_goal_and_nothing_is_left_behind(tmp_path: Path) -> None:
    need_program("bwrap", "sandboxes are measured against bare bubblewrap")
    argv = (*ARGV, "--directory", str(tmp_path))
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in (0, 1), done.stderr
    figures = {row["name"]: row for row in json.loads(done.stdout)}
    assert {name: row["goal"] for name, row in figures.items() if row["goal"] != "none"} == GOALS
    for row in figures.values():
        assert row["reached"] == (row["goal"] == "none" or row["value"] >= float(row["goal"][2:])), row
    assert done.returncode == (0 if all(row["reached"] for row in figures.values()) else 1)
    unmeasured = [name for name, row in figures.items() if row["value"] <= 0]
    assert unmeasured == ([] if importlib.util.find_spec("huey") else [AGAINST_HUEY])
    assert all(figures[name]["detail"] == "not measured: huey is not installed" for name in unmeasured)
    assert list(tmp_path.iterdir()) == []
    poll_until(lambda: not _list_processes_at(tmp_path), "the last wrapper's shutdown")
