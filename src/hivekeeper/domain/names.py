"""Names that users choose, ids made from them, and suggestions for misspelled ones."""

import difflib
import re
from collections.abc import Iterable, Sequence

# A first character that is a letter or digit rules out options (`-x`), hidden files and `..`.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_SHOWN = 60
MAX_NAMED = 5
_REF_RULE = "without '..' and not ending in '.' or '.lock'"
NAME_RULE = f"lower-case letters, digits, '.', '_' and '-', at most 64, beginning with a letter or digit, {_REF_RULE}"
TASK_ID_RULE = f"letters, digits, '.', '_' and '-', at most 64, beginning with a letter or digit, {_REF_RULE}"


def is_name(text: str) -> bool:
    """Whether this is a valid name of a convoy, repository or agent."""
    return NAME.fullmatch(text) is not None and _is_ref(text)


def is_task_id(text: str) -> bool:
    """Whether this is a valid task id."""
    return TASK_ID.fullmatch(text) is not None and _is_ref(text)


def _is_ref(text: str) -> bool:
    # Names become parts of git refs, and git refuses these.
    return not text.endswith((".lock", ".")) and ".." not in text


def task_key(convoy: str, task_id: str) -> str:
    """Name a task uniquely in the hive."""
    return f"{convoy}/{task_id}"


def find_nearest(word: str, options: Iterable[str]) -> str | None:
    """Find the option that was probably meant."""
    return next(iter(difflib.get_close_matches(word, list(options), n=1, cutoff=0.6)), None)


def advise(word: str, options: Iterable[str], otherwise: str) -> str:
    """Ask for the option that was probably meant; give other advice where there is none."""
    hint = find_nearest(word, options)
    return f"Did you mean '{hint}'?" if hint else otherwise


def name_some(names: Sequence[str]) -> str:
    """List the first of many names."""
    return ", ".join(names[:MAX_NAMED]) + (" …" if len(names) > MAX_NAMED else "")


def show(value: object) -> str:
    """Format a value for a sentence: short, and without control characters."""
    if isinstance(value, str):
        return repr(value if len(value) <= MAX_SHOWN else value[: MAX_SHOWN - 3] + "...")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):  # Python refuses to format a number of thousands of digits
        return str(value) if abs(value) < 1 << 63 else "that number"
    return {list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(value), "a date or time")
