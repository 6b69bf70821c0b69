"""The benchmark of collecting and searching session logs, in small."""

import json
import subprocess
import sys

from tests.architecture.sources import ROOT


def test_a_log_is_collected_in_bounded_memory_searched_and_measured() -> None:
    argv = (sys.executable, "-m", "benchmarks", "seance", "--megabytes", "3", "--json")
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    figures = {figure["name"]: figure for figure in json.loads(done.stdout)}
    assert figures["memory to collect a log of 3 MB"]["reached"]
    assert figures["search 3 MB of logs"]["goal"] == "≤ 200"
