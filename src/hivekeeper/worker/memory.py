"""What outlives a process that talks to an agent program: its session, its task, and whether a turn was under way.

It lies in the worker's home, and is written before each effect that it is about.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

from hivekeeper.clock import Clock
from hivekeeper.domain.report import Usage
from hivekeeper.runners.reading import as_number, as_text


class Memory:
    """The memory of a worker's home."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._held: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError, RecursionError):
            read = json.loads(path.read_bytes())
            self._held = read if isinstance(read, dict) else {}

    @property
    def session(self) -> str:
        """The id of its session."""
        return as_text(self._held.get("session"))

    @property
    def task(self) -> str:
        """The first prompt of its session."""
        return as_text(self._held.get("task"))

    @property
    def is_in_turn(self) -> bool:
        """Whether a turn was under way, and its end was not seen."""
        return bool(self._held.get("in_turn"))

    @property
    def used(self) -> Usage:
        """What the session has used, where a program counts from its beginning."""
        tokens_in, tokens_out, cost = (as_number(self._held.get(key)) for key in ("tokens_in", "tokens_out", "cost"))
        return Usage(tokens_in, tokens_out, cost)

    def is_same_minute(self) -> bool:
        """Whether it is still the minute in which the session was made."""
        return self._held.get("minute") == self._find_minute()

    def open(self, session: str, *, is_new: bool) -> None:
        """Note which session is worked on."""
        if is_new:
            self._held = {"session": session, "minute": self._find_minute()}
        self._write()

    def begin_turn(self, prompt: str) -> None:
        """Note that a turn is under way."""
        self._held.setdefault("task", prompt)
        self._held["in_turn"] = True
        self._write()

    def end_turn(self, used: Usage) -> None:
        """Note that a turn has ended, and what the session has used by then."""
        self._held["in_turn"] = False
        self._held |= {"tokens_in": used.tokens_in, "tokens_out": used.tokens_out, "cost": used.microusd}
        self._write()

    def _find_minute(self) -> str:
        return self._clock.now()[:16]

    def _write(self) -> None:
        draft = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):  # a full disk ends the session soon enough
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(self._held), "utf-8", "surrogatepass")
            draft.replace(self._path)
