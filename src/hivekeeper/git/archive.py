"""The archive: a git repository with files that are made from the ledger, which one process at a time commits to.

A commit is one `git fast-import`, which writes objects and then moves the branch by compare-and-swap. Then the files
are laid out. The commit's trailers say which event it goes up to, so nothing else has to remember that.

The writer holds `archive.lock`, a kernel lock. Every git that it starts inherits it, so it is held while one of them
lives. The file says in which boot the last write was, and whether it ended. A git lock is left behind if it was made
since a write that did not end, or in an earlier boot, or more than 10 s ago; any other may be held by a git of a
person's. Objects that a killed git left half written are in nobody's way.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hivekeeper.clock import to_seconds
from hivekeeper.errors import UnavailableError
from hivekeeper.git.orders import CLEAN_ENVIRONMENT

BRANCH = "refs/heads/main"
LOCKED_FOR_S = 10.0  # a person's git holds a lock no longer, unless it died
MAX_LOOSE = 1_000
_FANOUT = 256
_KILLED = 128  # exit codes above it are a shell's for a signal
_SEQ, _HASH, _FORMAT = "Hive-Seq", "Hive-Event", "Hive-Format"
_TRAILERS = "%x00".join(f"%(trailers:key={name},valueonly,separator=)" for name in (_SEQ, _HASH, _FORMAT))
# Who commits is in the log; a reflog would only grow.
_NEXT = int(CLEAN_ENVIRONMENT["GIT_CONFIG_COUNT"])
_ENVIRONMENT = {
    **CLEAN_ENVIRONMENT,
    "GIT_CONFIG_COUNT": str(_NEXT + 1),
    f"GIT_CONFIG_KEY_{_NEXT}": "core.logAllRefUpdates",
    f"GIT_CONFIG_VALUE_{_NEXT}": "false",
}
File = tuple[str, str | None]  # a path, and its text; None removes it


@dataclass(frozen=True, slots=True)
class Mark:
    """Which events a commit has: those up to one of this number and hash, written in this format."""

    seq: int
    hash: str
    format: int


@dataclass(frozen=True, slots=True)
class Tip:
    """The last commit; its mark is None if it is somebody else's."""

    commit: str
    tree: str
    mark: Mark | None


class Archive:
    """The repository at a path; whatever writes needs `hold`."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self.path = path
        self._git = path / ".git"
        self._boot_id = boot_id
        self._lock: int | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a repository."""
        return (self._git / "HEAD").exists()

    @contextmanager
    def hold(self, now: str) -> Iterator[None]:
        """Be the only one that writes; not while a git lives that an earlier writer started.

        A git that fails has removed its own locks. One that is killed leaves them, and its write did not end.
        """
        place = self.path.with_name(f"{self.path.name}.lock")
        self._lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UnavailableError(f"A git still writes to {self.path}.", advice="It is waited for.") from error
            self._recover(to_seconds(now))
            self._note("open")
            try:
                yield
            except UnavailableError as error:
                if not isinstance(error, _KilledError):
                    self._note("done")
                raise
            self._note("done")
        finally:
            os.close(self._lock)
            self._lock = None

    def find_tip(self) -> Tip | None:
        """Find the last commit; None if there is none yet."""
        shown = self._run("log", "-1", f"--format=%H%x00%T%x00{_TRAILERS}", BRANCH, "--", may_fail=True)
        if shown is None:
            if self._is_unborn():
                return None
            raise UnavailableError(f"{self.path} cannot be read.", advice="Type: hive down; hive doctor --fix")
        commit, tree, *trailers = shown.strip("\n").split("\0")
        seq, digest, written = trailers
        is_ours = seq.isdecimal() and written.isdecimal()
        return Tip(commit, tree, Mark(int(seq), digest, int(written)) if is_ours else None)

    def make(self) -> None:
        """Make the repository, if there is none: apart, so that there is never half of one."""
        if self.exists:
            return
        draft = self.path.with_name(f"{self.path.name}.new")
        for place in (draft, self.path):
            shutil.rmtree(place, ignore_errors=True)
        draft.mkdir()
        self._run("init", "--quiet", "--template=", f"--initial-branch={BRANCH.rpartition('/')[2]}", at=draft)
        draft.rename(self.path)

    def remove(self) -> None:
        """Remove the repository, whatever is wrong with it."""
        if self.path.exists():
            shutil.rmtree(self.path)

    def remove_index(self) -> None:
        """Remove the index, a cache that may be wrong; laying out makes it again."""
        (self._git / "index").unlink(missing_ok=True)

    def commit(self, files: Iterable[File], message: str, mark: Mark, at: str, onto: Tip | None, *, all_: bool) -> None:
        """Commit files on top of the last commit, or `all_` there are; nothing has changed if that is not the last."""
        trailers = f"{_SEQ}: {mark.seq}\n{_HASH}: {mark.hash}\n{_FORMAT}: {mark.format}\n"
        when = f"{int(to_seconds(at))} +0000"
        head = f"commit {BRANCH}\ncommitter Hivekeeper <hive@localhost> {when}\n".encode()
        head += _data(f"{message}\n\n{trailers}") + (f"from {onto.commit}\n".encode() if onto else b"")
        # Cut off at any byte, a stream without its `done` is refused as a whole.
        with self._start("fast-import", "--quiet", "--done") as importing:
            assert importing.stdin
            assert importing.stderr
            with suppress(BrokenPipeError), importing.stdin:
                importing.stdin.write(head + (b"deleteall\n" if all_ else b""))
                for path, text in files:
                    told = (
                        f"D {path}\n".encode() if text is None else f"M 100644 inline {path}\n".encode() + _data(text)
                    )
                    importing.stdin.write(told)
                importing.stdin.write(b"\ndone\n")
            said = importing.stderr.read().decode(errors="replace")
        self._judge("fast-import", importing.returncode, said)

    def lay_out(self) -> None:
        """Have the files be those of the last commit; files of a person's that are not in it stay."""
        if (self._git / "HEAD").read_text() != f"ref: {BRANCH}\n":
            self._run("symbolic-ref", "HEAD", BRANCH)
        self._run("read-tree", "--reset", "-u", BRANCH)

    def pack(self, *, is_due: bool = False) -> bool:
        """Pack loose objects, if that is due or there are many: a version of a file then costs what it adds."""
        sample = self._git / "objects" / "17"
        if not is_due and (not sample.is_dir() or len(list(sample.iterdir())) * _FANOUT < MAX_LOOSE):
            return False
        self._run("repack", "-d", "--geometric=2", "--quiet", "--threads=1")
        return True

    def find_problem(self) -> str | None:
        """Find what is wrong with the repository itself, in a sentence; None if it is whole."""
        try:
            self._run("fsck", "--connectivity-only", "--no-dangling", "--no-progress")
            self.find_tip()
        except _KilledError:
            raise
        except UnavailableError as error:
            return error.what
        return None

    def list_committed(self, commit: str) -> dict[str, str]:
        """List the files of a commit, each with the id of its content."""
        listed = (self._run("ls-tree", "-r", "-z", "--full-tree", commit) or "").split("\0")
        parts = (line.partition("\t") for line in listed if line)
        return {path: what.split(" ")[2] for what, _, path in parts}

    def list_changed(self) -> list[str]:
        """List the files that are not as they were committed."""
        listed = self._run("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames") or ""
        return [line[3:] for line in listed.split("\0") if line]

    # --- locks, and what a crash left ---------------------------------------------------------------------------------

    def _recover(self, now_s: float) -> None:
        """Remove locks that were left behind; after a restart of the machine, make sure that all is there."""
        assert self._lock is not None
        boot, _, state = os.pread(self._lock, 100, 0).partition(b"\n")[0].decode(errors="replace").rpartition(" ")
        is_new_boot, opened_ns = boot != self._boot_id, os.fstat(self._lock).st_mtime_ns
        for path in self._git.glob("fast_import_crash_*"):
            path.unlink(missing_ok=True)
        for path in _list_locks(self._git):
            with suppress(FileNotFoundError):
                made_ns = path.lstat().st_mtime_ns
                is_ours = is_new_boot or (state == "open" and made_ns >= opened_ns)
                if is_ours or abs(now_s - made_ns / 1e9) > LOCKED_FOR_S:
                    path.unlink()
        if is_new_boot and self.exists:
            self.remove_index()  # perhaps not synced
            if self.find_problem() is not None:
                self.remove()

    def _note(self, state: str) -> None:
        assert self._lock is not None
        os.pwrite(self._lock, f"{self._boot_id} {state}\n".encode(), 0)

    def _is_unborn(self) -> bool:
        packed = self._git / "packed-refs"
        return self.exists and not (self._git / BRANCH).exists() and not packed.exists()

    # --- git ----------------------------------------------------------------------------------------------------------

    def _run(self, *arguments: str, at: Path | None = None, may_fail: bool = False) -> str | None:
        with self._start(*arguments, at=at) as git:
            said, wrong = git.communicate()
        if may_fail and 0 < git.returncode <= _KILLED:
            return None
        self._judge(arguments[0], git.returncode, (wrong or said).decode(errors="replace"))
        return said.decode("utf-8", "surrogateescape")

    def _start(self, *arguments: str, at: Path | None = None) -> "subprocess.Popen[bytes]":
        # Both are named, so that git never looks for a repository around the hive.
        path = at or self.path
        places = (f"--git-dir={path / '.git'}", f"--work-tree={path}")
        return subprocess.Popen(  # noqa: S603 - argv is ours
            ("git", *places, *arguments),  # noqa: S607 - git is wherever the person's PATH says
            cwd=path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT},
            pass_fds=() if self._lock is None else (self._lock,),
        )

    def _judge(self, verb: str, code: int, said: str) -> None:
        if code < 0 or code > _KILLED:
            raise _KilledError(f"git {verb} was killed in {self.path}.", advice="It is tried again.")
        if code:
            reason = re.sub(r"^(fatal|error): ", "", (said.strip().splitlines() or [f"exit code {code}"])[0])
            raise UnavailableError(f"git {verb} failed in {self.path}: {reason}", advice="It is tried again.")


class _KilledError(UnavailableError):
    """A git was killed; what it had locked is still locked."""


def _data(text: str) -> bytes:
    content = text.encode()
    return b"data %d\n%b\n" % (len(content), content)


def _list_locks(git: Path) -> Iterator[Path]:
    for directory in (git, git / "info", git / "objects", git / "objects" / "info"):
        yield from directory.glob("*.lock")
    for parent, _, names in os.walk(git / "refs"):
        yield from (Path(parent, name) for name in names if name.endswith(".lock"))
