"""Move a person's clean check-out forward to what landed, or leave it: `forward.py CHECKOUT MIRROR COMMIT BRANCH`.

Rules:
1. Only what git can write again is replaced or removed: a file is touched while its bytes are those that git lays out
   for the commit it comes from. Whatever else is there is the person's, and then nothing is begun.
2. All of it is laid out first, old and new, in `hive-forward` of the git directory. Then a marker is written there and
   linked as `index.lock`: no git of the person's writes meanwhile, and a successor knows whose lock that is.
3. The branch moves last, by compare-and-swap. Until then the way is back, from then on it is forward: the new index
   takes its place. Whoever follows a killed run goes that way first (`settle`), then begins anew.
4. Where the index is no longer that of the old commit, the person has taken over, and nothing is touched.

Run as a script by a bare interpreter, in a clean environment; filters of the check-out's own configuration apply.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

_DIRECTORY = "directory"
UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "sequencer")
_LONGEST_NAME = 120
_LAST_OF_GIT = 129  # what git ends with itself; above it a shell tells of signals
_Changes = dict[Path, tuple[bytes, bytes]]  # the modes a path had and has


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
    """The check-out is left as it is."""

    def __init__(self, why: Refusal, words: str) -> None:
        super().__init__(words)
        self.why = why


class _Place:
    """Where git is asked; what it inherits is closed when nobody is left who was asked."""

    _top: Path
    _inherited: tuple[int, ...] = ()

    def _ask(self, *arguments: str) -> str:
        return os.fsdecode(self._git(*arguments)).removesuffix("\n")

    def _find(self, *arguments: str) -> str | None:
        """Ask what may have no answer; that of a git which was killed is not known, and no answer is one."""
        try:
            return self._ask(*arguments)
        except subprocess.CalledProcessError as failed:
            if _was_killed(failed):
                raise
            return None

    def _git(self, *arguments: str, index: Path | None = None, words: bytes = b"") -> bytes:
        argv = ("git", "-C", str(self._top), "-c", "core.fsmonitor=false", *arguments)
        env = {**os.environ, "GIT_INDEX_FILE": str(index)} if index else None
        done = subprocess.run(argv, input=words, env=env, pass_fds=self._inherited, capture_output=True, check=True)  # noqa: S603 - argv is ours
        return done.stdout


class Checkout(_Place):
    """A person's check-out; one process at a time has it, and children that outlive a killed one count."""

    def __init__(self, path: str, branch: str) -> None:
        self._top, self._branch, self._ref = Path(path), branch, f"refs/heads/{branch}"
        if self._find("rev-parse", "--is-inside-work-tree") != "true":
            why = Refusal.NO_CHECKOUT if self._top.is_dir() else Refusal.GONE
            raise RefusedError(why, "no files are checked out there")
        self._top = Path(self._ask("rev-parse", "--show-toplevel"))
        self._git_dir = Path(self._ask("rev-parse", "--absolute-git-dir"))
        self._staging, self._lock = self._git_dir / "hive-forward", self._git_dir / "index.lock"
        self._marker, self._index = self._staging / "marker", self._staging / "index"
        self._inherited = (os.open(self._git_dir, os.O_RDONLY | os.O_DIRECTORY),)
        fcntl.flock(*self._inherited, fcntl.LOCK_EX)

    def forward(self, mirror: str, new: str) -> None:
        """Bring it to a commit; it may be there, or beyond, already."""
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
            changes = self._list_changes(old, new)
            self._lay_out("old", old, [path for path, modes in changes.items() if int(modes[0])])
            self._lay_out("new", new, [path for path, modes in changes.items() if int(modes[1])])
            self._check_paths(changes)
            self._begin(old, new)
            if self._check(new) != old:
                raise RefusedError(Refusal.MOVED, f"{self._branch} was moved there just now")
            self._check_paths(changes)
            self._move(changes, "old", "new")
            self._make_index(old, new)
            self._sync()
            self._move_branch(old, new)
            self._sync()
        finally:
            try:
                self.settle()
            except subprocess.CalledProcessError:  # a git was killed: not left half way for that till the next try
                self.settle()

    def settle(self) -> None:
        """End what was begun: forward once the branch has moved, else back. Nothing of ours is left behind."""
        if self._marker.exists():
            old, new = self._marker.read_text("ascii").split()
            self._hold()
            if self._find("diff-index", "--cached", "--quiet", old, "--") is not None:
                if self._find("rev-parse", "HEAD") == new:
                    self._index.replace(self._git_dir / "index")
                else:
                    self._remove_empty()
                    self._move(self._list_changes(old, new), "new", "old", back=True)
            self._sync()
            self._lock.unlink()
            self._sync()  # gone for good before what says whose it was
            self._marker.unlink()
            self._sync()
        if self._staging.exists():
            shutil.rmtree(self._staging)
            self._sync()

    def _check(self, new: str) -> str:
        """Refuse whatever is not a clean check-out of a commit before this one; tell that commit."""
        head = self._find("symbolic-ref", "--quiet", "HEAD")
        if head != self._ref:
            where = f"branch {head.removeprefix('refs/heads/')}" if head else "no branch"
            raise RefusedError(Refusal.ELSEWHERE, f"its check-out is on {where}")
        if found := [name for name in UNDER_WAY if (self._git_dir / name).exists()]:
            raise RefusedError(Refusal.UNCLEAN, f"a merge, rebase or the like is under way there ({found[0]})")
        if os.path.lexists(self._lock) and not self._is_held():
            raise self._tell_locked()
        old = self._ask("rev-parse", "--verify", self._ref)
        if self._find("merge-base", "--is-ancestor", old, new) is None:
            raise RefusedError(Refusal.MOVED, f"{self._branch} has commits there that the hive does not have")
        if self._find("config", "--type=bool", "core.sparseCheckout") == "true":
            raise RefusedError(Refusal.UNABLE, "it is a sparse check-out")
        changed = self._git("status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=dirty")
        if changed:
            how = "modified" if changed.startswith(b" ") else "staged"
            raise RefusedError(Refusal.UNCLEAN, f"{_show(changed[3:].split(bytes(1))[0])} is {how}")
        return old

    def _list_changes(self, old: str, new: str) -> _Changes:
        fields = self._git("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none", old, new).split(b"\0")
        changes = {}
        for what, name in zip(fields[0:-1:2], fields[1::2], strict=True):
            before, after = what.removeprefix(b":").split()[:2]
            if b"160000" in {before, after}:
                raise RefusedError(Refusal.UNABLE, f"submodule {_show(name)} changes")
            changes[Path(os.fsdecode(name))] = (before, after)
        return changes

    def _lay_out(self, side: str, commit: str, paths: list[Path]) -> None:
        """Have git write files as a commit has them, by that commit's own attributes."""
        (self._staging / side).mkdir(parents=True)
        names = b"".join(os.fsencode(path) + b"\0" for path in paths)
        self._git("read-tree", commit, index=self._index)
        place = ("-C", str(self._staging / side), f"--git-dir={self._git_dir}", "--work-tree=.")
        found = self._git(*place, "check-attr", "-z", "--cached", "--stdin", "filter", index=self._index, words=names)
        # One that only the person's other configuration has would not run, and the files come as nobody wants them.
        for name in {os.fsdecode(name) for name in found.split(b"\0")[2::3]} - {"unspecified", "unset", "set"}:
            if not any(self._find("config", f"filter.{name}.{key}") for key in ("smudge", "clean", "process")):
                raise RefusedError(Refusal.UNABLE, f"filter {name} is not in its own configuration")
        self._git(*place, "checkout-index", "-z", "--stdin", index=self._index, words=names)

    def _check_paths(self, changes: _Changes) -> None:
        for path in changes:
            if (found := self._find_obstacle(path)) is not None:
                words = f"{_show(os.fsencode(found))} is in the way, or not as git writes it"
                raise RefusedError(Refusal.IN_THE_WAY, words)

    def _find_obstacle(self, path: Path) -> Path | None:
        """Find what is not the old commit's: at the path, above it, or below it where a directory becomes a file."""
        now, old = _look(self._top / path), _look(self._staging / "old" / path)
        if foreign := self._find_foreign_parent(path, "old"):
            return foreign
        if now != _DIRECTORY or old != _DIRECTORY:
            return None if now == old else path
        below = (found.relative_to(self._top) for found in (self._top / path).rglob("*"))
        return next((found for found in below if _look(self._staging / "old" / found) is None), None)

    def _find_foreign_parent(self, path: Path, side: str) -> Path | None:
        for parent in list(path.parents)[-2::-1]:
            known = {None, _DIRECTORY, _look(self._staging / side / parent)}
            if _look(self._top / parent) not in known or os.path.lexists(self._top / parent / ".git"):
                return parent
        return None

    def _begin(self, old: str, new: str) -> None:
        draft = self._staging / "draft"
        draft.write_text(f"{old} {new}\n", "ascii")
        self._sync()  # whole before it has its name
        draft.rename(self._marker)
        self._sync()  # and has it before the lock, which without it would be nobody's
        try:
            self._hold()
        except RefusedError:
            self._marker.unlink()
            raise
        self._sync()

    def _move(self, changes: _Changes, source: str, target: str, *, back: bool = False) -> None:
        """Make the target's what is the source's: first the files that go, then those that come."""
        goals = {path: self._look_up(target, path) for path in changes}
        self._draft(target, [path for path, goal in goals.items() if goal and _look(self._top / path) != goal])
        for path in sorted(goals, key=lambda path: goals[path] is not None):
            now = _look(self._top / path)
            if now == goals[path]:
                continue
            if now == self._look_up(source, path) and not self._find_foreign_parent(path, source):
                self._put(path, remove=goals[path] is None, create=now is None)
            elif not back:
                raise RefusedError(Refusal.IN_THE_WAY, f"{_show(os.fsencode(path))} was changed just now")

    def _move_branch(self, old: str, new: str) -> None:
        """Move the branch; where git moved it and then failed over a log beside it, it has moved."""
        try:
            self._git("update-ref", "-m", "hive: forward to what landed", self._ref, new, old)
        except subprocess.CalledProcessError as failed:
            if _was_killed(failed):  # and its locks are nobody's; one that failed removed its own
                self._clear_locks()
            if self._find("rev-parse", "--verify", self._ref) != new:
                raise

    def _look_up(self, side: str, path: Path) -> str | None:
        """Tell what file a commit has at a path; a directory comes and goes with what is in it."""
        found = _look(self._staging / side / path)
        return None if found == _DIRECTORY else found

    def _draft(self, side: str, paths: list[Path]) -> None:
        """Copy files, each to be given its place by one call: whole on disk before that, or torn they are nobody's."""
        shutil.rmtree(self._staging / "next", ignore_errors=True)
        for path in paths:
            draft = self._staging / "next" / path
            draft.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._staging / side / path, draft, follow_symlinks=False)
        self._sync()

    def _put(self, path: Path, *, remove: bool, create: bool) -> None:
        here, draft = self._top / path, self._staging / "next" / path
        if remove:
            here.unlink()
            with suppress(OSError):  # at the first that is not empty
                for parent in list(path.parents)[:-1]:
                    (self._top / parent).rmdir()
            return
        here.parent.mkdir(parents=True, exist_ok=True)
        if create:
            os.link(draft, here, follow_symlinks=False)  # never over what came just now
        else:
            draft.replace(here)

    def _remove_empty(self) -> None:
        """Remove directories that were made for files which have not come."""
        for made in sorted((self._staging / "new").rglob("*"), reverse=True):
            path = made.relative_to(self._staging / "new")
            with suppress(OSError):
                if not self._find_foreign_parent(path, "new"):
                    (self._top / path).rmdir()

    def _make_index(self, old: str, new: str) -> None:
        shutil.copy(self._git_dir / "index", self._index)
        self._git("read-tree", "-i", "-m", old, new, index=self._index)
        with suppress(subprocess.CalledProcessError):  # a file that the person has just changed
            self._git("update-index", "-q", "--refresh", index=self._index)

    def _hold(self) -> None:
        if not self._is_held():
            try:
                os.link(self._marker, self._lock)
            except FileExistsError:
                raise self._tell_locked() from None

    def _is_held(self) -> bool:
        return self._marker.exists() and self._lock.exists() and self._marker.samefile(self._lock)

    def _tell_locked(self) -> RefusedError:
        return RefusedError(Refusal.LOCKED, f"{self._lock} is there: a git is at work in it, or was killed")

    def _clear_locks(self) -> None:
        """Remove what a killed git of ours left locked: with the index held, nobody else moves the branch."""
        common = Path(self._ask("rev-parse", "--path-format=absolute", "--git-common-dir"))
        for lock in (self._git_dir / "HEAD.lock", common / f"{self._ref}.lock"):
            if lock.exists() and lock.stat().st_mtime >= self._marker.stat().st_mtime:
                lock.unlink()

    def _sync(self) -> None:
        subprocess.run(("sync", "-f", "--", self._git_dir), check=True)  # noqa: S603, S607 - as the scripts do


def _was_killed(failed: subprocess.CalledProcessError) -> bool:
    """Tell whether git was killed, here or below a script in its place."""
    return not 0 <= failed.returncode <= _LAST_OF_GIT


def _look(path: Path) -> str | None:
    """Tell of a file what git tells: whether it may be executed, and its content."""
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


def _show(name: bytes) -> str:
    return "".join(c if c.isprintable() else "?" for c in name.decode("utf-8", "replace"))[:_LONGEST_NAME]


def main(checkout: str, mirror: str, commit: str, branch: str) -> int:
    """Move it, or say in the last line why not."""
    try:
        Checkout(checkout, branch).forward(mirror, commit)
    except RefusedError as refused:
        why, words = refused.why, str(refused)
    except subprocess.CalledProcessError as failed:
        why, words = Refusal.UNABLE, (failed.stderr or b"").decode("utf-8", "replace").strip() or str(failed)
    except OSError as failed:
        why, words = Refusal.UNABLE, f"{failed.strerror}: {_show(os.fsencode(str(failed.filename or '')))}"
    else:
        return 0
    sys.stderr.write(f"{words}\n")
    return why


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
