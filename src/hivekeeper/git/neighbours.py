"""Which hives work on one repository: each leaves a small file in it, so that a second one can say so.

A marker is only a hint. It is written when a plan is submitted, is never needed, and one whose hive is gone is ignored.
"""

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote_to_bytes

from hivekeeper.git.remote import look

_MOST_READ = 4096
_LOCAL = "file://"


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


def is_same(source: str, other: str) -> bool:
    """Tell whether two paths or URLs name one repository of this machine."""
    return source == other or _find_directory(source) == _find_directory(other) is not None


def _find_directory(source: str) -> Path | None:
    """Find the directory for markers in a repository of this machine; None if it is elsewhere, or none is there."""
    path = os.fsdecode(unquote_to_bytes(source.removeprefix(_LOCAL))) if source.startswith(_LOCAL) else source
    if not Path(path).is_absolute() or not Path(path).is_dir():
        return None
    found = look(path, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return Path(found) / "hivekeeper" if found else None
