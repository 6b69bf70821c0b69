"""Goose: says `complete` after most errors too, so the words of its last message decide."""

from typing import Any

from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import Mcp, McpBy, PromptBy, Reach, Runner
from hivekeeper.runners.reading import Reader, as_list, as_number, as_text, at

_FLAGS = "-q --output-format stream-json"
RUNNER = Runner(
    name="goose",
    command=f"goose run {_FLAGS} --name {{session}} {{args}} -i -",
    # In the same place only: from elsewhere it goes on in the old one.
    resume=f"goose run {_FLAGS} --resume --name {{session}} {{args}} -i -",
    prompt=PromptBy.STDIN,
    environment={"GOOSE_MODE": "auto", "GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_ENABLED": "false"},
    inherit=(
        *("GOOSE_PROVIDER", "GOOSE_MODEL", "OPENAI_API_KEY", "OPENAI_HOST", "OPENAI_BASE_PATH", "ANTHROPIC_API_KEY"),
        *("ANTHROPIC_HOST", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"),
    ),
    sign_in=("~/.config/goose/config.yaml", "~/.config/goose/secrets.yaml"),
    output="goose",
    reach=Reach.INTERRUPT,
    mcp=Mcp(McpBy.FLAG, "--with-extension {name}:{line}", is_kept=True),
    log="home/.local/share/goose/sessions/sessions.db*",
    configuration=(".goosehints", ".goose/*"),
)
_ERRORS = ("Ran into this error", "Network error:", "Error: Ran into this error")


class GooseReader(Reader):
    """Reads Goose."""

    tells_totals = True
    _message = ""

    def take_event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "message":
                self._take_message(event.get("message"))
            case "error":
                self.fail(event.get("error"))
            case "complete":
                self.finished = True
                self.usage = Usage(as_number(event.get("input_tokens")), as_number(event.get("output_tokens")))

    def _take_message(self, message: object) -> None:
        if not isinstance(message, dict):
            return
        more = message.get("id") == self._message  # it comes in pieces
        self._message = as_text(message.get("id"))
        if at(message, "metadata", "outputTokenLimitReached"):
            self.fail("its answer was cut at the token limit!")
        for part in as_list(message.get("content")):
            self._take_part(part, is_model=message.get("role") == "assistant", more=more)

    def _take_part(self, part: object, *, is_model: bool, more: bool) -> None:
        match part:
            case {"type": "text", "text": str(text)} if is_model and text.startswith(_ERRORS):
                self.fail(text)
            case {"type": "text", "text": str(text)} if is_model and text.startswith("The model returned an empty"):
                self.go_on()
            case {"type": "text", "text": str(text)} if is_model:
                self.say(text, more=more)
            case {"type": "systemNotification", "notificationType": "creditsExhausted", "msg": words}:
                self.fail(f"{as_text(words)} (402)")
            case {"type": "toolRequest"}:
                self.begin_tool()
            case {"type": "toolResponse"}:
                self.end_tools()

    def take_text(self, text: str) -> None:
        if text.lower().startswith(("error:", "error ")):
            self.fail(text)
