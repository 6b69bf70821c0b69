"""What git knows about a branch: the changes that landed on it, and the agent configuration of a commit."""

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LandedChange:
    """A landed change on a branch: its commit, its task, the change it was made from, and its subject line."""

    commit: str
    task: str
    change: str
    subject: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """What had landed and is no longer on the integration branch, in order; `taken` are the changes that still are."""

    landed: tuple[LandedChange, ...] = ()
    taken: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Configuration:
    """The agent configuration of a commit, and whether that commit has landed here before.

    `shown` are its files as printable text; those that are only reached through links come first.
    """

    files: dict[str, str]
    has_landed: bool = False
    shown: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A hash of the files."""
        text = json.dumps(sorted(self.files.items()))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
