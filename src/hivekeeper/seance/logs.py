"""The session logs of an attempt, open: those in its sandbox while it is there, else those that were kept."""

import gzip
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, cast

from hivekeeper.domain.excerpt import Excerpt
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.runner import Runner
from hivekeeper.places import Places
from hivekeeper.sandbox.session_log import find_logs
from hivekeeper.seance.readers import read_log

_WAL, _SHARED = "-wal", "-shm"  # what SQLite has beside a database
_TRAILER = 4  # bytes at the end of a gzip file: the size of its content

Pattern = tuple[str, str]  # a runner's name, and where it writes its logs below a sandbox


@dataclass(frozen=True, slots=True)
class Log:
    """An open log; `size` is that of its content, with the write-ahead log of a database."""

    runner: str
    name: str
    size: int
    file: BinaryIO
    wal: BinaryIO | None = None

    @property
    def document(self) -> str:
        """What it is called in citations."""
        return f"{self.runner} {self.name}".strip()

    def read(self) -> Iterator[Excerpt]:
        """Read it from its beginning."""
        return read_log(self.name, self.file, self.wal)


def list_patterns(task: TaskRow, runs: Sequence[RunRow], runners: Mapping[str, Runner]) -> list[Pattern]:
    """List where the programs of an attempt write their session logs.

    The run of a program whose output is not read does not say which it was: any of the task's may have been it.
    """
    sessions = [(name, run.session) for run in runs if run.kind == "agent" for name in _name_runners(task, run)]
    found = ((name, runners[name].find_log(session)) for name, session in sessions if name in runners)
    return list(dict.fromkeys((name, log) for name, log in found if log))


def _name_runners(task: TaskRow, run: RunRow) -> Sequence[str]:
    return (run.runner,) if run.runner else task.runners


@contextmanager
def open_logs(places: Places, attempt: AttemptRow, patterns: Sequence[Pattern]) -> Iterator[list[Log]]:
    """Open an attempt's logs."""
    key = (attempt.task, attempt.number)
    with ExitStack() as opened:
        found = list(_find_in_sandbox(opened, places.sandbox(*key), patterns)) if attempt.sandbox == "PRESENT" else []
        yield _join_databases(found or list(_find_kept(opened, places.session(*key), patterns)))


def _find_in_sandbox(opened: ExitStack, sandbox: Path, patterns: Sequence[Pattern]) -> Iterator[Log]:
    """Find logs in a sandbox, where no link is followed; they are called as they would be kept."""
    names: list[str] = []
    for runner, pattern in patterns:
        for name, file in find_logs(str(sandbox), [pattern]):
            own = opened.enter_context(os.fdopen(os.dup(file.fileno()), "rb"))
            yield Log(runner, f"{len(names)}-{name}" if name in names else name, os.fstat(own.fileno()).st_size, own)
            names.append(name)


def _find_kept(opened: ExitStack, place: Path, patterns: Sequence[Pattern]) -> Iterator[Log]:
    """Find logs that were kept; of a long one the end was."""
    with suppress(OSError):
        for path in sorted(place.glob("*.gz")):
            with path.open("rb") as raw:
                raw.seek(-_TRAILER, io.SEEK_END)
                size = int.from_bytes(raw.read(_TRAILER), "little")
            file = opened.enter_context(gzip.GzipFile(path))
            yield Log(_find_runner(path.stem, patterns), path.stem, size, cast("BinaryIO", file))


def _find_runner(name: str, patterns: Sequence[Pattern]) -> str:
    """Find who has written a log, by its name."""
    plain = name.partition("-")[2] if name.partition("-")[0].isdecimal() else name
    return next((runner for runner, pattern in patterns if fnmatchcase(plain, pattern.rpartition("/")[2])), "")


def _join_databases(logs: Sequence[Log]) -> list[Log]:
    """Put a database and its write-ahead log together, which holds what was written last."""
    wals = {log.name.removesuffix(_WAL): log for log in logs if log.name.endswith(_WAL)}
    return [
        replace(log, wal=wal.file, size=log.size + wal.size) if (wal := wals.get(log.name)) else log
        for log in logs
        if not log.name.endswith((_WAL, _SHARED))
    ]
