"""Fast-forward a person's clean check-out to what landed: `forward.py CHECKOUT MIRROR COMMIT BRANCH`.

Git lays out the files, makes the index and moves the branch. It does not move the files, because `git merge --ff-only`
and `git read-tree -u` overwrite what a person saves while they work, and leave a torn file when they are killed.

1. A file is replaced or removed only while its bytes are those that git writes for the old commit. Anything else is the
   person's, and refuses the whole move before it begins.
2. Both versions of each file are laid out first, in `hive-forward` in the git directory. Then a marker is written there
   and linked as `index.lock`: no other git writes meanwhile, and the next run knows whose lock it is.
3. The branch moves last, by compare-and-swap. A run that was killed before that is rolled back by the next one, and
   after that completed: the new index replaces the old one (`settle`).
4. If the index is no longer that of the old commit, the person has taken over, and no file is touched.

Run as a script by a bare interpreter, in a clean environment; filters of the check-out's own configuration apply.
"""

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "sequencer")
_DIRECTORY = "directory"
_NO_FILE = {None, _DIRECTORY}
_Files = dict[str, dict[str, str | None]]  # path -> "old" or "new" -> what that commit has there
_LONGEST_NAME = 120
_LAST_OF_GIT = 129  # what git ends with itself; above it a shell tells of signals


class Refusal(IntEnum):
    """Why a person's repository did not take a commit: what `forward.py` and `publish_commit.sh` end with."""

    MOVED = 71
    GONE = 72
    CHECKED_OUT = 73
    DECLINED = 74
    ELSEWHERE = 75
    UNCLEAN = 76
    IN_THE_WAY = 77
    LOCKED = 78
    NO_CHECKOUT = 79
    UNABLE = 80


class RefusedError(Exception):
    """The check-out is left as it is: the refusal, and why in words."""


class _KilledError(Exception):
    """A git was killed, which is neither a yes nor a no."""


class Checkout:
    """A person's check-out. One process at a time may hold it, together with the gits that it started."""

    _inherited: tuple[int, ...] = ()

    def __init__(self, path: str, branch: str) -> None:
        self._top, self._branch, self._ref = Path(path), branch, f"refs/heads/{branch}"
        if self._find("rev-parse", "--is-inside-work-tree") != "true":
            why = Refusal.NO_CHECKOUT if self._top.is_dir() else Refusal.GONE
            raise RefusedError(why, "no files are checked out there")
        self._top = Path(self._git("rev-parse", "--show-toplevel"))
        self._git_dir = Path(self._git("rev-parse", "--absolute-git-dir"))
        self._staging, self._lock = self._git_dir / "hive-forward", self._git_dir / "index.lock"
        self._marker, self._index = self._staging / "marker", self._staging / "index"
        self._inherited = (os.open(self._git_dir, os.O_RDONLY | os.O_DIRECTORY),)
        fcntl.flock(*self._inherited, fcntl.LOCK_EX)

    def forward(self, mirror: str, new: str) -> None:
        """Bring it to a commit, unless it is there or beyond already."""
        if self._is_held():
            self._clear_locks()
        self.settle()
        self._git(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--", mirror, new
        )
        if self._find("merge-base", "--is-ancestor", new, self._ref) is not None:
            return
        try:
            old = self._check(new)
            files = self._lay_out(old, new)
            self._check_files(files, "old", "new")
            self._marker.write_text(json.dumps((old, new, files)) + "\n", "ascii")
            self._sync()
            self._hold()
            self._sync()
            self._check(new, old)
            self._move(files, "old", "new")
            self._check_files(files, "new", "old")
            shutil.copy(self._git_dir / "index", self._index)
            self._git("read-tree", "-i", "-m", old, new, index=self._index)
            with suppress(RefusedError):  # a file that the person has just changed
                self._git("update-index", "-q", "--refresh", index=self._index)
            self._sync()
            self._git("update-ref", "-m", "hive: forward to what landed", self._ref, new, old)
            self._sync()
        except (RefusedError, OSError):
            self.settle()
            raise
        self.settle()

    def settle(self) -> None:
        """Complete what was begun if the branch has moved, else roll it back. Nothing of ours is left behind."""
        begun = self._marker.read_text("ascii") if self._marker.exists() else ""
        if begun.endswith("\n"):  # else the marker is torn, and nothing was touched yet
            old, new, files = json.loads(begun)
            self._hold()
            if self._find("diff-index", "--cached", "--quiet", old, "--") is not None:
                if self._find("rev-parse", "HEAD") == new:
                    self._index.replace(self._git_dir / "index")
                else:
                    self._move(files, "new", "old")
            self._sync()
            self._lock.unlink()
            self._sync()  # the marker says whose lock it is, so the lock goes first
            self._marker.unlink()
            self._sync()
        if self._staging.exists():
            shutil.rmtree(self._staging)
            self._sync()

    def _check(self, new: str, known: str = "") -> str:
        """Refuse anything but a clean check-out of an ancestor of `new` (of a known one, if given), and return that."""
        head = self._find("symbolic-ref", "--quiet", "HEAD")
        if head != self._ref:
            where = f"branch {head.removeprefix('refs/heads/')}" if head else "no branch"
            raise RefusedError(Refusal.ELSEWHERE, f"its check-out is on {where}")
        if found := [name for name in UNDER_WAY if (self._git_dir / name).exists()]:
            raise RefusedError(Refusal.UNCLEAN, f"a merge, rebase or the like is under way there ({found[0]})")
        self._check_lock()
        old = self._git("rev-parse", "--verify", self._ref)
        if old != (known or old) or self._find("merge-base", "--is-ancestor", old, new) is None:
            raise RefusedError(Refusal.MOVED, f"{self._branch} has commits there that the hive does not have")
        if self._find("config", "--type=bool", "core.sparseCheckout") == "true":
            raise RefusedError(Refusal.UNABLE, "it is a sparse check-out")
        if changed := self._git("status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=dirty"):
            how = "modified" if changed.startswith(" ") else "staged"
            raise RefusedError(Refusal.UNCLEAN, f"{_show(changed[3:].partition(chr(0))[0])} is {how}")
        return old

    def _lay_out(self, old: str, new: str) -> _Files:
        """Let git write the files that change as each commit has them, by its own attributes; list what they are."""
        for side, commit, kinds in (("old", old, "DMT"), ("new", new, "AMT")):
            only = ("--no-renames", "--name-only", f"--diff-filter={kinds}", "--ignore-submodules=none")
            names = self._git("diff-tree", "-r", "-z", *only, old, new)
            root = self._staging / side
            root.mkdir(parents=True)
            self._git("read-tree", commit, index=self._index)
            at = ("-C", str(root), f"--git-dir={self._git_dir}", "--work-tree=.")
            found = self._git(*at, "check-attr", "-z", "--cached", "--stdin", "filter", index=self._index, words=names)
            # A filter of the person's global configuration would not run here.
            for name in {*found.split("\0")[2::3]} - {"unspecified", "unset", "set"}:
                if not any(self._find("config", f"filter.{name}.{key}") for key in ("smudge", "clean", "process")):
                    raise RefusedError(Refusal.UNABLE, f"filter {name} is not in its own configuration")
            self._git(*at, "checkout-index", "-z", "--stdin", index=self._index, words=names)
            for name in names.split("\0")[:-1]:
                if (root / name).is_dir() and not (root / name).is_symlink():
                    raise RefusedError(Refusal.UNABLE, f"submodule {_show(name)} changes")
        roots = {side: self._staging / side for side in ("old", "new")}
        paths = {str(path.relative_to(root)) for root in roots.values() for path in root.rglob("*")}
        return {path: {side: _look(root / path) for side, root in roots.items()} for path in sorted(paths)}

    def _check_files(self, files: _Files, side: str, other: str) -> None:
        """Refuse if a path is not as a side has it, or holds more where a directory of it becomes a file."""
        for path, what in files.items():
            here, goal, away = self._top / path, what[side], what[other]
            now = _look(here)
            fits = now == goal or now == _DIRECTORY == (goal or away)
            odd = set() if fits and not os.path.lexists(here / ".git") else {path}
            if now == _DIRECTORY != (away or now):
                odd |= {str(found.relative_to(self._top)) for found in here.rglob("*")} - files.keys()
            if odd:
                words = f"{_show(min(odd))} is in the way, or not as git writes it"
                raise RefusedError(Refusal.IN_THE_WAY, words)

    def _move(self, files: _Files, source: str, target: str) -> None:
        """Replace the source's files by the target's, removals first. A file that is neither's is left alone."""
        for path in sorted(files, key=lambda path: (files[path][target] not in _NO_FILE, path)):
            here, was, goal = self._top / path, files[path][source], files[path][target]
            if os.path.realpath(here.parent) != str(here.parent):
                continue
            if was not in _NO_FILE and _look(here) == was != goal:
                here.unlink()
            if goal not in _NO_FILE:
                with suppress(FileExistsError, NotADirectoryError):  # something was saved there just now
                    here.parent.mkdir(parents=True, exist_ok=True)
                    os.link(self._staging / target / path, here, follow_symlinks=False)
                    os.utime(here, follow_symlinks=False)  # so that what is built from it is built again
            for parent in Path(path).parents[:-1] if goal is None else ():
                with suppress(OSError):  # it is not empty
                    (self._top / parent).rmdir()

    def _hold(self) -> None:
        with suppress(FileExistsError):
            os.link(self._marker, self._lock)
        self._check_lock()

    def _check_lock(self) -> None:
        if os.path.lexists(self._lock) and not self._is_held():
            raise RefusedError(Refusal.LOCKED, f"{self._lock} is there: a git is at work in it, or was killed")

    def _is_held(self) -> bool:
        return self._marker.exists() and self._lock.exists() and self._marker.samefile(self._lock)

    def _clear_locks(self) -> None:
        """Remove the locks that a killed git of ours left: while we hold the index, no one else moves the branch."""
        common = Path(self._git("rev-parse", "--path-format=absolute", "--git-common-dir"))
        for lock in (self._git_dir / "HEAD.lock", common / f"{self._ref}.lock"):
            if lock.exists() and lock.stat().st_mtime >= self._marker.stat().st_mtime:
                lock.unlink()

    def _find(self, *arguments: str) -> str | None:
        """Ask git; None if it fails."""
        with suppress(RefusedError):
            return self._git(*arguments)
        return None

    def _git(self, *arguments: str, index: Path | None = None, words: str = "") -> str:
        argv = ("git", "-C", str(self._top), "-c", "core.fsmonitor=false", *arguments)
        env = os.environ | ({"GIT_INDEX_FILE": str(index)} if index else {})
        given = os.fsencode(words)
        done = subprocess.run(argv, input=given, env=env, pass_fds=self._inherited, capture_output=True, check=False)  # noqa: S603 - argv is ours
        if not 0 <= done.returncode <= _LAST_OF_GIT:
            raise _KilledError(Refusal.UNABLE, f"git {arguments[0]} was killed")
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise RefusedError(Refusal.UNABLE, said or f"{' '.join(argv)} failed")
        return os.fsdecode(done.stdout).removesuffix("\n")

    def _sync(self) -> None:
        if ctypes.CDLL(None, use_errno=True).syncfs(*self._inherited):
            raise OSError(ctypes.get_errno(), "the disk could not be synced")


def _look(path: Path) -> str | None:
    """Describe a file as git does: by its type, its content and whether it is executable."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return f"link to {path.readlink()}"
        if stat.S_ISREG(mode):
            with path.open("rb") as file:
                return f"file {bool(mode & stat.S_IXUSR)} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _DIRECTORY if stat.S_ISDIR(mode) else "neither file nor directory"


def _show(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)[:_LONGEST_NAME]


def main(checkout: str, mirror: str, commit: str, branch: str) -> int:
    """Move it, or say why not in the last line."""
    try:
        place = Checkout(checkout, branch)
        with suppress(_KilledError):
            place.forward(mirror, commit)
            return 0
        place.forward(mirror, commit)  # settles first what the killed git left
    except (RefusedError, _KilledError) as refused:
        why, words = refused.args
    except OSError as failed:
        why, words = Refusal.UNABLE, f"{failed.strerror}: {_show(str(failed.filename or ''))}"
    else:
        return 0
    sys.stderr.write(f"{words}\n")
    return int(why)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
