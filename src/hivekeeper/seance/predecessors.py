"""Loads what the next worker of a task is told of earlier attempts, at the moment when it is dispatched.

The index may not have the last attempt yet, so this asks the ledger, the outputs of runs and the ends of session logs.
"""

import io
import os
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import BinaryIO

from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.domain.predecessors import Predecessor, Quote
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.runner import Runner
from hivekeeper.places import Places
from hivekeeper.runners import PRESETS
from hivekeeper.runs.local import Outputs
from hivekeeper.seance.collecting import Known, find_known, list_changed, list_outputs, read_output
from hivekeeper.seance.logs import Log, list_patterns, open_logs
from hivekeeper.seance.readers import read_log
from hivekeeper.store.database import Connection
from hivekeeper.store.sqlite import DATABASE_MAGIC

MAX_ATTEMPTS = 5  # the last ones
MAX_CALLS = 5
TAIL_BYTES = 256 << 10  # of a log or an output
MAX_WHOLE = 8 << 20  # of a log that can only be read from its beginning
MAX_COUNTED = 64 << 20  # bytes before the tail whose lines are counted
_CHUNK = 1 << 20


def load_predecessors(
    connection: Connection,
    places: Places,
    outputs: Outputs,
    task: str,
    number: int,
    runners: Mapping[str, Runner] = PRESETS,
) -> list[Predecessor]:
    """Load the attempts of a task before this one, the oldest first."""
    numbers = range(max(1, number - MAX_ATTEMPTS), number)
    found = (find_known(connection, task, each) for each in numbers)
    return [_load(places, outputs, runners, known) for known in found if known is not None]


def _load(places: Places, outputs: Outputs, runners: Mapping[str, Runner], known: Known) -> Predecessor:
    quotes: list[Quote] = []
    with open_logs(places, known.attempt, list_patterns(known.task, known.runs, runners)) as logs:
        for log in logs:
            quotes += (Quote(log.document, excerpt) for excerpt in _read_end(log))
        has_logs = bool(logs)
    failing = [_find_failure(outputs, run, name) for run, name in list_outputs(known, has_logs=has_logs)]
    agents = [run for run in known.runs if run.kind == "agent"]
    said, errors, calls = (
        [quote for quote in quotes if quote.excerpt.role is role] for role in (Role.SAID, Role.ERROR, Role.CALLED)
    )
    recorded = [Quote("ledger", excerpt) for excerpt in known.record if excerpt.role is Role.SAID]
    failed = [*errors, *filter(None, failing)]
    unique = {quote.excerpt.text: quote for quote in calls}  # each at its last place
    return Predecessor(
        known.attempt.number,
        known.attempt.agent or "",
        agents[-1].runner or "" if agents else "",
        " ".join(filter(None, (known.attempt.state.value, known.attempt.reason))),
        tuple(list_changed(places, known)),
        tuple(unique.values())[-MAX_CALLS:],
        failed[-1] if failed else None,
        next(iter((said or recorded)[-1:]), None),
    )


def _find_failure(outputs: Outputs, run: RunRow, name: str) -> Quote | None:
    """Find the end of what a failed run printed."""
    file = outputs.open_output(run.id) if not run.succeeded else None
    if file is None:
        return None
    with file:
        before, tail = _cut(file, os.fstat(file.fileno()).st_size)
        found = [each for each in read_output(run, tail) if each.role is Role.ERROR]
    return Quote(name, _move(found[-1], before)) if found else None


def _read_end(log: Log) -> Iterator[Excerpt]:
    """Read the end of a log; one that has no lines is read whole, if it is not too large for that."""
    log.file.seek(0)
    is_of_lines = not log.name.endswith(".json") and not log.file.read(16).startswith(DATABASE_MAGIC)
    if is_of_lines:
        before, tail = _cut(log.file, log.size)
        excerpts: Iterator[Excerpt] = (_move(excerpt, before) for excerpt in read_log(log.name, tail))
    else:
        excerpts = log.read() if log.size <= MAX_WHOLE else iter(())
    last: dict[Role, deque[Excerpt]] = {}
    for excerpt in excerpts:
        last.setdefault(excerpt.role, deque(maxlen=4 * MAX_CALLS)).append(excerpt)
    yield from (excerpt for each in last.values() for excerpt in each)


def _cut(file: BinaryIO, size: int) -> tuple[int | None, BinaryIO]:
    """Cut the tail of a file at a line's beginning; how many lines are before it, if these can be counted quickly."""
    start = max(0, size - TAIL_BYTES)
    before: int | None = 0
    if start > MAX_COUNTED:
        before = None
        file.seek(start)
    else:
        file.seek(0)
        left, lines = start, 0
        while left > 0 and (words := file.read(min(_CHUNK, left))):
            lines += words.count(b"\n")
            left -= len(words)
        before = lines
    if start:
        file.readline(TAIL_BYTES)
        before = None if before is None else before + 1
    return before, io.BytesIO(file.read(TAIL_BYTES))


def _move(excerpt: Excerpt, before: int | None) -> Excerpt:
    return replace(excerpt, position=excerpt.position + before if before is not None and excerpt.position else 0)
