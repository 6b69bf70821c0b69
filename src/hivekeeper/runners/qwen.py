"""Qwen Code: speaks as Claude Code does."""

from typing import Any

from hivekeeper.domain.runner import Mcp, McpBy, PromptBy, Reach, Runner
from hivekeeper.runners.claude import ClaudeReader

_FLAGS = "--approval-mode yolo --output-format stream-json"
RUNNER = Runner(
    name="qwen",
    command=f"qwen {_FLAGS} --session-id {{session}} {{args}}",
    resume=f"qwen {_FLAGS} --resume {{session}} {{args}}",
    prompt=PromptBy.STDIN,
    inherit=("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY"),
    sign_in=("~/.qwen/oauth_creds.json", "~/.qwen/settings.json"),
    output="qwen",
    reach=Reach.INTERRUPT,
    mcp=Mcp(McpBy.FILE, "--mcp-config {file}", ".hive-mcp.json", '{"mcpServers": {servers}}'),
    log="home/.qwen/projects/*/chats/{session}.jsonl",
    configuration=(".qwen/*",),
)


class QwenReader(ClaudeReader):
    """Reads Qwen Code."""

    def _take_result(self, event: dict[str, Any], subtype: str) -> None:
        # Its messages tell of this session; its result, of the whole conversation and of what it asked for itself.
        self.tells_totals = bool(event.get("usage"))
        super()._take_result(event, subtype)
