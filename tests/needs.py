"""What a test needs of the machine: where it is missing the test is skipped and says why; in CI it fails."""

import os
import shutil
import subprocess
from functools import cache

import pytest


def need(condition: object, why: str) -> None:
    """Skip the test unless the machine has what it needs; in CI, where everything has to be there, fail it."""
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(f"{why}; in CI this may not be left out", pytrace=False)
    pytest.skip(why)


def need_root(why: str) -> None:
    need(os.geteuid() == 0, f"needs root: {why}")


def need_strace() -> None:
    problem = find_strace_problem()
    need(problem is None, problem or "")


@cache
def find_strace_problem() -> str | None:
    """Tell why strace cannot be used here; None when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed: apt-get install strace"
    tried = subprocess.run(("strace", "-qq", "-e", "trace=none", "true"), check=False, capture_output=True, text=True)
    return None if tried.returncode == 0 else f"strace may not trace here (is ptrace allowed?): {tried.stderr.strip()}"
