"""Claude Code: `claude -p`, lines of JSON; `subtype` says "success" also after errors, so `is_error` decides."""

from dataclasses import astuple, replace
from typing import Any

from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import Mcp, McpBy, PromptBy, Reach, Runner
from hivekeeper.runners.reading import Reader, as_list, as_micro, as_number, as_text, at

# Only in its pieces does a message say what it used in all, and that a request is open.
_FLAGS = "-p --output-format stream-json --include-partial-messages --verbose --dangerously-skip-permissions"
RUNNER = Runner(
    name="claude",
    command=f"claude {_FLAGS} --session-id {{session}} {{args}}",
    resume=f"claude {_FLAGS} --resume {{session}} {{args}}",
    prompt=PromptBy.STDIN,
    environment={
        "IS_SANDBOX": "1",  # as root it refuses otherwise
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
    inherit=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_MODEL",
    ),
    sign_in=("~/.claude/.credentials.json", "~/.claude/settings.json"),
    output="claude",
    reach=Reach.INTERRUPT,
    mcp=Mcp(McpBy.FILE, "--mcp-config {file}", ".hive-mcp.json", '{"mcpServers": {servers}}'),
    log="home/.claude/projects/*/{session}.jsonl",
    configuration=(".claude/*", ".mcp.json"),
)
_MAX_KNOWN = 256  # messages at the same time; no more than its workers of its own


class ClaudeReader(Reader):
    """Reads Claude Code, and Qwen Code, which speaks the same."""

    skip = tuple(f'"type":"content_block_{part}"'.encode() for part in ("start", "delta", "stop"))

    def __init__(self) -> None:
        super().__init__()
        self._used: dict[str, Usage] = {}  # by message: it is told several times while it comes
        self._messages: dict[str, tuple[str, str]] = {}  # the message that comes now and its model, by whose it is

    def take_event(self, event: dict[str, Any]) -> None:
        self.name(event.get("session_id") or self.session)
        match event.get("type"), event.get("subtype"):
            case "assistant", _:
                self._take_message(event)
            case "stream_event", _:
                self._take_piece(event)
            case "system", "init":
                self.model = as_text(event.get("model")) or self.model
            case "system", "status" if event.get("status") == "requesting":
                self.open_tools = 0
            case "system", "api_retry" | "retry":
                self._take_retry(event)
            case "result", subtype:
                self._take_result(event, as_text(subtype))
            case "user", _:
                results = [part for part in as_list(at(event, "message", "content")) if _is(part, "tool_result")]
                self.end_tools(max(1, len(results)))

    def _take_message(self, event: dict[str, Any]) -> None:
        for part in as_list(at(event, "message", "content")):
            match part:
                case {"type": "text", "text": str(text)} if not event.get("error"):
                    self.say(text)
                case {"type": "tool_use"}:
                    self.begin_tool()
        message, model = (as_text(at(event, "message", name)) for name in ("id", "model"))
        self._note_usage(message, model, at(event, "message", "usage"))

    def _take_piece(self, event: dict[str, Any]) -> None:
        """Take note of a message while it comes: what it used is exact only at its end."""
        whose = as_text(event.get("parent_tool_use_id"))
        match event.get("event"):
            case {"type": "message_start", "message": dict(message)}:
                known = as_text(message.get("id")), as_text(message.get("model"))
                if len(self._messages) >= _MAX_KNOWN:
                    self._messages.clear()
                self._messages[whose] = known
                self._note_usage(*known, message.get("usage"))
            case {"type": "message_delta", "usage": dict(usage)} if whose in self._messages:
                self._note_usage(*self._messages[whose], usage)

    def _note_usage(self, message: str, model: str, usage: object) -> None:
        if self.finished or not isinstance(usage, dict):
            return
        before = self._used.pop(message, Usage()) if message else Usage()
        now = Usage(*map(max, zip(astuple(before), astuple(_read_usage(usage)), strict=True)))
        self.usage += self.prices.add_cost(model, now) - self.prices.add_cost(model, before)
        self._used[message] = now
        if len(self._used) > _MAX_KNOWN:
            del self._used[next(iter(self._used))]

    def _take_retry(self, event: dict[str, Any]) -> None:
        data = event.get("data") if isinstance(event.get("data"), dict) else event
        assert isinstance(data, dict)
        delay = data.get("retry_delay_ms", data.get("delayMs"))
        words = as_text(data.get("error") or data.get("message") or "it waits for a rate limit")
        if words == "unknown" and data.get("error_status") is None:
            words = "the connection to the model's service failed"
        # After the first refusal it may renew its sign-in; by the second it has none.
        self.hopeless = "authentication" in words and as_number(data.get("attempt")) > 1
        self.wait_for_limit(words, data.get("error_status"), in_s=as_number(delay) / 1000 if delay else None)

    def _take_result(self, event: dict[str, Any], subtype: str) -> None:
        if usage := event.get("usage"):
            # What was cut off on the way counts too; of money its own sum is the better one.
            told = _read_usage(usage, as_micro(event.get("total_cost_usd")))
            most = Usage(*map(max, zip(astuple(self.usage), astuple(told), strict=True)))
            self.usage = replace(most, microusd=told.microusd or self.usage.microusd)
        self.finished = True
        if event.get("is_error") or subtype.startswith("error"):
            words = as_text(event.get("result") or at(event, "error", "message") or subtype)
            reason = as_text(event.get("terminal_reason"))
            self.fail(words if reason in ("", "api_error") else f"{reason}: {words}", event.get("api_error_status"))
        else:
            self.go_on()
            self.say(event.get("result"))


def _is(part: object, kind: str) -> bool:
    return isinstance(part, dict) and part.get("type") == kind


def _read_usage(usage: object, microusd: int = 0) -> Usage:
    if not isinstance(usage, dict):
        return Usage(microusd=microusd)
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    sent, write, read, received = (as_number(usage.get(name)) for name in names)
    return Usage(sent + write + read, received, microusd, read, write)
