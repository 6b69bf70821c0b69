"""A worker's inbox, from the worker's side: what was not taken yet, and how it is written for an agent."""

import contextlib
import json
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hivekeeper.domain.mail import describe_message
from hivekeeper.domain.protocol import PRIORITY_MERGE

MAX_BYTES = 4 << 20
ACKNOWLEDGED = ".done"


@dataclass(frozen=True, slots=True)
class Letter:
    """A message in the inbox: the name of its file, and what it says."""

    name: str
    id: str
    type: str
    sender: str
    payload: object
    is_urgent: bool = False
    expects_reply: bool = False

    def describe(self) -> str:
        """Write it for an agent's prompt."""
        return describe_message(self.id, self.type, self.sender, self.payload, expects_reply=self.expects_reply)

    def is_in(self, prompt: str) -> bool:
        """Whether a prompt contains it already."""
        return f"\n\n{self.describe().strip()}\n\n" in f"\n\n{prompt.strip()}\n\n"


class Inbox:
    """The inbox of a mailbox; without one it is always empty."""

    def __init__(self, mailbox: str, urgent: Collection[str] = ()) -> None:
        self._path = Path(mailbox) / "inbox" if mailbox else None
        self._urgent = urgent
        self._known: dict[str, Letter | None] = {}
        self._acknowledged: set[str] = set()

    def list(self) -> list[Letter]:
        """List the messages that were not acknowledged, in the order in which they were accepted."""
        if self._path is None:
            return []
        try:
            names = sorted(name for name in os.listdir(self._path) if not name.startswith("."))  # noqa: PTH208 - twice as fast
        except OSError:
            return []
        self._known = {name: self._known.get(name) for name in names}
        new = (name for name in names if name not in self._acknowledged)
        return [letter for name in new if (letter := self._find(name)) is not None]

    def acknowledge(self, letter: Letter) -> None:
        """Note that the agent has taken a message."""
        self._acknowledged.add(letter.name)
        if self._path is not None:
            with contextlib.suppress(OSError):  # the agent may have moved it itself
                (self._path / ACKNOWLEDGED).mkdir(exist_ok=True)
                (self._path / letter.name).rename(self._path / ACKNOWLEDGED / letter.name)

    def _find(self, name: str) -> Letter | None:
        """Find a message; None for a file that is none."""
        if self._known.get(name) is None and self._path is not None:
            self._known[name] = self._read(self._path / name)
        return self._known[name]

    def _read(self, path: Path) -> Letter | None:
        try:
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                return None
            said: Any = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(said, dict):
            return None
        id_, kind, sender = (str(said.get(key)) for key in ("id", "type", "sender"))
        payload = said.get("payload")
        # Of a hotfix only who has to rebase is interrupted.
        is_urgent = kind in self._urgent and (kind != PRIORITY_MERGE or _must_rebase(payload))
        return Letter(path.name, id_, kind, sender, payload, is_urgent, bool(said.get("expects_reply")))


def _must_rebase(payload: object) -> bool:
    return isinstance(payload, dict) and bool(payload.get("must_rebase"))
