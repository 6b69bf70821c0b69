"""The frames that a program exchanges over the Agent Client Protocol: its updates say what it does."""

from collections.abc import Iterator
from typing import Any

from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.runners.reading import as_text, at
from hivekeeper.seance.readers.parts import answered, called, failed, join_texts


def knows(event: dict[str, Any]) -> bool:
    """Whether this is a frame."""
    return "jsonrpc" in event or (event.get("method") == "session/update" and isinstance(event.get("params"), dict))


def read_event(event: dict[str, Any]) -> Iterator[Excerpt]:
    """Read a frame; what is said comes in chunks, which the reader of lines joins."""
    if error := at(event, "error", "message"):
        yield from failed(error)
    update = at(event, "params", "update")
    if not isinstance(update, dict):
        return
    match update.get("sessionUpdate"):
        case "agent_message_chunk":
            if text := join_texts(update.get("content")):
                yield Excerpt(Role.SAID, text)
        case "tool_call":
            yield from called(as_text(update.get("title") or update.get("kind")), update.get("rawInput"))
        case "tool_call_update" if update.get("status") in ("completed", "failed"):
            content = update.get("content") or update.get("rawOutput")
            yield from answered(content, is_error=update["status"] == "failed")
