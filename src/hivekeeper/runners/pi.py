"""Pi: ends with 0 after every fault; every piece of an answer repeats all of it, and is passed over."""

from typing import Any

from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import PromptBy, Reach, Runner
from hivekeeper.runners.reading import Reader, as_list, as_micro, as_number, as_text, at

RUNNER = Runner(
    name="pi",
    command="pi --mode json -p {args}",
    resume="pi --mode json -p --session {session} {args}",
    prompt=PromptBy.STDIN,
    environment={"PI_OFFLINE": "1"},
    inherit=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
    sign_in=("~/.pi/agent/auth.json", "~/.pi/agent/models.json", "~/.pi/agent/settings.json"),
    output="pi",
    reach=Reach.INTERRUPT,
    log="home/.pi/agent/sessions/*/*_{session}.jsonl",
    configuration=(".pi/*",),
)


class PiReader(Reader):
    """Reads Pi."""

    skip = (
        b'"type":"message_update"',
        b'"type":"message_start"',
        b'"type":"turn_end"',
        b'"type":"tool_execution_update"',
    )

    def take_event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "session":
                self.name(event.get("id"))
            case "message_end" if at(event, "message", "role") == "assistant":
                self._take_message(event["message"])
            case "tool_execution_start":
                self.begin_tool()
            case "tool_execution_end":
                self.acted = True
                self.end_tools()
            case "auto_retry_start":
                delay = as_number(event.get("delayMs"))
                self.wait_for_limit(event.get("errorMessage"), in_s=delay / 1000 if delay else None)
            case "auto_retry_end" if event.get("success") is False:
                self.fail(event.get("finalError"))
            case "agent_end":
                self.finished = True

    def _take_message(self, message: dict[str, Any]) -> None:
        used = message.get("usage")
        spent = Usage(*(as_number(at({"u": used}, "u", name)) for name in ("input", "output")))
        self.usage += Usage(spent.tokens_in, spent.tokens_out, as_micro(at({"u": used}, "u", "cost", "total")))
        match message.get("stopReason"):
            case "error":
                self._take_error(as_text(message.get("errorMessage")))
            case "length":
                self.fail("its answer was cut at the token limit!")
            case _:
                self.go_on()
                parts = as_list(message.get("content"))
                self.say("".join(as_text(part.get("text")) for part in parts if isinstance(part, dict)))

    def _take_error(self, words: str) -> None:
        self.fail("the model refused (content filter)" if "content_filter" in words else words)
