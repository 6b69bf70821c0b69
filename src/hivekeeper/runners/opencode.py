"""OpenCode: lines of JSON without a last one; a step that finished with "stop" is its end."""

import re
from typing import Any

from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import Mcp, McpBy, PromptBy, Reach, Runner
from hivekeeper.runners.reading import Reader, as_micro, as_number, as_text, at

# While it tries again it is silent but for its log.
_FLAGS = "--format json --auto --print-logs --log-level ERROR"
# Read between the person's own settings, which are copied, and those of the repository.
_SERVERS = 'OPENCODE_CONFIG="$HOME/.hive-mcp.json"'
RUNNER = Runner(
    name="opencode",
    command=f"{_SERVERS} opencode run {_FLAGS} {{args}}",
    # In the same place only: from elsewhere it goes on in the old one.
    resume=f"{_SERVERS} opencode run {_FLAGS} -s {{session}} {{args}}",
    prompt=PromptBy.STDIN,
    environment={"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
    inherit=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
    sign_in=("~/.local/share/opencode/auth.json", "~/.config/opencode/opencode.json"),
    output="opencode",
    reach=Reach.INTERRUPT,
    # Without the name of its schema it would write that into the file.
    mcp=Mcp(
        McpBy.FILE,
        file=".hive-mcp.json",
        text='{"$schema": "https://opencode.ai/config.json", "mcp": {servers}}',
        extra={"type": "local"},
        is_list=True,
    ),
    log="home/.local/share/opencode/opencode.db*",
    configuration=("opencode.json", "opencode.jsonc", ".opencode/*"),
)


_RETRIES = re.compile(
    r'level=ERROR .{0,300}?message="stream error" .{0,600}?small=false .{0,300}?error\.error="(.{0,600})'
)


class OpencodeReader(Reader):
    """Reads OpenCode."""

    def take_event(self, event: dict[str, Any]) -> None:
        self.name(event.get("sessionID") or self.session)
        part = event.get("part") if isinstance(event.get("part"), dict) else {}
        assert isinstance(part, dict)
        match event.get("type"):
            case "text":
                self.say(part.get("text"))
            case "tool_use":
                self.acted = True
                self.turns += 1
                self.go_on()
            case "step_start":
                self.open_tools = 1  # from here on the model or a tool is at work, and nobody can tell which
                self.go_on()
            case "step_finish":
                self.open_tools = 0
                self._finish(part)
            case "error":
                name, data = as_text(at(event, "error", "name")), at(event, "error", "data")
                self.fail(f"{name} {as_text(at({'d': data}, 'd', 'message'))}", at({"d": data}, "d", "statusCode"))

    def take_text(self, text: str) -> None:
        if found := _RETRIES.search(text):
            self.wait_for_limit(found[1])

    def _finish(self, part: dict[str, Any]) -> None:
        tokens = part.get("tokens")
        sent = as_number(at({"t": tokens}, "t", "input")) + as_number(at({"t": tokens}, "t", "cache", "read"))
        self.usage += Usage(sent, as_number(at({"t": tokens}, "t", "output")), as_micro(part.get("cost")))
        if part.get("reason") == "stop":
            self.finished = True
        elif part.get("reason") == "length":
            self.fail("its answer was cut at the token limit!")
