"""What an answer of the Agent Client Protocol means: one table from its signs to how a turn ended.

The first row that fits counts. There is no common error code, and several programs end a failed turn as a good one,
with the error as their text. So codes and data of an error answer count first, then words: those of its message and
data, or the agent's text after its last tool call, from where that begins as an error. Bare numbers count in a text
only behind "Error", "HTTP" or "status", because a model may write about them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hivekeeper.domain.report import Outcome
from hivekeeper.runners.signs import MAX_WORDS, find_retry_s

STUCK_WORDS = "already has active run"


class Remedy(StrEnum):
    """What may be tried once before an ending counts: a prompt to continue, or a new process that loads the session."""

    NONE = "none"
    CONTINUE = "continue"
    RELOAD = "reload"


@dataclass(frozen=True, slots=True)
class Row:
    """Signs that mean one thing: codes, data, reasons to stop, words, and numbers that count as words."""

    outcome: Outcome
    codes: tuple[int, ...] = ()
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stops: tuple[str, ...] = ()
    words: str = ""
    numbers: str = ""
    remedy: Remedy = Remedy.NONE


TABLE = (
    Row(
        Outcome.AUTH,
        codes=(-32000, 401, 403),
        words=r"Authentication ?(error|failed|required)|Incorrect API key|Missing environment variable",
        numbers="401|403",
    ),
    Row(
        Outcome.QUOTA,
        codes=(402,),
        data={"codexErrorInfo": ("usageLimitExceeded",)},
        words=r"quota(?!s\b| increase)|billing|usage limit|more credits",
        numbers="402",
    ),
    Row(
        Outcome.RATE_LIMITED,
        codes=(429,),
        data={"errorKind": ("rate_limit",)},
        words=r"rate[ _-]?limit|retry limit|too many requests",
        numbers="429",
    ),
    Row(
        Outcome.CONTEXT_LIMIT,
        data={"errorName": ("ContextOverflowError",)},
        words=(
            r"ContextWindowExceeded|ContextOverflow|context_length_exceeded|prompt is too long|maximum context length"
            r"|context window|usable context|maximum number of tokens allowed"
        ),
    ),
    Row(
        Outcome.CONTEXT_LIMIT,
        data={"errorKind": ("max_output_tokens",)},
        stops=("max_tokens",),
        words=r"max_output_tokens|output token limit",
        remedy=Remedy.CONTINUE,
    ),
    Row(
        Outcome.SERVER_ERROR,
        codes=tuple(range(500, 600)),
        data={"errorKind": ("server_error", "overloaded")},
        words=(
            r"high demand|overloaded|server error|network error|stream disconnected"
            r"|Retrying \(attempt[^\n]*\s*\Z|Retry finished, resuming\.\s*\Z"
        ),
        numbers=r"5\d\d",
    ),
    Row(Outcome.EMPTY, words=r"empty response|No response was returned", remedy=Remedy.CONTINUE),
    Row(Outcome.SERVER_ERROR, words=STUCK_WORDS, remedy=Remedy.RELOAD),
    Row(Outcome.REFUSED, stops=("refusal",)),
    Row(Outcome.EMPTY, stops=("max_turn_requests", "cancelled"), remedy=Remedy.CONTINUE),
)
# How a text begins that is an error of the program's and not the model's words.
_MARK = re.compile(
    r"^(?:Ran into this error|Network error|(?:API )?Error\b|Missing environment variable|exceeded retry limit"
    r"|unexpected status|stream disconnected|Quota exceeded|You.ve hit your|(?:We.re c|C)urrently experiencing"
    r"|Incomplete response"
    r"|No response was returned|The model returned an empty|Retrying \(attempt|Retry finished, resuming|Info: "
    r"|\{\"error\")",
    re.MULTILINE,
)
_NOTICE = re.compile(r"^Warning: Model metadata [^\n]*\n?", re.MULTILINE)
_IN_TEXT = r"(?:error|http|status)\D{{0,24}}(?:{})\b"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a prompt: an error answer, or the reason why the agent stopped; or its connection was closed.

    `text` is what the agent said after its last tool call, `acted` whether it called any, and `cancelled` whether the
    turn was cancelled before this answer came.
    """

    code: int | None = None
    message: str = ""
    data: object = None
    stop: str = ""
    text: str = ""
    acted: bool = False
    cancelled: bool = False
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a turn ended, in its words, and what may be tried first."""

    outcome: Outcome
    words: str = ""
    remedy: Remedy = Remedy.NONE
    retry_s: float | None = None


def classify(answer: Answer) -> Verdict:
    """Say how a turn ended."""
    if answer.closed:
        return Verdict(Outcome.KILLED if answer.cancelled else Outcome.CRASHED, answer.message)
    if answer.cancelled:
        return Verdict(Outcome.KILLED, answer.message)
    is_error = answer.code is not None
    words = _write_error(answer) if is_error else _find_error(answer.text)
    for row in TABLE:
        if _fits(row, answer, words, is_error=is_error):
            return Verdict(row.outcome, _shorten(words), row.remedy, find_retry_s(words))
    if is_error:
        return Verdict(Outcome.SERVER_ERROR, _shorten(words), retry_s=find_retry_s(words))
    if not answer.acted and not _NOTICE.sub("", answer.text).strip():
        return Verdict(Outcome.EMPTY, remedy=Remedy.CONTINUE)
    return Verdict(Outcome.DONE)


def _fits(row: Row, answer: Answer, words: str, *, is_error: bool) -> bool:
    if is_error and (answer.code in row.codes or _has_data(row, answer.data)):
        return True
    if answer.stop and answer.stop in row.stops:
        return True
    numbers = rf"\b(?:{row.numbers})\b" if is_error else _IN_TEXT.format(row.numbers)
    patterns = [row.words, numbers if row.numbers else ""]
    return any(pattern and re.search(pattern, words, re.IGNORECASE) for pattern in patterns)


def _has_data(row: Row, data: object) -> bool:
    if not isinstance(data, dict):
        return False
    return any(value in json.dumps(data.get(key, "")) for key, values in row.data.items() for value in values)


def _write_error(answer: Answer) -> str:
    if not answer.data:
        return answer.message
    try:
        data = answer.data if isinstance(answer.data, str) else json.dumps(answer.data)
    except (TypeError, ValueError, RecursionError):
        return answer.message
    return f"{answer.message}: {data}"


def _find_error(text: str) -> str:
    """Return the part of an agent's text that is an error of its program; "" if there is none."""
    text = _NOTICE.sub("", text)
    marks = list(_MARK.finditer(text))
    return text[marks[-1].start() :] if marks else ""


def _shorten(words: str) -> str:
    return " ".join(words.split())[:MAX_WORDS]
