"""Planted bugs: each has to be caught, or the tests that let it pass prove nothing; what catches which is told."""

from pathlib import Path

import pytest

from tests.crash.budget import SEED, TALLY, sample
from tests.crash.conftest import Player, Players
from tests.crash.mutants import MUTANTS, Mutant
from tests.crash.scenarios import SCENARIOS

PROOF = Path(__file__).parents[2] / "docs" / "explain" / "proof.md"
BEGIN, END = "<!-- generated: what is struck, and what is planted -->", "<!-- end of the generated part -->"
MOST_POINTS = 60
EVERY = 1_000_000

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(players: Players, name: str) -> None:
    mutant = MUTANTS[name]
    caught = _catch_by_power_cut(name, mutant) if mutant.power else _catch_by_kill(players, name, mutant)
    assert caught, f"nobody noticed: {name}"
    TALLY["planted bugs caught"] += 1


def _catch_by_kill(players: Players, name: str, mutant: Mutant) -> bool:
    player = Player("--mutant", name)
    try:
        answer = player.ask(f"list {mutant.scenario}")
        if "points" not in answer:  # wrong even when nobody disturbs it
            return mutant.shown in answer["problem"]
        if answer["states"] != players.list_points(mutant.scenario)["states"]:
            return mutant.shown in str(answer["states"])
        return any(mutant.shown in str(player.ask(point)) for point in sample(answer["points"], MOST_POINTS))
    finally:
        player.close()


def _catch_by_power_cut(name: str, mutant: Mutant) -> bool:
    player = Player("--mutant", name, module="tests.power.player")
    try:
        # Every state there is, until one is wrong: few are, and which ones are there differs from run to run.
        recovered = EVERY if mutant.at_the_end else 0
        return mutant.shown in str(player.ask(f"{mutant.scenario} {EVERY} {recovered} {SEED} 1")["bad"])
    finally:
        player.close()


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
        tier = "power cuts" if mutant.power else "kills"
        lines.append(f"| {name} | {mutant.promise} | {tier} in `{mutant.scenario}` |")
    return "\n".join(lines)


if __name__ == "__main__":
    before, _, rest = PROOF.read_text("utf-8").partition(BEGIN)
    PROOF.write_text(f"{before}{BEGIN}\n{describe()}\n{END}{rest.partition(END)[2]}", "utf-8")
