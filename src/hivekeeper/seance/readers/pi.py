"""Session logs of Pi: `message` lines, whose roles are the user, the assistant, a tool's result and a shell's."""

from collections.abc import Iterator
from typing import Any

from hivekeeper.domain.excerpt import Excerpt
from hivekeeper.runners.reading import at
from hivekeeper.seance.readers.parts import answered, called, failed, list_blocks, said


def knows(event: dict[str, Any]) -> bool:
    """Whether this is one of its lines."""
    return event.get("type") == "message" and isinstance(event.get("message"), dict)


def read_event(event: dict[str, Any]) -> Iterator[Excerpt]:
    """Read a line; what the user says is the task, which is known."""
    message: dict[str, Any] = event["message"]
    match message.get("role"):
        case "assistant":
            for block in list_blocks(message, "content"):
                if block.get("type") == "toolCall":
                    yield from called(block.get("name"), block.get("arguments"))
                elif block.get("type") == "text":
                    yield from said(block.get("text"))
            yield from failed(message.get("errorMessage"))
        case "toolResult":
            yield from answered(message.get("content"), is_error=bool(message.get("isError")))
        case "bashExecution":
            yield from called("bash", at(event, "message"))
            yield from answered(message.get("output"), is_error=bool(message.get("exitCode")))
