"""What git leaves out of a worker's tree (nested repositories, empty directories, ignored files), packed or named.

Run as a script by a bare interpreter, inside a sandbox. No link is followed, nothing that is no plain file is opened,
and no tree is too deep or too large: what cannot be kept is named.
"""

import contextlib
import io
import os
import re
import stat
import sys
import tarfile
from collections.abc import Iterator
from typing import TextIO

_MAX_REF = 1 << 24
_MAX_LINKS = 5
_BLOCK = 512  # what a tar takes for each name, and rounds contents up to
_MAX_NAME_SHOWN = 200
_OBJECT_ID = re.compile(r"[0-9a-f]{40,64}")
_PACKED = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
_READ_BY_GIT = (".gitignore", ".gitattributes", ".gitmodules")


def walk(top: str) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Walk the directories below the top one, each with what it holds; no repository in there is entered."""
    waiting = [""]
    while waiting:
        path = waiting.pop()
        entries: list[os.DirEntry[str]] = []
        with contextlib.suppress(OSError), os.scandir(os.path.join(top, path)) as found:
            entries.extend(found)
        yield path, entries
        if not path or not any(entry.name == ".git" for entry in entries):
            inner = (entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name != ".git")
            waiting.extend(os.path.join(path, name) for name in inner)


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)


def print_specs(top: str, *rebuilt: str) -> None:
    """Write pathspecs for everything but what is nested or rebuilt; remove pipes that git would wait at for ever."""
    specs = [".", *(f":(exclude,literal){path}" for path in rebuilt)]
    for path, entries in walk(top):
        if path and any(entry.name == ".git" for entry in entries):
            specs.append(f":(exclude,literal){path}")
        for entry in entries:
            if entry.name in _READ_BY_GIT and stat.S_ISFIFO(entry.stat(follow_symlinks=False).st_mode):
                os.unlink(entry.path)
                _say(os.path.join(path, entry.name), "no plain file", to=sys.stderr)
    sys.stdout.buffer.write(b"\0".join(map(os.fsencode, specs)))


def unlock(top: str) -> None:
    """Make readable what the worker shut: without capabilities even root may not read it."""
    waiting = [top]
    while waiting:
        path = waiting.pop()
        with contextlib.suppress(OSError):
            os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) | stat.S_IRWXU, follow_symlinks=False)
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and not entry.stat().st_mode & stat.S_IRUSR:
                    with contextlib.suppress(OSError):
                        os.chmod(entry.path, stat.S_IMODE(entry.stat().st_mode) | stat.S_IRUSR)


def find_tip(git: str, alternates: str) -> str | None:
    """Find the commit a worker's clone is at; None where its objects are not its own, or git would wait for ever.

    Read by ourselves: with the clone's own configuration and links git would serve whatever they name.
    """
    entries = (entry for _, found in walk(f"{git}/objects") for entry in found)
    plain = all(entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) for entry in entries)
    borrows = _read(f"{git}/objects/info/alternates")
    if not plain or os.path.islink(f"{git}/objects") or borrows != _read(alternates):
        return None
    name = "HEAD"
    for _ in range(_MAX_LINKS):
        words = (_read(f"{git}/{name}") or _find_packed(git, name)).strip()
        if not words.startswith("ref: refs/") or ".." in words:
            return words if _OBJECT_ID.fullmatch(words) else None
        name = words.removeprefix("ref: ")
    return None


def _find_packed(git: str, name: str) -> str:
    lines = (line.split(" ") for line in _read(f"{git}/packed-refs").splitlines())
    return next((words[0] for words in lines if words[1:] == [name]), "")


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.fsdecode(_read_plain(path, _MAX_REF))
    return ""


def _read_plain(path: str, most: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "no plain file")
        return file.read(most)


def _list_below(top: str, name: str, rebuilt: frozenset[str]) -> Iterator[str]:
    """List a path and everything below it that is not rebuilt, a directory before what it holds; name what is shut."""
    waiting = [name]
    while waiting:
        path = waiting.pop()
        yield path
        full = os.path.join(top, path)
        try:
            if stat.S_ISDIR(os.lstat(full).st_mode):
                inner = (os.path.join(path, entry) for entry in os.listdir(full))
                waiting.extend(entry for entry in inner if entry not in rebuilt)
        except OSError as error:
            _say(path, str(error.strerror))


def measure(top: str, name: str, rebuilt: frozenset[str], largest: int) -> tuple[int, str]:
    """Tell how much of it there is, in a tar, and in words; no further than to the largest that could be packed."""
    packed = size = 0
    waiting = [name]
    while waiting and packed <= largest:
        path = waiting.pop()
        full = os.path.join(top, path)
        with contextlib.suppress(OSError):
            found = os.lstat(full)
            size += found.st_size
            packed += _BLOCK + (found.st_size if stat.S_ISREG(found.st_mode) else 0)
            if stat.S_ISDIR(found.st_mode):
                inner = (os.path.join(path, entry) for entry in os.listdir(full))
                waiting.extend(entry for entry in inner if entry not in rebuilt)
    return packed, f"{'over ' if waiting else ''}{size:,} bytes"


def pack(top: str, listed: str, target: str, largest: int, rebuilt: frozenset[str]) -> None:
    """Pack what git leaves out, smallest first, as far as it goes; name the rest."""
    with open(listed, "rb") as file:
        names = {os.fsdecode(name).rstrip("/") for name in file.read().split(b"\0") if name}
    for path, entries in walk(top):
        if path and (not entries or any(entry.name == ".git" for entry in entries)):
            names.add(path)
        for entry in entries:
            name = os.path.join(path, entry.name)
            if not _is_plain(entry) and rebuilt.isdisjoint(_list_above(name)):
                _say(name, "no plain file")
    covered = names | rebuilt
    outermost = (name for name in names - rebuilt if covered.isdisjoint(_list_above(name)))
    sizes = sorted((*measure(top, name, rebuilt, largest), name) for name in outermost if _is_there(top, name))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target)
    if not sizes:
        return
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for packed, size, name in sizes:
            largest -= packed
            if largest < 0:
                _say(name, size)
                continue
            for path in _list_below(top, name, rebuilt):
                _add(tar, top, path)


def _add(tar: tarfile.TarFile, top: str, path: str) -> None:
    """Add one name to a tar, with no more in it than its header says."""
    full = os.path.join(top, path)
    try:
        if stat.S_IFMT(os.lstat(full).st_mode) not in _PACKED:
            return
        info = tar.gettarinfo(full, path)
        content = _read_plain(full, info.size) if info.isreg() else b""
    except OSError as error:
        _say(path, str(error.strerror))
        return
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _is_there(top: str, name: str) -> bool:
    try:
        os.lstat(os.path.join(top, name))
    except FileNotFoundError:
        return False
    except OSError as error:  # its name is too long, say
        _say(name, str(error.strerror))
        return False
    return True


def _list_above(name: str) -> Iterator[str]:
    while name := os.path.dirname(name):
        yield name


def _say(name: str, problem: str, to: TextIO | None = None) -> None:
    words = name.encode("utf-8", "replace").decode()
    words = words if len(words) <= _MAX_NAME_SHOWN else f"{words[:_MAX_NAME_SHOWN]}…"
    print("not kept:", "".join(c if c.isprintable() else " " for c in words), f"({problem})", file=to)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["specs", top, *rebuilt]:
            print_specs(top, *rebuilt)
        case ["unlock", top]:
            unlock(top)
        case ["tip", git, alternates]:
            print(find_tip(git, alternates) or "")
        case ["pack", top, listed, target, largest, *rebuilt]:
            pack(top, listed, target, int(largest), frozenset(rebuilt))
