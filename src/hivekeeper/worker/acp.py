"""Drives an agent program over the Agent Client Protocol: `python -m hivekeeper.worker.acp OPTIONS -- COMMAND`.

It is the command of a run, so it lives in the worker's sandbox and outlives the keeper. It reads its prompt from
standard input and prints records (`records.py`). It ends when a turn has ended and the inbox is empty.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hivekeeper.clock import SystemClock
from hivekeeper.domain.report import Outcome
from hivekeeper.runners.acp import FRAMES_FILE, SERVERS_FILE, STATE_FILE, find_program
from hivekeeper.runners.acp_classes import Remedy, Verdict
from hivekeeper.worker.agent import EOF_WAIT_S, AgentProcess, start_agent
from hivekeeper.worker.inbox import Inbox, Letter
from hivekeeper.worker.link import Link, LostAgentError
from hivekeeper.worker.memory import Memory
from hivekeeper.worker.opening import Clocks, FailedError, Opening
from hivekeeper.worker.records import Records
from hivekeeper.worker.transcript import Transcript
from hivekeeper.worker.turns import CONTINUE, URGENT, Turns, describe_mail

MAX_RELOADS = 2
OWN_VARIABLES = ("HIVE_PYTHON",)
BROKEN_WAIT_S = 1.0
LOOK_FIRST = "Your last turn was cut off. Look at the state of your work tree first (git status, git log).\n\n"
LOST = (
    "# What was done so far\n\nAn earlier session began this task in this directory, and its conversation is lost. "
    "Its work is here, in the files and in git's log. Look at it first, keep what is good, and continue from there.\n\n"
)


def main() -> None:
    """Work on the prompt, and print how that ended."""
    logging.disable()  # what matters of a connection is in the records
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    driver = Driver(sys.argv[1:], Records(sys.stdout), dict(os.environ), Path.cwd())
    outcome = asyncio.run(_run_until_stopped(driver, prompt))
    sys.exit(0 if outcome is Outcome.DONE else 1)


async def _run_until_stopped(driver: "Driver", prompt: str) -> Outcome:
    task = asyncio.create_task(driver.run(prompt))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


class Driver:
    """Starts the program, opens the session, works, and ends the program; again if its session must be loaded anew."""

    def __init__(
        self, arguments: Sequence[str], records: Records, environment: Mapping[str, str], directory: Path
    ) -> None:
        options = self._options = _parse(arguments)
        self._records, self._directory, self._home = records, directory, Path(environment["HOME"])
        self._environment = {name: value for name, value in environment.items() if name not in OWN_VARIABLES}
        self._program = find_program(options.command)
        self._memory = Memory(self._home / STATE_FILE, SystemClock())
        self._inbox = Inbox(environment.get("HIVE_MAILBOX", ""), options.urgent.split(","))
        self._transcript = Transcript(records, self._program.usage, self._memory.used)
        self._clocks = Clocks(options.start, options.open, options.silence, options.tool, options.turn, options.cancel)

    async def run(self, prompt: str) -> Outcome:
        """Work on a prompt, and record how that ended."""
        try:
            verdict = await self._work(prompt)
        except asyncio.CancelledError:
            verdict = Verdict(Outcome.KILLED, "it was stopped")
        ending = {"class": verdict.outcome.value, "words": verdict.words, "retry_s": verdict.retry_s}
        self._records.write("end", **ending)
        return verdict.outcome

    async def _work(self, prompt: str) -> Verdict:
        letters: Sequence[Letter] = [letter for letter in self._inbox.list() if letter.is_in(prompt)]
        session = self._options.load
        verdict = await self._work_once(prompt, letters, session)
        for _ in range(MAX_RELOADS):
            if verdict.remedy is not Remedy.RELOAD:
                break
            session = self._memory.session
            letters = self._inbox.list()
            prompt = describe_mail(letters, URGENT) if letters else CONTINUE
            verdict = await self._work_once(prompt, letters, session)
        return verdict

    async def _work_once(self, prompt: str, letters: Sequence[Letter], session: str) -> Verdict:
        command, keep = self._options.command, self._home / FRAMES_FILE
        try:
            agent = await start_agent(command, self._environment, self._directory, self._records.log, keep)
        except OSError as error:
            return Verdict(Outcome.SETUP, f"{self._options.command[0]} cannot be started: {error.strerror}")
        wait_s = BROKEN_WAIT_S
        try:
            verdict = await self._talk(agent, prompt, letters, session)
            wait_s = EOF_WAIT_S  # some need a while to write down their session
        except FailedError as failed:
            return failed.verdict
        except LostAgentError as lost:
            return Verdict(Outcome.CRASHED, str(lost))
        finally:
            await agent.end(eof_wait_s=wait_s)
        return verdict

    async def _talk(self, agent: AgentProcess, prompt: str, letters: Sequence[Letter], session: str) -> Verdict:
        link = Link(agent, self._transcript, self._records)
        turns = Turns(link, self._records, self._inbox, self._memory, self._program, self._clocks)
        link.drain = turns.drain
        opening = Opening(link, self._records, self._memory, self._program, self._clocks)
        was_cut_off, task = self._memory.is_in_turn, self._memory.task
        try:
            is_loaded = await opening.open(str(self._directory), _read_servers(self._home / SERVERS_FILE), session)
            if is_loaded and was_cut_off:
                prompt = f"{LOOK_FIRST}{prompt}"
            elif session and not is_loaded and task:
                prompt = f"{task}\n\n{LOST}{prompt}"
            return await turns.work(prompt, letters)
        finally:
            await link.close()


def _read_servers(path: Path) -> dict[str, Any]:
    """Read the MCP servers that the program is to be given."""
    try:
        read = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    servers = read.get("mcpServers") if isinstance(read, dict) else None
    return servers if isinstance(servers, dict) else {}


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    known = Clocks()
    parser = argparse.ArgumentParser(prog="hivekeeper.worker.acp", description="Drive an agent program over ACP.")
    parser.add_argument("--load", default="", metavar="SESSION", help="the session to continue")
    parser.add_argument("--urgent", default="", metavar="TYPES", help="types of messages that cancel a turn")
    parser.add_argument("--start", type=float, default=known.start_s, help="seconds to initialize")
    parser.add_argument("--open", type=float, default=known.open_s, help="seconds to open or load a session")
    parser.add_argument(
        "--silence", type=float, default=known.silence_s, help="seconds in which a model may say nothing"
    )
    parser.add_argument("--tool", type=float, default=known.tool_s, help="seconds in which a tool call may say nothing")
    parser.add_argument("--turn", type=float, default=None, help="seconds that a turn may take")
    parser.add_argument("--cancel", type=float, default=known.cancel_s, help="seconds to react to a cancel")
    parser.add_argument("command", nargs="+", help="the program's own command")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
