"""The benchmark of workers, in small: it measures all it promises, and leaves nothing behind however it ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT
from tests.e2e.conftest import Shell

ARGV = (sys.executable, "-m", "benchmarks", "workers")
TINY = (*ARGV, "--workers", "2", "--files", "20", "--tasks", "2", "--seconds", "0.2")
GOALS = {
    "sandbox / git worktree add": "≤ 1.00",
    "dispatch to agent running, p50": "< 200",
    "keeper of 2 workers, share of a core": "< 10",
    "keeper of 2 workers, memory": "< 200",
    "memory a worker beside its agent": "< 3",
    "2 wrappers, share of a core": "none",
    "2 workers adopted after kill -9": "< 2",
}


def _list_processes_at(directory: Path) -> list[int]:
    """List the processes that a hive in a directory has started, or that work there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "environ").read_bytes() + os.fsencode((process / "cwd").readlink())
        except OSError:  # gone meanwhile, or not ours
            continue
        if os.fsencode(directory) in told:
            found.append(int(process.name))
    return found


def test_every_figure_is_there_with_its_goal_and_nothing_is_left_behind(tmp_path: Path) -> None:
    argv = (*TINY, "--directory", str(tmp_path), "--json")
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    figures = {row["name"]: row for row in json.loads(done.stdout)}
    assert {name: row["goal"] for name, row in figures.items()} == GOALS
    assert done.returncode == (0 if all(row["reached"] for row in figures.values()) else 1), done.stderr
    for row in figures.values():
        below, _, goal = row["goal"].partition(" ")
        assert row["reached"] == (below == "none" or row["value"] < float(goal)), row
    measured = [row["value"] for name, row in figures.items() if "share of a core" not in name]
    assert all(value > 0 for value in measured), "time passes, and memory is used; two sleepers may take no time at all"
    assert list(tmp_path.iterdir()) == []
    assert _list_processes_at(tmp_path) == []


def test_interrupted_with_workers_at_work_it_leaves_no_process_and_no_directory(shell: Shell, tmp_path: Path) -> None:
    directory = tmp_path / "bench"
    directory.mkdir()
    argv = (*TINY, "--directory", str(directory))
    bench = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    shell.started.append(bench)
    shell.wait(lambda: any(directory.glob("*/*/.hive/runs/held/hold.1.agent/claim")))
    assert _list_processes_at(directory)
    bench.send_signal(signal.SIGINT)
    bench.communicate(timeout=20)
    assert bench.returncode not in (0, 1)
    assert list(directory.iterdir()) == []
    assert _list_processes_at(directory) == []
