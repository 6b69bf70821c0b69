"""Resolves simple merge conflicts by rules that are nearly always right, or not at all.

1. Each conflicting hunk (diff3) is offered to the rules in order. If no rule resolves one of them, the whole file is
   left to the next tier.
2. The result is checked: every token occurs as often as both sides' changes to the base imply, so no addition is lost
   and no deletion comes back; it parses if all versions did; nothing is defined more often than on either side; no
   marker is left.
3. If in doubt, nothing is resolved: a version has markers or is missing, line endings are mixed, the file is too large.

Internally, lines end with a line feed; CRLF files are converted back. Differences in whitespace do not count, except
within quotes, and in indentation unless the language is known to ignore it.
"""

import ast
import json
import re
import textwrap
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

# All versions together: parsing Python takes seconds per megabyte, and must not delay a pass.
MAX_CHARACTERS = 2_000_000

_LINE = re.compile(r".*\n|.+")  # str.splitlines knows many more line ends than git does
_MARKER = re.compile(r"^(?:<{7}|\|{7}|>{7})(?: |\r?$)", re.MULTILINE)
# Commas do not count: a longer list has more of them, whichever side extended it.
_TOKEN = re.compile(r"\w+|[^\w\s,]")
_FREELY_INDENTED = re.compile(r"c|cc|cpp|cs|css|go|h|hpp|java|jsx?|json|kt|php|rs|scss|swift|tsx?")
_IMPORT = re.compile(r"^([ \t]*from [.\w]+ import) (\w+(?: as \w+)?(?:, ?\w+(?: as \w+)?)*)\n", re.MULTILINE)
# A line with the indented lines below it; or blank lines before the first.
_ENTRY = re.compile(r"^\S.*\n(?:[ \t]+\S.*\n|[^\S\n]*\n)*|^(?:[^\S\n]*\n)+", re.MULTILINE)
# Underlines and fences join lines, and `!` negates a line above it.
_NOT_AN_ENTRY = re.compile(r"!|([^\w\s#])\1\1")
_DEFINITION = (
    r"^(?:(?:export|default|pub|public|static|async|abstract|final)[ \t]+)*"
    r"(?:def|class|fn|func|function|struct|enum|interface|trait|type)[ \t]+(?:\([^)\n]*\)[ \t]*)?\w+"
)
_NOTHING = r"(?!)"
# Files that are sets of lines, and the part of a line that is its key: keys are unique.
_SETS = {
    "*.jsonl": _NOTHING,
    ".gitignore": _NOTHING,
    "CHANGELOG*": _NOTHING,
    "CODEOWNERS": r"^[^#\s]\S*",
    "go.sum": r"^\S+ \S+",
    "requirements*.txt": r"^\w[\w.-]*",
}


@dataclass(frozen=True, slots=True)
class Sides:
    """The three versions of a file; None where that side has no such file."""

    path: str
    base: str | None
    ours: str | None
    theirs: str | None


@dataclass(frozen=True, slots=True)
class Resolved:
    """A file without conflicts, and the rule that resolved each hunk."""

    text: str
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Hunk:
    """One conflict, with the nearest non-blank lines around it: a marker where another conflict is nearer."""

    path: str
    texts: tuple[str, str, str]  # base, ours, theirs
    before: str
    after: str


def resolve_file(sides: Sides, conflicted: str) -> Resolved | None:
    """Resolve every conflict in a file; None if one cannot be resolved, or the result fails the checks."""
    if sides.ours is None or sides.theirs is None:
        return None
    versions = [sides.base or "", sides.ours, sides.theirs]
    if sum(map(len, (conflicted, *versions))) > MAX_CHARACTERS or any(map(has_markers, versions)):
        return None
    ends = {end for text in versions for end in re.findall(r"\r?\n", text)}
    versions = [_use_line_feeds(text) for text in versions]
    parsed = _split_conflicts(sides.path, conflicted)
    if len(ends) > 1 or parsed is None:
        return None
    contexts, hunks = parsed
    resolved = [found for hunk in hunks if (found := _resolve_hunk(hunk)) is not None]
    if len(resolved) < len(hunks):
        return None
    text = contexts[0] + "".join(said + context for (_, said), context in zip(resolved, contexts[1:], strict=True))
    # Git adds a final newline; whether the file has one is merged like any other content.
    was, by_us, by_them = (not version or version.endswith("\n") for version in versions)
    if not (by_us if by_them == was else by_them):
        text = text.removesuffix("\n")
    readable = versions if sides.base is not None else versions[1:]
    if has_markers(text) or not _conserves(versions, text) or not _reads_well(sides.path, readable, text):
        return None
    return Resolved(text.replace("\n", ends.pop()) if ends else text, tuple(name for name, _ in resolved))


def has_markers(text: str) -> bool:
    """Whether a text has a line with git's conflict markers; `=======` alone does not count: prose has it too."""
    return _MARKER.search(text) is not None


def list_lost_lines(sides: Sides, result: str) -> list[str]:
    """List the lines that a side added and the result lacks, ignoring whitespace."""
    lines = [(text or "").split("\n") for text in (sides.base, sides.ours, sides.theirs, result)]
    base, ours, theirs, found = (Counter(map(_squeeze, version)) for version in lines)
    lost = dict[str, str]()
    for line in lines[1] + lines[2]:
        key = _squeeze(line)
        least, _ = _count_merged(base[key], ours[key], theirs[key])
        if key and max(ours[key], theirs[key]) > base[key] and found[key] < least:
            lost.setdefault(key, line.removesuffix("\r"))
    return list(lost.values())


def _split_conflicts(path: str, text: str) -> tuple[list[str], list[_Hunk]] | None:
    """Split a text into context and hunks, alternating; None if the markers are out of order."""
    parts: list[list[str]] = [[]]
    for line in _LINE.findall(_use_line_feeds(text)):
        expected = "<|=>"[(len(parts) - 1) % 4]
        marker = line[0] if _MARKER.match(line) or line == "=======\n" else ""
        if marker == expected:
            parts.append([])
        elif marker and (marker, expected) != ("=", "<"):
            return None
        else:
            parts[-1].append(line)
    if len(parts) % 4 != 1 or len(parts) == 1:
        return None
    contexts, hunks = parts[::4], list[_Hunk]()
    for at, (ours, base, theirs) in enumerate(zip(parts[1::4], parts[2::4], parts[3::4], strict=True)):
        before = next(filter(str.strip, reversed(contexts[at])), ">>>>>>> " if at else "")
        after = next(filter(str.strip, contexts[at + 1]), "<<<<<<< " if at + 2 < len(contexts) else "")
        hunks.append(_Hunk(path, ("".join(base), "".join(ours), "".join(theirs)), before, after))
    return ["".join(context) for context in contexts], hunks


def _resolve_hunk(hunk: _Hunk) -> tuple[str, str] | None:
    return next(((name, text) for name, rule in _RULES.items() if (text := rule(hunk)) is not None), None)


def _take_same(hunk: _Hunk) -> str | None:
    """Both sides made the same change."""
    _, ours, theirs = (_read_words(hunk.path, text) for text in hunk.texts)
    return hunk.texts[1] if ours == theirs else None


def _take_changed(hunk: _Hunk) -> str | None:
    """Only one side changed anything."""
    base, ours, theirs = (_read_words(hunk.path, text) for text in hunk.texts)
    if ours == base:
        return hunk.texts[2]
    return hunk.texts[1] if theirs == base else None


def _unite_entries(hunk: _Hunk) -> str | None:
    """Keep the entries of both sides of a file that is a set of entries, in the order of both, below their headings."""
    if _find_set(hunk.path) is None or hunk.after[:1] in {" ", "\t"}:
        return None
    base, ours, theirs = (_ENTRY.findall(text) for text in hunk.texts)
    if "".join(base + ours + theirs) != "".join(hunk.texts) or any(map(_NOT_AN_ENTRY.match, ours + theirs)):
        return None
    mine, others = ([entry.rstrip() for entry in entries if entry.strip()] for entries in (ours, theirs))
    headings, their_headings = ([entry for entry in entries if entry.startswith("#")] for entries in (mine, others))
    if headings != their_headings and not (set(mine).isdisjoint(others) and others[:1] == their_headings[:1]):
        return None
    united = _unite(base, ours, theirs)
    return None if united is None else "".join(united)


def _unite_imports(hunk: _Hunk) -> str | None:
    """Merge the imports of both sides if a hunk is nothing but `from X import Y` lines."""
    found = [dict(_IMPORT.findall(text)) for text in hunk.texts]
    if not _is_python(hunk.path) or [len(heads) for heads in found] != [text.count("\n") for text in hunk.texts]:
        return None
    lines, bound = list[str](), list[str]()
    for head in _unite(*map(list, found)) or ():
        base, ours, theirs = (re.split(", ?", heads[head]) if head in heads else [] for heads in found)
        names = _unite(base, ours, theirs)
        if names is None:
            return None
        in_order = ours == sorted(ours) and theirs == sorted(theirs)
        lines.append(f"{head} {', '.join(sorted(names) if in_order else names)}\n")
        bound += (name.rpartition(" ")[2] for name in names)
    return "".join(lines) if lines and len(set(bound)) == len(bound) else None


def _join_definitions(hunk: _Hunk) -> str | None:
    """Append theirs to ours if both insert complete Python statements that define different names."""
    base, ours, theirs = hunk.texts
    if not _is_python(hunk.path) or base.strip():
        return None
    names, their_names = _list_bound_names(ours), _list_bound_names(theirs)
    if not names or not their_names or names & their_names:
        return None
    indents = {_measure_indent(next(filter(str.strip, _LINE.findall(text)))) for text in (ours, theirs)}
    # A following line that continues the statement above it belongs to one of the two; which one is unknown.
    if len(indents) > 1 or _measure_indent(hunk.after) > indents.pop() or has_markers(hunk.before + "\n" + hunk.after):
        return None
    return None if hunk.before.lstrip().startswith("@") else ours + theirs


_RULES: dict[str, Callable[[_Hunk], str | None]] = {
    "same": _take_same,
    "one-sided": _take_changed,
    "set-like": _unite_entries,
    "import-union": _unite_imports,
    "definitions": _join_definitions,
}


def _unite(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> list[str] | None:
    """Merge two sequences without what either dropped, in the order of both; None if their orders contradict."""
    mine, others = _number(ours), _number(theirs)
    places = {key: place for place, key in enumerate(others)}
    dropped = set(_number(base)) - (set(mine) & set(others))
    united, reached = list[str](), 0
    for key, entry in zip(mine, ours, strict=True):
        if key in places:
            if places[key] < reached:
                return None
            united += (theirs[at] for at in range(reached, places[key]) if others[at] not in dropped)
            reached = places[key] + 1
        if key not in dropped:
            united.append(entry)
    return united + [theirs[at] for at in range(reached, len(theirs)) if others[at] not in dropped]


def _number(entries: Sequence[str]) -> list[tuple[str, int]]:
    """Count equal entries, so that each differs; trailing whitespace does not count."""
    seen = Counter[str]()
    numbered = list[tuple[str, int]]()
    for entry in map(str.rstrip, entries):
        numbered.append((entry, seen[entry]))
        seen[entry] += 1
    return numbered


def _list_bound_names(text: str) -> set[str]:
    """List the names that statements define; empty if one does anything else."""
    tree = _parse_python(textwrap.dedent(text))
    bound = set[str]()
    for statement in tree.body if tree else ():
        match statement:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                bound.add(name)
            case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
                bound.add(name)
            case ast.Import(aliases) | ast.ImportFrom(_, aliases) if aliases[0].name != "*":
                bound.update(alias.asname or alias.name for alias in aliases)
            case _:
                return set()
    return bound


def _conserves(versions: Sequence[str], text: str) -> bool:
    """Whether every token occurs as often as both sides' changes to the base imply."""
    *counts, found = (Counter(_TOKEN.findall(version)) for version in (*versions, text))
    for token in found.keys() | counts[0].keys() | counts[1].keys() | counts[2].keys():
        least, most = _count_merged(*(count[token] for count in counts))
        if not least <= found[token] <= most:
            return False
    return True


def _count_merged(base: int, ours: int, theirs: int) -> tuple[int, int]:
    """Return the least and most occurrences after the merge: both sides may have made the same change, or not."""
    once = both = ours + theirs - base
    if min(ours, theirs) > base:
        once = max(ours, theirs)
    elif max(ours, theirs) < base:
        once = min(ours, theirs)
    return min(once, both), max(once, both)


def _reads_well(path: str, versions: Sequence[str], text: str) -> bool:
    """Whether a text parses if all versions do, and defines nothing more often than either side."""
    defined, *before = (_count_definitions(path, version) for version in (text, *versions))
    if defined is None:
        return None in before
    ours, theirs = before[-2:]
    return ours is None or theirs is None or defined <= ours | theirs


def _count_definitions(path: str, text: str) -> Counter[str] | None:
    """Count the definitions in a text; None if it does not parse."""
    language = _find_language(path)
    try:
        if language == "json":
            json.loads(text)
        elif language == "toml":
            tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
    if not _is_python(path):
        return Counter(re.findall(_find_set(path) or _DEFINITION, text, re.MULTILINE))
    tree = _parse_python(text)
    found = Counter[str]()
    rest: list[tuple[str, ast.AST]] = [("", tree)] if tree else []
    while rest:
        name, node = rest.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}"
            found[name] += 1
        inner = ast.stmt | ast.excepthandler | ast.match_case
        rest += ((name, child) for child in ast.iter_child_nodes(node) if isinstance(child, inner))
    return found if tree else None


def _parse_python(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # they are for the author of the file
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: deeply nested brackets
        return None


def _read_words(path: str, text: str) -> list[tuple[int, str]]:
    """Return the lines without whitespace, each with its indentation unless the language is known to ignore it."""
    is_free = _FREELY_INDENTED.fullmatch(_find_language(path)) is not None
    return [(0 if is_free else _measure_indent(line), _squeeze(line)) for line in text.split("\n") if line.strip()]


def _squeeze(line: str) -> str:
    return line.strip() if re.search("['\"`]", line) else " ".join(re.findall(r"\w+|[^\w\s]", line))


def _measure_indent(line: str) -> int:
    return len(line[: len(line) - len(line.lstrip())].expandtabs())


def _use_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n")


def _find_set(path: str) -> str | None:
    name = path.rpartition("/")[2]
    return next((about for pattern, about in _SETS.items() if fnmatchcase(name, pattern)), None)


def _find_language(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[2].lower()


def _is_python(path: str) -> bool:
    return _find_language(path) in {"py", "pyi"}
