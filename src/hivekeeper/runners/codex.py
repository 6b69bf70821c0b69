"""Codex: `codex exec --json`; its own sandbox cannot commit, so it is bypassed inside the hive's own."""

from typing import Any

from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import Mcp, McpBy, PromptBy, Reach, Runner
from hivekeeper.runners.reading import Reader, as_number, as_text, at

# The last has it wait for its MCP servers: one that takes longer than a second would be missing from its first turn.
_FLAGS = "--json --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check -c mcp_optional_startup_grace_ms=0"
RUNNER = Runner(
    name="codex",
    command=f"codex exec {_FLAGS} {{args}} -",
    resume=f"codex exec resume {{session}} {_FLAGS} {{args}} -",
    prompt=PromptBy.STDIN,
    inherit=("OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL"),
    sign_in=("~/.codex/auth.json", "~/.codex/config.toml"),
    output="codex",
    reach=Reach.INTERRUPT,
    mcp=Mcp(
        McpBy.FLAG,
        "-c mcp_servers.{name}.command={command} -c mcp_servers.{name}.args={args} "
        # Of its own environment it hands on what is named only.
        "-c mcp_servers.{name}.env_vars={variables}",
    ),
    log="home/.codex/sessions/*/*/*/rollout-*-{session}.jsonl",
    configuration=(".codex/*",),
)
_DEEDS = ("command_execution", "file_change", "mcp_tool_call", "web_search")


class CodexReader(Reader):
    """Reads Codex."""

    tells_totals = True

    def take_event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "thread.started":
                self.name(event.get("thread_id"))
            case "item.started" if at(event, "item", "type") in _DEEDS:
                self.begin_tool()
            case "item.completed":
                self._take_item(event.get("item"))
            case "error":
                words = as_text(event.get("message"))
                # "Reconnecting... 3/5 (why)" is no end yet.
                (self.wait_for_limit if words.startswith("Reconnecting") else self.fail)(words)
            case "turn.completed":
                self.go_on()
                self.finished = True
                names = ("input_tokens", "output_tokens", "cached_input_tokens")
                sent, received, cached = (as_number(at(event, "usage", name)) for name in names)
                self.usage = Usage(sent, received, cache_read=cached)
            case "turn.failed":
                self.finished = True
                self.fail(at(event, "error", "message"))

    def _take_item(self, item: object) -> None:
        match item:
            case {"type": "agent_message", "text": str(text)}:
                self.say(text)
            case {"type": str(kind)} if kind in _DEEDS:
                self.acted = True
                self.end_tools()
                self.go_on()

    def take_text(self, text: str) -> None:
        if not self.finished and text.startswith(("Error:", "ERROR", "error:")):
            self.fail(text)
