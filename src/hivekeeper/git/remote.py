"""Asking a person's repository, near or far, what it has; nothing of it is touched."""

import os
import subprocess

from hivekeeper.domain.names import find_nearest
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.git.orders import CLEAN_ENVIRONMENT

_LONGEST_ANSWER_S = 60.0
_MOST_NAMED = 5


def get_branch(source: str, branch: str) -> str:
    """Get the commit a branch is at just now, or say which branches there are."""
    branches = list_branches(source)
    if branch not in branches:
        hint = find_nearest(branch, branches)
        names = ", ".join(list(branches)[:_MOST_NAMED]) + (" …" if len(branches) > _MOST_NAMED else "")
        there = f"It has {names}." if branches else "It has no branch yet."
        advice = f"Did you mean '{hint}'? {there}" if hint else there
        raise InputError(f"{source} has no branch '{branch}'.", advice=advice)
    return branches[branch]


def list_branches(source: str) -> dict[str, str]:
    """List a repository's branches with their commits; all of them, so that no name of anybody's is handed to git."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    try:
        result = subprocess.run(  # noqa: S603 - argv is ours, and behind "--" nothing is an option
            ("git", "ls-remote", "--quiet", "--heads", "--", source),  # noqa: S607 - git is wherever PATH says
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            cwd="/",  # in a repository git would follow that one's settings
            env={**inherited, **CLEAN_ENVIRONMENT},
            encoding="utf-8",
            errors="surrogateescape",
            timeout=_LONGEST_ANSWER_S,
        )
    except subprocess.TimeoutExpired:
        what = f"{source} has not answered for {_LONGEST_ANSWER_S:.0f} s."
        raise UnavailableError(what, advice=f"Nothing was submitted. Try: git ls-remote {source}") from None
    if result.returncode != 0:
        said = (result.stderr.strip().splitlines() or [f"git ls-remote ended with {result.returncode}"])[0]
        what = f"{source} cannot be read: {said}"
        raise UnavailableError(what, advice=f"Nothing was submitted. Try: git ls-remote {source}")
    lines = (line.partition("\trefs/heads/") for line in result.stdout.splitlines())
    return {name: commit for commit, _, name in lines}
