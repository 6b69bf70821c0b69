"""What a test needs of the machine, and whether its turn has come with this commit.

Where something is missing the test is skipped and says why; in CI it fails.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.budget import choose

NOBODY = 65_534  # a user without rights


def need(condition: object, why: str) -> None:
    """Skip the test unless the machine has what it needs; in CI, where everything has to be there, fail it."""
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(f"{why}; in CI this may not be left out", pytrace=False)
    pytest.skip(why)


def need_root(why: str) -> None:
    need(os.geteuid() == 0, f"needs root: {why}")


def need_program(name: str, why: str) -> None:
    need(shutil.which(name), f"needs {name}: {why}")


def become_nobody() -> None:
    """Be a user without rights from now on, if this process may choose."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


@contextmanager
def small_disk(path: Path, *options: str) -> Iterator[Path]:
    """A file system of its own at this path, such as one of `size=8m`."""
    path.mkdir(exist_ok=True)
    argv = ("mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(path))
    mounted = subprocess.run(argv, check=False, capture_output=True, text=True)
    need(mounted.returncode == 0, f"a disk of its own needs root and the right to mount: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(("umount", "--lazy", str(path)), check=True)


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


def leave_out(config: pytest.Config, items: list[pytest.Item], tier: str, parts: Mapping[pytest.Item, str]) -> None:
    """Leave out the tests of those parts of a tier that are for other commits, unless some were asked for by name."""
    if not parts or config.option.keyword or any("::" in argument for argument in config.args):
        return
    chosen = choose(tier, dict.fromkeys(parts.values()))
    left_out = [item for item, part in parts.items() if part not in chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
