"""Keepers killed at random moments while a train of branches lands: all land, once, each as it was verified."""

import pytest

from tests.budget import LINES, SEED, SOAK, TALLY
from tests.crash.conftest import Player

KILLS = 1000 if SOAK else 25

pytestmark = pytest.mark.timeout(600 if not SOAK else 14_400)


def test_keepers_killed_at_random_moments_lose_nothing_and_land_nothing_twice() -> None:
    player = Player(module="tests.crash.killer")
    try:
        verdict = player.ask(f"{KILLS} {SEED}")
    finally:
        player.close()
    assert not verdict["wrong"], "\n".join(verdict["wrong"])  # in full: pytest would cut a list in the middle
    assert verdict["kills"] == KILLS
    TALLY["random kills"] += verdict["kills"]
    LINES.append(f"  random kills: {verdict['kills']} while {12 * verdict['worlds']} branches landed, seed {SEED}")
