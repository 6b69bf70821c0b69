"""Text from outside as plain data that remembers its lines, checked against a model, with all its problems at once.

YAML is composed and walked here rather than constructed, because a constructor forgets where things stood, lets a
second key silently replace the first, and builds every object a tag asks for.
"""

import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO, NoReturn, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails
from yaml.constructor import SafeConstructor
from yaml.reader import ReaderError

from hivekeeper.domain.names import MAX_SHOWN, find_nearest, show
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import InputError

Loc = tuple[str | int, ...]

MAX_NODES = 200_000
MAX_DEPTH = 64
MAX_CHARACTERS = 16 << 20
MAX_SUGGESTIONS = 25

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SCALARS = SafeConstructor()
TAG = "tag:yaml.org,2002:"
# A date is always text here, and PyYAML has no constructor for a lone '='.
TEXT = frozenset({"str", "timestamp", "value"})
# No operating system takes a NUL in an argument, and half a surrogate pair cannot be written as UTF-8.
NOT_TEXT = re.compile("[\0\ud800-\udfff]")


@dataclass(slots=True)
class Problems:
    """Everything wrong with one file, so that a person corrects all of it at once."""

    file: str
    consequence: str
    found: list[tuple[int, int, str]] = field(default_factory=list)
    suggestions: int = 0

    def add(self, text: str, line: int = 0, column: int = 0) -> None:
        """Note a problem; line 0 is the file as a whole, and column 0 the whole line."""
        self.found.append((line, column, text))

    def suggest(self, word: str, options: Iterable[str]) -> str | None:
        """Find the word probably meant; for a few words only, since comparing thousands with thousands takes hours."""
        self.suggestions += 1
        is_worth_it = self.suggestions <= MAX_SUGGESTIONS and len(word) <= MAX_SHOWN
        return find_nearest(word, options) if is_worth_it else None

    def did_you_mean(self, word: str, options: Iterable[str]) -> str:
        """Make the end of a sentence about a wrong word: the right one, if there is one."""
        meant = self.suggest(word, options)
        return f"; did you mean {show(meant)}?" if meant else ""

    def error(self) -> InputError:
        """Make the error that has all problems, in the order of the file."""
        found = sorted(dict.fromkeys(self.found), key=lambda problem: problem[:2])
        lines = [":".join([self.file, *(str(at) for at in place if at), f" {text}"]) for *place, text in found]
        count = say_count(len(lines), "problem")
        return InputError("\n".join([f"{self.file}: {count}, {self.consequence}", *lines]))

    def stop(self, text: str, line: int = 0, column: int = 0) -> NoReturn:
        """Note a problem after which nothing more can be read, and raise the error."""
        self.add(text, line, column)
        raise self.error()


@dataclass(frozen=True, slots=True)
class Located:
    """Plain data, and the line of each of its keys and list items; also the column, if that was asked for."""

    data: dict[str, object]
    lines: dict[Loc, int]
    columns: dict[Loc, int] = field(default_factory=dict)

    def line(self, loc: Loc) -> int:
        """Find the line of a place, or of the nearest thing around it that has one."""
        return next((self.lines[loc[:end]] for end in range(len(loc), -1, -1) if loc[:end] in self.lines), 0)

    def place(self, loc: Loc) -> tuple[int, int]:
        """Find line and column of a place."""
        found = next((loc[:end] for end in range(len(loc), -1, -1) if loc[:end] in self.columns), None)
        return self.line(loc), self.columns.get(found, 0) if found is not None else 0


def read_text(path: Path, problems: Problems, *, max_bytes: int) -> str:
    """Read a UTF-8 file, never more of it than allowed, so that a device or a wrong file cannot fill the memory.

    Only the caller knows whether a missing file is a mistake, so FileNotFoundError is left to it.
    """
    try:
        with path.open("rb") as file:
            return read_stream(file, problems, max_bytes=max_bytes)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        problems.stop(f"cannot be read: {getattr(error, 'strerror', error)}")


def read_stream(file: BinaryIO, problems: Problems, *, max_bytes: int) -> str:
    """Read UTF-8 text, never more of it than allowed."""
    content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        problems.stop(f"larger than {max_bytes >> 20} MiB; this is probably not the file you meant")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problems.stop("not UTF-8 text; save the file as UTF-8", line)


def parse_yaml(text: str, problems: Problems, *, with_columns: bool = False) -> Located:
    """Read one YAML mapping; problems that do not stop the reading are noted in `problems`."""
    try:
        _refuse_dangerous(text, problems)
        root = yaml.compose(text, Loader=LOADER)
    except ReaderError as error:
        line = text.count("\n", 0, max(0, text.find(chr(error.character)))) + 1
        problems.stop(f"the character {chr(error.character)!r} is not allowed in YAML; remove it", line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        hint = "check the indentation, and put quotes around text that contains ': ' or ' #'"
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        problems.stop(f"not YAML: {error.problem}; {hint}", line, column if with_columns else 0)
    if root is None or root.tag == f"{TAG}null":
        problems.stop("the file is empty")
    walk = _Walk(problems, lines={})
    data = walk.read(root, ())
    if not isinstance(data, dict):
        problems.stop(f"the top must be a mapping (key: value), not {show(data)}", walk.lines[()])
    return Located(data, walk.lines, walk.columns if with_columns else {})


def _refuse_dangerous(text: str, problems: Problems) -> None:
    """Check the bare events first: composing recurses in C, where too deep is a crash and not an exception."""
    depth = nodes = documents = 0
    for event in yaml.parse(text, Loader=LOADER):
        line = event.start_mark.line + 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if depth > MAX_DEPTH:
            problems.stop(f"nested more than {MAX_DEPTH} levels deep", line)
        if nodes > MAX_NODES:
            problems.stop(f"more than {MAX_NODES:,} values; split the file", line)
        if documents > 1:
            problems.stop("a second document starts here ('---'); put each in a file of its own", line)


@dataclass(slots=True)
class _Walk:
    """Turns nodes into plain data; an alias is walked again each time, so what it multiplies is counted."""

    problems: Problems
    lines: dict[Loc, int]
    columns: dict[Loc, int] = field(default_factory=dict)
    nodes: int = 0
    characters: int = 0

    def read(self, node: yaml.Node, loc: Loc) -> object:
        line = node.start_mark.line + 1
        self.lines.setdefault(loc, line)  # A mapping has already noted where the key stands.
        self.columns.setdefault(loc, node.start_mark.column + 1)
        self.nodes += 1
        self.characters += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        if self.nodes > MAX_NODES or len(loc) > MAX_DEPTH or self.characters > MAX_CHARACTERS:
            self.problems.stop("aliases (*) make this too large to read; use fewer of them", line)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{TAG}map":
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{TAG}seq":
            return [self.read(item, (*loc, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, loc, line)

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, object]:
        found: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            self.characters += len(key_node.value)
            if key_node.tag == f"{TAG}merge":
                self.problems.add("merging with '<<' is not supported; use 'defaults', or write the keys out", line)
            elif not isinstance(key_node, yaml.ScalarNode) or key_node.tag.removeprefix(TAG) not in TEXT:
                what = show(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                self.problems.add(f"a key must be text, not {what}; put it in quotes", line)
            elif (key := self._text(key_node.value, line)) in found:
                first = self.lines[*loc, key]
                self.problems.add(f"key {show(key)} is already used on line {first}; keep one", line)
            else:
                self.lines[*loc, key] = line
                self.columns[*loc, key] = key_node.start_mark.column + 1
                found[key] = self.read(value_node, (*loc, key))
        return found

    def _scalar(self, node: yaml.Node, loc: Loc, line: int) -> object:
        if not isinstance(node, yaml.ScalarNode):
            self.problems.add(f"the tag {show(node.tag)} is not supported; remove it", line)
            return None
        kind = node.tag.removeprefix(TAG)
        # YAML 1.1 reads 1:30 as ninety, in base sixty; in a plan it is always a clock time.
        if kind in TEXT or (kind in {"int", "float"} and ":" in node.value):
            return self._text(str(node.value), line)
        try:
            match kind:
                case "bool":
                    return bool(SCALARS.construct_yaml_bool(node))
                case "int":
                    return int(SCALARS.construct_yaml_int(node))
                case "float":
                    return float(SCALARS.construct_yaml_float(node))
                case "null":
                    what = f"item {loc[-1] + 1} of the list" if isinstance(loc[-1], int) else show(loc[-1])
                    self.problems.add(f"{what} has no value; give it one or remove it", line)
                case _:
                    self.problems.add(f"the tag {show(node.tag)} is not supported; remove it", line)
        except (ValueError, KeyError, IndexError, yaml.YAMLError):
            self.problems.add(f"{show(node.value)} is not a valid {kind}; put it in quotes if it is text", line)
        return None

    def _text(self, value: str, line: int) -> str:
        if NOT_TEXT.search(value):
            self.problems.add(f"{show(value)} contains a NUL byte or half a character; remove it", line)
        return NOT_TEXT.sub("\ufffd", value)


TOML_HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]")
TOML_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def parse_toml(text: str, problems: Problems) -> Located:
    """Read TOML; tomllib forgets lines, so a scan finds them, which lines inside a long string may mislead."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        problems.stop("nested too deep")
    except ValueError as error:  # Not only TOMLDecodeError: a number of thousands of digits fails in int().
        where = re.search(r" \(at line (\d+),", str(error))
        what = str(error).partition(" (at ")[0]
        problems.stop(f"not TOML: {what}; text needs quotes", int(where[1]) if where else 0)
    lines: dict[Loc, int] = {}
    table: Loc = ()
    for number, line in enumerate(text.split("\n"), start=1):
        if header := TOML_HEADER.match(line):
            table = loc = _split_toml_key(header[1])
        elif key := TOML_KEY.match(line):
            loc = table + _split_toml_key(key[1])
        else:
            continue
        for end in range(1, min(len(loc), MAX_DEPTH) + 1):
            lines.setdefault(loc[:end], number)
    return Located(data, lines)


def _split_toml_key(dotted: str) -> Loc:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


class Checked(BaseModel):
    """A mapping from outside: unknown keys are refused and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def rule(fits: Callable[[str], bool], sentence: str) -> AfterValidator:
    """Check text against a rule; `sentence` is the error."""

    def check_text(value: str) -> str:
        if not fits(value):
            raise ValueError(f"{sentence}; it is {show(value)}")
        return value

    return AfterValidator(check_text)


def matching(pattern: str) -> WithJsonSchema:
    """Say to editors what text must look like; the rule beside it decides."""
    return WithJsonSchema({"type": "string", "pattern": pattern})


Filled = Annotated[str, rule(lambda text: bool(text.strip()), "must not be blank"), matching(r"\S")]

M = TypeVar("M", bound=Checked)
T = TypeVar("T")
# A list in the file is a tuple of ours; its items are as strict as everything else.
Listed = Annotated[tuple[T, ...], Field(strict=False)]
# Names the mapping a location is in, as a person would, and finds the model that has its keys.
Place = Callable[[Loc], tuple[str, type[Checked]]]

# What each kind of error means in the file, after the name of the thing that is wrong.
SENTENCES = {
    "string_type": "must be text, not {shown}; put it in quotes",
    "int_type": "must be a whole number, not {shown}",
    "float_type": "must be a number, not {shown}",
    "literal_error": "must be {expected}, not {shown}",
    "bool_type": "must be true or false, not {shown}",
    "list_type": "must be a list such as [A, B], not {shown}",
    "tuple_type": "must be a list such as [A, B], not {shown}",
    "dict_type": "must be a mapping (key: value), not {shown}",
    "model_type": "must be a mapping (key: value), not {shown}",
    "greater_than": "must be more than {gt:g}, not {shown}",
    "greater_than_equal": "must be at least {ge}, not {shown}",
    "less_than_equal": "must be at most {le:.16g}, not {shown}",
    "too_short": "is empty; it needs at least one item",
    "value_error": "{error}",
}


def check(model: type[M], located: Located, problems: Problems, place: Place) -> M | None:
    """Check data against a model; None when it does not fit, with the reasons noted in our own words."""
    try:
        return model.model_validate(located.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    meant: set[Loc] = set()
    for detail in details:
        if detail["type"] == "extra_forbidden":
            *parent, key = detail["loc"]
            where, known = place(tuple(parent))
            nearest = problems.suggest(str(key), known.model_fields)
            advice = f"did you mean {show(nearest)}?" if nearest else f"known here: {', '.join(known.model_fields)}"
            problems.add(f"unknown key {show(key)} in {where}; {advice}", *located.place(detail["loc"]))
            meant.add((*parent, nearest or key))
    for detail in details:
        # A null was reported where it was read, and a misspelt key is one mistake and not also a missing one.
        is_noted = detail["type"] == "extra_forbidden" or (detail["type"] == "missing" and detail["loc"] in meant)
        if not is_noted and detail["input"] is not None:
            problems.add(_explain(detail, place), *located.place(detail["loc"]))
    return None


def _explain(detail: ErrorDetails, place: Place) -> str:
    """Say an error of pydantic in our own words."""
    *parent, last = detail["loc"]
    where, _ = place(tuple(parent))
    if detail["type"] == "missing":
        return f"{where} has no {show(last)}; add it"
    subject = f"item {last + 1} of {show(parent[-1])}" if isinstance(last, int) else show(last)
    sentence = SENTENCES.get(detail["type"], "is wrong: " + detail["msg"].replace("{", "{{").replace("}", "}}"))
    said = sentence.format(shown=show(detail["input"]), **detail.get("ctx", {}))
    return f"{subject} in {where} {said}"
