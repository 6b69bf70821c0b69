"""The turns of a session over the Agent Client Protocol, and the mail that the agent is given in them and in between.

Rules:
1. A program is sent one prompt at a time. Mail goes into the running turn where the program can take it there; an
   urgent message cancels the turn; all other mail is the next prompt.
2. A message is acknowledged once there is a sign that the model has read it. Until then it is given again: twice is
   better than not at all.
3. A silent model, an open tool call and a whole turn each have a clock. A turn whose time is up is cancelled.
4. What came of a turn is decided by `runners/acp_classes.py`; what may be tried once more is tried once.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from acp import RequestError

from hivekeeper.domain.report import Outcome
from hivekeeper.runners.acp import Program
from hivekeeper.runners.acp_classes import Answer, Remedy, Verdict, classify
from hivekeeper.worker.agent import kill_all
from hivekeeper.worker.inbox import Inbox, Letter
from hivekeeper.worker.link import CANCEL, MAX_REFUSED, PROMPT, Link, LostAgentError
from hivekeeper.worker.memory import Memory
from hivekeeper.worker.opening import Clocks
from hivekeeper.worker.records import Records

TICK_S, STEER_WAIT_S, LAST_FRAMES_S, SETTLE_S = 0.25, 5.0, 1.0, 0.5
CONTINUE = "Continue your task exactly where you stopped.\n"
URGENT = "Your turn was stopped because a message arrived:"
ARRIVED = "A message arrived:"
ACT = "Act on it, and continue your task if it is not finished."
_GOOD = (Outcome.DONE, Outcome.EMPTY, Outcome.REFUSED)


@dataclass(slots=True)
class Given:
    """Messages that the agent was given and that are not acknowledged yet, and what it had done by then.

    `id` is that of a steering message; one without an id was read if the model has said or done something new after
    the end of another tool call.
    """

    letters: Sequence[Letter]
    is_prompt: bool
    id: str = ""
    taken: int = 0
    boundaries: int = 0


@dataclass(slots=True)
class Turn:
    """A turn under way: why it was stopped, if it was, and which messages could not be given to it."""

    began_s: float
    processes: set[int]
    answer: asyncio.Task[Any]
    stopped: Verdict | None = None
    is_for_mail: bool = False
    is_stuck: bool = False
    not_taken: set[str] = field(default_factory=set)


class Turns:
    """The turns of an open session."""

    def __init__(
        self, link: Link, records: Records, inbox: Inbox, memory: Memory, program: Program, clocks: Clocks
    ) -> None:
        self._link, self._records, self._inbox, self._memory = link, records, inbox, memory
        self._program, self._clocks = program, clocks
        self._transcript = link.transcript
        self._given: list[Given] = []

    async def work(self, prompt: str, letters: Sequence[Letter] = ()) -> Verdict:
        """Work on a prompt, which contains these messages, and on all mail that comes; return how it ended."""
        tried: set[Remedy] = set()
        was_done = False
        while True:
            turn, verdict = await self._take_turn(prompt, letters)
            was_done = was_done or verdict.outcome is Outcome.DONE
            if was_done and verdict.outcome is Outcome.EMPTY:  # not every message needs an answer
                verdict = Verdict(Outcome.DONE)
            if verdict.remedy is Remedy.RELOAD:
                return verdict
            letters = self._inbox.list()
            if turn.is_for_mail and not letters:  # the agent has taken it from the inbox itself
                prompt = CONTINUE
            elif letters and (turn.is_for_mail or verdict.outcome is Outcome.DONE):
                prompt = describe_mail(letters, URGENT if turn.is_for_mail else ARRIVED)
            elif verdict.remedy is Remedy.CONTINUE and not tried:
                tried.add(verdict.remedy)
                prompt, letters = CONTINUE, ()
            else:
                return verdict

    def drain(self) -> list[str]:
        """Give the mail that waits to a program that asks for it in a turn."""
        letters = [letter for letter in self._inbox.list() if not self._is_given(letter)]
        if letters:
            self._give(letters)
        return [letter.describe() for letter in letters]

    # --- one turn -----------------------------------------------------------------------------------------------------

    async def _take_turn(self, prompt: str, letters: Sequence[Letter]) -> tuple[Turn, Verdict]:
        self._memory.begin_turn(prompt)
        self._transcript.begin_turn()
        self._given.clear()
        if letters:
            self._give(letters, is_prompt=True)
        blocks = [{"type": "text", "text": prompt}]
        self._link.is_cancelling = False
        processes = self._link.agent.list_descendants()
        self._link.heard_s = self._now_s()
        answer = self._link.begin(PROMPT, {"sessionId": self._link.session, "prompt": blocks})
        turn = Turn(self._now_s(), processes, answer)
        while not (await asyncio.wait({answer}, timeout=TICK_S))[0]:
            self._records.tick(self._now_s())
            self._acknowledge()
            if self._link.agent.returncode is not None:
                await asyncio.wait({answer}, timeout=LAST_FRAMES_S)
                break
            if turn.stopped is None:
                await self._look_at_clocks(turn)
            if turn.stopped is None:
                await self._look_at_mail(turn)
            if turn.is_stuck:
                break
        self._records.flush()
        verdict = self._judge(turn)
        self._acknowledge(is_read=verdict.outcome in _GOOD)
        if turn.stopped is not None and self._program.leaves_commands:
            await self._end_left_processes(turn)
        return turn, verdict

    def _judge(self, turn: Turn) -> Verdict:
        """Say how a turn ended."""
        if not turn.answer.done():
            turn.answer.cancel()
            if turn.is_stuck and turn.stopped is not None:
                return turn.stopped
            return classify(Answer(closed=True, message="it ended in the middle of a turn"))
        answer = self._read_answer(turn)
        if answer.closed:
            return classify(answer)
        self._memory.end_turn(self._transcript.total)
        if turn.stopped is not None:
            return turn.stopped
        return classify(answer)

    def _read_answer(self, turn: Turn) -> Answer:
        text, acted = self._transcript.text, self._transcript.turn_acted
        try:
            result = self._link.read(turn.answer)
        except RequestError as error:
            return Answer(error.code, str(error), error.data, text=text, acted=acted)
        except LostAgentError as lost:
            return Answer(closed=True, message=str(lost))
        self._transcript.take_answer(result)
        return Answer(stop=str(result.get("stopReason", "")), text=text, acted=acted)

    async def _look_at_clocks(self, turn: Turn) -> None:
        """Cancel a turn whose time is up, or that asks again and again for what it may not have."""
        now_s, tool, clocks = self._now_s(), self._transcript.open_tool, self._clocks
        silent_s = now_s - self._link.heard_s
        if clocks.turn_s is not None and now_s - turn.began_s > clocks.turn_s:
            words = f"its turn took longer than {clocks.turn_s:g} s"
        elif tool and clocks.tool_s is not None and silent_s > clocks.tool_s:
            words = f"nothing was heard for {clocks.tool_s:g} s of its tool call: {tool}"
        elif not tool and clocks.silence_s is not None and silent_s > clocks.silence_s:
            silence = f"it had asked the model, and nothing came back for {clocks.silence_s:g} s"
            await self._stop(turn, Verdict(Outcome.NO_ANSWER, silence))
            return
        elif self._link.refused > MAX_REFUSED:
            words = f"it asked {self._link.refused} times for what it may not have"
        else:
            return
        await self._stop(turn, Verdict(Outcome.CRASHED, words))

    async def _stop(self, turn: Turn, verdict: Verdict) -> None:
        """Cancel a turn, and wait for the answer; without one the turn is stuck."""
        turn.stopped = verdict
        self._link.is_cancelling = True
        await self._link.notify(CANCEL, {"sessionId": self._link.session})
        turn.is_stuck = not (await asyncio.wait({turn.answer}, timeout=self._clocks.cancel_s))[0]

    async def _end_left_processes(self, turn: Turn) -> None:
        """End what a cancelled turn has left running: a shell command would go on changing files."""
        await asyncio.sleep(SETTLE_S)
        kill_all(self._link.agent.list_descendants() - turn.processes)

    # --- mail ---------------------------------------------------------------------------------------------------------

    async def _look_at_mail(self, turn: Turn) -> None:
        """Give new mail to a turn that can take it; cancel the turn for urgent mail."""
        new = [letter for letter in self._inbox.list() if not self._is_given(letter)]
        if any(letter.is_urgent for letter in new):
            turn.is_for_mail = True
            # A turn that cannot be cancelled is ended with its process; the session is loaded again.
            await self._stop(turn, Verdict(Outcome.NO_ANSWER, "it did not react to a cancel", Remedy.RELOAD))
            if not turn.is_stuck and turn.stopped is not None:
                turn.stopped = replace(turn.stopped, outcome=Outcome.KILLED, remedy=Remedy.NONE)
            return
        for letter in new:
            if letter.name in turn.not_taken:
                continue
            message_id = await self._link.steer(letter.describe(), STEER_WAIT_S)
            if message_id is None:
                turn.not_taken.add(letter.name)
            else:
                self._give([letter], message_id)

    def _give(self, letters: Sequence[Letter], message_id: str = "", *, is_prompt: bool = False) -> None:
        done = self._transcript
        self._given.append(Given(letters, is_prompt, message_id, done.taken, len(done.boundaries)))
        way = "prompt" if is_prompt else "turn"
        self._records.write("mail", messages=[letter.id for letter in letters], way=way)

    def _is_given(self, letter: Letter) -> bool:
        return any(letter in given.letters for given in self._given)

    def _acknowledge(self, *, is_read: bool = False) -> None:
        """Acknowledge messages that the model has read; `is_read`: a turn has ended well, and its prompt was read."""
        for given in list(self._given):
            if self._was_read(given) or (is_read and given.is_prompt):
                self._given.remove(given)
                for letter in given.letters:
                    self._inbox.acknowledge(letter)

    def _was_read(self, given: Given) -> bool:
        done = self._transcript
        if given.is_prompt:
            return done.taken > given.taken
        if given.id:
            return given.id in done.taken_ids
        return len(done.boundaries) > given.boundaries and done.outputs > done.boundaries[given.boundaries]

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def describe_mail(letters: Sequence[Letter], head: str) -> str:
    """Write a prompt of messages."""
    return "\n\n".join([head, *(letter.describe() for letter in letters), f"{ACT}\n"])
