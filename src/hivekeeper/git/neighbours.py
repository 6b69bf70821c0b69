"""Which hives work on one repository: each leaves a small file in it, so that a second one can say so.

A marker is only a hint. It is written when a plan is submitted, is never needed, and one whose hive is gone is ignored.
"""

import os
from contextlib import suppress
from pathlib import Path

from hivekeeper.git.remote import look

_MOST_READ = 4096


def leave_marker(source: str, hive: str, root: Path) -> None:
    """Leave word in a repository of this machine which hive works on it, and where that lies."""
    directory = _find_directory(source)
    if directory is None:
        return
    with suppress(OSError):  # not ours to write in: then nobody is told
        directory.mkdir(exist_ok=True)
        draft = directory / f".{hive}.{os.getpid()}"
        draft.write_bytes(os.fsencode(f"{root}\n"))
        draft.replace(directory / hive)


def list_neighbours(source: str, hive: str) -> dict[str, Path]:
    """List the other hives that have left word in a repository, by their ids, each with where it lies."""
    directory, found = _find_directory(source), dict[str, Path]()
    with suppress(OSError):
        for entry in sorted(directory.iterdir()) if directory else ():
            if entry.name != hive and not entry.name.startswith(".") and entry.is_file() and not entry.is_symlink():
                root = Path(os.fsdecode(entry.read_bytes()[:_MOST_READ]).removesuffix("\n"))
                if root.is_absolute():
                    found[entry.name] = root
    return found


def _find_directory(source: str) -> Path | None:
    if not os.path.isdir(source):  # noqa: PTH112 - a URL is no path
        return None
    found = look(source, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return Path(found) / "hivekeeper" if found else None
