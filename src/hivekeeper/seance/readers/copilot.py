"""Session logs of Copilot CLI: events whose type has a dot in it, each with its data."""

from collections.abc import Iterator
from typing import Any

from hivekeeper.domain.excerpt import Excerpt
from hivekeeper.runners.reading import at
from hivekeeper.seance.readers.parts import answered, called, failed, said


def knows(event: dict[str, Any]) -> bool:
    """Whether this is one of its lines."""
    return "." in str(event.get("type")) and isinstance(event.get("data"), dict)


def read_event(event: dict[str, Any]) -> Iterator[Excerpt]:
    """Read a line."""
    data: dict[str, Any] = event["data"]
    match event["type"]:
        case "assistant.message":
            yield from said(data.get("content"))
        case "tool.execution_start":
            yield from called(data.get("toolName"), data.get("arguments"))
        case "tool.execution_complete" if data.get("success") is False:
            yield from failed(at(data, "error", "message") or at(data, "result", "content") or "the tool failed")
        case "tool.execution_complete":
            yield from answered(at(data, "result", "content"))
        case "session.error" | "abort":
            yield from failed(data.get("message") or data.get("reason"))
