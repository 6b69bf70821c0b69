"""Excerpts: what an agent said, called and was answered, and what the hive recorded of it, each with its place."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

MAX_PIECE = 4000  # characters; a longer text is several excerpts of the same place
MAX_PIECES = 400  # of one text


class Role(StrEnum):
    """What an excerpt is."""

    SAID = "said"  # by the agent
    CALLED = "called"  # a tool or a command
    ANSWERED = "answered"  # by a tool or a command
    ERROR = "error"  # of a tool, a command or the model's service
    REJECTED = "rejected"  # how an attempt failed, and why
    LANDED = "landed"  # how an attempt succeeded
    CHANGED = "changed"  # the paths that an attempt changed
    MAIL = "mail"
    UNREAD = "unread"  # what could not be read, and why


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A piece of text; `position` is its line, row or step in its document."""

    role: Role
    text: str
    position: int = 0
    at: str = ""


@dataclass(frozen=True, slots=True)
class Cited:
    """An excerpt, and the attempt and document that it is from."""

    task: str
    attempt: int
    document: str
    excerpt: Excerpt

    @property
    def citation(self) -> str:
        """Where it stands."""
        return cite(self.document, self.excerpt)


def cite(document: str, excerpt: Excerpt) -> str:
    """Write where an excerpt stands: `[claude session.jsonl:412]`."""
    return f"[{document}{f':{excerpt.position}' if excerpt.position else ''}]"


def split_long(excerpt: Excerpt) -> Iterator[Excerpt]:
    """Split an excerpt that is too long into several, at ends of lines where there are any."""
    text = excerpt.text.strip()
    for _ in range(MAX_PIECES):
        if not text:
            return
        cut = text.rfind("\n", MAX_PIECE // 2, MAX_PIECE) if len(text) > MAX_PIECE else -1
        end = cut if cut > 0 else MAX_PIECE
        yield replace(excerpt, text=text[:end].rstrip())
        text = text[end:].lstrip("\n")
    if text:
        yield replace(excerpt, role=Role.UNREAD, text=f"the other {len(text)} characters of it were left out")
