"""The Agent Client Protocol: which programs speak it, how they differ, and what is read of a session over it.

A process of the hive's in the sandbox (`hivekeeper.worker.acp`) starts the program, talks to it, and prints one JSON
record per line. What the programs have in common is the protocol; what they do not is in PROGRAMS.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from hivekeeper.domain.report import Outcome, Usage
from hivekeeper.domain.runner import Mcp, McpBy, PromptBy, Reach, Runner
from hivekeeper.runners.reading import Reader, as_number, as_text
from hivekeeper.runners.signs import MAX_WORDS, Sign

SERVERS_FILE = ".hive-mcp.json"
STATE_FILE, FRAMES_FILE = ".hive-acp/state.json", ".hive-acp/frames.jsonl"
_MODULE = "hivekeeper.worker.acp"
# A limit of the hive's ends a session from outside; the process asks the program to stop a little earlier.
_EARLIER = 0.95


class UsageBy(StrEnum):
    """What the token numbers in an answer to a prompt are about; CHUNKS: they are in the updates instead."""

    TURN = "turn"
    REQUEST = "request"
    SESSION = "session"
    CHUNKS = "chunks"


@dataclass(frozen=True, slots=True)
class Program:
    """What is particular about a program that speaks the protocol.

    `sign` is a pattern of its command, `modes` the ids of a mode with full permission. `loads_same_minute` is false if
    a session cannot be loaded in the minute in which it was made, `loads_after_kill` if the program, killed in
    mid-turn, runs the interrupted command again; `leaves_commands` if a cancelled turn leaves its command running.
    """

    sign: str
    command: str = ""
    modes: tuple[str, ...] = ()
    usage: UsageBy = UsageBy.TURN
    environment: Mapping[str, str] = field(default_factory=dict)
    home: Mapping[str, str] = field(default_factory=dict)
    takes_servers: bool = True
    loads_same_minute: bool = True
    loads_after_kill: bool = True
    leaves_commands: bool = False


# The bare names are the presets that can be driven this way.
PROGRAMS: Mapping[str, Program] = {
    "claude": Program(
        r"claude-(agent|code)-acp",
        "claude-agent-acp",
        modes=("bypassPermissions",),
        environment={"CLAUDE_CODE_MAX_RETRIES": "1"},
    ),
    "codex": Program(
        r"codex-acp",
        "codex-acp",
        modes=("agent-full-access", "full-access"),
        environment={"NO_BROWSER": "1"},
        leaves_commands=True,
    ),
    "gemini": Program(
        r"gemini\b",
        'GEMINI_CLI_SYSTEM_SETTINGS_PATH="$HOME/.hive-gemini.json" gemini --acp --approval-mode yolo',
        home={".hive-gemini.json": '{"general": {"sessionRetention": {"enabled": false}, "maxAttempts": 2}}'},
        loads_same_minute=False,
    ),
    "goose": Program(r"goose\b", "goose acp", modes=("auto",), usage=UsageBy.REQUEST, leaves_commands=True),
    "pi": Program(r"pi-acp", "pi-acp", takes_servers=False),
    "opencode": Program(r"opencode\b", "opencode acp", usage=UsageBy.REQUEST),
    "qwen": Program(r"qwen\b", "qwen --acp --approval-mode yolo", modes=("yolo",), usage=UsageBy.CHUNKS),
    "copilot": Program(r"copilot\b", "copilot --acp --allow-all-tools", usage=UsageBy.SESSION, takes_servers=False),
    "openhands": Program(r"openhands\b", modes=("always-approve",), loads_after_kill=False),
}
COMMANDS: Mapping[str, str] = {name: program.command for name, program in PROGRAMS.items() if program.command}


def find_program(words: Iterable[str]) -> Program:
    """Find what is known of the program in a command."""
    names = [word.rpartition("/")[2] for word in words if not word.startswith("-") and "=" not in word]
    return next(
        (known for known in PROGRAMS.values() if any(re.match(known.sign, name) for name in names)), Program("")
    )


def speak_acp(
    runner: Runner,
    command: str,
    *,
    urgent: Iterable[str] = (),
    silence_s: float | None = None,
    tool_s: float | None = None,
) -> Runner:
    """Make a runner that is driven over the protocol: `command` is the program's own."""
    known = find_program(command.split())
    options = [f"--urgent {shlex.quote(','.join(sorted(urgent)))}"]
    options += [f"--silence {silence_s * _EARLIER:g}"] if silence_s else []
    options += [f"--tool {tool_s * _EARLIER:g}"] if tool_s else []
    # `env` reads the variables in front of the command, as a shell would.
    start = f'"$HIVE_PYTHON" -I -m {_MODULE} {" ".join(options)}'
    servers = Mcp(McpBy.FILE, "", SERVERS_FILE, '{"mcpServers": {servers}}')
    return replace(
        runner,
        command=f"{start} -- env {command} {{args}}",
        resume=f"{start} --load {{session}} -- env {command} {{args}}",
        prompt=PromptBy.STDIN,
        environment={**known.environment, **runner.environment},
        home={**known.home, **runner.home},
        output="acp",
        reach=Reach.SESSION,
        acp=command,
        mcp=servers if known.takes_servers else runner.mcp,
        log=runner.log or f"home/{FRAMES_FILE}",
    )


class AcpReader(Reader):
    """Reads the records of a session over the protocol."""

    def take_event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "session":
                self.name(event.get("id"))
                self.model = as_text(event.get("model")) or self.model
            case "text":
                self.say(event.get("text"), more=bool(event.get("more")))
            case "tool" if event.get("state") == "begun":
                self.begin_tool()
            case "tool":
                self.end_tools()
            case "usage":
                names = ("tokens_in", "tokens_out", "microusd", "cache_read", "cache_write")
                self.usage = Usage(*(as_number(event.get(name)) for name in names))
            case "log" | "refused":
                self.tail.append(as_text(event.get("text"))[:MAX_WORDS])
            case "end":
                self._end(event)

    def _end(self, event: dict[str, Any]) -> None:
        words, wait = as_text(event.get("words")), event.get("retry_s")
        try:
            outcome = Outcome(as_text(event.get("class")))
        except ValueError:
            outcome = Outcome.CRASHED
        if outcome is Outcome.DONE:
            self.go_on()
            self.finished = True
            return
        told = words or ("\n".join(self.tail) if outcome in (Outcome.CRASHED, Outcome.SETUP) else "")
        retry_s = float(wait) if isinstance(wait, int | float) and not isinstance(wait, bool) else None
        self.problem = Sign(outcome, told[-MAX_WORDS:], retry_s)
