"""Git as a person types it in a test: their name, nobody's settings, and an error that is told."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

IDENTITY = {f"GIT_{who}_{what}": "ann" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
NOBODYS = {**IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_COUNT": "0"}


def git(directory: Path, *arguments: str, text: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run git in a directory, with this text as its input, and give what it says without the last line break."""
    argv = ("git", "-C", str(directory), *arguments)
    given = {**os.environ, **NOBODYS, **(environment or {})}
    done = subprocess.run(argv, env=given, check=False, capture_output=True, text=True, input=text)
    assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}: {done.stderr}"
    return done.stdout.rstrip("\n")
