"""Gemini CLI: lines of JSON on standard output, retries told in plain words on standard error."""

import re
from typing import Any

from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import Mcp, McpBy, PromptBy, Reach, Runner
from hivekeeper.runners.reading import Reader, as_number, as_text, at

# Beside the person's own settings, which are copied: what the machine's would be.
_SERVERS = 'GEMINI_CLI_SYSTEM_SETTINGS_PATH="$HOME/.hive-mcp.json"'
_FLAGS = "--approval-mode yolo --output-format stream-json"
RUNNER = Runner(
    name="gemini",
    command=f"{_SERVERS} gemini {_FLAGS} --session-id {{session}} {{args}}",
    resume=f"{_SERVERS} gemini {_FLAGS} --resume {{session}} {{args}}",
    prompt=PromptBy.STDIN,
    # A worker's clone is as trusted as the plan that names it; without, it ignores what the person has configured.
    environment={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
    inherit=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT", "GEMINI_MODEL"),
    sign_in=("~/.gemini/oauth_creds.json", "~/.gemini/google_accounts.json", "~/.gemini/settings.json"),
    output="gemini",
    reach=Reach.INTERRUPT,
    mcp=Mcp(McpBy.FILE, "", ".hive-mcp.json", '{"mcpServers": {servers}}'),
    log="home/.gemini/tmp/*/chats/session-*.jsonl",
    configuration=(".gemini/*",),
)
_RETRIES = re.compile(r"Attempt \d+ failed(?: with status (\d{3})\b)?[.:]?")
_DELAY = re.compile(r"Retrying after (\d{1,12})ms")


class GeminiReader(Reader):
    """Reads Gemini CLI."""

    def take_event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "init":
                self.name(event.get("session_id"))
                self.model = as_text(event.get("model")) or self.model
            case "message" if event.get("role") == "assistant":
                self.say(event.get("content"), more=bool(event.get("delta")))
            case "tool_use":
                self.begin_tool()
                self.said = ""
            case "tool_result":
                self.end_tools()
            case "error" if event.get("severity") == "error":
                self._take_error(event.get("message"))
            case "result":
                self.finished = True
                names = ("input_tokens", "output_tokens", "cached")
                sent, received, cached = (as_number(at(event, "stats", name)) for name in names)
                self.usage = Usage(sent, received, cache_read=cached)
                if event.get("status") != "success" and (words := at(event, "error", "message")):
                    self.fail(words)

    def _take_error(self, words: object) -> None:
        if "empty response" in as_text(words):
            self.go_on()  # the same as what others tell by silence
        else:
            self.fail(words)

    def take_text(self, text: str) -> None:
        if found := _RETRIES.match(text):
            self.wait_for_limit(text, int(found[1]) if found[1] else None)
        elif (found := _DELAY.search(text)) and self.limited:
            self.wait_for_limit(self.limited.words, in_s=int(found[1]) / 1000)
