"""Issues from a file: what `gh issue list --json number,title,body,labels` prints, or a Markdown list."""

import json
import re
import textwrap
from typing import Any, BinaryIO

from hivekeeper.config.located import NOT_TEXT, Problems, read_stream
from hivekeeper.domain.issues import Issue
from hivekeeper.domain.names import show

MAX_BYTES = 16 << 20
HOW = "it takes what `gh issue list --json number,title,body,labels` prints, or a Markdown list"
_TAB = 4
_MOST = 10**12
_ITEM = re.compile(r"( *)(?:[-*+]|\d{1,9}[.)])(?: +(?:\[([ xX])\] +)?(.*))?")
_FENCE = re.compile(r" *(?:(?:[-*+]|\d{1,9}[.)]) +)*(?:```|~~~)")
_HEADING = re.compile(r" {0,3}#{1,6} ")


def read_issues(file: BinaryIO, problems: Problems) -> list[Issue]:
    """Read issues; InputError says what is wrong with them, and that there are none."""
    text = read_stream(file, problems, max_bytes=MAX_BYTES)
    if "\0" in text:
        problems.stop(f"contains NUL bytes, so it is not text; {HOW}", text.count("\n", 0, text.index("\0")) + 1)
    if not text.strip():
        problems.stop(f"it is empty; {HOW}")
    issues = _read_json(text, problems) if re.match(r"\s*(\{|\[\s*[]{])", text) else _read_list(text)
    if problems.found:
        raise problems.error()
    if not issues:
        problems.stop(f"there is no open issue in it; {HOW}")
    return issues


def _read_json(text: str, problems: Problems) -> list[Issue]:
    try:
        found = json.loads(text)
    except RecursionError:
        problems.stop("nested too deep")
    except ValueError as error:
        problems.stop(f"not JSON: {error}", getattr(error, "lineno", 0))
    listed = found if isinstance(found, list) else [found]
    return [issue for number, said in enumerate(listed, 1) if (issue := _read_issue(said, number, problems))]


def _read_issue(said: object, place: int, problems: Problems) -> Issue | None:
    """Read one issue of JSON; None where something is wrong with it."""
    if not isinstance(said, dict) or "title" not in said:
        what = "has no 'title'" if isinstance(said, dict) else f"must be an object, not {show(said)}"
        problems.add(f"issue {place} {what}; {HOW}")
        return None
    title, number = said["title"], said.get("number")
    body, labels = said.get("body") or "", said.get("labels") or []
    is_number = number is None or (isinstance(number, int) and not isinstance(number, bool) and 0 <= number < _MOST)
    for key, is_right, kind in (
        ("title", isinstance(title, str) and bool(title.strip()), "text"),
        ("number", is_number, "a whole number"),
        ("body", isinstance(body, str), "text"),
        ("labels", isinstance(labels, list), "a list"),
    ):
        if not is_right:
            problems.add(f"'{key}' of issue {place} must be {kind}, not {show(said[key])}")
            return None
    return Issue(_clean(title), _clean(body), number, tuple(filter(None, map(_read_label, labels))))


def _read_label(said: Any) -> str:  # noqa: ANN401 - JSON
    name = said.get("name") if isinstance(said, dict) else said
    return _clean(name) if isinstance(name, str) else ""


def _clean(text: str) -> str:
    return NOT_TEXT.sub("\ufffd", text.replace("\r\n", "\n")).strip()


def _read_list(text: str) -> list[Issue]:
    """Read a Markdown list: its outermost items, each with what is nested in it; what is ticked off is done."""
    reader = _ListReader()
    for line in text.replace("\r\n", "\n").split("\n"):
        reader.take(line.expandtabs(_TAB).rstrip())
    return [Issue(_clean(title), _clean(textwrap.dedent("\n".join(body)))) for title, body in reader.items]


class _ListReader:
    """Reads a list line by line; `top` is how far the outermost items are indented, `fence` how far an open fence."""

    def __init__(self) -> None:
        self.items: list[tuple[str, list[str]]] = []
        self._top, self._fence = -1, -1
        self._is_open = False

    def take(self, line: str) -> None:
        """Read the next line."""
        indent = len(line) - len(line.lstrip())
        if line and indent <= self._top < self._fence:
            self._fence = -1  # it was in an item, which ends here
        is_fenced, is_fence = self._fence >= 0, _FENCE.match(line) is not None
        item = None if is_fenced else _ITEM.fullmatch(line)
        if item and (self._top < 0 or indent <= self._top + 1):
            self._begin(item, indent)
        elif self._is_open and (not line or indent > self._top or self._goes_on(line, is_fence=is_fence)):
            self.items[-1][1].append(line)
        else:
            self._is_open = False
        if is_fence:
            self._fence = -1 if is_fenced else indent

    def _begin(self, item: re.Match[str], indent: int) -> None:
        self._top = indent if self._top < 0 else min(self._top, indent)
        self._is_open = bool(item[3]) and item[2] in (None, " ")
        if self._is_open:
            self.items.append((item[3], []))

    def _goes_on(self, line: str, *, is_fence: bool) -> bool:
        """Tell whether a line that is not indented goes on with the item: nothing lies between them."""
        body = self.items[-1][1]
        return not is_fence and not _HEADING.match(line) and (not body or bool(body[-1]))
