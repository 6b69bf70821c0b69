"""Questions of the hive's own to an agent program: a prompt and a JSON schema; the answer is what fits, or nothing."""

import json
from dataclasses import dataclass, field
from typing import Any

MAX_ANSWER = 64 << 10


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, as asked for."""

    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unfit:
    """What was said is no answer; `why` is for whoever is asked once more, `found` the JSON that did not fit."""

    why: str
    found: dict[str, Any] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the JSON schema that an answer of at most so many characters has to fit."""

    prompt: str
    schema: dict[str, Any]
    most: int = MAX_ANSWER

    def say(self, unfit: Unfit | None = None) -> str:
        """Write it for a program, with what was wrong with its last answer."""
        again = f"\n\nYour last answer did not fit: {unfit.why}. Answer once more." if unfit else ""
        rule = "End with your answer, as one line of JSON that fits this schema, and nothing behind it:"
        return f"{self.prompt}\n\n## Your answer\n\n{rule}\n\n    {json.dumps(self.schema)}\n{again}\n"

    def read(self, words: str) -> Answer | Unfit:
        """Find the answer in a program's last words."""
        found = _find_last_object(words[-self.most :])
        if found is None:
            return Unfit("there is no JSON object in it")
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - a tenth of a second that few passes need

        try:
            # Half a surrogate pair can be written as JSON, and nowhere else.
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
            problem = next(iter(Draft202012Validator(self.schema).iter_errors(found)), None)
        except RecursionError:
            return Unfit("its JSON is nested too deeply")
        return Answer(found) if problem is None else Unfit(f"{problem.json_path}: {problem.message}"[:300], found)


def _find_last_object(words: str) -> dict[str, Any] | None:
    """Find the last whole JSON object in a text, whatever stands around it."""
    decoder, last, at = json.JSONDecoder(), None, words.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(words, at)
        except (ValueError, RecursionError):
            at = words.find("{", at + 1)
            continue
        last = value if isinstance(value, dict) else last
        at = words.find("{", end)
    return last
