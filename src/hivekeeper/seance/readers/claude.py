"""Session logs of Claude Code: `assistant` and `user` lines, each with a message of blocks."""

from collections.abc import Iterator
from typing import Any

from hivekeeper.domain.excerpt import Excerpt
from hivekeeper.runners.reading import at
from hivekeeper.seance.readers.parts import answered, called, failed, list_blocks, said


def knows(event: dict[str, Any]) -> bool:
    """Whether this is one of its lines."""
    return event.get("type") in ("assistant", "user") and at(event, "message", "content") is not None


def read_event(event: dict[str, Any]) -> Iterator[Excerpt]:
    """Read a line; what the user says is the task, which is known."""
    is_agent = event.get("type") == "assistant"
    for block in list_blocks(event, "message", "content"):
        match block.get("type"):
            case "text" if is_agent:
                yield from failed(block.get("text")) if event.get("isApiErrorMessage") else said(block.get("text"))
            case "tool_use":
                yield from called(block.get("name"), block.get("input"))
            case "tool_result":
                yield from answered(block.get("content"), is_error=bool(block.get("is_error")))
