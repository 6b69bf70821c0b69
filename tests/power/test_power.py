"""The power cut at any moment of any scenario: what was promised is there, and the rest is brought to its end."""

import queue
import threading
from typing import Any

import pytest

from tests.crash.budget import LINES, SEED, SOAK, TALLY
from tests.crash.conftest import PLAYERS, Player, need_strace
from tests.crash.scenarios import SCENARIOS

# Of each scenario so many states are checked, and so many of these brought to their end. A state of a scenario with a
# repository takes real git to check and a whole life of its tasks to bring to its end.
CHECKED, RECOVERED = 1000, 30
CHECKED_WITH_GIT, RECOVERED_WITH_GIT = 100, 5
LEAST_STATES = 10_000

pytestmark = pytest.mark.timeout(3600 if not SOAK else 86_400)


def test_a_power_cut_at_any_moment_loses_nothing_that_was_promised() -> None:
    need_strace()
    summaries = play(sorted((name for name, scenario in SCENARIOS.items() if not scenario.by_git), key=by_length))
    bad = []
    for summary in summaries:
        if "problem" in summary:
            bad.append(f"{summary['scenario']}: {summary['problem']}")
            continue
        bad += summary["bad"]
        TALLY["power-cut states"] += summary["checked"]
        TALLY["power-cut states brought to their end"] += summary["recovered"]
        numbers = f"{summary['checked']} of {summary['states']} states, {summary['recovered']} brought to their end"
        TALLY["power-cut states, seconds of one core"] += round(summary["seconds"])
        LINES.append(f"  power cut in {summary['scenario']}: {numbers}, {len(summary['bad'])} wrong")
    assert bad == []
    assert TALLY["power-cut states"] >= LEAST_STATES


def by_length(name: str) -> bool:
    """Put the long ones first, so that nobody waits for them at the end."""
    return not SCENARIOS[name].with_git


def play(names: list[str]) -> list[dict[str, Any]]:
    """Let every player take the next scenario when it is done with one."""
    todo: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        todo.put(name)
    summaries: list[dict[str, Any]] = []

    def work() -> None:
        player, name = Player(module="tests.power.player"), ""
        try:
            while not todo.empty():
                name = todo.get()
                summaries.append(player.ask(f"{name} {choose(name)} {SEED}"))
        except AssertionError as error:
            summaries.append({"scenario": name, "problem": str(error)})
        finally:
            player.close()

    threads = [threading.Thread(target=work) for _ in range(PLAYERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return summaries


def choose(name: str) -> str:
    if SOAK:
        return "1000000 1000000"
    return f"{CHECKED_WITH_GIT} {RECOVERED_WITH_GIT}" if SCENARIOS[name].with_git else f"{CHECKED} {RECOVERED}"
