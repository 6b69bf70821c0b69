"""Bring back what is kept of an attempt: a commit's tree and what git left out of it, written to a new directory.

Nothing of the hive is touched, and nothing that a worker made is run: no hook, no filter, and no link is followed.
"""

import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hivekeeper.errors import UnavailableError
from hivekeeper.git.orders import NO_FSYNC_ENV


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What came of a tar: what of it was refused, and the repositories in it."""

    refused: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()


@contextmanager
def new_directory(to: Path) -> Iterator[Path]:
    """Give a directory to fill; it has its name only when it is whole. What one killed before left is removed."""
    draft = to.with_name(f"{to.name}.hive-new")
    if draft.exists():
        _remove(draft)
    draft.mkdir(parents=True)
    try:
        yield draft
        draft.rename(to)
    except BaseException:
        _remove(draft)
        raise


def _remove(directory: Path) -> None:
    """Remove a directory of any depth, which Python's own way does not."""
    subprocess.run(("rm", "-rf", "--", str(directory)), check=False)  # noqa: S603, S607 - a directory of ours


def lay_out(mirror: Path, commit: str, directory: Path) -> None:
    """Lay out exactly a commit's tree, with nothing of git beside it."""
    with tempfile.TemporaryDirectory() as scratch:
        _git(mirror, f"--work-tree={directory}", "read-tree", "--reset", "-u", commit, index=f"{scratch}/index")


def unpack_rest(mirror: Path, blob: str, directory: Path) -> Unpacked:
    """Unpack what git left out of an attempt over its tree; whatever would leave the directory is refused."""
    refused, repositories, made = [], [], set[Path]()
    with tempfile.TemporaryFile() as file:
        _git(mirror, "cat-file", "blob", blob, output=file)
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for member in tar:
                    name = os.fsencode(member.name).decode("utf-8", "replace")
                    if not _unpack(tar, member, directory.resolve(), made):
                        refused.append(name)
                    elif name.endswith("/.git"):
                        repositories.append(name.removesuffix("/.git"))
        except (tarfile.TarError, KeyError) as error:
            raise UnavailableError(f"{blob} in {mirror} is a damaged tar: {error}.", advice=_EXAMINE) from error
    return Unpacked(tuple(refused), tuple(repositories))


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, top: Path, made: set[Path]) -> bool:
    """Write one member; False when it is of no kind that we pack, or it or what it points to lies outside.

    `made` are directories that were found to lie inside: none of them is ever replaced.
    """
    # Not by extract(): its filters came with 3.11.4, and one way for all is one way to test.
    name, target = Path(member.name), top / member.name
    if not name.parts or ".." in name.parts or name.parts[0] == ".git":
        return False
    if target.parent not in made:
        if not _is_inside(target.parent, top):
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        made.add(target)
        return member.isdir()
    if member.issym() and not _is_inside(target.parent / member.linkname, top):
        return False
    content = None if member.issym() else tar.extractfile(member)  # of a hard link it is that of its first name
    if content is None and not member.issym() and not member.isdir():
        return False
    target.unlink(missing_ok=True)
    if member.isdir():
        target.mkdir()
        made.add(target)
    elif content is None:
        target.symlink_to(member.linkname)
    else:
        with content, target.open("xb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        target.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)
    return True


def _is_inside(path: Path, top: Path) -> bool:
    """Tell whether a path, every link on its way followed, ends below the top directory."""
    return Path(os.path.realpath(path)).is_relative_to(top)


def _git(mirror: Path, *arguments: str, output: IO[bytes] | None = None, index: str = "") -> None:
    inherited = {"PATH": os.environ.get("PATH", os.defpath)}
    done = subprocess.run(  # noqa: S603 - argv is ours, ids and refs are ours
        ("git", f"--git-dir={mirror}", *arguments),  # noqa: S607 - git is wherever the person's PATH says
        stdin=subprocess.DEVNULL,
        stdout=output or subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
        env={**inherited, **NO_FSYNC_ENV, **({"GIT_INDEX_FILE": index} if index else {})},
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise UnavailableError(f"git could not restore it from {mirror}: {said}", advice=_EXAMINE)


_EXAMINE = "To find the cause: hive doctor"
