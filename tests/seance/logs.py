"""Small logs, true to those that agent programs write; each has one fact in its middle."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

FACT = "the heron service listens on port 7431"
QUESTION = "which port does the heron service use?"


def _write_lines(path: Path, *events: object) -> None:
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))


def write_claude(path: Path) -> int:
    at = "2026-11-19T22:40:52.158Z"
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "cat port.txt"}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": FACT, "is_error": False}
    error = {"type": "tool_result", "tool_use_id": "t2", "content": "Exit code 2\nls: no such file", "is_error": True}
    _write_lines(
        path,
        {"type": "queue-operation", "operation": "enqueue", "timestamp": at, "content": "the task"},
        {"type": "user", "message": {"role": "user", "content": "the task"}, "timestamp": at},
        {"type": "assistant", "message": {"role": "assistant", "content": [call]}, "timestamp": at},
        {"type": "user", "message": {"role": "user", "content": [answer]}, "timestamp": at},
        {"type": "user", "message": {"role": "user", "content": [error]}, "timestamp": at},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "All done."}]}, "timestamp": at},
    )
    return 4


def write_codex(path: Path) -> int:
    def item(**payload: object) -> dict[str, object]:
        return {"timestamp": "2026-11-19T22:40:57.125Z", "type": "response_item", "payload": payload}

    _write_lines(
        path,
        {"timestamp": "2026-11-19T22:40:55Z", "type": "session_meta", "payload": {"id": "x", "cwd": "/w"}},
        item(type="message", role="user", content=[{"type": "input_text", "text": "the task"}]),
        item(type="function_call", name="exec_command", arguments='{"cmd": "cat port.txt"}', call_id="c1"),
        item(type="function_call_output", call_id="c1", output=f"Process exited with code 0\nOutput:\n{FACT}"),
        item(type="function_call_output", call_id="c2", output="Process exited with code 2\nOutput:\nls: no file"),
        item(type="message", role="assistant", content=[{"type": "output_text", "text": "All done."}]),
    )
    return 4


def write_gemini(path: Path) -> int:
    def call(command: str, output: str, status: str = "success") -> dict[str, object]:
        result = [{"functionResponse": {"id": "1", "name": "run_shell_command", "response": {"output": output}}}]
        return {"name": "run_shell_command", "args": {"command": command}, "result": result, "status": status}

    def says(text: str, *calls: object) -> dict[str, object]:
        return {"id": "1", "timestamp": "2026-11-19T22:41:20Z", "type": "gemini", "content": text, "toolCalls": calls}

    _write_lines(
        path,
        {"sessionId": "s", "projectHash": "h", "startTime": "2026-11-19T22:41:19Z", "kind": "main"},
        {"id": "0", "timestamp": "2026-11-19T22:41:19Z", "type": "user", "content": [{"text": "the task"}]},
        says("", call("cat port.txt", f"Output: {FACT}")),
        says("", call("ls nosuch", "Output: ls: no file\nExit Code: 2")),
        says("All done."),
    )
    return 3


def write_qwen(path: Path) -> int:
    def line(kind: str, *parts: object, **more: object) -> dict[str, object]:
        message = {"role": "model", "parts": parts}
        return {"uuid": "u", "type": kind, "timestamp": "2026-11-19T22:41:20Z", "message": message, **more}

    def answer(output: str) -> dict[str, object]:
        return {"functionResponse": {"id": "c", "name": "run_shell_command", "response": {"output": output}}}

    _write_lines(
        path,
        line("user", {"text": "the task"}),
        line("assistant", {"text": "thinking", "thought": True}, {"text": "I look."}),
        line("assistant", {"functionCall": {"name": "run_shell_command", "args": {"command": "cat port.txt"}}}),
        line("tool_result", answer(FACT), toolCallResult={"status": "success"}),
        line("tool_result", answer("ls: no file"), toolCallResult={"status": "error"}),
        line("assistant", {"text": "All done."}),
    )
    return 4


def write_pi(path: Path) -> int:
    def line(role: str, content: object, **more: object) -> dict[str, object]:
        message = {"role": role, "content": content, **more}
        return {"type": "message", "id": "m", "timestamp": "2026-11-19T22:41:04Z", "message": message}

    def text(words: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": words}]

    _write_lines(
        path,
        {"type": "session", "version": 3, "id": "s", "cwd": "/w"},
        line("user", text("the task")),
        line("assistant", [{"type": "toolCall", "name": "bash", "arguments": {"command": "cat port.txt"}}]),
        line("toolResult", text(FACT), toolName="bash", isError=False),
        line("toolResult", text("ls: no file\n\nCommand exited with code 2"), toolName="bash", isError=True),
        line("assistant", text("All done.")),
    )
    return 4


def write_copilot(path: Path) -> int:
    def event(kind: str, **data: object) -> dict[str, object]:
        return {"type": kind, "data": data, "id": "e", "timestamp": "2026-11-19T22:41:04Z"}

    _write_lines(
        path,
        event("session.start", sessionId="s", version=1),
        event("user.message", content="the task"),
        event("tool.execution_start", toolCallId="1", toolName="bash", arguments={"command": "cat port.txt"}),
        event("tool.execution_complete", toolCallId="1", success=True, result={"content": FACT}),
        event("tool.execution_complete", toolCallId="2", success=False, error={"message": "ls: no file"}),
        event("assistant.message", content="All done."),
    )
    return 4


def write_acp(path: Path) -> int:
    def update(**fields: object) -> dict[str, object]:
        params = {"sessionId": "s", "update": fields}
        return {"jsonrpc": "2.0", "method": "session/update", "params": params}

    def chunk(words: str) -> dict[str, object]:
        return update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": words})

    def ended(words: str, status: str = "completed") -> dict[str, object]:
        content = [{"type": "content", "content": {"type": "text", "text": words}}]
        return update(sessionUpdate="tool_call_update", toolCallId="1", status=status, content=content)

    _write_lines(
        path,
        {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1}},
        update(sessionUpdate="tool_call", toolCallId="1", title="shell", rawInput={"command": "cat port.txt"}),
        ended(FACT),
        ended("ls: no file", "failed"),
        *map(chunk, ("All ", "do", "ne.")),
    )
    return 3


def write_goose(path: Path) -> int:
    def call(command: str) -> str:
        value = {"name": "shell", "arguments": {"command": command}}
        return json.dumps([{"type": "toolRequest", "id": "1", "toolCall": {"status": "success", "value": value}}])

    def answer(words: str, *, is_error: bool) -> str:
        value = {"content": [{"type": "text", "text": words}], "isError": is_error}
        return json.dumps([{"type": "toolResponse", "id": "1", "toolResult": {"status": "success", "value": value}}])

    database = sqlite3.connect(path)
    database.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT)")
    database.execute(
        "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT, content_json TEXT, "
        "created_timestamp INTEGER)"
    )
    for role, content in (
        ("user", json.dumps([{"type": "text", "text": "the task"}])),
        ("assistant", call("cat port.txt")),
        ("user", answer(FACT, is_error=False)),
        ("user", answer("ls: no file", is_error=True)),
        ("assistant", json.dumps([{"type": "text", "text": "All done."}])),
    ):
        row = ("20261119_1", role, content, 1795128048)
        database.execute(
            "INSERT INTO messages (session_id, role, content_json, created_timestamp) VALUES (?, ?, ?, ?)", row
        )
    database.commit()
    database.close()
    return 3


def write_opencode(path: Path) -> int:
    def tool(status: str, **more: object) -> dict[str, object]:
        state = {"status": status, "input": {"command": "cat port.txt"}, **more}
        return {"type": "tool", "tool": "bash", "callID": "1", "state": state}

    database = sqlite3.connect(path)
    database.execute("CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT)")
    database.execute("CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, time_created INTEGER, data TEXT)")
    for role in ("user", "assistant"):
        values = (role, "s", 1795128048000, json.dumps({"role": role}))
        database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", values)
    for number, (role, part) in enumerate(
        (
            ("user", {"type": "text", "text": "the task"}),
            ("assistant", tool("completed", output=FACT)),
            ("assistant", tool("error", error="ls: no file")),
            ("assistant", {"type": "text", "text": "All done."}),
        )
    ):
        database.execute("INSERT INTO part VALUES (?, ?, ?, ?)", (f"p{number}", role, 1795128048000, json.dumps(part)))
    database.commit()
    database.close()
    return 2


def write_aider(path: Path) -> int:
    path.write_text(
        "\n# aider chat started at 2026-11-19 22:41:04\n\n"
        "> Using openai/fake-1 model with API key from environment.  \n\n"
        "#### the task\n\n"
        f"I looked it up: {FACT}.\n\n"
        "> litellm.APIError: ls: no file  \n"
        "> Applied edit to a.txt  \n\n"
        "All done.\n"
    )
    return 8


def write_mini(path: Path) -> int:
    action = "```mswea_bash_command\ncat port.txt\n```"
    messages = [
        {"role": "system", "content": "You are a helper."},
        {"role": "user", "content": "the task"},
        {"role": "assistant", "content": f"I look.\n\n{action}"},
        {"role": "user", "content": f"<returncode>0</returncode>\n<output>\n{FACT}\n</output>"},
        {"role": "user", "content": "<returncode>2</returncode>\n<output>\nls: no file\n</output>"},
        {"role": "assistant", "content": "All done."},
    ]
    info = {"exit_status": "Submitted", "submission": "", "model_stats": {"api_calls": 2, "instance_cost": 0.1}}
    path.write_text(json.dumps({"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}))
    return 4


LOGS: dict[str, tuple[str, Callable[[Path], int]]] = {
    "claude": ("session.jsonl", write_claude),
    "codex": ("rollout.jsonl", write_codex),
    "gemini": ("session.jsonl", write_gemini),
    "qwen": ("session.jsonl", write_qwen),
    "pi": ("session.jsonl", write_pi),
    "copilot": ("events.jsonl", write_copilot),
    "acp": ("frames.jsonl", write_acp),
    "goose": ("sessions.db", write_goose),
    "opencode": ("opencode.db", write_opencode),
    "aider": (".aider.chat.history.md", write_aider),
    "mini": ("trajectory.json", write_mini),
}
