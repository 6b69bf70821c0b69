"""When a wait is over, on a clock that a person or a time server may set at any moment, forward or back.

A wait is noted with its beginning, because the clock may have been wrong then:

1. It lasts from its beginning to its end. One that begins later than now was noted by a clock that was ahead, and
   is over: to try something once too early does no harm, to try it in ten years does.
2. A clock that jumps forward ends waits early, for the same reason.
3. Where something is due a while after an event, an event that lies well ahead of the clock is taken for old.
"""

import hashlib

SLACK_S = 300.0  # clocks are corrected by seconds all the time, which says nothing about what was noted before
FIRST_PUBLISH_WAIT_S = 60.0
MAX_PUBLISH_WAIT_S = 3600.0
MAX_FETCH_WAIT_S = 300.0
MAX_HOLD_S = 8 * 86_400.0
FIRST_FETCH_WAIT_S = 1.0
MAX_FETCH_FAILURES = 8  # in a row, about four minutes; then a person is told, and it is tried every few minutes


def is_waiting(now: str, since: str | None, until: str | None) -> bool:
    """Tell whether a wait lasts; one without an end lasts until a person ends it."""
    return since is not None and since <= now and (until is None or now < until)


def has_passed(now_s: float, since_s: float, wait_s: float) -> bool:
    """Tell whether so much time has passed since a moment, as far as the clock can be believed."""
    return not -SLACK_S <= now_s - since_s < wait_s


def back_off_s(failures: int, *, first_wait_s: float, max_wait_s: float, seed: str) -> float:
    """Tell how long to wait after so many failures in a row: twice as long each time.

    Up to a quarter less than that, so that many that failed together do not come back together.
    """
    share = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4]) / 2**32
    return min(first_wait_s * 2.0 ** min(failures - 1, 60) * (0.75 + share / 4), max_wait_s)
