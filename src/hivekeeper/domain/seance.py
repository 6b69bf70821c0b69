"""Sorts excerpts into what was tried, what failed and what worked, and writes them down with their places."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hivekeeper.domain.excerpt import Cited, Role

ASKED = "asked"  # the key of an answer's payload that names the question
EACH = 6  # excerpts in a part
MAX_SHOWN = 400  # characters of an excerpt
_FAILED = (Role.ERROR, Role.REJECTED)
_WORKED = (Role.LANDED, Role.CHANGED, Role.SAID, Role.ANSWERED)  # of an attempt that completed its task


@dataclass(frozen=True, slots=True)
class Answer:
    """What a record answers; `unread` is what could not be read of it."""

    tried: tuple[Cited, ...] = ()
    failed: tuple[Cited, ...] = ()
    worked: tuple[Cited, ...] = ()
    unread: tuple[Cited, ...] = ()

    @property
    def parts(self) -> tuple[tuple[str, tuple[Cited, ...]], ...]:
        """The three parts, by name."""
        return ("tried", self.tried), ("failed", self.failed), ("worked", self.worked)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not (self.tried or self.failed or self.worked)


def sort_excerpts(
    found: Iterable[Cited], landed: Collection[tuple[str, int]], unread: Iterable[Cited] = (), each: int = EACH
) -> Answer:
    """Sort excerpts, the best first; `landed` are the attempts that completed their task.

    What is said twice is told once.
    """
    parts: dict[str, list[Cited]] = {"tried": [], "failed": [], "worked": []}
    told: set[str] = set()
    for cited in found:
        excerpt = cited.excerpt
        words = " ".join(excerpt.text.split())[:MAX_SHOWN]
        if words in told:
            continue
        told.add(words)
        is_landed = (cited.task, cited.attempt) in landed
        name = "failed" if excerpt.role in _FAILED else "worked" if is_landed and excerpt.role in _WORKED else "tried"
        if len(parts[name]) < each:
            parts[name].append(cited)
    tried, failed, worked = map(tuple, parts.values())
    return Answer(tried, failed, worked, tuple(unread))


def say_answer(answer: Answer, words: Sequence[str], width: int = MAX_SHOWN) -> list[str]:
    """Write an answer as lines, each excerpt on one."""
    lines: list[str] = []
    for name, part in answer.parts:
        lines += [f"What {'was tried' if name == 'tried' else name}:"]
        lines += [f"  {say_cited(cited, words, width)}" for cited in part] or ["  nothing was found"]
    lines += [f"Not read: {each.citation} {each.excerpt.text}" for each in answer.unread]
    return lines


def say_cited(cited: Cited, words: Sequence[str], width: int) -> str:
    """Write an excerpt on a line: the attempt, what it is, its text around the words that are looked for, its place."""
    text = shorten_around(cited.excerpt.text, words, width)
    return f"{cited.task} attempt {cited.attempt}, {cited.excerpt.role}: {text} {cited.citation}"


def shorten_around(text: str, words: Sequence[str], width: int) -> str:
    """Cut a text on one line so that the first of these words is in what is left."""
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    lower = line.lower()
    places = (place for word in words if (place := lower.find(word.lower())) >= 0)
    start = max(0, min(next(places, 0) - width // 3, len(line) - width))
    return f"{'… ' if start else ''}{line[start : start + width].strip()}{' …' if start + width < len(line) else ''}"
