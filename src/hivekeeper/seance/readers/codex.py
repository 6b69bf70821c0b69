"""Session logs of Codex: each line has a payload; what was said and done are `response_item` lines."""

from collections.abc import Iterator
from typing import Any

from hivekeeper.domain.excerpt import Excerpt
from hivekeeper.runners.reading import at
from hivekeeper.seance.readers.parts import answered, called, failed, list_blocks, said


def knows(event: dict[str, Any]) -> bool:
    """Whether this is one of its lines."""
    return event.get("type") in ("response_item", "event_msg") and isinstance(event.get("payload"), dict)


def read_event(event: dict[str, Any]) -> Iterator[Excerpt]:
    """Read a line. Events repeat what the items say, but for errors."""
    payload: dict[str, Any] = event["payload"]
    kind = payload.get("type")
    if event["type"] == "event_msg":
        if kind in ("error", "stream_error"):
            yield from failed(payload.get("message"))
        return
    match kind:
        case "message" if payload.get("role") == "assistant":
            for block in list_blocks(payload, "content"):
                yield from said(block.get("text"))
        case "function_call":
            yield from called(payload.get("name"), payload.get("arguments"))
        case "custom_tool_call":
            yield from called(payload.get("name"), payload.get("input"))
        case "local_shell_call":
            yield from called("shell", payload.get("action"))
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            output = payload.get("output")
            yield from answered(output, is_error=at({"output": output}, "output", "success") is False)
