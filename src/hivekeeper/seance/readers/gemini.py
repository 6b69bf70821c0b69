"""Session logs of Gemini CLI: lines of `gemini` and `user`; tool calls have their results with them."""

from collections.abc import Iterator
from typing import Any

from hivekeeper.domain.excerpt import Excerpt
from hivekeeper.runners.reading import as_list, at
from hivekeeper.seance.readers.parts import answered, called, failed, join_texts, said


def knows(event: dict[str, Any]) -> bool:
    """Whether this is one of its lines."""
    return event.get("type") in ("gemini", "user", "error") and "content" in event


def read_event(event: dict[str, Any]) -> Iterator[Excerpt]:
    """Read a line; what the user says is the task, which is known."""
    if event["type"] == "error":
        yield from failed(join_texts(event["content"]))
    elif event["type"] == "gemini":
        yield from said(join_texts(event["content"]))
        for call in as_list(event.get("toolCalls")):
            if isinstance(call, dict):
                yield from called(call.get("name"), call.get("args"))
                for result in as_list(call.get("result")):
                    response = at(result, "functionResponse", "response") if isinstance(result, dict) else None
                    yield from _read_response(response, is_error=call.get("status") == "error")


def _read_response(response: object, *, is_error: bool) -> Iterator[Excerpt]:
    if isinstance(response, dict) and response.get("error"):
        yield from failed(response["error"])
    else:
        yield from answered(response, is_error=is_error)
