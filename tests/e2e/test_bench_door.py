"""The benchmark of the write lock, in small: others wait for it less than its goal while workers hear of a hotfix."""

import json
import subprocess
import sys

from tests.architecture.sources import ROOT


def test_nobody_waits_long_for_the_write_lock_while_workers_are_told_of_a_hotfix() -> None:
    argv = (sys.executable, "-m", "benchmarks", "door", "--workers", "5", "--paths", "3", "--json")
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    read, waited = json.loads(done.stdout)
    assert read["goal"] == "none"
    assert (waited["name"], waited["goal"]) == ("longest wait for the write lock while 5 workers are told", "≤ 50")
