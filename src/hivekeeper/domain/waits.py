"""When a wait has ended, on a clock that may be set forward or back at any moment.

A wait is recorded with its start, because the clock may have been wrong then:

1. It lasts from its start to its end. One that starts in the future was recorded by a clock that was ahead, and has
   ended: retrying too early does no harm, retrying in ten years does.
2. A clock that jumps forward ends waits early, for the same reason.
3. If something is due some time after an event, an event well in the future counts as old.
"""

import hashlib

SLACK_S = 300.0  # clocks are corrected by seconds all the time; that does not make earlier times wrong
FIRST_PUBLISH_WAIT_S = 60.0
MAX_PUBLISH_WAIT_S = 3600.0
MAX_FETCH_WAIT_S = 300.0
MAX_HOLD_S = 8 * 86_400.0
FIRST_FETCH_WAIT_S = 1.0
MAX_FETCH_FAILURES = 8  # in a row, about four minutes; then the user is told, and retries are minutes apart


def is_waiting(now: str, since: str | None, until: str | None) -> bool:
    """Whether a wait has not ended; one without an end lasts until a person ends it."""
    return since is not None and since <= now and (until is None or now < until)


def has_passed(now_s: float, since_s: float, wait_s: float) -> bool:
    """Whether this much time has passed since a moment, or the clock cannot be trusted."""
    return not -SLACK_S <= now_s - since_s < wait_s


def back_off_s(failures: int, *, first_wait_s: float, max_wait_s: float, seed: str) -> float:
    """Return the wait after this many consecutive failures: exponential backoff, less up to a quarter of jitter."""
    share = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4]) / 2**32
    return min(first_wait_s * 2.0 ** min(failures - 1, 60) * (0.75 + share / 4), max_wait_s)
