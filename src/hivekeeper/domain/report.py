"""How an agent program's session ended, as read from its output, never from its exit code."""

from dataclasses import astuple, dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a session ended. DONE is the program's own claim; the repository decides."""

    DONE = "done"
    EMPTY = "empty"
    REFUSED = "refused"
    RATE_LIMITED = "rate-limited"
    QUOTA = "quota"
    AUTH = "auth"
    NO_ANSWER = "no-answer"
    SETUP = "setup"
    CONTEXT_LIMIT = "context-limit"
    SERVER_ERROR = "server-error"
    CRASHED = "crashed"
    KILLED = "killed"

    @property
    def words(self) -> str:
        """The outcome as a clause about the program."""
        return _WORDS[self]


_WORDS = {
    Outcome.DONE: "it says that it is done",
    Outcome.EMPTY: "it ended without output or changes",
    Outcome.REFUSED: "the model's service refused",
    Outcome.RATE_LIMITED: "it was rate limited",
    Outcome.QUOTA: "its quota is used up",
    Outcome.AUTH: "it is not signed in",
    Outcome.NO_ANSWER: "the model did not answer",
    Outcome.SETUP: "it could not start: its set-up is wrong",
    Outcome.CONTEXT_LIMIT: "its conversation grew too long for the model",
    Outcome.SERVER_ERROR: "the model's service failed",
    Outcome.CRASHED: "it crashed",
    Outcome.KILLED: "it was stopped",
}

ENDED_WELL = (Outcome.DONE,)
# Not the task's fault, so the runner is put on hold and the attempt does not fail; the last two wait for a person.
LIMITED = (Outcome.RATE_LIMITED, Outcome.QUOTA, Outcome.NO_ANSWER, Outcome.AUTH, Outcome.SETUP)
NEEDS_PERSON = (Outcome.AUTH, Outcome.SETUP)
# The exit codes of a shell, or of a wrapper, that found a program not executable, or not at all.
NOT_STARTED = (126, 127)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a session used; money is in millionths of a dollar, so that sums are exact.

    `cache_read` and `cache_write` are those of `tokens_in` that have a price of their own.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    microusd: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.tokens_in + self.tokens_out

    def __sub__(self, other: "Usage") -> "Usage":
        """Subtract what was counted before; never below zero."""
        return Usage(*(max(0, mine - theirs) for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a session. `words` are its last words, or its error message.

    `retry_s` is the wait before a retry and `retry_epoch` its moment, if the program named one.
    """

    outcome: Outcome
    words: str = ""
    session: str = ""
    usage: Usage = Usage()
    retry_s: float | None = None
    retry_epoch: float | None = None
