"""What git leaves out of a worker's tree: nested repositories and ignored files; found, packed, or named.

Run as a script by a bare interpreter. It only reads: no link is followed, and nothing that is no plain file is opened.
"""

import contextlib
import os
import sys
import tarfile
from collections.abc import Iterator


def find_nested(top: str) -> Iterator[str]:
    """Find directories below the top one that are repositories of their own."""
    waiting = [""]
    for path in waiting:  # it grows while we walk it
        with contextlib.suppress(OSError), os.scandir(os.path.join(top, path)) as entries:
            for entry in entries:
                inner = os.path.join(path, entry.name)
                if not entry.is_dir(follow_symlinks=False) or inner == ".git":
                    continue
                if os.path.lexists(os.path.join(top, inner, ".git")):
                    yield inner
                else:
                    waiting.append(inner)


def measure(path: str) -> int:
    """Tell how much of it there is."""
    total = 0
    waiting = [path]
    for each in waiting:
        with contextlib.suppress(OSError):
            found = os.lstat(each)
            total += found.st_size
            if os.path.isdir(each) and not os.path.islink(each):
                waiting.extend(os.path.join(each, name) for name in os.listdir(each))
    return total


def print_nested(top: str) -> None:
    """Write pathspecs for everything but what is nested."""
    specs = [".", *(f":(exclude,literal){path}" for path in find_nested(top))]
    sys.stdout.buffer.write(b"\0".join(map(os.fsencode, specs)))


def pack(top: str, listed: str, target: str, largest: int, rebuilt: frozenset[str]) -> None:
    """Pack what git leaves out, smallest first, as far as it goes; name the rest."""
    with open(listed, "rb") as file:
        ignored = [os.fsdecode(name).rstrip("/") for name in file.read().split(b"\0") if name]
    names = {*ignored, *find_nested(top)} - rebuilt
    sizes = sorted((measure(os.path.join(top, name)), name) for name in names)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target)
    if not sizes:
        return
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for size, name in sizes:
            largest -= size
            try:
                problem = f"{size:,} bytes" if largest < 0 else None
                if problem is None:
                    tar.add(os.path.join(top, name), name, filter=lambda info: info if _is_plain(info) else None)
            except OSError as error:
                problem = error.strerror
            if problem:
                print("not kept:", name.encode("utf-8", "replace").decode(), f"({problem})")


def _is_plain(info: tarfile.TarInfo) -> bool:
    return info.isreg() or info.isdir() or info.issym()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["nested", top]:
            print_nested(top)
        case ["pack", top, listed, target, largest, *rebuilt]:
            pack(top, listed, target, int(largest), frozenset(rebuilt))
