"""Rules and any conflict: what they settle has everything that both sides wrote, and they never guess.

The judge here counts for itself. The conflicted text is git's own, of small files in which lines recur on purpose.
"""

import ast
import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from hypothesis import assume, given
from hypothesis import strategies as st

from hivekeeper.domain.rules import Sides, has_markers, list_lost_lines, resolve_file
from tests.property.budget import PATIENCE, tries
from tests.unit.test_rules import make_conflict

pytestmark = PATIENCE

DEFINITIONS = [f"def {name}():\n    return {value}" for name in "fghijk" for value in (1, 2)]
STATEMENTS = [
    "x = 1", "y = f(1,2)", "y = f(1, 2)", "import os", "", "@cached", "class A:", "    x = 1", "    def f(self): ..."
]  # fmt: skip
IMPORTS = [
    f"from p import {', '.join(names)}"
    for count in (1, 2, 3)
    for names in combinations(["a", "b as n", "c", "d", "n"], count)
]
WORDS = [
    "a",
    "b",
    "a b",
    "a  b",
    " a",
    "",
    "- c",
    "  more",
    "# one",
    "# two",
    "---",
    "=======",
    "\udcff",
    "'a  b'",
    "'a b'",
]
KINDS = {
    "m.py": [DEFINITIONS, STATEMENTS, IMPORTS, DEFINITIONS + STATEMENTS],
    "m.json": [["[", "]", "1", ",", "1,", "{", "}", '"a": 1']],
    "m.js": [["f(a)", "f( a )", "  f(a)", "}", "function f() {", ""]],
    "notes.txt": [WORDS],
    "CHANGELOG.md": [WORDS, ["- a", "- b", "- c", "- d"]],
    ".gitignore": [["a", "b", "c", "d", "!a", "# one", ""]],
    "requirements.txt": [["a==1", "a==2", "b==1", "c", "d", ""]],
    "log.jsonl": [[json.dumps({"n": number}) for number in range(6)]],
}


@st.composite
def changes(draw: st.DrawFn, base: list[str], lines: Sequence[str], place: int) -> list[str]:
    """A side: the base with something else in one place, and perhaps in another."""
    changed = base[:]
    for begin in (place, *draw(st.lists(st.integers(0, len(base)), max_size=1))):
        cut = draw(st.sampled_from([0, 0, 1, 2]))
        longest = 1 if lines is IMPORTS else 3
        changed[begin : begin + cut] = draw(st.lists(st.sampled_from(lines), min_size=1, max_size=longest))
    return changed


@st.composite
def conflicts(draw: st.DrawFn) -> tuple[Sides, str]:
    """Three versions of a file, both sides changed in one place, and what git could not settle of them."""
    path, lines = draw(st.sampled_from([(path, lines) for path in KINDS for lines in KINDS[path]]))
    base = draw(st.lists(st.sampled_from(lines), max_size=1 if lines is IMPORTS else 8))
    place = draw(st.integers(0, len(base)))
    ours, theirs = draw(changes(base, lines, place)), draw(changes(base, lines, place))
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    texts = ("".join(line + "\n" for line in version).replace("\n", end) for version in (base, ours, theirs))
    versions = [text.removesuffix(draw(st.sampled_from(["", "", "", end]))) for text in texts]
    conflicted = make_conflict(*versions)
    assume(has_markers(conflicted))
    return Sides(path, *versions), conflicted


def count_tokens(text: str) -> Counter[str]:
    """Count words and signs; a comma more or less is a name more or less."""
    return Counter(re.findall(r"[A-Za-z0-9_]+|[^A-Za-z0-9_\s,]", text))


def defines(path: str, text: str) -> Counter[str]:
    """Count a Python file's functions and classes at its top level, and a requirement's names."""
    if path == "requirements.txt":
        return Counter(re.findall(r"(?m)^\w+", text))
    names = (getattr(node, "name", "") for node in ast.parse(text).body)
    return Counter(name for name in names if name)


def parses(path: str, text: str) -> bool:
    """Tell whether a file can be read at all."""
    try:
        if path.endswith(".py"):
            ast.parse(text)
        elif path.endswith(".json"):
            json.loads(text)
    except (SyntaxError, ValueError):
        return False
    return True


def judge_gate(sides: Sides, text: str) -> None:
    """Hold a result against the three versions."""
    versions = [sides.base or "", sides.ours or "", sides.theirs or ""]
    base, ours, theirs, found = map(count_tokens, (*versions, text))
    for token in base | ours | theirs | found:
        added, others = ours[token] - base[token], theirs[token] - base[token]
        apart = base[token] + added + others
        together = base[token] + (max(added, others) if added > 0 else min(added, others))
        allowed = {apart, *range(together, apart + 1), *range(apart, together + 1)} if added * others > 0 else {apart}
        assert found[token] in allowed, f"{token!r} occurs {found[token]} times, not {allowed}"
    if all(parses(sides.path, version) for version in versions):
        assert parses(sides.path, text), "it does not parse any more"
        if sides.path in {"m.py", "requirements.txt"}:
            most = defines(sides.path, versions[1]) | defines(sides.path, versions[2])
            assert defines(sides.path, text) <= most, "it defines something twice"


def list_lost(sides: Sides, text: str) -> list[str]:
    """List lost lines; of imports the names count that a side added, wherever they are imported now."""
    imported, before = read_imports(text), read_imports(sides.base or "")
    lost = list_lost_lines(sides, text)
    return [line for line in lost if not (read_imports(line) and read_imports(line) - before <= imported)]


def read_imports(text: str) -> set[str]:
    """Read which names are imported, as what."""
    return {name for names in re.findall(r"(?m)^from p import (.*?)\r?$", text) for name in names.split(", ")}


def test_what_rules_settle_loses_nothing_and_passes_the_gate() -> None:
    seen: Counter[str] = Counter()

    @given(conflict=conflicts())
    @tries(300)
    def settle(conflict: tuple[Sides, str]) -> None:
        sides, conflicted = conflict
        settled = resolve_file(sides, conflicted)
        seen.update(settled.by if settled else ["refused"])
        if settled is None:
            return
        assert not has_markers(settled.text)
        assert len(settled.by) == conflicted.count("<<<<<<< ")
        versions = [sides.base or "", sides.ours or "", sides.theirs or ""]
        assert {*re.findall(r"\r?\n", settled.text)} <= {end for text in versions for end in re.findall(r"\r?\n", text)}
        judge_gate(sides, settled.text)
        count = list_lost if "import-union" in settled.by else list_lost_lines
        assert count(sides, settled.text) == []

    settle()
    assert {"same", "one-sided", "set-like", "import-union", "definitions", "refused"} == seen.keys(), seen


MARKERS = ["<<<<<<< a", "||||||| b", "=======", ">>>>>>> c", "<<<<<<<", "a", "b", "", "\r", "\udcff"]
TEXTS = st.lists(st.sampled_from(MARKERS), max_size=12).map("\n".join) | st.text(max_size=30)


@given(path=st.sampled_from(sorted(KINDS)), texts=st.tuples(TEXTS, TEXTS, TEXTS, TEXTS))
@tries(300)
def test_no_text_whatever_does_harm(path: str, texts: tuple[str, str, str, str]) -> None:
    *versions, conflicted = texts
    sides = Sides(path, *versions)
    settled = resolve_file(sides, conflicted)
    if settled is not None:
        assert not has_markers(settled.text)
        assert not any(map(has_markers, versions))
    assert list_lost_lines(sides, versions[1] + "\n" + versions[2]) == []
