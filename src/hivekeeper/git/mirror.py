"""Reading the hive's own bare repository, and making commit objects in it.

Making an object is not an effect: nothing points to it until a run moves a ref.
"""

import os
import posixpath
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

from hivekeeper.domain.landed import LandedChange
from hivekeeper.errors import UnavailableError
from hivekeeper.git.orders import CLEAN_ENVIRONMENT, REPLACED

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git knows it without having it
_OLDEST_GIT = (2, 38)
_OBJECT_ID = re.compile(r"[0-9a-f]{40,64}")
_FAULT = re.compile(r"^error: object ([0-9a-f]{40,64}): (.+)$", re.MULTILINE)
# It is only looked at, so no time is spent on making it small.
_FAST = ("-c", "pack.compression=0", "-c", "pack.threads=1")
_PACK = (*_FAST, "pack-objects", "--quiet", "--revs", "--stdout", "--window=0")
_CHECK = ("unpack-objects", "-q", "--strict")


@dataclass(frozen=True, slots=True)
class Merged:
    """The tree of a clean merge."""

    tree: str


@dataclass(frozen=True, slots=True)
class Version:
    """A file as git keeps it."""

    mode: str
    blob: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """What git could not merge: a tree with markers in it, and each path's versions: base (1), ours (2), theirs (3)."""

    tree: str
    versions: Mapping[str, Mapping[int, Version]]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths git could not merge."""
        return tuple(self.versions)


@dataclass(frozen=True, slots=True)
class LandedCommit:
    """A commit that a task of a hive left on the integration branch, and what it was made on."""

    commit: str
    parent: str


@dataclass(frozen=True, slots=True)
class ObjectFault:
    """What a strict check says of an object."""

    object: str
    words: str


class Mirror:
    """One repository's mirror."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find_commit(self, name: str) -> str | None:
        """Find the commit a ref or id names."""
        return self._find(f"{name}^{{commit}}")

    def get_tree(self, commit: str) -> str:
        """Tell a commit's tree."""
        return _get_tree(self.path, commit)

    def find_merge_base(self, one: str, other: str) -> str | None:
        """Find where two histories part."""
        result = self._git("merge-base", one, other)
        return result.stdout.strip() if result.returncode == 0 else None

    def is_ancestor(self, old: str, new: str) -> bool:
        """Tell whether one commit is in the history of another."""
        return self._git("merge-base", "--is-ancestor", old, new).returncode == 0

    def shares_history(self, known: str, source: str, tip: str) -> bool:
        """Fetch a commit of a repository, and tell whether it has an ancestor in common with one that is known."""
        brought = self._git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", source, tip)
        if brought.returncode != 0:
            raise UnavailableError(f"{source} cannot be read: {brought.stderr.strip()}", advice="Nothing was changed.")
        return self.find_merge_base(known, tip) is not None

    def merge(self, ours: str, theirs: str) -> Merged | Conflict:
        """Merge two commits without a check-out; markers show the base too."""
        merge = ("-c", "merge.conflictStyle=diff3", "merge-tree", "--write-tree", "--no-messages", "-z")
        result = self._git(*merge, ours, theirs)
        tree, *stages = result.stdout.split("\0")
        if result.returncode == 0 and _OBJECT_ID.fullmatch(tree):
            return Merged(tree)
        if result.returncode != 1:
            raise UnavailableError(f"git merge-tree failed in {self.path}: {result.stderr.strip()}")
        versions: dict[str, dict[int, Version]] = {}
        for stage, _, path in (line.partition("\t") for line in stages if line):
            mode, blob, number = stage.split(" ")
            versions.setdefault(path, {})[int(number)] = Version(mode, blob)
        return Conflict(tree, versions)

    def open_tree(self, commit: str) -> str:
        """Tell a commit's tree, and have merges follow its attributes, which git would look for in a check-out."""
        asked = f"info {commit}^{{tree}}\ncontents {commit}:.gitattributes\n"
        said = self._git("cat-file", "--batch-command", text=asked).stdout
        first, _, rest = said.partition("\n")
        tree, _, kind = first.partition(" ")
        if not kind.startswith("tree "):
            raise UnavailableError(f"{commit} is missing in {self.path}.", advice="Type: hive task retry TASK")
        header, _, content = rest.partition("\n")
        wanted = content[:-1] if " blob " in header else ""
        path = self.path / "info" / "attributes"
        now = path.read_text("utf-8", "surrogateescape") if path.exists() else ""
        if wanted != now:
            path.parent.mkdir(exist_ok=True)
            draft = path.with_name(f"attributes.{threading.get_native_id()}")
            draft.write_text(wanted, "utf-8", "surrogateescape", newline="")
            draft.replace(path)
        return tree

    def commit_tree(self, tree: str, parents: Sequence[str], message: str, at: str, author: str = "") -> str:
        """Make a commit; the same arguments make the same commit, so a repeat after a crash makes no second one.

        `author` is `NAME <ADDRESS>`; the hive itself when there is none.
        """
        environment = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        if author:
            name, _, address = author.rpartition(" <")
            environment |= {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address.rstrip(">")}
        named = (word for parent in parents for word in ("-p", parent))
        result = self._git("commit-tree", *named, "-F", "-", tree, text=message, environment=environment)
        if result.returncode != 0 and author:  # git may not like the name
            return self.commit_tree(tree, parents, message, at)
        if result.returncode != 0:
            raise UnavailableError(f"git commit-tree failed in {self.path}: {result.stderr.strip()}")
        return result.stdout.strip()

    def find_fault(self, commit: str, known: str) -> ObjectFault | None:
        """Check what a commit adds to another as a remote with `receive.fsckObjects` does; None when all is well.

        Everything is here already, so nothing is written: git only reads it in the way in which it takes a push.
        """
        wanted = f"{commit}\n^{known}\n".encode()
        with (
            _start_git(self.path, *_PACK, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as packing,
            _start_git(self.path, *_CHECK, stdin=packing.stdout, stderr=subprocess.PIPE) as checking,
        ):
            assert packing.stdin
            assert packing.stdout
            packing.stdout.close()  # so that it ends when whoever checks has seen enough
            with suppress(BrokenPipeError), packing.stdin:
                packing.stdin.write(wanted)
            assert checking.stderr
            said = checking.stderr.read().decode("utf-8", "surrogateescape")
        if checking.returncode == 0 and packing.returncode == 0:
            return None
        if checking.returncode > 0 and (found := _FAULT.search(said)):
            return ObjectFault(found[1], found[2])
        raise UnavailableError(f"What {commit} adds could not be checked in {self.path}: {said.strip()}")

    def find_path(self, tree: str, name: str) -> tuple[str, str]:
        """Find where an object is in a tree, and its kind; the first place, or none."""
        listed = self._git("ls-tree", "-r", "-t", "-z", "--full-tree", tree).stdout.split("\0")
        entries = (line.partition("\t") for line in listed if line)
        places = ((path, what.split(" ")[1]) for what, _, path in entries if what.split(" ")[2] == name)
        return next(places, ("", "tree"))

    def find_last_touched(self, head: str, paths: Sequence[str]) -> str | None:
        """Find the last commit on the way to a head, along its first parents, that touched one of some paths."""
        if not paths or any("\n" in path for path in paths):  # git takes them line by line
            return None
        asked = "\n".join((head, "--", *paths, ""))
        listed = self._git("--literal-pathspecs", "rev-list", "-1", "--first-parent", "--stdin", text=asked)
        return listed.stdout.strip() or None

    def find_landed(self, head: str, change: str, task: str) -> LandedCommit | None:
        """Find the commit in which a task's change landed, by its trailers: two tasks may have made the same commit."""
        convoy, of_task, of_change = (
            f"%(trailers:key=Hive-{key},valueonly,separator=)" for key in ("Convoy", "Task", "Change")
        )
        shown = f"--format=%H %P {convoy}/{of_task} {of_change}"
        match self._git("log", "-1", shown, "--fixed-strings", f"--grep=Hive-Change: {change}", head).stdout.split():
            case [commit, parent, whose, found] if (whose, found) == (task, change):
                return LandedCommit(commit, parent)
            case _:
                return None

    def list_landed(self, old: str, new: str) -> list[LandedChange]:
        """List what tasks of a hive left on the way to a commit and not on that to another, oldest first."""
        convoy, task, change = (
            f"%(trailers:key=Hive-{key},valueonly,separator=)" for key in ("Convoy", "Task", "Change")
        )
        shown = f"--format=%H%x00{convoy}/{task}%x00{change}%x00%s"
        lines = self._git("log", "--reverse", "--topo-order", shown, f"{old}..{new}", "--").stdout.split("\n")
        found = [LandedChange(*line.split("\0")) for line in lines if line]
        return [landed for landed in found if landed.task != "/"]

    def list_files(self, commit: str) -> dict[str, str]:
        """List every file of a commit, with the name of its content."""
        listed = self._git("ls-tree", "-r", "-z", "--full-tree", commit).stdout.split("\0")
        parts = (line.partition("\t") for line in listed if line)
        return {path: f"{what.split(' ')[0]} {what.split(' ')[2]}" for what, _, path in parts}

    def list_changed(self, old: str, new: str) -> tuple[str, ...]:
        """List the paths in which two trees differ."""
        result = self._git("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
        if result.returncode != 0:
            raise UnavailableError(f"git diff-tree failed in {self.path}: {result.stderr.strip()}")
        return tuple(path for path in result.stdout.split("\0") if path)

    def list_brought(self, onto: str, change: str) -> tuple[str, ...] | None:
        """List the paths a change changes since it parted from a commit; None where they share no history."""
        listed = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--merge-base", onto, change)
        result = self._git(*listed)
        if result.returncode != 0 and "merge base" not in result.stderr:
            raise UnavailableError(f"git diff-tree failed in {self.path}: {result.stderr.strip()}")
        return tuple(path for path in result.stdout.split("\0") if path) if result.returncode == 0 else None

    def list_renames(self, old: str, new: str) -> dict[str, str]:
        """List the paths that are called otherwise in the second tree."""
        result = self._git("diff-tree", "-r", "-z", "--find-renames", "--diff-filter=R", old, new)
        names = result.stdout.split("\0")
        return dict(zip(names[1::3], names[2::3], strict=False))

    def list_parents(self, commit: str) -> tuple[str, str]:
        """Tell both sides of a merge."""
        ours, theirs = self._git("log", "-1", "--format=%P", commit, "--").stdout.split()
        return ours, theirs

    def find_object(self, name: str) -> str | None:
        """Find what a name such as COMMIT:PATH stands for."""
        return self._find(name)

    def list_subjects(self, old: str, new: str, paths: Sequence[str]) -> str:
        """List what commits that touched some paths say, latest first."""
        return self._git("log", "--max-count=20", "--format=%B", f"{old}..{new}", "--", *paths).stdout.strip()

    def list_messages(self, old: str, new: str) -> list[str]:
        """List what the commits on the way from one to another say, oldest first; merges say nothing of their own."""
        said = self._git("log", "--reverse", "--no-merges", "--max-count=20", "--format=%B%x00", f"{old}..{new}", "--")
        return [message.strip() for message in said.stdout.split("\0") if message.strip()]

    def find_link(self, commit: str, path: str) -> str | None:
        """Tell what a path leads to, if it is a link; nothing if it is a file, None if there is no such path."""
        listed = self._git("ls-tree", commit, "--", path).stdout
        if not listed:
            return None
        target = self.read_blob(f"{commit}:{path}") if listed.startswith("120000") else ""
        return posixpath.normpath(f"{posixpath.dirname(path) or '.'}/{target}") if target else ""

    def find_author(self, commit: str) -> str:
        """Tell who made a commit, as `NAME <ADDRESS>`."""
        return self._git("log", "-1", "--format=%an <%ae>", "--no-mailmap", commit, "--").stdout.strip()

    def read_blob(self, blob: str) -> str:
        """Read a file's content, every byte of it: those that are no text are kept as surrogates."""
        return self._git("cat-file", "blob", blob).stdout

    def replace_files(self, tree: str, files: Mapping[str, tuple[str, str]]) -> str:
        """Make a tree with other content in some files: path to mode and text."""
        with tempfile.TemporaryDirectory(dir=self.path, prefix="settle.") as directory:
            environment = {"GIT_INDEX_FILE": f"{directory}/index"}
            lines = []
            for path, (mode, text) in files.items():
                blob = self._git("hash-object", "-w", "--stdin", text=text).stdout.strip()
                lines.append(f"{mode} {blob}\t{path}\0")
            for arguments in (("read-tree", tree), ("update-index", "-z", "--index-info")):
                self._git(*arguments, text="".join(lines), environment=environment)
            return self._git("write-tree", environment=environment).stdout.strip()

    def diff(self, old: str, new: str) -> str:
        """Show how two trees differ."""
        return self._git("diff-tree", "-r", "-p", "--no-renames", old, new).stdout

    def _find(self, revision: str) -> str | None:
        result = self._git("rev-parse", "--quiet", "--verify", "--end-of-options", revision)
        return result.stdout.strip() if result.returncode == 0 else None

    def _git(
        self, *arguments: str, text: str = "", environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        result = _run_git(("--git-dir", str(self.path), *arguments), text=text, environment=environment)
        if result.returncode < 0:  # it answered nothing, which must not be taken for an answer
            raise UnavailableError(f"git {arguments[0]} was killed in {self.path}.", advice="It is tried again.")
        return result


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
    done = subprocess.run(  # noqa: S603 - argv is ours, ids and refs are ours
        ("git", *arguments),  # noqa: S607 - git is wherever the person's PATH says
        input=text.encode("utf-8", "surrogateescape"),
        capture_output=True,
        check=False,
        env={**inherited, **CLEAN_ENVIRONMENT, **(environment or {})},
    )
    # By hand, because a text stream would change the ends of lines.
    said = (stream.decode("utf-8", "surrogateescape") for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, *said)


def _start_git(
    mirror: Path, *arguments: str, stdin: IO[bytes] | int | None, stdout: int | None = None, stderr: int | None = None
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - argv is ours, ids are ours
        ("git", "--git-dir", str(mirror), *arguments),  # noqa: S607 - git is wherever the person's PATH says
        stdin=stdin,
        stdout=stdout or subprocess.DEVNULL,
        stderr=stderr or subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath), **CLEAN_ENVIRONMENT},
    )


def find_damage(mirror: Path) -> str | None:
    """Have git follow every ref to its last object; tell what is missing, None when all is there."""
    arguments = ("fsck", "--connectivity-only", "--no-dangling", "--no-progress")
    result = _run_git(("--git-dir", str(mirror), *arguments))
    if result.returncode == 0:
        return None
    said = (result.stderr.strip() or result.stdout.strip()).splitlines()
    return said[0] if said else f"git fsck ended with {result.returncode}"


@lru_cache(maxsize=4096)  # the queue asks at every pass, and the answer never changes
def _get_tree(mirror: Path, commit: str) -> str:
    asked = ("--git-dir", str(mirror), "rev-parse", "--quiet", "--verify", "--end-of-options", f"{commit}^{{tree}}")
    result = _run_git(asked)
    if result.returncode != 0:
        raise UnavailableError(f"{commit} is missing in {mirror}.", advice="Type: hive task retry TASK")
    return result.stdout.strip()


def list_refs(mirror: Path, prefix: str) -> dict[str, str]:
    """List the refs below a prefix, each with what it points to."""
    lines = _ask(mirror, "for-each-ref", "--format=%(refname) %(objectname)", prefix).splitlines()
    return dict(line.split(" ", 1) for line in lines)


def list_unreachable(mirror: Path, commits: Collection[str]) -> list[str]:
    """List those of these commits that no branch of the mirror holds, nor what was kept of one that began anew."""
    if not commits:
        return []
    known = _ask(mirror, "cat-file", "--batch-check=%(objectname)", lines=commits).splitlines()
    there = set(commits).intersection(known)  # of one that is missing it says so behind its name
    heads = [f"^{head}" for kind in ("refs/heads", REPLACED) for head in list_refs(mirror, kind).values()]
    outside = set(_ask(mirror, "rev-list", "--stdin", lines=(*there, *heads)).split()) if there else set()
    return [commit for commit in commits if commit not in there or commit in outside]


def _ask(mirror: Path, *arguments: str, lines: Collection[str] = ()) -> str:
    result = _run_git(("--git-dir", str(mirror), *arguments), text="".join(f"{line}\n" for line in lines))
    if result.returncode != 0:
        raise UnavailableError(f"git {arguments[0]} failed in {mirror}: {result.stderr.strip()}")
    return result.stdout
