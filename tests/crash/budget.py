"""How much of everything is played, and a tally of it for the end of a test run."""

import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
SOAK = bool(os.environ.get("HIVE_SOAK"))
# The same choice for everybody, so that a change is judged by what it changed; another one with HIVE_SEED=random.
_WISH = os.environ.get("HIVE_SEED", "1")
SEED = random.SystemRandom().randrange(1, 10**6) if _WISH == "random" else int(_WISH)
os.environ["HIVE_SEED"] = str(SEED)  # whoever is started from here chooses the same
TALLY: Counter[str] = Counter()
LINES: list[str] = []


def shuffle(points: Sequence[T]) -> list[T]:
    """Bring them into the order in which they are chosen, by the printed seed."""
    return random.Random(f"{SEED} {points[0]}").sample(points, len(points))  # noqa: S311 - a choice, not a secret


def sample(points: Sequence[T], most: int) -> list[T]:
    """Take all of them, or as many as fit."""
    return list(points) if SOAK else shuffle(points)[:most]
