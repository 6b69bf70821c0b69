"""The connection to an agent program: requests with a limit, and answers to what the program asks for.

No file system and no terminal are announced, so a program that asks for them is refused, and that is recorded.
Permission is given by kind; ids and names differ between programs.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from acp import AGENT_METHODS, CLIENT_METHODS, RequestError
from acp.connection import Connection

from hivekeeper.runners.reading import as_list, as_text
from hivekeeper.worker.agent import AgentProcess
from hivekeeper.worker.records import Records
from hivekeeper.worker.transcript import Transcript

PROMPT, CANCEL = AGENT_METHODS["session_prompt"], AGENT_METHODS["session_cancel"]
STEER, STEER_GOOSE, DRAIN = "_session/steering", "_goose/unstable/session/steer", "craft/drainMidTurnQueue"
MAX_REFUSED = 100
LAST_FRAMES_S, LOOK_EVERY_S = 0.5, 0.1
_ALLOWING = ("allow_once", "allow_always")


class LostAgentError(Exception):
    """The program has ended, or is not listened to any more."""


class LateAgentError(Exception):
    """The program did not answer in time."""


class Link:
    """An agent program to talk to; `drain` gives the messages that it asks for in the middle of a turn."""

    drain: Callable[[], list[str]] = list

    def __init__(self, agent: AgentProcess, transcript: Transcript, records: Records) -> None:
        self.agent, self.transcript = agent, transcript
        self.is_cancelling = False
        self.refused = 0  # one after another, with no tool call that ended in between
        self._refused_after = 0
        self.heard_s = self._now_s()
        self.can_steer = False
        self.session = ""
        self._records = records
        self._connection = Connection(self._handle, agent.frames)

    def begin(self, method: str, params: dict[str, Any]) -> asyncio.Task[Any]:
        """Send a request whose answer is waited for elsewhere."""
        return asyncio.create_task(self._connection.send_request(method, params))

    async def ask(self, method: str, params: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Send a request and return its answer."""
        task, deadline = self.begin(method, params), self._now_s() + within_s
        while not (await asyncio.wait({task}, timeout=LOOK_EVERY_S))[0]:
            if self.agent.returncode is not None:
                await asyncio.wait({task}, timeout=LAST_FRAMES_S)
                break
            if self._now_s() > deadline:
                task.cancel()
                raise LateAgentError(f"it did not answer {method} within {within_s:g} s")
        if not task.done():
            task.cancel()
            raise LostAgentError("it has ended")
        return self.read(task)

    def read(self, task: asyncio.Task[Any]) -> dict[str, Any]:
        """Read the answer to a request that is done; RequestError for an error answer."""
        try:
            result = task.result()
        except ConnectionError as error:
            raise LostAgentError(self.agent.frames.problem or str(error)) from error
        return result if isinstance(result, dict) else {}

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        try:
            await self._connection.send_notification(method, params)
        except ConnectionError as error:
            raise LostAgentError(str(error)) from error

    async def steer(self, text: str, within_s: float) -> str | None:
        """Give words to the running turn; return their id, "" if they have none, or None if they were not taken."""
        params: dict[str, Any] = {"sessionId": self.session, "prompt": [{"type": "text", "text": text}]}
        try:
            if self.can_steer:
                result = await self.ask(STEER, params, within_s)
                return "" if result.get("outcome") == "injected" else None
            if run_id := self.transcript.run_id:
                result = await self.ask(STEER_GOOSE, {**params, "expectedRunId": run_id}, within_s)
                return as_text(result.get("messageId"))
        except (RequestError, LateAgentError):
            pass
        return None

    async def close(self) -> None:
        """Stop listening."""
        await self._connection.close()

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:  # noqa: ANN401, FBT001 - JSON; the connection's own signature
        # Updates arrive in order as long as nothing is awaited here.
        self.heard_s = self._now_s()
        params = params if isinstance(params, dict) else {}
        if method == CLIENT_METHODS["session_update"]:
            update = params.get("update")
            if isinstance(update, dict) and params.get("sessionId") in (self.session, None):
                self.transcript.take_update(update, self.heard_s)
            return None
        if method == CLIENT_METHODS["session_request_permission"]:
            return {"outcome": self._decide_permission(params)}
        if method == DRAIN:
            return {"messages": self.drain(), "hasQueuedPrompt": False}
        if not is_notification:
            ended = len(self.transcript.boundaries)
            self.refused = self.refused + 1 if ended == self._refused_after else 1
            self._refused_after = ended
            subject = as_text(params.get("path") or params.get("command") or "")[:200]
            self._records.write("refused", text=f"it asked for {method} {subject}".rstrip())
            raise RequestError.method_not_found(method)
        return None

    def _decide_permission(self, params: dict[str, Any]) -> dict[str, str]:
        options = [option for option in as_list(params.get("options")) if isinstance(option, dict)]
        for kind in () if self.is_cancelling else _ALLOWING:
            for option in options:
                if option.get("kind") == kind:
                    return {"outcome": "selected", "optionId": as_text(option.get("optionId"))}
        return {"outcome": "cancelled"}

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
