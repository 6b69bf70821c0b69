"""What the demo and rehearsals share: a hive whose workers can leave signs, the installed command, git, and a count."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

from hivekeeper.config.values import FILE_NAME
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.hive import open_hive
from hivekeeper.keeper.programs import find_hive_isolation
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.sandbox.isolation import Isolation, Level
from hivekeeper.testing.history import History


def make_directory(keep: Path | None, what: str) -> Path:
    """Make a directory to play in: the one to keep everything in, or one of its own."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix=f"hive-{what}-")).resolve()
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise InputError(f"{keep} is not empty.", advice="Name a directory that is not there yet.")
    except OSError as error:
        raise UnavailableError(f"A {what} cannot be kept in {keep}: {error.strerror}.") from None
    return keep.resolve()


def read_lines(path: Path) -> list[str]:
    """Read a file that is there only if somebody had something to say."""
    return path.read_text().splitlines() if path.exists() else []


def write_settings(root: Path, signs: Path) -> None:
    """Let workers leave signs outside of their sandboxes, and have what they make kept as often as can be."""
    text = f'[sandbox]\nwrite = [{json.dumps(str(signs), ensure_ascii=False)}]\nsnapshot_every = "1s"\n'
    (root / FILE_NAME).write_text(text, "utf-8")


def find_isolation(root: Path) -> Isolation:
    """Find the isolation that a keeper will give the workers of a hive."""
    hive = open_hive(root)
    try:
        return find_hive_isolation(hive, read_boot_id())
    finally:
        hive.close()


def describe_isolation(isolation: Isolation) -> str:
    """Say which isolation this is, and why there is none stronger."""
    if isolation.level is Level.LIMITS:
        return f"Workers are not isolated, only limited: {isolation.why}."
    why = f"; {isolation.why}" if isolation.why else ""
    return f"Every worker is in a sandbox: {isolation.level} ({isolation.level.builder}{why})."


def start_hive(directory: Path, *arguments: str, out: TextIO | None = None) -> "subprocess.Popen[bytes]":
    """Start `hive` as a person would; what it says goes where ours goes, or to `out`."""
    return subprocess.Popen((sys.executable, "-m", "hivekeeper", *arguments), cwd=directory, stdout=out)


def git(*arguments: str) -> str:
    """Run git with nobody's settings and tell what it said."""
    identity = {f"GIT_{who}_{what}": "demo" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    environment["GIT_TERMINAL_PROMPT"] = "0"  # nobody is there to answer
    done = subprocess.run(
        ("git", *arguments), capture_output=True, check=True, text=True, errors="surrogateescape", env=environment
    )
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
