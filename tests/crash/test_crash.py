"""Killed before every changing call, once and again during recovery, or its calls failing: nothing may be lost."""

import random
import time
from typing import Any

import pytest

from tests.crash.budget import LINES, SEED, SOAK, TALLY, shuffle
from tests.crash.conftest import Players, need_strace
from tests.crash.scenarios import SCENARIOS

# Of each scenario so many points, all in a soak. With a repository a point takes real git to recover, and a git that
# is struck costs a whole life of a task around it.
MOST_POINTS, MOST_WITH_GIT, MOST_IN_GIT = 165, 20, 10
DOUBLES, ERRORS = 110, 90
LEAST_POINTS = 2000
# A point may be missed when a run takes another course under load; another one is struck in its place, so that as many
# fire as were wanted. Where many are missed, the list of points is not that of what is played.
MOST_MISSED = 0.1
# What a call can truly come back with, by name; the rest can only be the last one.
FAILURES = {
    "pwrite64": ("EIO", "ENOSPC"), "write": ("EIO", "ENOSPC"), "fdatasync": ("EIO",), "fsync": ("EIO",),
    "openat": ("ENOSPC", "EMFILE"), "mkdir": ("ENOSPC",), "unlink": ("EIO",), "ftruncate": ("EIO",),
    "clone": ("EAGAIN",), "clone3": ("EAGAIN",), "vfork": ("EAGAIN",), "rename": ("EIO",), "renameat2": ("EIO",),
}  # fmt: skip

pytestmark = pytest.mark.timeout(3600 if not SOAK else 86_400)


def list_bad(verdicts: list[dict[str, Any]]) -> list[str]:
    """Say what went wrong, a line each that plays it again."""
    bad = []
    for verdict in verdicts:
        wrong = verdict.get("violations", []) or ([verdict["problem"]] if "problem" in verdict else [])
        if wrong:
            bad.append(f"make crash POINT={verdict['point']}   # {wrong[0][-600:]}")
    return bad


def play(players: Players, points: list[str], wanted: int, what: str, ends: dict[str, Any] | None = None) -> list[str]:
    """Play points in their order until so many have fired; `ends` tells what the tasks of a scenario must come to."""
    started, verdicts, fired = time.monotonic(), list[dict[str, Any]](), 0
    while fired < wanted and len(verdicts) < len(points):
        verdicts += players.play(points[len(verdicts) :][: wanted - fired])
        fired = sum(verdict.get("fired", True) for verdict in verdicts)
    missed = [verdict["point"] for verdict in verdicts if not verdict.get("fired", True)]
    TALLY[what] += fired
    TALLY["points that were missed"] += len(missed)
    TALLY[f"{what}, seconds"] += round(time.monotonic() - started)
    assert len(missed) <= max(2, MOST_MISSED * len(verdicts)), missed
    for verdict in verdicts:
        expected = (ends or {}).get(verdict["point"].partition("/")[0], verdict.get("states"))
        if verdict.get("states") != expected and not verdict.get("violations"):
            verdict["violations"] = [f"it came to {verdict.get('states')}, and undisturbed to {expected}"]
    return list_bad(verdicts)


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_any_point_it_is_recovered_whole(players: Players, name: str) -> None:
    answer = players.list_points(name)
    listed, scenario = answer["points"], SCENARIOS[name]
    # The keeper's death costs nobody anything: runs go on. The death of a wrapper, or of git, may cost an attempt.
    ends = {} if scenario.by_git or not scenario.is_sure else {name: answer["states"]}
    most = MOST_IN_GIT if scenario.by_git else MOST_WITH_GIT if scenario.with_git else MOST_POINTS
    points = shuffle(listed)
    wanted = len(points) if SOAK else min(most, len(points))
    chosen = "" if wanted == len(listed) else f" (of {len(listed)}, seed {SEED})"
    bad = play(players, points, wanted, "crash points", ends)
    LINES.append(f"  {name}: {wanted} points{chosen}, {len(bad)} wrong")
    assert bad == []


def test_enough_points_were_struck() -> None:
    need_strace()
    assert TALLY["crash points"] >= LEAST_POINTS


def test_killed_again_while_it_is_recovered_it_is_still_whole(players: Players) -> None:
    chance = random.Random(SEED)  # noqa: S311 - a choice, not a secret
    pairs: list[str] = []
    spare: list[str] = []
    ends: dict[str, Any] = {}
    for name, scenario in SCENARIOS.items():
        if not scenario.by_git:
            answer, second = players.list_points(name), players.list_recovery(name)
            first = answer["points"]
            ends |= {name: answer["states"]} if scenario.is_sure else {}
            each = len(first) if SOAK else DOUBLES // sum(not s.by_git for s in SCENARIOS.values())
            # The earlier half of the recovery: whatever the first kill left to do, it comes so far.
            early = second[: max(1, len(second) // 2)]
            pairs += [f"{chance.choice(first)}/{chance.choice(early)}" for _ in range(each)]
            spare.append(f"{chance.choice(first)}/{chance.choice(early)}")
    assert play(players, pairs + spare, len(pairs), "double crashes", ends) == []


def test_calls_that_fail_do_no_harm(players: Players) -> None:
    points = []
    for name in SCENARIOS:
        for point in players.list_points(name)["points"]:
            call = point.rpartition("/")[2].partition(":")[0]
            points += [f"{point}:{error}{lasting}" for error in FAILURES.get(call, ()) for lasting in ("", "+")]
    assert play(players, shuffle(points), len(points) if SOAK else ERRORS, "failing calls") == []
