"""An agent program that speaks the Agent Client Protocol, and does what its prompts and its habit tell it.

A habit is the first argument. A prompt may hold lines of JSON, each a step: {"update": …} is sent, {"ask": …} asks the
client, {"run": COMMAND} runs a command and waits for it, {"wait_for": FILE} waits until a file is there or the turn is
cancelled, {"answer": …} ends the turn so. It notes what it was sent in the file `sent` in its home.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HABIT = sys.argv[1] if len(sys.argv) > 1 else ""
HOME = Path(os.environ["HOME"])
MODES = {
    "currentModeId": "auto" if HABIT == "automatic" else "default",
    "availableModes": [
        {"id": mode} for mode in ("default", "auto", *(["always-approve"] if HABIT == "approving" else []))
    ],
}
lock, cancelled = threading.Lock(), threading.Event()
answers: dict[str, dict[str, Any]] = {}
answered = threading.Condition()


def send(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def note(what: dict[str, Any]) -> None:
    with lock, (HOME / "sent").open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), **what}) + "\n")


def update(session: str, fields: dict[str, Any]) -> None:
    send({"method": "session/update", "params": {"sessionId": session, "update": fields}})


def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    number = f"ask-{len(answers)}-{time.monotonic_ns()}"
    send({"id": number, "method": method, "params": params})
    with answered:
        answered.wait_for(lambda: number in answers, 10)
    return answers.get(number, {})


def take_turn(request: int, session: str, text: str) -> None:
    result: dict[str, Any] = {"result": {"stopReason": "end_turn"}}
    for line in text.splitlines():
        step = json.loads(line) if line.startswith("{") else {}
        match step:
            case {"update": fields}:
                update(session, fields)
            case {"ask": [method, params]}:
                note({"told": ask(method, {"sessionId": session, **params})})
            case {"run": command}:
                subprocess.run(("sh", "-c", command), check=False)
            case {"start": command}:
                subprocess.Popen(("sh", "-c", command))
            case {"wait_for": path}:
                while not Path(path).exists() and (HABIT == "deaf" or not cancelled.is_set()):
                    time.sleep(0.02)  # real time: the test makes the file
            case {"answer": answer}:
                result = answer
            case {"die": code}:
                os._exit(code)
    if cancelled.is_set() and HABIT != "deaf":
        result = {"result": {"stopReason": "cancelled"}}
    send({"id": request, **result})


def handle(message: dict[str, Any]) -> None:
    method, params = message.get("method"), message.get("params") or {}
    if method is None:
        with answered:
            answers[message["id"]] = message
            answered.notify_all()
        return
    note({"method": method, "params": params})
    session = params.get("sessionId", "fake-1")
    match method:
        case "initialize":
            initialize(message)
        case "session/new":
            if HABIT == "signed-out":
                send({"id": message["id"], "error": {"code": -32000, "message": "Authentication required"}})
                return
            send({"id": message["id"], "result": {"sessionId": "fake-1", "modes": MODES}})
        case "session/load" if HABIT == "forgetful":
            send({"id": message["id"], "error": {"code": -32002, "message": "Resource not found"}})
        case "session/load":
            update(session, {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "old words"}})
            send({"id": message["id"], "result": {"modes": MODES}})
        case "session/prompt":
            cancelled.clear()
            text = params["prompt"][0]["text"]
            threading.Thread(target=take_turn, args=(message["id"], session, text), daemon=True).start()
        case "session/cancel":
            cancelled.set()
        case "_session/steering":
            send({"id": message["id"], "result": {"outcome": "injected"}})
        case _:
            send({"id": message["id"], "result": {}})


def initialize(message: dict[str, Any]) -> None:
    match HABIT:
        case "silent":
            return
        case "chatty":
            sys.stdout.write("Hello! How can I help you today?\n" * 3)
            sys.stdout.flush()
            return
        case "flood":
            while True:
                sys.stdout.write("nonsense\n")
        case "other ids":
            send({"id": 999, "result": {"protocolVersion": 1}})
            return
        case "endless line":
            while True:
                sys.stdout.write("x" * (1 << 20))
        case "closed":
            os.close(1)
            time.sleep(60)  # real time: it goes on without its pipe
        case "crash":
            sys.stderr.write("Segmentation fault of sorts\n")
            sys.exit(3)
    version = 2 if HABIT == "newer" else 1
    capabilities = {"loadSession": True, "_meta": {"steering": {"supported": HABIT == "steered"}}}
    send({"id": message["id"], "result": {"protocolVersion": version, "agentCapabilities": capabilities}})


for line in sys.stdin:
    handle(json.loads(line))
if HABIT == "stays":
    time.sleep(60)  # real time: it does not end with its input
