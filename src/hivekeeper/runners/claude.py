"""Claude Code: `claude -p`, lines of JSON; `subtype` says "success" also after errors, so `is_error` decides."""

from typing import Any

from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import Mcp, McpBy, PromptBy, Reach, Runner
from hivekeeper.runners.reading import Reader, as_list, as_micro, as_number, as_text, at

_FLAGS = "-p --output-format stream-json --verbose --dangerously-skip-permissions"
RUNNER = Runner(
    name="claude",
    command=f"claude {_FLAGS} --session-id {{session}} {{args}}",
    resume=f"claude {_FLAGS} --resume {{session}} {{args}}",
    fork=f"claude {_FLAGS} --resume {{session}} --fork-session {{args}}",
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
    mcp=Mcp(McpBy.FILE, "--mcp-config {file} --strict-mcp-config", ".hive-mcp.json", '{"mcpServers": {servers}}'),
    log=".claude/projects/*/{session}.jsonl",
    configuration=(".claude/*", ".mcp.json"),
)


class ClaudeReader(Reader):
    """Reads Claude Code, and Qwen Code, which speaks the same."""

    _message, _before = "", Usage()

    def take_event(self, event: dict[str, Any]) -> None:
        self.name(event.get("session_id") or self.session)
        match event.get("type"), event.get("subtype"):
            case "assistant", _:
                self._take_message(event)
            case "system", "api_retry" | "retry":
                self._take_retry(event)
            case "result", subtype:
                self._take_result(event, as_text(subtype))
            case "user", _:
                self.turns += 1

    def _take_message(self, event: dict[str, Any]) -> None:
        for part in as_list(at(event, "message", "content")):
            match part:
                case {"type": "text", "text": str(text)} if not event.get("error"):
                    self.say(text)
                case {"type": "tool_use"}:
                    self.acted = True
                    self.go_on()
        if not self.finished and (usage := at(event, "message", "usage")):
            # Each part of a message repeats what its request was sent; the result has the sum.
            message = as_text(at(event, "message", "id"))
            if not message or message != self._message:
                self._message, self._before = message, self.usage
            self.usage = self._before + _read_usage(usage)

    def _take_retry(self, event: dict[str, Any]) -> None:
        data = event.get("data") if isinstance(event.get("data"), dict) else event
        assert isinstance(data, dict)
        delay = data.get("retry_delay_ms", data.get("delayMs"))
        words = as_text(data.get("error") or data.get("message") or "it waits for a rate limit")
        self.wait_for_limit(words, data.get("error_status"), in_s=as_number(delay) / 1000 if delay else None)

    def _take_result(self, event: dict[str, Any], subtype: str) -> None:
        self.finished = True
        if usage := event.get("usage"):
            self.usage = _read_usage(usage, as_micro(event.get("total_cost_usd")))
        if event.get("is_error") or subtype.startswith("error"):
            words = as_text(event.get("result") or at(event, "error", "message") or subtype)
            reason = as_text(event.get("terminal_reason"))
            self.fail(words if reason in ("", "api_error") else f"{reason}: {words}", event.get("api_error_status"))
        else:
            self.go_on()
            self.say(event.get("result"))


def _read_usage(usage: object, microusd: int = 0) -> Usage:
    if not isinstance(usage, dict):
        return Usage(microusd=microusd)
    sent = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(sum(as_number(usage.get(name)) for name in sent), as_number(usage.get("output_tokens")), microusd)
