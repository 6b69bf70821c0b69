"""How much time each heavy tier may take, which seed chooses within it, and a tally for the end of a test run.

A tier plays a number of its scenarios, which share its CPU seconds: one more scenario means that each comes more
rarely, not more time. A soak (`make soak HOURS=8`) plays all of them; the tiers share its hours in the same proportion.
"""

import os
import random
import resource
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
# CPU seconds of each tier in `make test`; preparing a scenario counts.
SECONDS = {"crash": 30.0, "planted bugs": 30.0, "power": 22.0, "rehearsals": 8.0, "properties": 20.0}
# How many of a tier's scenarios are played for one commit.
PLAYED = {
    "crash": 10,
    "power": 7,
    "agents": 5,
    "demos": 1,
    "benchmarks": 2,
    "bugs undisturbed": 4,
    "bugs of kills": 1,
    "bugs of power cuts": 1,
}
# However little time there is, of each scenario so many points are struck and so many disk states are checked.
LEAST_POINTS, LEAST_STATES = 2, 10

SOAK = float(os.environ.get("HIVE_SOAK") or 0)  # hours
TIMES = SOAK * 3600 * (os.cpu_count() or 1) / sum(SECONDS.values()) if SOAK else 1.0
TALLY: Counter[str] = Counter()
LINES: list[str] = []
KINDS: set[str] = set()  # of events that scenarios and random histories have come to
CPU_MS: Counter[str] = Counter()  # what each folder of tests has used, with every process it has waited for


def choose_seed(wish: str) -> int:
    """Take the seed that is asked for, or one of this commit, so that every commit is struck elsewhere."""
    if wish == "random" or (SOAK and not wish):
        return random.SystemRandom().randrange(1, 10**6)
    return int(wish) if wish else make_seed(Path(__file__).parent)


def make_seed(directory: Path) -> int:
    """Make a seed from the commit that is checked out; outside of git it is 1."""
    argv = ("git", "-C", str(directory), "rev-parse", "HEAD")
    try:
        found = subprocess.run(argv, check=False, capture_output=True, text=True)
    except OSError:
        return 1
    return 1 + int(found.stdout[:8], 16) % 10**6 if found.returncode == 0 else 1


SEED = choose_seed(os.environ.get("HIVE_SEED", ""))
os.environ["HIVE_SEED"] = str(SEED)  # whoever is started from here chooses the same


def get_seconds(tier: str) -> float:
    """Give the CPU seconds that a tier may use."""
    return SECONDS[tier] * TIMES


def read_cpu_s() -> float:
    """Tell the CPU seconds of this process and of every child that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def shuffle(points: Sequence[T]) -> list[T]:
    """Bring them into the order in which they are chosen, by the printed seed."""
    return random.Random(f"{SEED} {points[0] if points else ''}").sample(points, len(points))  # noqa: S311 - a choice, not a secret


def choose(tier: str, names: Iterable[str]) -> list[str]:
    """Choose the scenarios of a tier that are played for this commit, in the order in which they are declared."""
    all_of_them = list(names)
    chosen = set(sample(all_of_them, PLAYED[tier]))
    return [name for name in all_of_them if name in chosen]


def sample(points: Sequence[T], most: int) -> list[T]:
    """Take all of them, or as many as fit."""
    return list(points) if SOAK else shuffle(points)[:most]
