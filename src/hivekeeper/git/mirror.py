"""Reading the hive's own bare repository, and making commit objects in it.

Making an object is not an effect: nothing points to it until a run moves a ref.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hivekeeper.errors import UnavailableError
from hivekeeper.git.orders import CLEAN_ENVIRONMENT

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git knows it without having it
_OLDEST_GIT = (2, 38)
_OBJECT_ID = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True)
class Merged:
    """The tree of a clean merge."""

    tree: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """The paths git could not merge."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LandedCommit:
    """A commit that a task of a hive left on the integration branch, and what it was made on."""

    commit: str
    parent: str


class Mirror:
    """One repository's mirror."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find_commit(self, name: str) -> str | None:
        """Find the commit a ref or id names."""
        return self._find(f"{name}^{{commit}}")

    def get_tree(self, commit: str) -> str:
        """Tell a commit's tree."""
        found = self._find(f"{commit}^{{tree}}")
        if found is None:
            raise UnavailableError(f"{commit} is missing in {self.path}.", advice="Type: hive task retry TASK")
        return found

    def find_merge_base(self, one: str, other: str) -> str | None:
        """Find where two histories part."""
        result = self._git("merge-base", one, other)
        return result.stdout.strip() if result.returncode == 0 else None

    def is_ancestor(self, old: str, new: str) -> bool:
        """Tell whether one commit is in the history of another."""
        return self._git("merge-base", "--is-ancestor", old, new).returncode == 0

    def merge(self, ours: str, theirs: str) -> Merged | Conflict:
        """Merge two commits without a check-out."""
        result = self._git("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs)
        tree, *paths = result.stdout.split("\0")
        if result.returncode == 0 and _OBJECT_ID.fullmatch(tree):
            return Merged(tree)
        if result.returncode == 1:
            return Conflict(tuple(path for path in paths if path))
        raise UnavailableError(f"git merge-tree failed in {self.path}: {result.stderr.strip()}")

    def commit_tree(self, tree: str, parent: str, message: str, at: str) -> str:
        """Make a commit; the same arguments make the same commit, so a repeat after a crash makes no second one."""
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        result = self._git("commit-tree", "-p", parent, "-F", "-", tree, text=message, environment=dates)
        if result.returncode != 0:
            raise UnavailableError(f"git commit-tree failed in {self.path}: {result.stderr.strip()}")
        return result.stdout.strip()

    def find_landed(self, head: str, change: str) -> LandedCommit | None:
        """Find the commit in which a change landed, by the trailer it was given; its id is nobody else's."""
        shown = "--format=%H %P %(trailers:key=Hive-Change,valueonly,separator=)"
        match self._git("log", "-1", shown, "--fixed-strings", f"--grep=Hive-Change: {change}", head).stdout.split():
            case [commit, parent, found] if found == change:
                return LandedCommit(commit, parent)
            case _:
                return None

    def list_changed(self, old: str, new: str) -> tuple[str, ...]:
        """List the paths in which two trees differ."""
        result = self._git("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
        return tuple(path for path in result.stdout.split("\0") if path)

    def _find(self, revision: str) -> str | None:
        result = self._git("rev-parse", "--quiet", "--verify", "--end-of-options", revision)
        return result.stdout.strip() if result.returncode == 0 else None

    def _git(
        self, *arguments: str, text: str = "", environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return _run_git(("--git-dir", str(self.path), *arguments), text=text, environment=environment)


def check_git() -> str:
    """Tell git's version, or say that it is missing or too old for merging without a check-out."""
    try:
        found = _run_git(("version",)).stdout
    except FileNotFoundError:
        raise UnavailableError("git is not installed.", advice="Install git 2.38 or newer.") from None
    for tool, package in (("flock", "util-linux"), ("sync", "coreutils")):
        if shutil.which(tool) is None:
            raise UnavailableError(f"{tool} is not installed.", advice=f"It comes with {package}.")
    numbers = re.findall(r"\d+", found)
    if tuple(map(int, numbers[:2])) < _OLDEST_GIT:
        raise UnavailableError(f"This is {found.strip()}; the hive needs 2.38.", advice="Update git.")
    return ".".join(numbers[:3])


def find_source_problem(path: str, branch: str) -> str | None:
    """Tell what keeps a person's repository from being used; None when nothing does."""
    if not Path(path).is_dir():
        return f"there is no directory {path}"
    git_dir = _run_git(("-C", path, "rev-parse", "--git-dir"))
    if git_dir.returncode != 0:
        return f"{path} is not a git repository"
    if (kind := _run_git(("-C", path, "rev-parse", "--show-object-format")).stdout.strip()) != "sha1":
        return f"{path} is a {kind} repository, and the hive works on sha1 only"
    if _run_git(("-C", path, "rev-parse", "--is-shallow-repository")).stdout.strip() == "true":
        return f"{path} is a shallow clone; make it whole: git -C {path} fetch --unshallow"
    if _run_git(("-C", path, "rev-parse", "--quiet", "--verify", f"refs/heads/{branch}^{{commit}}")).returncode != 0:
        heads = _run_git(("-C", path, "for-each-ref", "--format=%(refname:short)", "refs/heads")).stdout.split()
        known = f"it has {', '.join(heads[:5])}" if heads else "it has no commit yet"
        return f"{path} has no branch '{branch}' ({known})"
    return None


def _run_git(
    arguments: tuple[str, ...], *, text: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    inherited = {"PATH": os.environ.get("PATH", os.defpath)}
    return subprocess.run(  # noqa: S603 - argv is ours, ids and refs are ours
        ("git", *arguments),  # noqa: S607 - git is wherever the person's PATH says
        input=text,
        capture_output=True,
        check=False,
        env={**inherited, **CLEAN_ENVIRONMENT, **(environment or {})},
        encoding="utf-8",
        errors="surrogateescape",
    )


def find_damage(mirror: Path) -> str | None:
    """Have git follow every ref to its last object; tell what is missing, None when all is there."""
    arguments = ("fsck", "--connectivity-only", "--no-dangling", "--no-progress")
    result = _run_git(("--git-dir", str(mirror), *arguments))
    if result.returncode == 0:
        return None
    said = (result.stderr.strip() or result.stdout.strip()).splitlines()
    return said[0] if said else f"git fsck ended with {result.returncode}"


def list_refs(mirror: Path, prefix: str) -> dict[str, str]:
    """List the refs below a prefix, each with what it points to."""
    lines = _ask(mirror, "for-each-ref", "--format=%(refname) %(objectname)", prefix).splitlines()
    return dict(line.split(" ", 1) for line in lines)


def list_unreachable(mirror: Path, commits: Collection[str]) -> list[str]:
    """List those of these commits that no branch of the mirror holds."""
    if not commits:
        return []
    known = _ask(mirror, "cat-file", "--batch-check=%(objectname)", lines=commits).splitlines()
    there = set(commits).intersection(known)  # of one that is missing it says so behind its name
    heads = [f"^{head}" for head in list_refs(mirror, "refs/heads").values()]
    outside = set(_ask(mirror, "rev-list", "--stdin", lines=(*there, *heads)).split()) if there else set()
    return [commit for commit in commits if commit not in there or commit in outside]


def _ask(mirror: Path, *arguments: str, lines: Collection[str] = ()) -> str:
    result = _run_git(("--git-dir", str(mirror), *arguments), text="".join(f"{line}\n" for line in lines))
    if result.returncode != 0:
        raise UnavailableError(f"git {arguments[0]} failed in {mirror}: {result.stderr.strip()}")
    return result.stdout
