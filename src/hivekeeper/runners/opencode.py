"""OpenCode: lines of JSON without a last one; a step that finished with "stop" is its end."""

from typing import Any

from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import Mcp, McpBy, PromptBy, Reach, Runner
from hivekeeper.runners.reading import Reader, as_micro, as_number, as_text, at

RUNNER = Runner(
    name="opencode",
    command="opencode run --format json --auto {args}",
    # In the same place only: from elsewhere it goes on in the old one.
    resume="opencode run --format json --auto -s {session} {args}",
    fork="opencode run --format json --auto -s {session} --fork {args}",
    prompt=PromptBy.STDIN,
    environment={"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
    inherit=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
    sign_in=("~/.local/share/opencode/auth.json", "~/.config/opencode/opencode.json"),
    output="opencode",
    reach=Reach.INTERRUPT,
    mcp=Mcp(McpBy.NONE),
    log=".local/share/opencode/opencode.db",
    configuration=("opencode.json", "opencode.jsonc", ".opencode/*"),
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
            case "step_finish":
                self._finish(part)
            case "error":
                name, data = as_text(at(event, "error", "name")), at(event, "error", "data")
                self.fail(f"{name} {as_text(at({'d': data}, 'd', 'message'))}", at({"d": data}, "d", "statusCode"))

    def _finish(self, part: dict[str, Any]) -> None:
        tokens = part.get("tokens")
        sent = as_number(at({"t": tokens}, "t", "input")) + as_number(at({"t": tokens}, "t", "cache", "read"))
        self.usage += Usage(sent, as_number(at({"t": tokens}, "t", "output")), as_micro(part.get("cost")))
        if part.get("reason") == "stop":
            self.finished = True
        elif part.get("reason") == "length":
            self.fail("its answer was cut at the token limit!")
