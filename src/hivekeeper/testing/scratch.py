"""What the demo and rehearsals share: the installed command in a child process, git without settings, and a count."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

from hivekeeper.testing.history import History


def start_hive(directory: Path, *arguments: str, out: TextIO | None = None) -> "subprocess.Popen[bytes]":
    """Start `hive` as a person would; what it says goes where ours goes, or to `out`."""
    return subprocess.Popen((sys.executable, "-m", "hivekeeper", *arguments), cwd=directory, stdout=out)


def git(*arguments: str) -> str:
    """Run git with nobody's settings and tell what it said."""
    identity = {f"GIT_{who}_{what}": "demo" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(("git", *arguments), capture_output=True, check=True, text=True, env=environment)
    return done.stdout.rstrip()


def count_tasks(history: History) -> list[dict[str, Any]]:
    """Make a row a task: how it ended, how often it was tried, begun and landed."""
    landed = Counter(commit.task for commit in history.landed)
    return [
        {
            "task": task.id,
            "status": task.state.value,
            "attempts": task.attempts,
            "began": sum(times for (key, _), times in history.begun.items() if key == task.key),
            "landed": landed[task.key],
        }
        for task in history.tasks
    ]
