"""What a branch says has landed on it, and the agent configuration that a commit ships: as git was asked."""

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LandedChange:
    """What a task of a hive left on a branch: its commit, the change that landed in it, and what it says first."""

    commit: str
    task: str
    change: str
    subject: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """What had landed and is not on the integration branch any more, in its order; `taken` are changes that are."""

    landed: tuple[LandedChange, ...] = ()
    taken: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Configuration:
    """The agent configuration of a commit, and whether all of that commit has landed here before.

    `shown` are its files as they can be kept, first those that only links lead to.
    """

    files: dict[str, str]
    has_landed: bool = False
    shown: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Tell it from any other."""
        text = json.dumps(sorted(self.files.items()))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
