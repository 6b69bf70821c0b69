"""A worker's sandbox with a mailbox, and an agent program in it that does what its prompt says."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.domain.report import Outcome, Report
from hivekeeper.domain.runner import Runner
from hivekeeper.runners import make_reader
from hivekeeper.runners.acp import speak_acp
from hivekeeper.runners.reading import Lines
from hivekeeper.worker.acp import Driver
from hivekeeper.worker.records import Records

AGENT = Path(__file__).with_name("fake_agent.py")
LOOK_AGAIN_S = 0.02
Step = dict[str, Any]


def write_steps(*steps: Step) -> str:
    """Write what the agent does as a prompt."""
    return "\n".join(["Do this:", *map(json.dumps, steps), ""])


def say(text: str, message: str = "m1") -> Step:
    content = {"type": "text", "text": text}
    return {"update": {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": message}}


def call(key: str, status: str = "in_progress", kind: str = "tool_call") -> Step:
    return {"update": {"sessionUpdate": kind, "toolCallId": key, "title": f"call {key}", "status": status}}


def use(tokens: int) -> Step:
    return {"update": {"sessionUpdate": "usage_update", "used": tokens, "size": 1000}}


def end_call(key: str) -> Step:
    return call(key, "completed", "tool_call_update")


class Running:
    """A driver at work on a prompt, in a thread; its agent is a process."""

    def __init__(self, desk: "WorkerDesk", driver: Driver, prompt: str) -> None:
        self._desk = desk
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[Outcome] = self._loop.create_task(driver.run(prompt))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_until_complete(self._task)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def stop(self) -> None:
        """Stop it, as SIGTERM does."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def wait(self, within_s: float = 20.0) -> Report:
        """Wait for its end, and read what it recorded as the hive would."""
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"not in {within_s} s\n{self._desk.output.read_text()}"
        return read_report(self._desk.output, 0)


def read_report(output: Path, status: int) -> Report:
    """Read what a session came to."""
    reader, lines = make_reader(speak_acp(Runner("fake", ""), "fake")), Lines()
    for line in (*lines.feed(output.read_bytes()), *lines.end()):
        reader.take(line)
    return reader.report(status, "exit", must_act=False)


class WorkerDesk:
    """A worker's home, mailbox and work directory."""

    def __init__(self, top: Path) -> None:
        self.home, self.work, self.mailbox, self.output = top / "home", top / "work", top / "mail", top / "output"
        for path in (self.home, self.work, self.mailbox / "inbox" / ".done"):
            path.mkdir(parents=True)
        self._count = 0
        self._said = self.output.open("a")

    def close(self) -> None:
        self._said.close()

    @property
    def environment(self) -> dict[str, str]:
        """What a run is given."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "HIVE_HOME": str(self.home),
            "HIVE_MAILBOX": str(self.mailbox),
            "HIVE_PYTHON": sys.executable,
        }

    def make_command(self, habit: str, name: str = "fake") -> list[str]:
        """Make the command of the agent; the name by which a program is known is that of its file."""
        agent = self.home.parent / name
        agent.unlink(missing_ok=True)
        agent.symlink_to(AGENT)
        return [sys.executable, str(agent), habit]

    def start(self, habit: str, prompt: str, *options: str, session: str = "", name: str = "fake") -> Running:
        """Start to work on a prompt."""
        loads = ("--load", session) if session else ()
        arguments = ["--urgent", "HANDOFF", *loads, *options, "--", *self.make_command(habit, name)]
        return Running(self, Driver(arguments, Records(self._said), self.environment, self.work), prompt)

    def send(self, text: str, kind: str = "inform", sender: str = "c.worker-2") -> str:
        """Put a message into the inbox, as the hive does; return its name there."""
        self._count += 1
        name = f"{self._count:09d}-{kind}.json"
        letter = {"id": f"c/a/mail-{self._count}", "type": kind, "sender": sender, "payload": {"text": text}}
        draft = self.mailbox / "inbox" / f".{name}"
        draft.write_text(json.dumps(letter))
        draft.rename(draft.with_name(name))
        return name

    def is_acknowledged(self, name: str) -> bool:
        return (self.mailbox / "inbox" / ".done" / name).exists()

    def read_records(self) -> list[dict[str, Any]]:
        whole = self.output.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def list_sent(self, method: str = "") -> list[dict[str, Any]]:
        """List what the agent was sent."""
        path = self.home / "sent"
        sent = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [each for each in sent if not method or each.get("method") == method]

    def list_prompts(self) -> list[str]:
        return [each["params"]["prompt"][0]["text"] for each in self.list_sent("session/prompt")]

    def wait_for(self, what: str, is_so: Callable[[], bool], within_s: float = 15.0) -> None:
        deadline = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: not in {within_s} s\n{self.output.read_text()}"
            time.sleep(LOOK_AGAIN_S)  # real time: other processes work


DONE_BY = [call("t1"), end_call("t1"), say("Made it.")]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[WorkerDesk]:
    """A worker's place."""
    made = WorkerDesk(tmp_path)
    yield made
    made.close()


@contextmanager
def ended(running: Running) -> Iterator[Running]:
    """End it at the end, whatever happens."""
    try:
        yield running
    finally:
        running.stop()
