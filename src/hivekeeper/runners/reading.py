"""Reading what an agent program says, as it comes: lines of JSON among banners, logs and torn ends, in bounded memory.

A reader is handed one line after the other and keeps only what a report needs. What a line means is each program's own
(`claude.py`, `codex.py` …); what the words of an error mean is one table for all (`signs.py`).
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hivekeeper.domain.price import NO_PRICES
from hivekeeper.domain.report import LIMITED, NOT_STARTED, Outcome, Report, Usage
from hivekeeper.runners.signs import MAX_WORDS, Sign, read_sign

MAX_LINE = 8 << 20  # pi repeats a whole conversation in one
MAX_SAID = 64 << 10
LAST_LINES = 10
MAX_HEAD = 200  # what a line is about is said in its first bytes
MAX_LAST_WORDS = 2000  # an answer of ours is in there
MAX_SESSION_ID = 128
_MOST = 1e12
_SESSION = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-")


class Lines:
    """Cuts a stream into lines; one that is longer than anybody means is left out, whatever it holds."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, words: bytes) -> Iterator[bytes]:
        """Give the lines that are whole now."""
        *whole, rest = (self._rest + words).split(b"\n")
        for line in whole:
            if not self._skipping and len(line) <= MAX_LINE:
                yield line
            self._skipping = False
        self._skipping = self._skipping or len(rest) > MAX_LINE
        self._rest = b"" if self._skipping else rest

    def end(self) -> Iterator[bytes]:
        """Give the last line, which nobody ended."""
        if self._rest and not self._skipping:
            yield self._rest
        self._rest = b""


class Reader:
    """What is known of a session so far: `turns` are those it has completed; `limited` is what limit it waits for."""

    skip: tuple[bytes, ...] = ()  # lines with one of these near their beginning say nothing new
    tells_totals = False  # what it says it used is of the whole conversation, what was resumed included
    tells_waiting = True  # from what it says one can tell whether it waits for the model or for a tool
    prices = NO_PRICES
    model = ""
    max_said = MAX_SAID  # of what the model said last, the end is kept

    def __init__(self) -> None:
        self.session = ""
        self.usage = Usage()
        self.said = ""
        self.turns = 0
        self.acted = False
        self.finished = False
        self.open_tools = 0
        self.heard = False
        self.hopeless = False
        self.tail: deque[str] = deque(maxlen=LAST_LINES)
        self.problem: Sign | None = None
        self.limited: Sign | None = None

    def take(self, line: bytes) -> None:
        """Take note of a line."""
        if any(word in line[:MAX_HEAD] for word in self.skip):
            return
        if line.lstrip().startswith(b"{"):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
            if isinstance(event, dict):
                self.heard = True
                self.take_event(event)
                return
        self.take_line(line.decode("utf-8", "replace"))

    def take_line(self, text: str) -> None:
        """Take note of a line that is no event; the last ones say why a program could not start."""
        if text.strip():
            self.tail.append(text.rstrip()[:MAX_WORDS])
        self.take_text(text)

    def take_event(self, event: dict[str, Any]) -> None:
        """Take note of a line that is a JSON object."""

    def take_text(self, text: str) -> None:
        """Take note of a line that is not."""

    def fail(self, words: object, status: object = None) -> None:
        """Note what went wrong, in the program's words; the last word counts."""
        self.problem = read_sign(as_text(words), status)

    def wait_for_limit(self, words: object, status: object = None, *, in_s: float | None = None) -> None:
        """Note that the program waits because of an error and will try again; it is none unless it ends so."""
        sign = read_sign(as_text(words), status)
        self.problem = sign
        if sign.outcome in LIMITED:
            self.limited = sign if in_s is None else replace(sign, retry_s=in_s)
            self.hopeless = self.hopeless or sign.outcome is Outcome.SETUP

    def begin_tool(self) -> None:
        """Note that a tool is at work."""
        self.acted = True
        self.open_tools += 1
        self.go_on()

    def end_tools(self, count: int = 1) -> None:
        """Note that tools are done, which ends a turn."""
        self.turns += 1
        self.open_tools = max(0, self.open_tools - count)

    @property
    def awaits_model(self) -> bool:
        """Tell whether the model has to say something next, as far as can be read."""
        return self.tells_waiting and not self.finished and not self.open_tools

    def go_on(self) -> None:
        """Note that the model has answered: what was wrong before is over."""
        self.problem = self.limited = None
        self.hopeless = False

    def say(self, words: object, *, more: bool = False) -> None:
        """Note what the model said, or more of it."""
        if text := as_text(words):
            self.said = ((self.said if more else "") + text)[-self.max_said :]
            self.go_on()

    def count(self) -> Usage:
        """Count what it has used so far, with what that costs."""
        return self.prices.add_cost(self.model, self.usage)

    def name(self, session: object) -> None:
        """Note the session's id, if it can be one."""
        text = as_text(session)
        if len(text) <= MAX_SESSION_ID and text[:1].isalnum() and _SESSION.issuperset(text):
            self.session = text

    def report(self, exit_status: int | None, ended_by: str | None, *, must_act: bool) -> Report:
        """Say what the session came to, once all was read. `ended_by` is how its run ended, None when nobody knows.

        Who `must_act` and only talked has refused, whatever it calls itself.
        """
        told = (self.session, self.count())
        if ended_by in ("limit", "silence") and self.limited is not None:  # nobody waited with it
            return _report(self.limited, *told)
        if ended_by in ("silence", "wall") and self.problem is not None:
            return _report(self.problem, *told)
        if ended_by in ("limit", "silence") and self.awaits_model:
            return Report(Outcome.NO_ANSWER, "it had asked the model, and nothing came back", *told)
        if self._failed_to_start(exit_status, ended_by):
            return Report(Outcome.SETUP, as_text("\n".join(self.tail) or self.said.strip())[-MAX_WORDS:], *told)
        if ended_by != "exit":
            return Report(Outcome.KILLED, self.problem.words if self.problem else "", *told)
        if self.problem is not None:
            return _report(self.problem, *told)
        words = self.said.strip()[-MAX_LAST_WORDS:]
        if not self.finished:
            killed = exit_status is not None and exit_status < 0
            return Report(Outcome.KILLED if killed else Outcome.CRASHED, words, *told)
        if not self.acted and not words:
            return Report(Outcome.EMPTY, "", *told)
        return Report(Outcome.REFUSED if must_act and not self.acted else Outcome.DONE, words, *told)

    def _failed_to_start(self, exit_status: int | None, ended_by: str | None) -> bool:
        """Tell whether it was not found, or ended with an error before it said what only a program at work says."""
        is_known = self.problem is not None and self.problem.outcome is not Outcome.REFUSED
        if exit_status in NOT_STARTED and ended_by in ("exit", "could-not-start"):
            return not (self.finished or is_known)
        is_error = ended_by == "exit" and bool(exit_status and exit_status > 0)
        return is_error and self.tells_waiting and not (self.heard or is_known)


def _report(sign: Sign, session: str, usage: Usage) -> Report:
    return Report(sign.outcome, sign.words, session, usage, sign.retry_s, sign.epoch)


def as_text(value: object) -> str:
    """Read what should be text, without halves of surrogate pairs, which nobody can store; all else as JSON has it."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    try:
        return "" if value is None else json.dumps(value)[:MAX_SAID]
    except RecursionError:  # read with a little more of the stack than there is left
        return ""


def as_list(value: object) -> list[Any]:
    """Read what should be several."""
    return value if isinstance(value, list) else []


def as_number(value: object) -> int:
    """Read what should be a count."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST else 0


def as_micro(value: object) -> int:
    """Read what should be dollars."""
    return (
        round(value * 1e6)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST
        else 0
    )


def at(event: Mapping[str, Any], *keys: str) -> Any:  # noqa: ANN401 - JSON
    """Find something deep inside, None where the way ends."""
    found: Any = event
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found
