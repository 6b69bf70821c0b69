"""Planted bugs: each has to be caught, or the tests that let it pass prove nothing; told is what alone catches it."""

from pathlib import Path

import pytest

from tests.budget import SEED, SOAK, TALLY, choose, get_seconds, shuffle
from tests.crash.conftest import Player
from tests.crash.mutants import Mutant, Tier
from tests.crash.scenarios import MUTANTS, SCENARIOS

PROOF = Path(__file__).parents[2] / "docs" / "explain" / "proof.md"
BEGIN, END = "<!-- generated: what is struck, and what is planted -->", "<!-- end of the generated part -->"
# Of each kind some are planted for one commit, and others for the next.
UNDISTURBED = choose("bugs undisturbed", [name for name, each in MUTANTS.items() if each.tier is Tier.UNDISTURBED])
OF_KILLS = choose("bugs of kills", [name for name, each in MUTANTS.items() if each.tier is Tier.KILLS])
OF_POWER = choose("bugs of power cuts", [name for name, each in MUTANTS.items() if each.tier is Tier.POWER_CUTS])
# What takes more than being played is given more of the time, and is found long before it is used, but for bad luck.
SECONDS = get_seconds("planted bugs") / (len(OF_KILLS) + len(OF_POWER)) * 3

pytestmark = pytest.mark.timeout(1800 + SOAK * 7200)


def play_undisturbed(player: Player, mutant: Mutant) -> str:
    """Play its scenario; tell what was wrong, or what became of the tasks."""
    answer = player.ask(f"list {mutant.scenario}")
    return str(answer.get("problem") or answer["states"])


@pytest.mark.parametrize("name", UNDISTURBED)
def test_a_planted_bug_is_seen_undisturbed(name: str) -> None:
    player = Player("--mutant", name)
    try:
        assert MUTANTS[name].shown in play_undisturbed(player, MUTANTS[name])
    finally:
        player.close()
        count(player)


@pytest.mark.parametrize("name", OF_KILLS)
def test_a_planted_bug_is_caught_by_kills_alone(name: str) -> None:
    mutant, player, sound = MUTANTS[name], Player("--mutant", name), Player()
    try:
        answer = player.ask(f"list {mutant.scenario}")
        assert answer.get("states") == sound.ask(f"list {mutant.scenario}")["states"], "it is wrong undisturbed"
        points = [point for point in shuffle(answer["points"]) if mutant.calls in point]
        caught = next((point for point in points if mutant.shown in str(strike(player, point))), None)
        assert caught, f"nobody noticed: {name}"
        assert not sound.ask(caught)["violations"], "the same kill does no harm without the bug"
    finally:
        for each in (player, sound):
            each.close()
            count(each)


def strike(player: Player, point: str) -> object:
    assert player.cpu_s < SECONDS, f"nobody noticed in {SECONDS:.0f} CPU seconds"
    return player.ask(point)


@pytest.mark.parametrize("name", OF_POWER)
def test_a_planted_bug_is_caught_by_power_cuts_alone(name: str) -> None:
    mutant, killed = MUTANTS[name], Player("--mutant", name)
    player = Player("--mutant", name, module="tests.power.player")
    try:
        assert mutant.shown not in play_undisturbed(killed, mutant), "it is wrong undisturbed"
        # Until one is wrong: few are, and which ones are there differs from run to run.
        # Where each has to be recovered first, a state takes ten times as long, so bad luck is given more time.
        recover, seconds = ("recover", 4 * SECONDS) if mutant.at_the_end else ("", SECONDS)
        assert mutant.shown in str(player.ask(f"{mutant.scenario} {seconds} {SEED} 1 {recover}")["bad"])
    finally:
        for each in (player, killed):
            each.close()
            count(each)


def count(player: Player) -> None:
    TALLY["planted bugs, CPU seconds"] += round(player.cpu_s)


def test_the_proof_page_lists_what_is_struck_and_what_is_planted() -> None:
    page = PROOF.read_text("utf-8")
    generated = page.partition(BEGIN)[2].partition(END)[0].strip()
    assert generated == describe().strip(), "write it anew: python -m tests.crash.test_mutants"


def describe() -> str:
    """Write the tables of the proof page."""
    lines = ["| Scenario | What is played, and struck at every changing call |", "|---|---|"]
    lines += [f"| `{name}` | {scenario.what} |" for name, scenario in SCENARIOS.items()]
    lines += ["", "| Planted bug | Promise it breaks | Caught by |", "|---|---|---|"]
    for name, mutant in MUTANTS.items():
        lines.append(f"| {name} | {mutant.promise} | {mutant.tier}, in `{mutant.scenario}` |")
    return "\n".join(lines)


if __name__ == "__main__":
    before, _, rest = PROOF.read_text("utf-8").partition(BEGIN)
    PROOF.write_text(f"{before}{BEGIN}\n{describe()}\n{END}{rest.partition(END)[2]}", "utf-8")
