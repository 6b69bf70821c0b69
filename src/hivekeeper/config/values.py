"""How durations, sizes and numbers are written, and the JSON Schemas that say so to editors."""

import re
from typing import Any

from hivekeeper.domain.names import show

FILE_NAME = "hive.toml"
LONGEST_S = 365 * 86_400.0
LARGEST_BYTES = 1 << 50

NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
DURATION = re.compile(rf"(?:{NUMBER}d)?(?:{NUMBER}h)?(?:{NUMBER}m)?(?:{NUMBER}s?)?", re.ASCII)
SIZE = re.compile(rf"{NUMBER} ?(?:([KMGT]?)(i?)B)?", re.ASCII | re.IGNORECASE)
DURATION_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "minLength": 1, "pattern": f"^{DURATION.pattern}$"},
        {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_S},
    ]
}
SIZE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "pattern": rf"^{NUMBER} ?([KkMmGgTt]?[Ii]?[Bb])?$"},
        {"type": "integer", "minimum": 1, "maximum": LARGEST_BYTES},
    ]
}


def read_duration(value: object) -> float:
    """Read "1h30m", "90s" or a plain number as seconds."""
    seconds: float
    if isinstance(value, str) and value and (match := DURATION.fullmatch(value)):
        days, hours, minutes, rest = (float(part or 0) for part in match.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    else:
        raise ValueError(f"must be a duration such as 45m, 90s, 1h30m or a number of seconds, not {show(value)}")
    if not 0 < seconds <= LONGEST_S:  # Written so that NaN fails too.
        raise ValueError(f"must be more than 0 and at most 365d, not {show(value)}")
    return float(seconds)


def read_size(value: object) -> int:
    """Read "64MB" (millions), "2GiB" (powers of 1024) or a plain number as bytes."""
    if isinstance(value, str) and (match := SIZE.fullmatch(value)):
        number, unit, binary = match.groups()
        size = int(float(number) * (1024 if binary else 1000) ** " KMGT".index((unit or " ").upper()))
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        raise ValueError(f"must be a size such as 64MB, 2GiB or a number of bytes, not {show(value)}")
    if not 0 < size <= LARGEST_BYTES:
        raise ValueError(f"must be at least 1 byte and at most 1024TiB, not {show(value)}")
    return size


def read_whole(value: object, least: int, most: int) -> int:
    """Read a whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"must be a whole number from {least} to {most:,}, not {show(value)}")
    return value


def describe_whole(least: int, most: int) -> dict[str, Any]:
    """Describe a whole number as a JSON Schema."""
    return {"type": "integer", "minimum": least, "maximum": most}


def describe_limit(schema: dict[str, Any], word: str = "none") -> dict[str, Any]:
    """Describe a value, or a word that stands for none, as a JSON Schema."""
    return {"anyOf": [*schema.get("anyOf", [schema]), {"const": word}]}
