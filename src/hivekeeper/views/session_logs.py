"""The session logs of agent programs: in the sandbox while it is there, later as they were saved."""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.runner import Runner
from hivekeeper.places import Places
from hivekeeper.sandbox.session_log import LARGEST, find_logs
from hivekeeper.store import queries
from hivekeeper.store.database import Connection

_DATABASE = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class SessionLog:
    """One log; `lines` is None if it is not text."""

    name: str
    place: str
    lines: list[str] | None


def list_session_logs(connection: Connection, attempt: AttemptRow, runners: Mapping[str, Runner]) -> list[str]:
    """List where the programs of an attempt write their session logs, as patterns below its sandbox."""
    runs = queries.list_runs_of_attempt(connection, attempt.task, attempt.number)
    known = [(runners[str(run.runner)], run.session) for run in runs if run.kind == "agent" and run.runner in runners]
    return list(dict.fromkeys(log for runner, session in known if (log := runner.find_log(session))))


def read_session_logs(places: Places, attempt: AttemptRow, patterns: Sequence[str]) -> list[SessionLog]:
    """Read the saved logs of an attempt's sessions, or else those in its sandbox, where no link is followed."""
    kept, sandbox = (place(attempt.task, attempt.number) for place in (places.session, places.sandbox))
    if kept.is_dir():
        return [_read(path.stem, str(path), gzip.decompress(path.read_bytes())) for path in sorted(kept.glob("*.gz"))]
    return [_read(name, str(sandbox), file.read(LARGEST)) for name, file in find_logs(str(sandbox), patterns)]


def _read(name: str, place: str, words: bytes) -> SessionLog:
    is_text = not words.startswith(_DATABASE) and b"\0" not in words[:4096]
    return SessionLog(name, place, words.decode("utf-8", "replace").splitlines() if is_text else None)
