"""The records of a session over the Agent Client Protocol: one JSON object per line, in one form for all programs.

`session` its id; `text` what the agent says; `tool` begun or ended; `usage` all that was used so far; `mail` messages
that the agent was given; `refused` what it asked for and may not have; `log` words of the program's own; `end` how the
session ended. `runners/acp.py` reads them.
"""

import json
from typing import TextIO

FLUSH_AFTER_S, FLUSH_AFTER_CHARACTERS = 1.0, 4096
MAX_LOGGED = 2000


class Records:
    """Prints records; pieces of text are joined first, because models stream a few letters at a time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text = ""
        self._said_at_s = 0.0
        self._more = False

    def write(self, kind: str, **fields: object) -> None:
        """Print a record, after the text that came before it."""
        self.flush()
        self._more = False
        self._print({"type": kind, **fields})

    def log(self, words: str) -> None:
        """Print words of the program's own."""
        if words.strip():
            self.write("log", text=words[:MAX_LOGGED])

    def say(self, text: str, now_s: float) -> None:
        """Take a piece of what the agent says."""
        self._said_at_s = self._said_at_s if self._text else now_s
        self._text += text
        if len(self._text) > FLUSH_AFTER_CHARACTERS:
            self.flush()

    def tick(self, now_s: float) -> None:
        """Print text that has waited for long enough."""
        if self._text and now_s - self._said_at_s >= FLUSH_AFTER_S:
            self.flush()

    def flush(self) -> None:
        """Print the text that was not printed yet."""
        if self._text:
            text, self._text = self._text, ""
            self._print({"type": "text", "text": text, "more": self._more})
            self._more = True

    def _print(self, record: dict[str, object]) -> None:
        # A piece of text may end in half of a surrogate pair.
        self._stream.write(json.dumps(record) + "\n")
        self._stream.flush()
