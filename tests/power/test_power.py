"""The power cut at any moment of any scenario: what was promised is there, and the rest is brought to its end."""

from typing import Any

import pytest

from tests.budget import LEAST_STATES, LINES, SEED, SOAK, TALLY, choose, get_seconds, shuffle
from tests.crash.conftest import Player, Players
from tests.crash.scenarios import SCENARIOS
from tests.needs import need_strace

NAMES = choose("power", [name for name, scenario in SCENARIOS.items() if not scenario.by_git])

pytestmark = pytest.mark.timeout(1800 + SOAK * 7200)


@pytest.fixture(scope="module")
def summaries() -> dict[str, dict[str, Any]]:
    """The scenarios of this commit, each with its share of the tier's seconds."""
    need_strace()
    seconds = get_seconds("power")
    players, summaries = Players(seconds, module="tests.power.player"), dict[str, dict[str, Any]]()

    def play(player: Player, names: list[str]) -> None:
        for name in names:
            try:
                summaries[name] = player.ask(f"{name} {seconds / len(NAMES)} {SEED}")
            except (AssertionError, OSError) as error:
                summaries[name] = {"problem": f"{type(error).__name__}: {error}"}

    players.share(shuffle(NAMES), play)
    for name, summary in summaries.items():
        if "problem" not in summary:
            TALLY["power-cut states"] += summary["checked"]
            TALLY["power-cut states brought to their end"] += summary["recovered"]
            numbers = f"{summary['checked']} of {summary['states']} states, {summary['recovered']} brought to their end"
            LINES.append(f"  power cut in {name}: {numbers}, {len(summary['bad'])} wrong")
    TALLY["power tier, CPU seconds"] += round(players.cpu_s)
    return summaries


@pytest.mark.parametrize("name", NAMES)
def test_a_power_cut_at_any_moment_loses_nothing_that_was_promised(
    summaries: dict[str, dict[str, Any]], name: str
) -> None:
    summary = summaries[name]
    assert "problem" not in summary, summary
    assert summary["bad"] == []
    assert summary["checked"] >= min(LEAST_STATES, summary["states"] // 3), "of ten, a few may be alike"
    assert summary["recovered"]
