"""The only module that reads a clock; times travel as fixed-width UTC text that sorts as it reads."""

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """Wall time for the record, monotonic time for durations (it does not run while the machine sleeps)."""

    def now(self) -> str:
        """Tell the wall time as `2026-11-15T21:25:35.123456Z`."""
        ...

    def monotonic(self) -> float:
        """Tell seconds since some moment of this boot."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> str:
        return to_text(time.time())

    def monotonic(self) -> float:
        return time.monotonic()


def to_text(epoch_seconds: float) -> str:
    """Write a Unix time as UTC text of fixed width."""
    micros = round(epoch_seconds * 1_000_000)
    return f"{_whole_second(micros // 1_000_000)}.{micros % 1_000_000:06d}Z"


@lru_cache(maxsize=16)
def _whole_second(seconds: int) -> str:
    # Most calls fall into a second already written out; strftime would cost more than an event's hash.
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def to_local(text: str) -> str:
    """Write UTC text as a person's clock shows it: `2026-11-15 22:25:35` in the local zone."""
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def to_seconds(text: str) -> float:
    """Read UTC text back as a Unix time."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
