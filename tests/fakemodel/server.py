#!/usr/bin/env python3
"""A scripted model server for testing coding-agent programs. Loopback only, stdlib only.

It speaks enough of four model APIs for real agent command-line programs to run against it:

    OpenAI Chat Completions   POST .../chat/completions                 (stream and not)
    OpenAI Responses          POST .../responses                        (stream and not)
    Anthropic Messages        POST .../messages, .../messages/count_tokens
    Gemini                    POST .../models/M:generateContent, :streamGenerateContent, :countTokens

What it answers is decided by a script (JSON, or YAML when PyYAML is there). The server keeps no
conversation: each request carries its own history, so which step is due is read from the request.

    {"rules": [
       {"name": "limit-first", "when": {"key": "agent-1"}, "times": 2,
        "steps": [{"fault": "429", "retry_after": 1}]},
       {"name": "edit", "when": {"prompt": "create (?P<file>\\S+)"},
        "steps": [{"write": {"path": "{{file}}", "content": "hello\\n"}},
                  {"shell": "git add -A && git commit -qm 'add {{file}}'"},
                  {"say": "Done."}]}]}

Rules are tried in order. A rule whose `when.prompt` matches an older user message yields to one that
matches a newer message. Step n is given when n model turns follow the matched message; after the last
step the answer is `{"say": "Done."}`, unless the rule has `"loop": true` (then the last step repeats
for ever, which is the endless loop of tool calls).

when:   prompt, system, model, key, tag, path (regexes); api (chat|responses|anthropic|gemini);
        tools (true/false: did the request offer tools); turn (int).
        By default a rule with `steps` other than faults only answers requests that offer tools, or
        that come from a text-only agent that is recognised (aider, mini-swe-agent); the side requests
        agents make (titles, summaries, routing) get a short default answer.
times:  how many requests the rule answers before it is spent; `per`: "server" (default), "key", "tag".
steps:  one action or a list of actions (several tool calls in one turn):
    {"say": TEXT}                         plain answer; ends the agent's turn
    {"write": {"path":..,"content":..}}   through the agent's own write tool, else through its shell
    {"shell": CMD}                        through whichever shell tool the agent offers
    {"tool": NAME, "args": {...}}         an exact tool
    {"mcp": NAME, "server": S, "args":..} the tool whose name ends in NAME (agents prefix MCP tools)
    {"fault": KIND, ...}                  see FAULTS below
  beside an action: "text" (words before the tool call), "delay" (seconds before answering),
  "chunk_delay" (seconds between streamed pieces), "usage": {"input":N,"output":N}, "think": TEXT
faults: 400 401 402 403 404 408 413 429 quota 500 502 503 529 context  -> an HTTP error with the body
        that provider sends (with "retry_after", "message", "status" to override);
        reset (TCP RST before any byte), close (clean close before any byte),
        cut (stream starts, then RST), hang (no byte for "seconds", default 3600),
        stall (stream starts, then silence for "seconds"), empty (200, no content),
        blank (200, zero-byte body), malformed (200, broken JSON), html (200, a web page),
        badargs (tool call with unparsable arguments), unknown_tool, length (stopped by token limit),
        refusal, stream_error (error event inside a stream that began well)

Inline scripts: a user message may carry its own steps, one JSON object to a line, after `@@do `:
        @@do {"write": {"path": "a.txt", "content": "x"}}
        @@do {"shell": "git commit -qam x"}
They act as a rule that matches that message (disable with "inline": false).

Who is asking: give each agent its own dummy key, or its own base URL: a first path element `@NAME`
(http://127.0.0.1:PORT/@agent7/v1) is taken off and becomes `tag`.

Control: GET /__health, GET /__log (requests so far), GET /__stats, POST /__script, POST /__reset.

    python server.py --port 8399 --script script.json --log requests.jsonl
    with FakeModel({"rules": [...]}) as m: ... m.url, m.log()
"""
from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import socket
import struct
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

# --------------------------------------------------------------------------------------------------
# One request, whatever the API
# --------------------------------------------------------------------------------------------------


@dataclass
class Turn:
    role: str  # "user", "model" or "tool"
    text: str
    calls: list = field(default_factory=list)  # model turns: names of tools called


@dataclass
class Ask:
    api: str
    path: str
    tag: str
    key: str
    model: str
    system: str
    turns: list
    tools: dict  # name -> JSON schema of its arguments
    kinds: dict  # name -> "function" | "custom" | "local_shell" | ...
    stream: bool
    schema: dict | None  # structured output asked for
    raw: dict

    def user_text(self) -> str:
        return "\n".join(t.text for t in self.turns if t.role == "user")

    def everything(self) -> str:
        return self.system + "\n" + "\n".join(t.text for t in self.turns)


def _text_of(content: Any) -> str:
    """All the text in a message content of any of the APIs."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        for k in ("text", "content", "output", "parts", "input_text"):
            if k in content:
                return _text_of(content[k])
        return ""
    if isinstance(content, list):
        return "\n".join(filter(None, (_text_of(c) for c in content)))
    return str(content)


def parse_chat(body: dict, base: dict) -> Ask:
    system, turns = [], []
    for m in body.get("messages", []):
        role = m.get("role")
        if role in ("system", "developer"):
            system.append(_text_of(m.get("content")))
        elif role == "user":
            turns.append(Turn("user", _text_of(m.get("content"))))
        elif role == "assistant":
            calls = [c.get("function", {}).get("name") for c in m.get("tool_calls") or []]
            turns.append(Turn("model", _text_of(m.get("content")), calls))
        else:
            turns.append(Turn("tool", _text_of(m.get("content"))))
    tools, kinds = {}, {}
    for t in body.get("tools") or []:
        f = t.get("function") or t
        tools[f.get("name", t.get("type"))] = f.get("parameters") or {}
        kinds[f.get("name", t.get("type"))] = t.get("type", "function")
    rf = body.get("response_format") or {}
    schema = (rf.get("json_schema") or {}).get("schema") if rf.get("type") == "json_schema" else None
    return Ask("chat", model=body.get("model", ""), system="\n".join(system), turns=turns, tools=tools,
               kinds=kinds, stream=bool(body.get("stream")), schema=schema, raw=body, **base)


def parse_responses(body: dict, base: dict) -> Ask:
    system, turns = [body.get("instructions") or ""], []
    items = body.get("input") or []
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    for it in items:
        ty = it.get("type", "message")
        if ty == "message":
            role = it.get("role")
            if role in ("system", "developer"):
                system.append(_text_of(it.get("content")))
            else:
                _push(turns, "model" if role == "assistant" else "user", _text_of(it.get("content")))
        elif ty in ("function_call", "custom_tool_call", "local_shell_call", "shell_call", "tool_search_call"):
            _push(turns, "model", "", [it.get("name") or ty])
        elif ty.endswith("_output"):
            turns.append(Turn("tool", _text_of(it.get("output"))))
    tools, kinds = {}, {}
    for t in body.get("tools") or []:
        if t.get("type") == "namespace":  # codex groups MCP tools in namespaces
            for f in t.get("tools") or []:
                tools[f["name"]] = f.get("parameters") or {}
                kinds[f["name"]] = "ns:" + t.get("name", "")
            continue
        name = t.get("name") or t.get("type")
        tools[name] = t.get("parameters") or {}
        kinds[name] = t.get("type", "function")
    fmt = ((body.get("text") or {}).get("format")) or {}
    schema = fmt.get("schema") if fmt.get("type") == "json_schema" else None
    return Ask("responses", model=body.get("model", ""), system="\n".join(system), turns=turns, tools=tools,
               kinds=kinds, stream=bool(body.get("stream")), schema=schema, raw=body, **base)


def parse_anthropic(body: dict, base: dict) -> Ask:
    turns = []
    for m in body.get("messages", []):
        c = m.get("content")
        blocks = [{"type": "text", "text": c}] if isinstance(c, str) else (c or [])
        if m.get("role") == "assistant":
            text = "\n".join(b.get("text", "") for b in blocks if b.get("type") == "text")
            _push(turns, "model", text, [b["name"] for b in blocks if b.get("type") == "tool_use"])
        else:
            for b in blocks:
                if b.get("type") == "tool_result":
                    turns.append(Turn("tool", _text_of(b.get("content"))))
            text = "\n".join(b.get("text", "") for b in blocks if b.get("type") == "text")
            if text:
                turns.append(Turn("user", text))
    tools = {t.get("name", t.get("type", "?")): t.get("input_schema") or {} for t in body.get("tools") or []}
    fmt = ((body.get("output_config") or {}).get("format")) or body.get("output_format") or {}
    schema = fmt.get("schema") if fmt.get("type") == "json_schema" else None
    return Ask("anthropic", model=body.get("model", ""), system=_text_of(body.get("system")), turns=turns,
               tools=tools, kinds={}, stream=bool(body.get("stream")), schema=schema, raw=body, **base)


def parse_gemini(body: dict, base: dict, model: str, stream: bool) -> Ask:
    turns = []
    for m in body.get("contents") or []:
        parts = m.get("parts") or []
        text = "\n".join(p.get("text", "") for p in parts if "text" in p and not p.get("thought"))
        if m.get("role") == "model":
            _push(turns, "model", text, [p["functionCall"]["name"] for p in parts if "functionCall" in p])
        else:
            for p in parts:
                if "functionResponse" in p:
                    turns.append(Turn("tool", json.dumps(p["functionResponse"].get("response"))))
            if text:
                turns.append(Turn("user", text))
    tools = {}
    for t in body.get("tools") or []:
        for f in t.get("functionDeclarations") or []:
            tools[f["name"]] = f.get("parametersJsonSchema") or f.get("parameters") or {}
    cfg = body.get("generationConfig") or {}
    schema = cfg.get("responseJsonSchema") or cfg.get("responseSchema")
    return Ask("gemini", model=model, system=_text_of(body.get("systemInstruction")), turns=turns, tools=tools,
               kinds={}, stream=stream, schema=schema, raw=body, **base)


def _push(turns: list, role: str, text: str, calls: list | None = None) -> None:
    """Append a model turn, joining pieces of one turn (text and calls sent as separate items)."""
    if role == "model" and turns and turns[-1].role == "model":
        turns[-1].text += text
        turns[-1].calls += calls or []
    else:
        turns.append(Turn(role, text, calls or []))


# --------------------------------------------------------------------------------------------------
# The script
# --------------------------------------------------------------------------------------------------

INLINE = re.compile(r"^[ \t>*-]*@@do[ \t]+(\{.*\})[ \t]*$", re.M)


def load_script(path: str) -> dict:
    text = open(path, encoding="utf-8").read()
    if path.endswith((".yaml", ".yml")):
        import yaml  # optional

        return yaml.safe_load(text)
    return json.loads(text)


def dialect(ask: Ask) -> str:
    """Text-only agents are told apart by what they ask for."""
    seen = ask.system + "\n" + ask.user_text()
    if "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in seen:
        return "mini"
    if "SEARCH/REPLACE" in seen and not ask.tools:
        return "aider"
    if "file listing" in seen and "```" in seen and not ask.tools and "aider" in seen.lower():
        return "aider-whole"
    if "final_answer" in seen and not ask.tools:
        return "smol"
    return ""


@dataclass
class Pick:
    rule: str
    step: int
    actions: list
    final: bool
    vars: dict


class Script:
    def __init__(self, data: dict | None = None):
        self.data = data or {}
        self.rules = self.data.get("rules") or []
        self.used: dict = {}
        self.lock = threading.Lock()

    def _vars(self, ask: Ask, m: re.Match | None) -> dict:
        v = {"tag": ask.tag, "key": ask.key, "model": ask.model, "cwd": find_cwd(ask) or "."}
        if m:
            v.update({str(i): g or "" for i, g in enumerate([m.group(0), *m.groups()])})
            v.update({k: g or "" for k, g in m.groupdict().items()})
        return v

    def _when(self, rule: dict, ask: Ask) -> tuple | None:
        """(position of the matched user message, match) or None."""
        w = rule.get("when") or {}
        if isinstance(w, str):
            w = {"prompt": w}
        for name in ("system", "model", "key", "tag", "path"):
            if name in w and not re.search(w[name], getattr(ask, name) or ""):
                return None
        if "api" in w and ask.api not in ([w["api"]] if isinstance(w["api"], str) else w["api"]):
            return None
        faulty = all(isinstance(s, dict) and "fault" in s for s in rule.get("steps") or [])
        if "tools" in w:
            if bool(ask.tools) != bool(w["tools"]):
                return None
        elif not faulty and not ask.tools and not dialect(ask):
            return None
        if "prompt" in w:
            for i in range(len(ask.turns) - 1, -1, -1):
                if ask.turns[i].role == "user":
                    m = re.search(w["prompt"], ask.turns[i].text, re.M)
                    if m:
                        return i, m
            return None
        return -1, None

    def _turn(self, ask: Ask, pos: int) -> int:
        """How many model turns follow the matched message."""
        return sum(1 for t in ask.turns[pos + 1:] if t.role == "model")

    def pick(self, ask: Ask) -> Pick:
        best = None
        for n, rule in enumerate(self.rules):
            hit = self._when(rule, ask)
            if hit is None:
                continue
            pos, m = hit
            if "turn" in (rule.get("when") or {}) and self._turn(ask, pos) != rule["when"]["turn"]:
                continue
            name = rule.get("name") or f"rule{n}"
            if "times" in rule:
                who = {"key": ask.key, "tag": ask.tag}.get(rule.get("per", "server"), "")
                with self.lock:
                    if self.used.get((name, who), 0) >= rule["times"]:
                        continue
            # a rule that names no prompt stands above those that do, in script order
            rank = pos if pos >= 0 else len(ask.turns)
            if best is None or rank > best[0]:
                best = (rank, name, rule, pos, m)
        inline = self._inline(ask) if self.data.get("inline", True) else None
        if inline and (best is None or inline[0] > best[0]):
            best = inline
        if best is None:
            return Pick("default", 0, [self.data.get("default") or {"say": "OK."}], True, self._vars(ask, None))
        _, name, rule, pos, m = best
        if "times" in rule:
            who = {"key": ask.key, "tag": ask.tag}.get(rule.get("per", "server"), "")
            with self.lock:
                self.used[(name, who)] = self.used.get((name, who), 0) + 1
        steps = rule.get("steps") or []
        turn = self._turn(ask, pos)
        if rule.get("loop") and steps:
            step = steps[min(turn, len(steps) - 1)]
        elif "times" in rule and steps and all("fault" in s for s in steps if isinstance(s, dict)):
            step = steps[min(turn, len(steps) - 1)]
        elif turn < len(steps):
            step = steps[turn]
        else:
            step = rule.get("final") or {"say": "Done."}
        d = dialect(ask)
        if d.startswith("aider") and turn == 0:  # one answer must hold every edit
            step = [s for st in steps for s in (st if isinstance(st, list) else [st])]
        actions = step if isinstance(step, list) else [step]
        final = all("say" in a for a in actions)
        return Pick(name, turn, actions, final, self._vars(ask, m))

    def _inline(self, ask: Ask) -> tuple | None:
        if not ask.tools and not dialect(ask):
            return None
        for i in range(len(ask.turns) - 1, -1, -1):
            t = ask.turns[i]
            if t.role == "user":
                steps = []
                for s in INLINE.findall(t.text):
                    try:
                        steps.append(json.loads(s))
                    except ValueError:
                        pass
                if steps:
                    loop = bool(steps[-1].get("loop"))
                    return i, "inline", {"steps": steps, "loop": loop}, i, None
        return None


def fill(value: Any, v: dict) -> Any:
    if isinstance(value, str):
        return re.sub(r"\{\{(\w+)\}\}", lambda m: v.get(m.group(1), m.group(0)), value)
    if isinstance(value, dict):
        return {k: fill(x, v) for k, x in value.items()}
    if isinstance(value, list):
        return [fill(x, v) for x in value]
    return value


# --------------------------------------------------------------------------------------------------
# Portable actions -> the tools this agent offers
# --------------------------------------------------------------------------------------------------

SHELL_NAMES = ["Bash", "bash", "exec_command", "shell_command", "shell", "run_shell_command", "execute_command",
               "run_commands", "run_terminal_cmd", "terminal", "execute_bash", "developer__shell", "local_shell",
               "Shell", "execute"]
WRITE_NAMES = ["Write", "write", "write_file", "write_to_file", "create_file", "Create", "developer__write"]
PATH_KEYS = ["file_path", "filePath", "absolute_path", "path", "filename", "target_file"]
TEXT_KEYS = ["content", "contents", "file_text", "text", "new_content"]
CMD_KEYS = ["command", "cmd", "commands", "script", "code"]
CWD = [r"<cwd>([^<\n]+)</cwd>", r"<working-directory>([^<\n]+)</working-directory>", r"Primary working directory:\s*(/[^\n`<]*)", r"Working directory:\s*(/[^\n`<]*)",
       r"working in the directory:\s*(/[^\n`<]*)", r"[Cc]urrent working directory[^\n/]{0,40}(/[^\n`<'\")]*)",
       r"[Ww]orkspace [Dd]irectories:\W*\n\s*-\s*(/[^\n`<]*)", r"\bcwd[:=]\s*\"?(/[^\n`<\"]*)", r"Workspace root[^\n/]{0,20}(/[^\n`<]*)"]


def find_cwd(ask: Ask) -> str | None:
    """Where the agent says it works: its system prompt first, else the newest mention by a user message."""
    for text in [ask.system, *(t.text for t in reversed(ask.turns) if t.role == "user")]:
        for pat in CWD:
            found = re.findall(pat, text)
            if found:
                return re.sub(r" \(was .*", "", found[-1]).strip().rstrip(".")
    return None


def _props(schema: dict) -> dict:
    return (schema or {}).get("properties") or {}


def instance(schema: dict, name: str = "") -> Any:
    """The smallest value that fits a JSON schema."""
    if not isinstance(schema, dict):
        return "ok"
    for k in ("const", "default"):
        if k in schema:
            return schema[k]
    if schema.get("enum"):
        return schema["enum"][0]
    for k in ("anyOf", "oneOf", "allOf"):
        if schema.get(k):
            return instance(schema[k][0], name)
    ty = schema.get("type")
    if isinstance(ty, list):
        ty = next((t for t in ty if t != "null"), "null")
    ty = (ty or ("object" if "properties" in schema else "string")).lower()
    if ty == "object":
        req = schema.get("required") or list(_props(schema))
        return {k: instance(_props(schema).get(k, {}), k) for k in req}
    if ty == "array":
        return [instance(schema.get("items", {}))] if schema.get("minItems") else []
    if ty in ("integer", "number"):
        return schema.get("minimum", 1)
    if ty == "boolean":
        return False
    if ty == "null":
        return None
    return "scripted step"


def _args(schema: dict, given: dict) -> dict:
    out = dict(given)
    for k in (schema or {}).get("required") or []:
        if k not in out:
            out[k] = instance(_props(schema).get(k, {}), k)
    return out


def shell_call(ask: Ask, cmd: str) -> tuple | None:
    for name in SHELL_NAMES:
        if name not in ask.tools:
            continue
        schema = ask.tools[name]
        kind = ask.kinds.get(name)
        if kind == "local_shell":
            return name, {"type": "exec", "command": ["bash", "-lc", cmd]}
        key = next((k for k in CMD_KEYS if k in _props(schema)), "command")
        prop = _props(schema).get(key) or {}
        if prop.get("type") == "array":
            inner = (prop.get("items") or {}).get("type")
            given = {key: [cmd] if key == "commands" or inner == "object" else ["bash", "-lc", cmd]}
        else:
            given = {key: cmd}
        if name == "execute" and "language" in _props(schema):
            given["language"] = "shell"
        args = _args(schema, given)
        if "timeout" in args and isinstance(args["timeout"], int) and args["timeout"] < 1000:
            args["timeout"] = 60
        return name, args
    return None


def heredoc(path: str, content: str) -> str:
    """No command substitution here: gemini-cli refuses it."""
    q, folder = shlex.quote(path), os.path.dirname(path)
    first = f"mkdir -p {shlex.quote(folder)} && " if folder else ""
    if not content.endswith("\n"):
        return f"{first}printf %s {shlex.quote(content)} > {q}"
    return f"{first}cat > {q} <<'END_OF_FILE'\n{content}END_OF_FILE"


def write_call(ask: Ask, path: str, content: str, via: str) -> tuple | None:
    if via != "shell":
        for name in WRITE_NAMES:
            if name not in ask.tools:
                continue
            schema = ask.tools[name]
            p = next((k for k in PATH_KEYS if k in _props(schema)), None)
            c = next((k for k in TEXT_KEYS if k in _props(schema)), None)
            if not p or not c:
                continue
            full = path
            if not os.path.isabs(path):
                cwd = find_cwd(ask)
                if cwd:
                    full = os.path.join(cwd, path)
                elif via != "native":
                    break
            return name, _args(schema, {p: full, c: content})
    return shell_call(ask, heredoc(path, content))


@dataclass
class Reply:
    text: str = ""
    think: str = ""
    calls: list = field(default_factory=list)  # (id, name, args dict or raw string)
    stop: str = "stop"  # stop | tools | length | refusal
    usage: dict = field(default_factory=dict)
    chunk_delay: float = 0.0
    delay: float = 0.0
    cut: str = ""  # "", "cut", "stall", "stream_error"
    seconds: float = 3600.0


def build(ask: Ask, pick: Pick) -> Reply:
    """Turn the picked actions into text and tool calls this agent understands."""
    r = Reply()
    d = dialect(ask)
    words = []
    cmds = []
    for act in fill(pick.actions, pick.vars):
        r.delay = max(r.delay, float(act.get("delay", 0)))
        r.chunk_delay = max(r.chunk_delay, float(act.get("chunk_delay", 0)))
        r.usage.update(act.get("usage") or {})
        r.think += act.get("think", "")
        if act.get("text"):
            words.append(act["text"])
        if "say" in act:
            words.append(act["say"])
            if d == "mini":
                cmds.append("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && printf '%s\\n' " + shlex.quote(act["say"]))
        elif "write" in act:
            w = act["write"]
            if d == "aider":
                words.append(aider_block(w["path"], w.get("old", ""), w["content"]))
            elif d == "aider-whole":
                words.append(f"{w['path']}\n```\n{w['content']}```")
            elif d == "mini" or d == "smol":
                cmds.append(heredoc(w["path"], w["content"]))
            else:
                call = write_call(ask, w["path"], w["content"], act.get("via", "auto"))
                r.calls.append((new_id(ask), *call)) if call else words.append(f"(no tool to write {w['path']})")
        elif "shell" in act:
            if d in ("mini", "smol"):
                cmds.append(act["shell"])
            elif d.startswith("aider"):
                pass  # aider commits by itself, and only offers shell commands to a person
            else:
                call = shell_call(ask, act["shell"])
                r.calls.append((new_id(ask), *call)) if call else words.append(f"(no shell tool for {act['shell']})")
        elif "tool" in act:
            r.calls.append((new_id(ask), act["tool"], act.get("args", {})))
        elif "mcp" in act:
            # some agents (claude, qwen) hold MCP tools back until searched for, yet take a call by full name
            name = next((n for n in ask.tools if n.endswith(act["mcp"])),
                        f"mcp__{act['server']}__{act['mcp']}" if act.get("server") else act["mcp"])
            r.calls.append((new_id(ask), name, _args(ask.tools.get(name, {}), act.get("args", {}))))
        if act.get("fault") == "length":
            r.stop = "length"
            words.append(act.get("text", "This answer was cut"))
        elif act.get("fault") == "refusal":
            r.stop = "refusal"
            words.append(act.get("text", "I cannot help with that."))
        elif act.get("fault") == "badargs":
            name = (shell_call(ask, "true") or ("bash", {}))[0]
            r.calls.append((new_id(ask), name, '{"command": "ls'))
        elif act.get("fault") == "unknown_tool":
            r.calls.append((new_id(ask), act.get("name", "no_such_tool"), {"x": 1}))
        elif act.get("fault") in ("cut", "stall", "stream_error"):
            r.cut = act["fault"]
            r.seconds = float(act.get("seconds", 3600))
            words.append(act.get("text", "Working on it, one moment please"))
    if cmds:
        joined = "\n".join(cmds)
        call = shell_call(ask, joined)
        if call:
            r.calls.append((new_id(ask), *call))
        elif d == "smol":
            words.append("Thought: run it\n<code>\nimport subprocess\nprint(subprocess.run(%r, shell=True, capture_output=True, text=True).stdout)\n</code>" % joined)
        else:
            words.append(f"THOUGHT: scripted step\n\n```mswea_bash_command\n{joined}\n```")
    if d == "smol" and pick.final:
        words = ["Thought: finished\n<code>\nfinal_answer(%r)\n</code>" % "\n".join(words)]
    r.text = "\n\n".join(words)
    if ask.schema and not r.calls and pick.rule == "default":
        r.text = json.dumps(instance(ask.schema))
    if r.calls and r.stop == "stop":
        r.stop = "tools"
    r.usage.setdefault("input", max(1, len(json.dumps(ask.raw)) // 4))
    r.usage.setdefault("output", max(1, (len(r.text) + len(json.dumps(r.calls))) // 4))
    return r


def aider_block(path: str, old: str, new: str) -> str:
    old = old + "\n" if old and not old.endswith("\n") else old
    new = new + "\n" if new and not new.endswith("\n") else new
    return f"{path}\n```\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```"


def new_id(ask: Ask) -> str:
    return {"anthropic": "toolu_", "gemini": "fc_"}.get(ask.api, "call_") + uuid.uuid4().hex[:20]


# --------------------------------------------------------------------------------------------------
# Errors, as each provider words them
# --------------------------------------------------------------------------------------------------

FAULTS = {
    "400": (400, "invalid_request_error", "Invalid request: scripted fault"),
    "401": (401, "authentication_error", "Incorrect API key provided: test-key. (scripted fault)"),
    "402": (402, "billing_error", "Your credit balance is too low (scripted fault)"),
    "403": (403, "permission_error", "Permission denied (scripted fault)"),
    "404": (404, "not_found_error", "The model `x` does not exist (scripted fault)"),
    "408": (408, "timeout_error", "Request timed out (scripted fault)"),
    "413": (413, "request_too_large", "Request exceeds the maximum size (scripted fault)"),
    "429": (429, "rate_limit_error", "Rate limit reached for requests. Please try again later. (scripted fault)"),
    "quota": (429, "insufficient_quota", "You exceeded your current quota, please check your plan and billing details. (scripted fault)"),
    "500": (500, "api_error", "The server had an error while processing your request (scripted fault)"),
    "502": (502, "api_error", "Bad gateway (scripted fault)"),
    "503": (503, "api_error", "Service unavailable (scripted fault)"),
    "529": (529, "overloaded_error", "Overloaded (scripted fault)"),
    "context": (400, "context", ""),
}
GEMINI_STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
                 408: "DEADLINE_EXCEEDED", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE"}


def error_body(api: str, kind: str, act: dict) -> tuple:
    status, ty, msg = FAULTS[kind]
    status = int(act.get("status", status))
    if kind == "context":
        msg = {"anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
               "gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
               }.get(api, "This model's maximum context length is 128000 tokens. However, your messages resulted in "
                          "140000 tokens. Please reduce the length of the messages.")
    msg = act.get("message", msg)
    if api == "anthropic":
        ty = {"context": "invalid_request_error", "insufficient_quota": "rate_limit_error"}.get(ty, ty)
        body = {"type": "error", "error": {"type": ty, "message": msg}, "request_id": "req_" + uuid.uuid4().hex[:20]}
    elif api == "gemini":
        err = {"code": status, "message": msg, "status": GEMINI_STATUS.get(status, "UNKNOWN")}
        if status == 429:
            err["details"] = [{"@type": "type.googleapis.com/google.rpc.RetryInfo",
                               "retryDelay": f"{act.get('retry_after', 1)}s"}]
        body = {"error": err}
    else:
        code = {"context": "context_length_exceeded", "rate_limit_error": "rate_limit_exceeded",
                "authentication_error": "invalid_api_key", "not_found_error": "model_not_found"}.get(ty, ty)
        ty = {"context": "invalid_request_error", "authentication_error": "invalid_request_error",
              "rate_limit_error": "requests", "api_error": "server_error"}.get(ty, ty)
        body = {"error": {"message": msg, "type": ty, "param": None, "code": code}}
    return status, body


# --------------------------------------------------------------------------------------------------
# Answers, as each API sends them: lists of server-sent events, or one JSON body
# --------------------------------------------------------------------------------------------------


def pieces(text: str, size: int = 24) -> list:
    return [text[i:i + size] for i in range(0, len(text), size)]


def _argtext(args: Any) -> str:
    return args if isinstance(args, str) else json.dumps(args)


def chat_answer(ask: Ask, r: Reply) -> tuple:
    base = {"id": "chatcmpl-" + uuid.uuid4().hex[:16], "created": int(time.time()), "model": ask.model}
    usage = {"prompt_tokens": r.usage["input"], "completion_tokens": r.usage["output"],
             "total_tokens": r.usage["input"] + r.usage["output"]}
    finish = {"stop": "stop", "tools": "tool_calls", "length": "length", "refusal": "content_filter"}[r.stop]
    calls = [{"id": i, "type": "function", "function": {"name": n, "arguments": _argtext(a)}} for i, n, a in r.calls]
    if not ask.stream:
        msg = {"role": "assistant", "content": r.text or None}
        if calls:
            msg["tool_calls"] = calls
        return {**base, "object": "chat.completion", "usage": usage,
                "choices": [{"index": 0, "message": msg, "finish_reason": finish, "logprobs": None}]}, []

    def chunk(delta: dict, fin: Any = None) -> dict:
        return {**base, "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, "finish_reason": fin, "logprobs": None}]}

    ev = [(None, chunk({"role": "assistant", "content": ""}))]
    ev += [(None, chunk({"content": p})) for p in pieces(r.text)]
    for k, c in enumerate(calls):
        ev.append((None, chunk({"tool_calls": [{"index": k, "id": c["id"], "type": "function",
                                                "function": {"name": c["function"]["name"], "arguments": ""}}]})))
        ev += [(None, chunk({"tool_calls": [{"index": k, "function": {"arguments": p}}]}))
               for p in pieces(c["function"]["arguments"], 200)]
    ev.append((None, chunk({}, finish)))
    ev.append((None, {**base, "object": "chat.completion.chunk", "choices": [], "usage": usage}))
    ev.append((None, "[DONE]"))
    return None, ev


def responses_answer(ask: Ask, r: Reply) -> tuple:
    rid = "resp_" + uuid.uuid4().hex[:20]
    usage = {"input_tokens": r.usage["input"], "input_tokens_details": {"cached_tokens": 0},
             "output_tokens": r.usage["output"], "output_tokens_details": {"reasoning_tokens": 0},
             "total_tokens": r.usage["input"] + r.usage["output"]}
    items = []
    if r.think:
        items.append({"type": "reasoning", "id": "rs_" + uuid.uuid4().hex[:16], "encrypted_content": None,
                      "summary": [{"type": "summary_text", "text": r.think}]})
    if r.text or not r.calls:
        items.append({"type": "message", "id": "msg_" + uuid.uuid4().hex[:16], "status": "completed",
                      "role": "assistant", "content": [{"type": "output_text", "text": r.text, "annotations": []}]})
    for i, n, a in r.calls:
        kind = ask.kinds.get(n, "function")
        if kind == "custom":
            raw = a if isinstance(a, str) else a.get("input", json.dumps(a))
            items.append({"type": "custom_tool_call", "id": "ctc_" + i, "call_id": i, "name": n, "input": raw})
        elif kind == "local_shell":
            items.append({"type": "local_shell_call", "id": "lsh_" + i, "call_id": i, "status": "completed",
                          "action": a})
        else:
            it = {"type": "function_call", "id": "fc_" + i, "call_id": i, "name": n, "arguments": _argtext(a),
                  "status": "completed"}
            if kind.startswith("ns:"):
                it["namespace"] = kind[3:]
            items.append(it)
    status = "incomplete" if r.stop == "length" else "completed"
    resp = {"id": rid, "object": "response", "created_at": int(time.time()), "status": status, "model": ask.model,
            "output": items, "usage": usage, "error": None, "parallel_tool_calls": True, "tools": [],
            "incomplete_details": {"reason": "max_output_tokens"} if r.stop == "length" else None}
    if not ask.stream:
        return resp, []
    seq = iter(range(10 ** 6))
    ev: list = []

    def add(ty: str, **kw: Any) -> None:
        ev.append((ty, {"type": ty, "sequence_number": next(seq), **kw}))

    opening = {**resp, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    add("response.created", response=opening)
    add("response.in_progress", response=opening)
    for k, it in enumerate(items):
        add("response.output_item.added", output_index=k, item={**it, **({"content": []} if it["type"] == "message" else {}),
                                                                "status": "in_progress"})
        if it["type"] == "message":
            at = {"item_id": it["id"], "output_index": k, "content_index": 0}
            add("response.content_part.added", **at, part={"type": "output_text", "text": "", "annotations": []})
            for p in pieces(r.text):
                add("response.output_text.delta", **at, delta=p)
            add("response.output_text.done", **at, text=r.text)
            add("response.content_part.done", **at, part=it["content"][0])
        elif it["type"] == "function_call":
            add("response.function_call_arguments.delta", item_id=it["id"], output_index=k, delta=it["arguments"])
            add("response.function_call_arguments.done", item_id=it["id"], output_index=k, arguments=it["arguments"])
        add("response.output_item.done", output_index=k, item=it)
    add("response." + status, response=resp)
    return None, ev


def anthropic_answer(ask: Ask, r: Reply) -> tuple:
    mid = "msg_" + uuid.uuid4().hex[:20]
    usage = {"input_tokens": r.usage["input"], "output_tokens": r.usage["output"],
             "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    stop = {"stop": "end_turn", "tools": "tool_use", "length": "max_tokens", "refusal": "refusal"}[r.stop]
    blocks = []
    if r.text:
        blocks.append({"type": "text", "text": r.text})
    blocks += [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in r.calls]
    base = {"id": mid, "type": "message", "role": "assistant", "model": ask.model, "stop_sequence": None}
    if not ask.stream:
        return {**base, "content": blocks, "stop_reason": stop, "usage": usage}, []
    ev: list = [("message_start", {"type": "message_start", "message": {
        **base, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}})]
    for k, b in enumerate(blocks):
        if b["type"] == "text":
            ev.append(("content_block_start", {"type": "content_block_start", "index": k,
                                               "content_block": {"type": "text", "text": ""}}))
            ev += [("content_block_delta", {"type": "content_block_delta", "index": k,
                                            "delta": {"type": "text_delta", "text": p}}) for p in pieces(b["text"])]
        else:
            ev.append(("content_block_start", {"type": "content_block_start", "index": k,
                                               "content_block": {**b, "input": {}}}))
            ev += [("content_block_delta", {"type": "content_block_delta", "index": k,
                                            "delta": {"type": "input_json_delta", "partial_json": p}})
                   for p in pieces(_argtext(b["input"]), 200)]
        ev.append(("content_block_stop", {"type": "content_block_stop", "index": k}))
    ev.append(("message_delta", {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None},
                                 "usage": usage}))
    ev.append(("message_stop", {"type": "message_stop"}))
    return None, ev


def gemini_answer(ask: Ask, r: Reply) -> tuple:
    usage = {"promptTokenCount": r.usage["input"], "candidatesTokenCount": r.usage["output"],
             "totalTokenCount": r.usage["input"] + r.usage["output"]}
    stop = {"stop": "STOP", "tools": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}[r.stop]

    def chunk(parts: list, fin: str | None = None) -> dict:
        c: dict = {"index": 0, "content": {"role": "model", "parts": parts}}
        if fin:
            c["finishReason"] = fin
        return {"candidates": [c], "usageMetadata": usage, "modelVersion": ask.model,
                "responseId": uuid.uuid4().hex[:16]}

    fparts = [{"functionCall": {"id": i, "name": n, "args": a if isinstance(a, dict) else {"_bad": a}}}
              for i, n, a in r.calls]
    if not ask.stream:
        return chunk(([{"text": r.text}] if r.text else []) + fparts, stop), []
    ev = [(None, chunk([{"text": p}])) for p in pieces(r.text, 60)]
    ev += [(None, chunk([p])) for p in fparts]
    if ev:
        ev[-1][1]["candidates"][0]["finishReason"] = stop
    else:
        ev = [(None, chunk([], stop))]
    return None, ev


ANSWERS = {"chat": chat_answer, "responses": responses_answer, "anthropic": anthropic_answer, "gemini": gemini_answer}


# --------------------------------------------------------------------------------------------------
# HTTP
# --------------------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "fakemodel/1"
    fake: "FakeModel"

    def log_message(self, *a: Any) -> None:
        pass

    # -- plumbing
    def _json(self, status: int, body: Any, headers: dict | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for k, v in (headers or {}).items():
            self.send_header(k, str(v))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _raw(self, status: int, data: bytes, ctype: str) -> None:
        self.send_response(status)
        self.send_header("content-type", ctype)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _rst(self) -> None:
        """Close with a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            out = b""
            while True:
                n = int(self.rfile.readline().split(b";")[0] or b"0", 16)
                out += self.rfile.read(n)
                self.rfile.readline()
                if n == 0:
                    return out
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        enc = self.headers.get("content-encoding", "")
        if enc == "gzip":
            import gzip

            data = gzip.decompress(data)
        elif enc == "zstd":
            import zstandard  # only if a client compresses so

            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        return data

    def _who(self) -> tuple:
        u = urlsplit(self.path)
        path, tag = u.path, ""
        m = re.match(r"^/@([^/]+)(/.*)?$", path)
        if m:
            tag, path = m.group(1), m.group(2) or "/"
        q = parse_qs(u.query)
        key = (self.headers.get("x-api-key") or self.headers.get("x-goog-api-key")
               or (self.headers.get("authorization") or "").split(" ")[-1] or (q.get("key") or [""])[0])
        return path, tag, key, q

    # -- verbs
    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        path, tag, key, _ = self._who()
        f = self.fake
        if path == "/__health":
            return self._json(200, {"ok": True})
        if path == "/__log":
            return self._json(200, f.log())
        if path == "/__stats":
            return self._json(200, f.stats())
        f.note({"api": "other", "method": "GET", "path": path, "tag": tag})
        if re.search(r"/models$", path):
            names = f.script.data.get("models") or ["fake-1"]
            return self._json(200, {"object": "list", "has_more": False, "data": [
                {"id": n, "object": "model", "type": "model", "display_name": n, "created": 1, "owned_by": "fake",
                 "created_at": "2025-01-01T00:00:00Z"} for n in names],
                "models": [{"name": "models/" + n, "displayName": n, "inputTokenLimit": 1000000,
                            "supportedGenerationMethods": ["generateContent"]} for n in names]})
        return self._json(404, {"error": {"message": "not here: " + path, "type": "not_found_error", "code": 404}})

    def do_POST(self) -> None:
        path, tag, key, q = self._who()
        f = self.fake
        try:
            data = self._body()
        except Exception as e:
            return self._json(400, {"error": {"message": f"unreadable body: {e}"}})
        if path == "/__script":
            f.script = Script(json.loads(data))
            return self._json(200, {"ok": True})
        if path == "/__reset":
            f.reset()
            return self._json(200, {"ok": True})
        try:
            body = json.loads(data or b"{}")
        except ValueError:
            f.note({"api": "other", "method": "POST", "path": path, "tag": tag, "bytes": len(data)})
            return self._json(400, {"error": {"message": "not JSON"}})
        base = {"path": path, "tag": tag, "key": key}
        m = re.search(r"/models/([^/:]+):(\w+)$", path)
        if path.endswith("/chat/completions"):
            ask = parse_chat(body, base)
        elif path.endswith("/responses") or path.endswith("/responses/compact"):
            ask = parse_responses(body, base)
        elif path.endswith("/messages"):
            ask = parse_anthropic(body, base)
        elif path.endswith("/messages/count_tokens"):
            return self._json(200, {"input_tokens": len(data) // 4})
        elif m and m.group(2) == "countTokens":
            return self._json(200, {"totalTokens": len(data) // 4})
        elif m:
            ask = parse_gemini(body, base, m.group(1), m.group(2).startswith("stream"))
        else:
            f.note({"api": "other", "method": "POST", "path": path, "tag": tag, "body": body})
            return self._json(404, {"error": {"message": "not here: " + path, "type": "not_found_error"}})
        with f.busy():
            self._answer(ask)

    def _answer(self, ask: Ask) -> None:
        f = self.fake
        pick = f.script.pick(ask)
        fault = next((a for a in pick.actions if "fault" in a), None)
        entry = {"api": ask.api, "path": ask.path, "tag": ask.tag, "key": ask.key, "model": ask.model,
                 "stream": ask.stream, "rule": pick.rule, "step": pick.step, "turns": len(ask.turns),
                 "tools": sorted(ask.tools), "prompt": next((t.text for t in reversed(ask.turns) if t.role == "user"), "")[-300:],
                 "last_tool": next((t.text for t in reversed(ask.turns) if t.role == "tool"), "")[-300:],
                 "agent": self.headers.get("user-agent", ""), "fault": fault and fault["fault"]}
        if f.keep_bodies:
            entry["body"] = ask.raw
            entry["headers"] = {k: v for k, v in self.headers.items() if k.lower() not in ("authorization", "x-api-key")}
        f.note(entry)
        try:
            self._send(ask, pick, fault)
        except (BrokenPipeError, ConnectionResetError):
            f.note({"api": ask.api, "tag": ask.tag, "event": "client went away", "rule": pick.rule})
            self.close_connection = True

    def _send(self, ask: Ask, pick: Pick, fault: dict | None) -> None:
        kind = str(fault["fault"]) if fault else ""
        if fault and fault.get("delay"):
            self.fake.sleep(float(fault["delay"]))  # real time: a model that is slow
        if kind in FAULTS:
            status, body = error_body(ask.api, kind, fault)
            h = dict(fault.get("headers") or {})
            if "retry_after" in fault:
                h["retry-after"] = fault["retry_after"]
            return self._json(status, body, h)
        if kind == "status":
            return self._json(int(fault["status"]), fault.get("body", {"error": {"message": fault.get("message", "scripted")}}),
                              fault.get("headers"))
        if kind == "reset":
            return self._rst()
        if kind == "close":
            self.close_connection = True
            return None
        if kind == "hang":
            self._wait_gone(float(fault.get("seconds", 3600)))
            return self._rst()
        if kind == "blank":
            return self._raw(200, b"", "text/event-stream" if ask.stream else "application/json")
        if kind == "malformed":
            ct = "text/event-stream" if ask.stream else "application/json"
            return self._raw(200, b'data: {"id": "x", "choices": [{"del\n\ndata: not json\n\n' if ask.stream
                             else b'{"id": "x", "choices": [{"mess', ct)
        if kind == "html":
            return self._raw(200, b"<html><body>Welcome to the captive portal</body></html>", "text/html")
        reply = Reply(usage={"input": 10, "output": 0}) if kind == "empty" else build(ask, pick)
        if reply.delay:
            self.fake.sleep(reply.delay)  # real time: a model that is slow
        body, events = ANSWERS[ask.api](ask, reply)
        if body is not None:
            if reply.cut:
                if reply.cut == "stall":
                    self._wait_gone(reply.seconds)
                return self._rst()
            return self._json(200, body, {"request-id": "req_" + uuid.uuid4().hex[:12]})
        self._stream(ask, reply, events)

    def _stream(self, ask: Ask, r: Reply, events: list) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("request-id", "req_" + uuid.uuid4().hex[:12])
        self.end_headers()

        def put(name: str | None, payload: Any) -> None:
            text = payload if isinstance(payload, str) else json.dumps(payload)
            line = (f"event: {name}\n" if name else "") + f"data: {text}\n\n"
            b = line.encode()
            self.wfile.write(f"{len(b):x}\r\n".encode() + b + b"\r\n")
            self.wfile.flush()

        stop_at = max(2, len(events) // 2) if r.cut else len(events)
        for n, (name, payload) in enumerate(events):
            if n == stop_at and r.cut:
                break
            put(name, payload)
            if r.chunk_delay:
                self.fake.sleep(r.chunk_delay)  # real time: a model that is slow
        if r.cut == "cut":
            return self._rst()
        if r.cut == "stall":
            self._wait_gone(r.seconds)
            return self._rst()
        if r.cut == "stream_error":
            if ask.api == "anthropic":
                put("error", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded (scripted)"}})
            elif ask.api == "responses":
                put("response.failed", {"type": "response.failed", "sequence_number": 999, "response": {
                    "id": "resp_x", "object": "response", "status": "failed", "output": [],
                    "error": {"code": "rate_limit_exceeded", "message": "Rate limit reached. Please try again in 1s. (scripted)"}}})
            else:
                put(None, {"error": {"message": "Overloaded (scripted)", "type": "server_error", "code": 503}})
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _wait_gone(self, seconds: float) -> None:
        """Say nothing until the time is up, the client leaves, or the server stops."""
        end = time.time() + seconds
        self.connection.settimeout(0.5)
        while time.time() < end and not self.fake.stopping.is_set():
            try:
                if self.connection.recv(1, socket.MSG_PEEK) == b"":
                    self.fake.note({"event": "client went away", "after": round(time.time() - end + seconds, 1)})
                    return
                time.sleep(0.2)  # real time: a model that is slow
            except socket.timeout:
                continue
            except OSError:
                self.fake.note({"event": "client went away", "after": round(time.time() - end + seconds, 1)})
                return


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        e = sys.exc_info()[1]
        if not isinstance(e, (ConnectionError, TimeoutError, ValueError, OSError)):
            super().handle_error(request, client_address)


class FakeModel:
    """The server as an object: `with FakeModel(script) as m: run([...], base_url=m.url + '/v1')`."""

    def __init__(self, script: dict | str | None = None, port: int = 0, log_path: str | None = None,
                 keep_bodies: bool = False):
        self.script = Script(load_script(script) if isinstance(script, str) else script)
        self.keep_bodies = keep_bodies
        self.stopping = threading.Event()
        self._log: list = []
        self._lock = threading.Lock()
        self._now = 0
        self._peak = 0
        self._file = open(log_path, "a", encoding="utf-8") if log_path else None
        handler = type("BoundHandler", (Handler,), {"fake": self})
        self.http = _Server(("127.0.0.1", port), handler)
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def note(self, entry: dict) -> None:
        entry = {"at": round(time.time(), 3), **entry}
        with self._lock:
            self._log.append({k: v for k, v in entry.items() if k not in ("body", "headers")} if self._file else entry)
            if self._file:
                self._file.write(json.dumps(entry) + "\n")
                self._file.flush()

    def log(self) -> list:
        with self._lock:
            return list(self._log)

    def stats(self) -> dict:
        log = self.log()
        rules: dict = {}
        for e in log:
            if "rule" in e and "event" not in e:
                rules[e["rule"]] = rules.get(e["rule"], 0) + 1
        return {"requests": len(log), "rules": rules, "peak_concurrency": self._peak, "now": self._now}

    def reset(self) -> None:
        with self._lock:
            self._log.clear()
            self._peak = self._now
        self.script.used.clear()

    def sleep(self, seconds: float) -> None:
        self.stopping.wait(seconds)

    def busy(self) -> "_Busy":
        return _Busy(self)

    def start(self) -> "FakeModel":
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def stop(self) -> None:
        self.stopping.set()
        self.http.shutdown()
        self.http.server_close()
        if self._file:
            self._file.close()

    __enter__ = start

    def __exit__(self, *a: Any) -> None:
        self.stop()


class _Busy:
    def __init__(self, f: FakeModel):
        self.f = f

    def __enter__(self) -> None:
        with self.f._lock:
            self.f._now += 1
            self.f._peak = max(self.f._peak, self.f._now)

    def __exit__(self, *a: Any) -> None:
        with self.f._lock:
            self.f._now -= 1


def main() -> None:
    p = argparse.ArgumentParser(description="scripted model server, loopback only")
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--script", help="JSON or YAML script; without it every tool-capable request gets 'OK.'")
    p.add_argument("--log", help="append each request as a JSON line")
    p.add_argument("--bodies", action="store_true", help="keep whole request bodies in the log")
    p.add_argument("--port-file", help="write the port here once listening")
    a = p.parse_args()
    m = FakeModel(a.script, a.port, a.log, a.bodies)
    if a.port_file:
        with open(a.port_file, "w", encoding="utf-8") as f:
            f.write(str(m.port))
    print(f"listening on {m.url}", flush=True)
    try:
        m.http.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        pass
    finally:
        m.stopping.set()


if __name__ == "__main__":
    main()
