"""GitHub Copilot CLI: lines of JSON, the last of which has an exit code and no tokens."""

from typing import Any

from hivekeeper.domain.runner import WORKER_VARIABLES, Mcp, McpBy, PromptBy, Reach, Runner
from hivekeeper.runners.reading import Reader, as_text, at

_FLAGS = "--allow-all-tools --output-format json"
# Of its own environment its servers get what is named only.
_SERVER = {"type": "local", "tools": ["*"], "env": {name: f"${{{name}}}" for name in WORKER_VARIABLES}}
RUNNER = Runner(
    name="copilot",
    command=f"copilot {_FLAGS} --session-id {{session}} {{args}}",
    # In the same place only: from elsewhere it goes on in the old one.
    resume=f"copilot {_FLAGS} --resume={{session}} {{args}}",
    prompt=PromptBy.STDIN,
    environment={"COPILOT_AUTO_UPDATE": "false"},
    inherit=(
        *("GH_TOKEN", "GITHUB_TOKEN", "COPILOT_GITHUB_TOKEN", "COPILOT_MODEL", "COPILOT_OFFLINE"),
        *("COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_API_KEY"),
    ),
    sign_in=("~/.copilot/config.json",),
    output="copilot",
    reach=Reach.INTERRUPT,
    mcp=Mcp(McpBy.FILE, "", ".copilot/mcp-config.json", '{"mcpServers": {servers}}', _SERVER),
    log="home/.copilot/session-state/{session}/events.jsonl",
    configuration=(".github/copilot-instructions.md", ".github/agents/*"),
)


class CopilotReader(Reader):
    """Reads GitHub Copilot CLI."""

    def take_event(self, event: dict[str, Any]) -> None:
        kind = as_text(event.get("type"))
        match kind:
            case "assistant.message":
                self.say(at(event, "data", "content"))
            case "session.error":
                data = event.get("data") if isinstance(event.get("data"), dict) else event
                assert isinstance(data, dict)
                self.fail(f"{as_text(data.get('errorType'))} {as_text(data.get('message'))}", data.get("statusCode"))
            case "model.call_failure":
                words = at(event, "data", "errorMessage") or at(event, "data", "failureKind")
                self.wait_for_limit(words, at(event, "data", "statusCode"))
            case "result":
                self.name(event.get("sessionId") or at(event, "data", "sessionId"))
                code = event.get("exitCode", at(event, "data", "exitCode"))
                self.finished = True
                if code and self.problem is None:
                    self.fail(f"it ended with exit code {as_text(code)}")
            case "tool.execution_start":
                self.begin_tool()
            case "tool.execution_complete":
                self.end_tools()
                self.go_on()
