"""Locks and drafts that git left behind in the hive's own repositories."""

import os
from collections.abc import Iterator
from pathlib import Path

from hivekeeper.doctor.facts import Facts, list_directory
from hivekeeper.doctor.findings import REPAIR, Check, Finding, RemoveFile, RemoveTree, or_ok, warn

# No run of the hive that uses git takes longer, so an older lock is left over even while a keeper works.
LONGEST_GIT_RUN_S = 3600.0
_OURS = "hive.lock"  # a kernel lock: that the file exists says nothing


def check_locks(facts: Facts) -> Iterator[Finding]:
    """Find locks and drafts of git that were left behind."""
    in_use = facts.records.keeper is not None
    found = (_judge_lock(facts, path) for path in _list_locks(facts) if not in_use or _is_old(facts, path))
    return or_ok(found, Check.LOCKS, "no git lock is left behind")


def _judge_lock(facts: Facts, path: Path) -> Finding:
    if facts.records.keeper is not None:
        what = f"{path} is left behind: it is older than any run of the hive can be."
        return warn(Check.LOCKS, what, "Type: hive down; hive doctor --fix; hive up --detach")
    if worker := facts.may_run:
        what = f"{path} may be left behind, and is not removed: {worker} may be running."
        return warn(Check.LOCKS, what, "Let it end (hive up), then check again: hive doctor")
    fix = RemoveTree(path) if path.is_dir() and not path.is_symlink() else RemoveFile(path)
    return warn(Check.LOCKS, f"{path} is left behind, and no git of the hive is running.", REPAIR, fix)


def _is_old(facts: Facts, path: Path) -> bool:
    try:
        return facts.now_s - path.lstat().st_mtime > LONGEST_GIT_RUN_S
    except FileNotFoundError:
        return False


def _list_locks(facts: Facts) -> Iterator[Path]:
    for repo in facts.records.repos:
        for path in (facts.places.mirror(repo.name), facts.places.public(repo.name)):
            if (draft := draft_of(path)) in facts.stored:
                yield draft
            names = (entry.name for entry in list_directory(path) if entry.name != _OURS)
            yield from (path / name for name in names if name.endswith(".lock"))
            yield from _walk(path / "refs")
            yield from _walk(path / "objects", drafts="tmp_")


def draft_of(repository: Path) -> Path:
    """Name a repository while it is being made, as the script that makes it does."""
    return repository.with_name(f"{repository.name}.new")


def _walk(directory: Path, *, drafts: str | None = None) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory):
        yield from (Path(parent, name) for name in names if name.endswith(".lock"))
        if drafts:
            yield from (Path(parent, name) for name in names + directories if name.startswith(drafts))
            directories[:] = [name for name in directories if not name.startswith(drafts)]  # it goes as a whole
