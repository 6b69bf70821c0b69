"""Trajectories: one JSON object with a list of messages, as mini-swe-agent writes; read message by message."""

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.runners.reading import as_list, as_text, at
from hivekeeper.seance.readers.lines import MAX_LINE
from hivekeeper.seance.readers.parts import answered, called, failed, join_texts, said

_CHUNK = 256 << 10
_BEGIN = re.compile(r'"messages"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_COMMAND = re.compile(r"```(?:mswea_bash_command|bash|sh)\n(.*?)\n```", re.DOTALL)


def read(file: BinaryIO) -> Iterator[Excerpt]:
    """Read a trajectory; a position is the number of a message."""
    step, is_known = 0, False
    for message in _read_messages(file):
        if isinstance(message, Excerpt):
            yield replace(message, position=step)
            continue
        step += 1
        for excerpt in _read_message(message, step):
            is_known = True
            yield replace(excerpt, position=step)
    if not is_known:
        yield Excerpt(Role.UNREAD, "it is no trajectory that is known")


def _read_message(message: dict[str, Any], step: int) -> Iterator[Excerpt]:
    match as_text(message.get("role")):
        case "assistant":
            text = join_texts(message.get("content"))
            yield from said(_COMMAND.sub("", text))
            for command in _COMMAND.findall(text):
                yield from called("bash", {"command": command})
            for call in as_list(message.get("tool_calls")):
                if isinstance(call, dict):
                    yield from called(at(call, "function", "name"), at(call, "function", "arguments"))
        case "tool" | "user" if step > 2:  # the first two are the system's and the task  # noqa: PLR2004 - as said
            code = at(message, "extra", "returncode")
            yield from answered(message.get("content"), is_error=isinstance(code, int) and code != 0)
        case "exit":
            status = as_text(at(message, "extra", "exit_status"))
            words = f"{status}: {join_texts(message.get('content'))}".strip(": ")
            yield from said(words) if status == "Submitted" else failed(words)


def _read_messages(file: BinaryIO) -> Iterator[dict[str, Any] | Excerpt]:
    """Read the messages one after another; what cannot be read is an excerpt that says so."""
    decoder, to_text = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8")("replace")
    text, is_inside, is_over, wanted = "", False, False, _CHUNK
    while not is_over:
        words = file.read(wanted)
        text, is_over = text + to_text.decode(words, final=not words), not words
        if not is_inside:
            if (found := _BEGIN.search(text)) is None:
                text = text[-_CHUNK:]
                continue
            text, is_inside = text[found.end() :], True
        position, ended = 0, False
        while (start := _end_of(_BETWEEN, text, position)) < len(text):
            if text[start] == "]":
                ended = True
                break
            try:
                message, position = decoder.raw_decode(text, start)
            except (ValueError, RecursionError):
                break
            if isinstance(message, dict):
                yield message
        if ended:
            return
        text = text[position:]
        wanted = max(_CHUNK, len(text))  # so that a long message is not decoded anew for each chunk of it
        if len(text) > MAX_LINE:
            yield Excerpt(Role.UNREAD, f"the next message is no JSON, or longer than {MAX_LINE >> 20} MiB")
            return
    if is_inside and text.strip(" \n,"):
        yield Excerpt(Role.UNREAD, "its end is torn: it may still be written")


def _end_of(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return found.end() if found else position
