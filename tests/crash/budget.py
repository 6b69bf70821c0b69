"""How much of everything is played, and a tally of it for the end of a test run."""

import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
SOAK = bool(os.environ.get("HIVE_SOAK"))
SEED = int(os.environ.get("HIVE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
TALLY: Counter[str] = Counter()
LINES: list[str] = []


def sample(points: Sequence[T], most: int) -> list[T]:
    """Take all of them, or as many as fit, chosen by the printed seed."""
    if SOAK or len(points) <= most:
        return list(points)
    return random.Random(f"{SEED} {points[0]}").sample(points, most)  # noqa: S311 - a choice, not a secret
