"""`make bench-seance`: collecting a long session log in bounded memory, and searching it.

The log is one of Claude Code's in form, with a vocabulary as large as a repository's; a fact is in its middle.
"""

import json
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Figure
from benchmarks.ledger import Say
from hivekeeper.seance.readers import read_log
from hivekeeper.store.excerpts import Document, ExcerptIndex

SEARCH_MS, GROWTH_MB, LEAST_MB_S = 200.0, 64.0, 2.0
_MB = 1_000_000
_FACT = "the heron service listens on port 7431"
_QUESTIONS = (
    "which port does the heron service use",
    "error file test import",  # words that nearly every line has
    "word17 word18 word19 word20",
    "word1",
    "why did nothing of this work",
)
_WORDS = ("error", "file", "test", "import", "return", "assert", "def", "self")
_ROUNDS = 5


def run_all(say: Say, *, megabytes: int, directory: Path | None) -> Iterator[Figure]:
    """Measure everything."""
    with tempfile.TemporaryDirectory(prefix="hive-bench-", dir=directory) as name:
        log = Path(name) / "session.jsonl"
        say(f"writing a log of {megabytes} MB …")
        lines = _write(log, megabytes * _MB)
        with ExcerptIndex(Path(name) / "seance.db") as index:
            say("collecting it …")
            yield from _measure_collecting(index, log, megabytes)
            documents = index.list_documents([("c/a", 1)])
            cited = index.search(_QUESTIONS[0], documents, 10)[0]
            assert cited.citation == f"[claude session.jsonl:{lines // 2}]", cited
            yield _measure_search(index, documents, megabytes)


def _write(path: Path, size: int) -> int:
    """Write the log; tell how many lines it has."""
    rng = random.Random(1)  # noqa: S311 - words, and the same each time
    vocabulary = [*(f"word{number}" for number in range(20_000)), *_WORDS * 300]
    written, number = 0, 0
    texts = [" ".join(rng.choices(vocabulary, k=150)) for _ in range(500)]
    lines = size // 1500
    with path.open("w") as file:
        while written < size or number < lines:
            number += 1
            text = f"{rng.choice(texts)} {rng.choice(vocabulary)}" + (f" {_FACT}" if number == lines // 2 else "")
            block = {"type": "text", "text": text}
            if number % 3 == 0 and number != lines // 2:
                block = {"type": "tool_use", "name": "Bash", "input": {"command": text[:200]}}  # type: ignore[dict-item]
            event = {"type": "assistant", "message": {"role": "assistant", "content": [block]}}
            written += file.write(f"{json.dumps(event)}\n")
    return lines


def _measure_collecting(index: ExcerptIndex, log: Path, megabytes: int) -> Iterator[Figure]:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    with log.open("rb") as file:
        for _ in index.put("c/a", 1, "claude session.jsonl", str(log.stat().st_size), read_log(log.name, file)):
            pass
    took = time.perf_counter() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / _MB
    name = f"memory to collect a log of {megabytes} MB"
    yield Figure(name, grown, "MB", f"≤ {GROWTH_MB:g}", grown <= GROWTH_MB)
    rate = log.stat().st_size / _MB / took
    size = index.path.stat().st_size / _MB
    detail = f"{took:.1f} s; the index has {size:.0f} MB"
    yield Figure("collected a second", rate, "MB", f"≥ {LEAST_MB_S:g}", rate >= LEAST_MB_S, detail)


def _measure_search(index: ExcerptIndex, documents: list[Document], megabytes: int) -> Figure:
    """Take the slowest of some questions, each the middle of a few tries."""
    medians = dict[str, float]()
    for question in _QUESTIONS:
        took = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            index.search(question, documents, 60)
            took.append((time.perf_counter() - began) * 1000)
        medians[question] = statistics.median(took)
    slowest = max(medians, key=lambda question: medians[question])
    detail = f"the slowest of {len(medians)}: {slowest!r}"
    value = medians[slowest]
    return Figure(f"search {megabytes} MB of logs", value, "ms", f"≤ {SEARCH_MS:g}", value <= SEARCH_MS, detail)
