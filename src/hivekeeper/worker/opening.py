"""Opening a session over the Agent Client Protocol: the one wanted, or else a new one.

Everything that goes wrong here has an outcome and words: a program that cannot be started, does not speak the protocol,
is not signed in, or does not offer full permission.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acp import AGENT_METHODS, PROTOCOL_VERSION, RequestError

from hivekeeper.domain.report import Outcome
from hivekeeper.runners.acp import Program
from hivekeeper.runners.acp_classes import Answer, Verdict, classify
from hivekeeper.runners.reading import as_list, as_text, at
from hivekeeper.worker.link import LateAgentError, Link, LostAgentError
from hivekeeper.worker.memory import Memory
from hivekeeper.worker.records import Records
from hivekeeper.worker.transcript import find_model

LOOK_EVERY_S = 0.25
QUIET_S, LONGEST_QUIET_S = 1.0, 20.0  # some programs go on replaying after they have answered


@dataclass(frozen=True, slots=True)
class Clocks:
    """How long each thing may take, in seconds; None is no limit."""

    start_s: float = 30.0
    open_s: float = 120.0
    silence_s: float | None = 570.0
    tool_s: float | None = 3420.0
    turn_s: float | None = None
    cancel_s: float = 10.0


class FailedError(Exception):
    """The session cannot be worked on."""

    def __init__(self, outcome: Outcome, words: str) -> None:
        super().__init__(words)
        self.verdict = Verdict(outcome, words)


class Opening:
    """The opening of a session with a program that was started for it."""

    def __init__(self, link: Link, records: Records, memory: Memory, program: Program, clocks: Clocks) -> None:
        self._link, self._records, self._memory, self._program, self._clocks = link, records, memory, program, clocks
        self._transcript = link.transcript
        self._name = ""

    async def open(self, directory: str, servers: Mapping[str, Any], wanted: str) -> bool:
        """Open the wanted session, or a new one; return whether it is the wanted one. FailedError says why not."""
        capabilities = await self._initialize()
        given = {name: server for name, server in servers.items() if isinstance(server, dict)}
        listed = [{"name": name, **server, "env": []} for name, server in given.items()]
        place: dict[str, Any] = {"cwd": directory, "mcpServers": listed}
        answer = await self._load(capabilities, place, wanted) if wanted else None
        is_loaded = answer is not None
        if answer is None:
            answer = await self._ask("session_new", place)
            self._link.session = as_text(answer.get("sessionId"))
            if not self._link.session:
                raise FailedError(Outcome.SETUP, "it gave no id of a session")
        if not is_loaded:
            self._transcript.begin_session()
        await self._set_mode(answer, is_loaded=is_loaded)
        self._memory.open(self._link.session, is_new=not is_loaded)
        self._records.write(
            "session", id=self._link.session, loaded=is_loaded, model=find_model(answer), program=self._name
        )
        return is_loaded

    async def _initialize(self) -> dict[str, Any]:
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "hivekeeper", "version": "1"},
        }
        try:
            answer = await self._link.ask(AGENT_METHODS["initialize"], params, self._clocks.start_s)
        except LateAgentError as late:
            spoke = self._link.agent.frames.nonsense
            why = (
                "it does not speak the Agent Client Protocol: what it writes are no messages of it"
                if spoke
                else str(late)
            )
            raise FailedError(Outcome.SETUP if spoke else Outcome.CRASHED, why) from late
        except LostAgentError as lost:
            raise FailedError(Outcome.SETUP, self._link.agent.frames.problem) from lost
        except RequestError as error:
            raise FailedError(Outcome.SETUP, f"it refused to initialize: {error}") from error
        if answer.get("protocolVersion") != PROTOCOL_VERSION:
            found = str(answer.get("protocolVersion"))[:40]
            said = f"version {found} of the Agent Client Protocol, and the hive speaks {PROTOCOL_VERSION}"
            raise FailedError(Outcome.SETUP, f"it speaks {said}")
        names = [at(answer, "agentInfo", key) for key in ("name", "version")]
        self._name = " ".join(as_text(name) for name in names if name)
        capabilities = answer.get("agentCapabilities")
        capabilities = capabilities if isinstance(capabilities, dict) else {}
        steering = (at(each, "_meta", "steering", "supported") for each in (answer, capabilities))
        self._link.can_steer = any(value is True for value in steering)
        return capabilities

    async def _load(self, capabilities: dict[str, Any], place: dict[str, Any], wanted: str) -> dict[str, Any] | None:
        """Load a session; None if it is lost, or must not be loaded."""
        if self._memory.is_in_turn and not self._program.loads_after_kill:
            self._records.log(f"session {wanted} was killed in a turn, which this program would repeat: a new session")
            return None
        if not self._program.loads_same_minute:
            await self._wait_for_another_minute()
        can_resume = at(capabilities, "sessionCapabilities", "resume") is not None
        if not can_resume and not capabilities.get("loadSession"):
            return None
        self._link.session, self._transcript.is_replaying = wanted, True
        before = self._transcript.frames
        try:
            answer = await self._ask("session_resume" if can_resume else "session_load", {**place, "sessionId": wanted})
            if not can_resume:
                await self._wait_until_quiet()
        except FailedError as failed:
            if failed.verdict.outcome is Outcome.AUTH:
                raise
            self._records.log(f"session {wanted} could not be loaded, so a new one begins: {failed}")
            return None
        finally:
            self._transcript.is_replaying = False
        if not can_resume and not self._program.loads_after_kill and self._transcript.frames == before:
            return None  # it takes any id for that of a new session
        return answer

    async def _wait_until_quiet(self) -> None:
        deadline, frames = self._now_s() + LONGEST_QUIET_S, -1
        while frames != self._transcript.frames and self._now_s() < deadline:
            frames = self._transcript.frames
            await asyncio.sleep(QUIET_S)

    async def _wait_for_another_minute(self) -> None:
        while self._memory.is_same_minute():  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(LOOK_EVERY_S)

    async def _set_mode(self, answer: dict[str, Any], *, is_loaded: bool) -> None:
        """Set a mode with full permission; a loaded session may have fallen back to another one."""
        offers = as_list(at(answer, "modes", "availableModes"))
        modes = [as_text(mode.get("id")) for mode in offers if isinstance(mode, dict)]
        wanted = next((mode for mode in self._program.modes if mode in modes), "")
        if self._program.modes and modes and not wanted:
            said = f"it has no mode {self._program.modes[0]}; it offers {', '.join(modes)}"
            raise FailedError(Outcome.SETUP, said)
        if not modes and is_loaded:
            wanted = next(iter(self._program.modes), "")
        if wanted and (is_loaded or at(answer, "modes", "currentModeId") != wanted):
            await self._ask("session_set_mode", {"sessionId": self._link.session, "modeId": wanted})

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask for something besides a turn."""
        try:
            return await self._link.ask(AGENT_METHODS[method], params, self._clocks.open_s)
        except RequestError as error:
            verdict = classify(Answer(error.code, str(error), error.data))
            raise FailedError(verdict.outcome, f"{AGENT_METHODS[method]}: {verdict.words}") from error
        except (LateAgentError, LostAgentError) as gone:
            raise FailedError(Outcome.CRASHED, str(gone)) from gone

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
