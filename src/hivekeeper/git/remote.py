"""Asking a person's repository, near or far, what it has and what it is in; nothing of it is touched."""

import os
import subprocess
from pathlib import Path

from hivekeeper.domain.names import find_nearest
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.git.forward import UNDER_WAY, Refusal
from hivekeeper.git.orders import CLEAN_ENVIRONMENT

_LONGEST_ANSWER_S = 60.0
_MOST_NAMED = 5
_LONGEST_LOOK_S = 5.0


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


def has_branch(source: str, branch: str) -> bool:
    """Tell whether a repository has a branch; one that cannot be read has none."""
    try:
        return branch in list_branches(source)
    except UnavailableError:
        return False


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


def has_cleared(path: str, branch: str, refusal: Refusal) -> bool:
    """Look whether what a check-out was refused for is gone, at little cost; False where only a try can tell."""
    match refusal:
        case Refusal.GONE:
            return Path(path).is_dir() and look(path, "ls-remote", "--quiet", "--", path) is not None
        case Refusal.UNCLEAN | Refusal.ELSEWHERE | Refusal.LOCKED:
            return _is_clean(path, branch)
        case _:
            return False


def _is_clean(path: str, branch: str) -> bool:
    """Tell whether a branch is checked out with nothing changed, under way or locked; False when git takes too long."""
    if look(path, "symbolic-ref", "--quiet", "HEAD") != f"refs/heads/{branch}":
        return False
    git_dir = look(path, "rev-parse", "--absolute-git-dir")
    if git_dir is None or any(os.path.lexists(Path(git_dir, name)) for name in (*UNDER_WAY, "index.lock")):
        return False
    return look(path, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty") == ""


def look(path: str, *arguments: str) -> str | None:
    """Ask git about a person's repository on this machine; None where it says no or takes too long."""
    try:
        result = subprocess.run(  # noqa: S603 - argv is ours
            ("git", "-C", path, "-c", "core.fsmonitor=false", *arguments),  # noqa: S607 - git is wherever PATH says
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env={"PATH": os.environ.get("PATH", os.defpath), **CLEAN_ENVIRONMENT},
            encoding="utf-8",
            errors="surrogateescape",
            timeout=_LONGEST_LOOK_S,
        )
    except subprocess.TimeoutExpired:
        return None
    return result.stdout.removesuffix("\n") if result.returncode == 0 else None
