"""What the words of agent programs mean when something went wrong: the one table that looks for words in a message."""

import re
from dataclasses import dataclass

from hivekeeper.domain.report import Outcome

MAX_WORDS = 600

# The first that is found counts: a quota comes with the status of a rate limit, a long context with that of a refusal.
TABLE: tuple[tuple[Outcome, tuple[str, ...]], ...] = (
    (
        Outcome.SETUP,
        (
            r"ModuleNotFoundError|ImportError|No module named|Cannot find (module|package)|command not found",
            r"(unknown|no such) (option|flag)|unrecognized arguments?|unexpected argument",
        ),
    ),
    (
        Outcome.CONTEXT_LIMIT,
        (
            r"context[_ ]?(length|limit|window)|maximum context|prompt is too long|ContextOverflow|ContextWindow",
            r"exceeds? the maximum number of tokens|token limit!|trying to compact|input is too long|max_output_tokens",
        ),
    ),
    (
        Outcome.QUOTA,
        (
            r"quota(?!s\b| increase)|credit balance|billing|usage limit|spending limit|payment required",
            r"(out of|more) credits",
            r"\b402\b|limit reached ?[|∙·]|hit your (usage |session |weekly )?limit",
        ),
    ),
    (Outcome.RATE_LIMITED, (r"\b429\b|rate[ _-]?limit|too many requests|RESOURCE_EXHAUSTED",)),
    (
        Outcome.AUTH,
        (
            r"\b401\b|\b403\b|unauthori[sz]ed|authenticat|(invalid|incorrect|no) api key|api key not|not logged in",
            r"permission[_ ]?(denied|error)|forbidden|please (log|sign) ?in|login required",
        ),
    ),
    (
        Outcome.SERVER_ERROR,
        (
            r"\b5\d\d\b|overloaded|high demand|temporar(y|ily)|server ?error|internal ?error|bad ?gateway|had an error",
            r"service ?unavailable|api_error|connection|ECONN|socket|network|fetch failed|timed? ?out|timeout|stream",
            r"reset by peer|disconnected|terminated|error sending request|failed to (parse|decode|get|connect)",
            r"unexpected (token|end)|malformed|JSON|<html|premature|DOCTYPE|EOF",
        ),
    ),
)
_SIGNS = tuple((outcome, re.compile("|".join(patterns), re.IGNORECASE)) for outcome, patterns in TABLE)
_BY_STATUS = {401: Outcome.AUTH, 402: Outcome.QUOTA, 403: Outcome.AUTH, 429: Outcome.RATE_LIMITED}
_REFUSED, _FAILED, _BEYOND = 400, 500, 600

_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_UNIT = r"ms|milliseconds?|d|days?|h|hours?|hrs?|m|mins?|minutes?|s|secs?|seconds?"
_AMOUNT = rf"(\d+(?:\.\d+)?)(?:\s*({_UNIT})(?![a-z])|\b)"
_IN = re.compile(
    rf"(?:retry|try again|resets?|available|wait)[^.\n]{{0,40}}?\b(?:in|after)\b\W{{0,4}}((?:{_AMOUNT}\s*,?\s*)+)",
    re.IGNORECASE,
)
_KEY = re.compile(rf"retry[-_ ]?(?:after|delay)[\"']?\s*[:=]\s*[\"']?{_AMOUNT}", re.IGNORECASE)
_EPOCH = re.compile(r"\|\s*(1\d{9})\b")
MAX_RETRY_S = 8 * 86_400.0


@dataclass(frozen=True, slots=True)
class Sign:
    """What an error means; `retry_s` is after how long to try again, `epoch` when, where it says that."""

    outcome: Outcome
    words: str
    retry_s: float | None = None
    epoch: float | None = None


def read_sign(words: str, status: object = None) -> Sign:
    """Read what an error means: from its status where there is one, and else from its words."""
    shown = " ".join(words.split())[:MAX_WORDS]
    found = _read_status(status)
    by_words = next((outcome for outcome, pattern in _SIGNS if pattern.search(shown)), None)
    # The same status stands for two things, and only the words tell them apart.
    if found is None or (by_words in (Outcome.CONTEXT_LIMIT, Outcome.QUOTA) and found is not Outcome.SERVER_ERROR):
        found = by_words or found
    epoch = _EPOCH.search(words)
    return Sign(found or Outcome.REFUSED, shown, find_retry_s(words), float(epoch[1]) if epoch else None)


def _read_status(status: object) -> Outcome | None:
    if not isinstance(status, int) or isinstance(status, bool) or not _REFUSED <= status < _BEYOND:
        return None
    return _BY_STATUS.get(status, Outcome.SERVER_ERROR if status >= _FAILED else Outcome.REFUSED)


def find_retry_s(words: str) -> float | None:
    """Find after how long a program says to try again."""
    if found := _KEY.search(words):
        return min(_count_s(found[1], found[2]), MAX_RETRY_S)
    if found := _IN.search(words):
        amounts = re.findall(_AMOUNT, found[1], re.IGNORECASE)
        return min(sum(_count_s(*amount) for amount in amounts), MAX_RETRY_S)
    return None


def _count_s(number: str, unit: str | None) -> float:
    name = (unit or "s").casefold()  # a long s is an s to whoever ignores case
    return float(number) * (0.001 if name.startswith(("ms", "mil")) else _UNITS[name[0]])
