"""What git leaves out of a worker's tree (nested repositories, empty directories, ignored files), packed or named.

Run as a script by a bare interpreter. No link is followed, and nothing that is no plain file is opened.
"""

import contextlib
import os
import re
import stat
import sys
import tarfile
from collections.abc import Iterator
from typing import TextIO

_LARGEST_REF = 1 << 24
_MOST_LINKS = 5
_OBJECT_ID = re.compile(r"[0-9a-f]{40,64}")
_READ_BY_GIT = (".gitignore", ".gitattributes", ".gitmodules")


def walk(top: str) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Walk the directories below the top one, each with what it holds; no repository in there is entered."""
    waiting = [""]
    for path in waiting:  # it grows while we walk it
        entries: list[os.DirEntry[str]] = []
        with contextlib.suppress(OSError), os.scandir(os.path.join(top, path)) as found:
            entries.extend(found)
        yield path, entries
        if not path or not any(entry.name == ".git" for entry in entries):
            inner = (entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name != ".git")
            waiting.extend(os.path.join(path, name) for name in inner)


def find_nested(top: str) -> Iterator[str]:
    """Find directories below the top one that are repositories of their own."""
    return (path for path, entries in walk(top) if path and any(entry.name == ".git" for entry in entries))


def find_empty(top: str) -> Iterator[str]:
    """Find directories below the top one with nothing in them, or nothing that can be read."""
    return (path for path, entries in walk(top) if path and not entries)


def find_special(top: str) -> Iterator[str]:
    """Find pipes, sockets and the like."""
    return (os.path.join(path, e.name) for path, entries in walk(top) for e in entries if not _is_plain(e))


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
    for _ in range(_MOST_LINKS):
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
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return os.fsdecode(file.read(_LARGEST_REF))
    return ""


def measure(top: str, path: str, rebuilt: frozenset[str]) -> int:
    """Tell how much of it there is."""
    total = 0
    waiting = [path]
    for each in waiting:
        with contextlib.suppress(OSError):
            full = os.path.join(top, each)
            total += os.lstat(full).st_size
            if os.path.isdir(full) and not os.path.islink(full):
                inner = (os.path.join(each, name) for name in os.listdir(full))
                waiting.extend(name for name in inner if name not in rebuilt)
    return total


def pack(top: str, listed: str, target: str, largest: int, rebuilt: frozenset[str]) -> None:
    """Pack what git leaves out, smallest first, as far as it goes; name the rest."""
    with open(listed, "rb") as file:
        left = [os.fsdecode(name).rstrip("/") for name in file.read().split(b"\0") if name]
    names = {*left, *find_nested(top), *find_empty(top)}
    covered = names | rebuilt
    outermost = (name for name in names - rebuilt if covered.isdisjoint(_list_above(name)))
    sizes = sorted((measure(top, name, rebuilt), name) for name in outermost if _is_there(top, name))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target)
    for name in find_special(top):
        if rebuilt.isdisjoint(_list_above(name)):
            _say(name, "no plain file")
    if not sizes:
        return

    def choose(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        plain = info.isreg() or info.isdir() or info.issym() or info.islnk()
        return info if plain and info.name not in rebuilt else None

    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for size, name in sizes:
            largest -= size
            if largest < 0:
                _say(name, f"{size:,} bytes")
                continue
            try:
                tar.add(os.path.join(top, name), name, filter=choose)
            except OSError as error:
                _say(name, str(error.strerror))


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
    print("not kept:", "".join(c if c.isprintable() else " " for c in words), f"({problem})", file=to)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["specs", top, *rebuilt]:
            print_specs(top, *rebuilt)
        case ["tip", git, alternates]:
            print(find_tip(git, alternates) or "")
        case ["pack", top, listed, target, largest, *rebuilt]:
            pack(top, listed, target, int(largest), frozenset(rebuilt))
