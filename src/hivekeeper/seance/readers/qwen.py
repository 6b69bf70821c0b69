"""Session logs of Qwen Code: lines of `assistant`, `user` and `tool_result`, each with a message of parts."""

from collections.abc import Iterator
from typing import Any

from hivekeeper.domain.excerpt import Excerpt
from hivekeeper.runners.reading import as_text, at
from hivekeeper.seance.readers.parts import answered, called, failed, list_blocks, said


def knows(event: dict[str, Any]) -> bool:
    """Whether this is one of its lines."""
    return isinstance(at(event, "message", "parts"), list)


def read_event(event: dict[str, Any]) -> Iterator[Excerpt]:
    """Read a line; a thought is not said."""
    for part in list_blocks(event, "message", "parts"):
        if isinstance(call := part.get("functionCall"), dict):
            yield from called(call.get("name"), call.get("args"))
        elif isinstance(answer := part.get("functionResponse"), dict):
            response = answer.get("response")
            yield from _read_response(response, is_error=as_text(at(event, "toolCallResult", "status")) == "error")
        elif event.get("type") == "assistant" and not part.get("thought"):
            yield from said(part.get("text"))


def _read_response(response: object, *, is_error: bool) -> Iterator[Excerpt]:
    if isinstance(response, dict) and response.get("error"):
        yield from failed(response["error"])
    else:
        yield from answered(response, is_error=is_error)
