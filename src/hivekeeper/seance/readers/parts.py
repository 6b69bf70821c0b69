"""What the formats have in common: texts in blocks, calls with arguments, answers that are errors, and times."""

import json
import re
from collections.abc import Iterator
from typing import Any

from hivekeeper.clock import to_text
from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.runners.reading import as_list, as_text, at

_COMMANDS = ("command", "cmd", "script")
_EXIT = re.compile(r"(?i)\b(?:exit(?:ed)?(?: with)?(?: code| status)?|returncode)\W{0,4}([1-9]\d{0,2})\b")
_HEAD = 400  # characters at either end of an answer, where a program says how the command ended
_MILLISECONDS = 1e11  # above it, a number is no count of seconds
_LATEST = 4e9


def said(text: object) -> Iterator[Excerpt]:
    """Give what an agent said."""
    if words := as_text(text).strip():
        yield Excerpt(Role.SAID, words)


def called(name: object, arguments: object) -> Iterator[Excerpt]:
    """Give a call: the command itself where it is one."""
    if isinstance(arguments, str):
        arguments = _parse(arguments)
    yield Excerpt(Role.CALLED, f"{as_text(name) or 'tool'}: {_describe(arguments)}")


def answered(text: object, *, is_error: bool = False) -> Iterator[Excerpt]:
    """Give what a tool answered; an error where the program says so, or where the command's exit code does."""
    words = join_texts(text).strip()
    if words or is_error:
        ends = f"{words[:_HEAD]}\n{words[-_HEAD:]}"
        yield Excerpt(Role.ERROR if is_error or _EXIT.search(ends) else Role.ANSWERED, words or "(no words)")


def failed(text: object) -> Iterator[Excerpt]:
    """Give what went wrong."""
    if words := as_text(text).strip():
        yield Excerpt(Role.ERROR, words)


def join_texts(content: object) -> str:
    """Join the texts of what may be a text, a block or several."""
    match content:
        case str():
            return as_text(content)
        case list():
            return "\n".join(filter(None, map(join_texts, content)))
        case {"text": str() as text}:
            return as_text(text)
        case {"content": (str() | list() | dict()) as inner}:
            return join_texts(inner)
        case {"output": (str() | list() | dict()) as inner}:
            return join_texts(inner)
        case None:
            return ""
        case {"type": "image" | "input_image" | "audio"}:
            return ""
        case _:
            return as_text(content)


def read_time(value: object) -> str:
    """Read a time as UTC text; "" where it is none."""
    if isinstance(value, str):
        return as_text(value)[:32]
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1000 if value > _MILLISECONDS else value
        return to_text(seconds) if 0 < seconds < _LATEST else ""
    return ""


def list_blocks(event: dict[str, Any], *keys: str) -> list[dict[str, Any]]:
    """List the blocks of a message; a text alone is one of them."""
    content = at(event, *keys)
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in as_list(content) if isinstance(block, dict)]


def _describe(arguments: object) -> str:
    if isinstance(arguments, dict):
        command = next((arguments[name] for name in _COMMANDS if arguments.get(name)), None)
        if isinstance(command, list):
            return " ".join(map(as_text, command))
        if command is not None:
            return as_text(command)
    try:
        return json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return ""


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"command": text}
