"""The recording in the README is small, shows nothing private, and uses the wording of today's code.

Running the demo each time would take too long. Instead, every phrase in the recording must be a string of the package,
events and the live display must read as the code renders them now, and `hive demo` prints the last frame again.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise
from string import punctuation

import pytest
from rich.console import Console

from hivekeeper.cli import rehearse, render
from hivekeeper.domain import events as e
from hivekeeper.domain.workers import WorkerState
from hivekeeper.testing import demo
from hivekeeper.testing.clashes import PAIRS
from tests.architecture.sources import Source, read_package
from tests.recording.record import COMMAND, MAX_BYTES, RECORDING, find_private
from tests.recording.svg import read_svg

STALE = "docs/images/demo.svg shows what the demo no longer prints. Type: make recording"
PROMPT = f"$ {' '.join(COMMAND)}"
# What differs between two demos: times, directories, tasks, commits, bars, numbers, truncated words, column gaps.
VALUE = re.compile(
    r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|/tmp/[\w/-]+|\b[a-z]+-(?:\d\d|[ab]|[0-9a-f]{10})\b|\b[0-9a-f]{7,10}\b"
    r"|[█░]+|\d+|\S*…| {2,}"
)
HOLE = "0"  # stands for a value, and for a hole of an f-string
NOT_PRINTED = re.compile(r"\[/?[a-z ]*\]|^ *title: ")  # rich's markup, and the key before a title in the demo's plan
AT, WHY, TASK = "2026-01-02T03:04:05.000000Z", "WHY", "shop/part-01"
EVENTS = (
    e.TaskDispatched(TASK, "shop", 1, 1, 1, sandbox=True),
    e.TaskDispatched(TASK, "shop", 2, 1, 1, sandbox=True),
    e.AttemptFailed(TASK, 1, final=False),
    e.TaskCompleted(TASK, 1, "0123456789", None),
    e.MergeRejected(TASK, 1),
    e.ConvoyCompleted("shop"),
)
# Lines that are recognised by their beginning: commands and kills, events, live workers, live convoys.
RENDERED = re.compile(r"\$ |\*\*\* |\d\d:\d\d:\d\d |  worker \d|\w+  [█░]")


@cache
def read_frames() -> list[list[str]]:
    frames = read_svg(RECORDING.read_text("utf-8"))
    return [frame for frame in frames if not PROMPT.startswith(frame[-1])]


def split_words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s()]", VALUE.sub(f" {HOLE} ", text))


def shape(line: str) -> str:
    return re.sub(rf"{HOLE}(?: {HOLE})*", HOLE, " ".join(split_words(line))).removesuffix(f" {HOLE}")


def list_texts(source: Source) -> Iterator[str]:
    """List the strings of a file, f-strings with their holes; not its docstrings and keys, which are never printed."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(source.tree):
        match node:
            case ast.Module(body) | ast.ClassDef(body=body) | ast.FunctionDef(body=body):
                skipped.update(statement.value for statement in body[:1] if isinstance(statement, ast.Expr))
            case ast.Dict(keys):
                skipped.update(key for key in keys if key is not None)
            case ast.Subscript(slice=key):
                skipped.add(key)
            case ast.JoinedStr(parts) if node not in skipped:
                skipped.update(parts)
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else f" {HOLE} " for part in parts)
            case ast.Constant(str(text)) if node not in skipped:
                yield text


def list_all_texts() -> list[str]:
    kinds = (body.kind.partition(".")[2].replace("_", " ") for body in e.BODIES.values())
    return [PROMPT, *PAIRS, *kinds, *(text for source in read_package() for text in list_texts(source))]


def list_phrases(texts: Iterable[str]) -> dict[str, set[tuple[str, ...]]]:
    """List the parts of texts between holes, by their first word."""
    phrases: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for text in texts:
        for is_hole, words in groupby(split_words(NOT_PRINTED.sub("", text)), key=HOLE.__eq__):
            phrase = tuple(words)
            phrases[phrase[0]] |= set() if is_hole else {phrase}
    return phrases


def find_unknown(frames: Iterable[Sequence[str]], texts: Iterable[str]) -> set[str]:
    """Find the lines with a word that is part of no whole phrase of these texts."""
    phrases, unknown, known = list_phrases(texts), set[str](), set[str]()
    for frame in frames:
        places = [(word, line) for line in frame for word in split_words(line)]
        words = [word for word, _ in places]
        found = {at for at, word in enumerate(words) if word in {HOLE, *punctuation}}
        for at, word in enumerate(words):
            for phrase in phrases.get(word, ()):
                if tuple(words[at : at + len(phrase)]) == phrase:
                    found.update(range(at, at + len(phrase)))
        missed = {line for at, (_, line) in enumerate(places) if at not in found}
        unknown |= missed
        known |= {*frame} - missed
    return unknown - known  # the first half of a wrapped line may have scrolled out of a frame


def render_live(state: WorkerState) -> list[str]:
    """Render the live display of a worker with and without a title, and of a convoy at work and complete."""
    worker = {"worker": 1, "task": TASK, "state": state.value, "for_s": 1, "silent_s": 1}
    convoy = {"convoy": "shop", "complete": 1, "tasks": 2, "elapsed_s": 1}
    console = Console(width=1000)
    with console.capture() as shown:
        for title in (WHY, ""):
            console.print(render.draw_workers([{**worker, "progress": "", "title": title}], 1, 1000))
        for left_s in (None, 1, 60):
            console.print(render.draw_convoy({**convoy, "state": "ACTIVE", "left_s": left_s}))
        console.print(render.draw_convoy({**convoy, "state": "COMPLETE"}))
    return shown.get().splitlines()


def test_the_recording_is_small_and_shows_nothing_of_where_it_was_made() -> None:
    svg = RECORDING.read_text("utf-8")
    assert len(svg.encode()) <= MAX_BYTES
    assert find_private(svg, ()) == []
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_paths_and_names_in_a_recording_are_found() -> None:
    text = "shop: what landed is branch hive/main of /home/ann/shop, 7/9 as ann@box; see /tmp/hive-demo/hive"
    assert find_private(text, ("ann", "box", "sho")) == ["/home/ann/shop", "ann", "box"]


def test_every_phrase_in_the_recording_is_a_string_of_the_package() -> None:
    assert find_unknown(read_frames(), list_all_texts()) == set(), STALE


def test_events_and_the_live_display_in_the_recording_read_as_they_are_rendered_now() -> None:
    events = (render.say_line(e.Event(1, body, "keeper", WHY, AT, AT, 1, ""))[11:] for body in EVENTS)
    live = (line for state in WorkerState for line in render_live(state))
    story = (text for source in read_package() if source.name == "testing/demo.py" for text in list_texts(source))
    shapes = {shape(line) for line in (PROMPT, *events, *live, *story)}
    patterns = {re.escape(one).replace(WHY, ".*").replace("shop", r"\w+") for one in shapes}
    seen: set[str] = set()
    for frame in read_frames():
        for line, following in pairwise([*frame, ""]):
            if RENDERED.match(line):
                candidates = shape(line), shape(f"{line} {following}")  # a long line is wrapped
                found = {pattern for pattern in patterns if any(re.fullmatch(pattern, text) for text in candidates)}
                assert found, f"{STALE} ({line})"
                seen |= found
    assert len(seen) > len(EVENTS) + 5


def test_the_last_frame_of_the_recording_is_what_the_demo_prints_now_for_the_same_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    last = read_frames()[-1]
    columns = rehearse._COLUMNS  # noqa: SLF001 - the keys of a row, in the order of the printed table
    rows = [dict(zip(columns, line.split(), strict=False)) for line in last if " COMPLETE " in line]
    result = [{**row, "attempts": int(row["attempts"])} for row in rows]
    seconds = float(last[-1].rpartition("(")[2].partition(" s")[0])
    monkeypatch.setattr(demo, "run_demo", lambda **_: (result, [], seconds))
    rehearse.demo(tasks=6, workers=4, chaos=False, keep=None)
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert last[-len(printed) :] == printed, STALE
    assert len(printed) == len(rows) + 2
