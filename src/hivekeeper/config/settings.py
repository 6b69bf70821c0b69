"""The hive's settings: `hive.toml` to one frozen value, with how durations and sizes are written."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainValidator

from hivekeeper.config.located import Checked, Loc, Problems, check, parse_toml, read_text, show
from hivekeeper.domain.plan import Limits

FILE_NAME = "hive.toml"
MAX_BYTES = 1 << 20
LONGEST_S = 365 * 86_400.0
LARGEST_BYTES = 1 << 50
# A keeper that is late once is busy; only one that misses two beats in a row may be taken for gone.
BEATS_BEFORE_ABANDONED = 2

DEFAULT_TOML = """\
# How this hive works. Every value here is the default: a line that is removed changes nothing.

[hive]
workers = 4                 # tasks at work at the same time
archive_after = "24h"       # how long a complete convoy stays in sight

[keeper]
heartbeat = "60s"           # how often the keeper records that it is alive
abandoned_after = "300s"    # silence after which another keeper may take over; at least twice the heartbeat
poll = "2s"                 # how often it looks for work when nothing wakes it

# What a task may use when its plan does not say; "none" is no limit.
[limits]
timeout = "none"            # from start to end: "45m", "1h30m", or a number of seconds
silence = "none"            # time without any output
output = "64MiB"            # all that it prints: "64MB", "2GiB", or a number of bytes
memory = "none"
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `hive.toml` may change, with the values that hold when it says nothing."""

    workers: int = 4
    archive_after_s: float = 86_400.0
    heartbeat_s: float = 60.0
    abandoned_after_s: float = 300.0
    poll_s: float = 2.0
    limits: Limits = field(default_factory=Limits)


NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
DURATION = re.compile(rf"(?:{NUMBER}d)?(?:{NUMBER}h)?(?:{NUMBER}m)?(?:{NUMBER}s?)?", re.ASCII)
SIZE = re.compile(rf"{NUMBER} ?(?:([KMGT]?)(i?)B)?", re.ASCII | re.IGNORECASE)


def read_duration(value: object) -> float:
    """Read "1h30m", "90s" or a plain number as seconds."""
    seconds: float
    if isinstance(value, str) and value and (match := DURATION.fullmatch(value)):
        days, hours, minutes, rest = (float(part or 0) for part in match.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    else:
        msg = f"must be a duration such as 45m, 90s, 1h30m or a number of seconds, not {show(value)}"
        raise ValueError(msg)
    if not 0 < seconds <= LONGEST_S:  # Written so that NaN fails too.
        msg = f"must be more than 0 and at most 365d, not {show(value)}"
        raise ValueError(msg)
    return float(seconds)


def read_size(value: object) -> int:
    """Read "64MB" (millions), "2GiB" (powers of 1024) or a plain number as bytes."""
    if isinstance(value, str) and (match := SIZE.fullmatch(value)):
        number, unit, binary = match.groups()
        size = int(float(number) * (1024 if binary else 1000) ** " KMGT".index((unit or " ").upper()))
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        msg = f"must be a size such as 64MB, 2GiB or a number of bytes, not {show(value)}"
        raise ValueError(msg)
    if not 0 < size <= LARGEST_BYTES:
        msg = f"must be at least 1 byte and at most 1024TiB, not {show(value)}"
        raise ValueError(msg)
    return size


Seconds = Annotated[float, PlainValidator(read_duration)]
# "none" lifts a limit that a default would set; saying nothing keeps the default.
SecondsLimit = Annotated[float | None, PlainValidator(lambda value: None if value == "none" else read_duration(value))]
BytesLimit = Annotated[int | None, PlainValidator(lambda value: None if value == "none" else read_size(value))]


class _Hive(Checked):
    workers: Annotated[int, Field(ge=1, le=1000)] = Settings().workers
    archive_after: Seconds = Settings().archive_after_s


class _Keeper(Checked):
    heartbeat: Seconds = Settings().heartbeat_s
    abandoned_after: Seconds = Settings().abandoned_after_s
    poll: Seconds = Settings().poll_s


class _Limits(Checked):
    timeout: SecondsLimit = Limits().wall_s
    silence: SecondsLimit = Limits().silence_s
    output: BytesLimit = Limits().output_bytes
    memory: BytesLimit = Limits().memory_bytes


class _File(Checked):
    hive: _Hive = _Hive()
    keeper: _Keeper = _Keeper()
    limits: _Limits = _Limits()


def _place(loc: Loc) -> tuple[str, type[Checked]]:
    tables: dict[Loc, type[Checked]] = {("hive",): _Hive, ("keeper",): _Keeper, ("limits",): _Limits}
    return (f"[{loc[0]}]", tables[loc]) if loc in tables else ("this file", _File)


def load_settings(directory: Path) -> Settings:
    """Read a hive's settings; a hive without the file has the defaults. InputError names everything wrong with it."""
    path = directory / FILE_NAME
    problems = Problems(str(path), "nothing was done")
    try:
        text = read_text(path, problems, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        return Settings()
    located = parse_toml(text, problems)
    file = check(_File, located, problems, _place)
    if file and file.keeper.abandoned_after < (least := BEATS_BEFORE_ABANDONED * file.keeper.heartbeat):
        key = "abandoned_after" if "abandoned_after" in file.keeper.model_fields_set else "heartbeat"
        said = f"{file.keeper.abandoned_after:g}s is less than {BEATS_BEFORE_ABANDONED} times 'heartbeat'"
        advice = f"make it at least {least:g}s, or 'heartbeat' shorter"
        problems.add(f"'abandoned_after' in [keeper]: {said}; {advice}", located.line(("keeper", key)))
    if file is None or problems.found:
        raise problems.error()
    limits = file.limits
    return Settings(
        workers=file.hive.workers,
        archive_after_s=file.hive.archive_after,
        heartbeat_s=file.keeper.heartbeat,
        abandoned_after_s=file.keeper.abandoned_after,
        poll_s=file.keeper.poll,
        limits=Limits(limits.timeout, limits.silence, limits.output, limits.memory),
    )
