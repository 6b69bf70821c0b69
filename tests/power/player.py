"""Cuts the power at every moment of a scenario: records it once, then makes every disk state a cut could have left.

`python -m tests.power.player` reads lines `SCENARIO CHECKED RECOVERED SEED [MOST-BAD]` and answers a JSON line each: so
many states are checked as they are found (SQLite's own recovery, the chain, everything that was promised), and so many
of them brought to their end by a keeper of the next boot. `--state SCENARIO/LABEL` plays one state and shows its log.
"""

import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hivekeeper.errors import HiveError
from hivekeeper.keeper import lease
from hivekeeper.runs import wrapper
from hivekeeper.testing.history import check_history
from tests.crash.budget import SOAK
from tests.crash.mutants import MUTANTS
from tests.crash.player import make_place
from tests.crash.scenarios import SCENARIOS
from tests.crash.slot import Slot
from tests.crash.tracing import run_traced
from tests.power.disk import Disk, State, enumerate_states
from tests.power.trace import parse_trace, strace_argv
from tests.power.tree import load_tree

BEFORE = "the-boot-before-the-power-cut"
# Without any sync there are as many states as pairs of operations; of those in flight the newest few are dropped.
MOST_DROPPED = None if SOAK else 12
# A ledger half made is refused until it is made again; one put back knows less than its world until it has looked.
UNLIKE_ITS_WORLD = ("create", "restore")


def before_the_cut(act: Callable[[], None]) -> Callable[[], None]:
    """Let something happen in the boot that the cut will end."""

    def acting() -> None:
        wrapper.read_boot_id = lambda: BEFORE
        lease.read_boot_id = lambda: BEFORE  # type: ignore[attr-defined]
        act()

    return acting


@dataclass
class Summary:
    """How a scenario fared."""

    scenario: str
    operations: int = 0
    states: int = 0
    checked: int = 0
    recovered: int = 0
    seconds: float = 0.0
    bad: list[str] = field(default_factory=list)


class PowerSlot(Slot):
    """A place whose power is cut."""

    def record(self, name: str) -> list[State]:
        """Play a scenario once and list every state its disk could be in."""
        scenario = self.prepare(name, in_boot=before_the_cut)
        self._put_back()
        start, said = load_tree(self.world), self.stage.said.read_bytes() if self.stage.said.exists() else b""
        status = run_traced(before_the_cut(lambda: scenario.act(self.stage)), strace_argv(self.log))
        assert status == 0, f"{name} ended with {status} while it was recorded"
        self._end_everybody()
        ops = parse_trace(self.log.read_text(), self.world, self.stage.said)
        self.operations = len(ops)
        self.said_before = said
        return list(enumerate_states(start, ops, MOST_DROPPED))

    def cut(self, name: str, *, checked: int, recovered: int, seed: int, most_bad: int | None = None) -> Summary:
        """Check so many states of a scenario, and recover so many of those; a few bad ones may be enough."""
        started = time.monotonic()
        states = self.record(name)
        summary = Summary(name, self.operations, len(states))
        chance = random.Random(f"{seed} {name}")  # noqa: S311 - a choice, not a secret
        chosen = states if len(states) <= checked else sorted(chance.sample(states, checked), key=states.index)
        to_recover = chance.sample(chosen, min(recovered, len(chosen)))
        if most_bad is not None:  # in no order: a few bad ones are found sooner everywhere than from the beginning on
            chosen = chance.sample(chosen, len(chosen))
        recovering, disk = set(map(id, to_recover)), Disk(self.world)
        for state in chosen:
            wrong = self._play(name, disk, state, recover=id(state) in recovering)
            if wrong:
                summary.bad.append(f"make power STATE={name}/{state.label}   # {wrong[0][-600:]}")
                if len(summary.bad) == most_bad:
                    break
        summary.checked, summary.recovered = len(chosen), len(to_recover)
        summary.seconds = time.monotonic() - started
        return summary

    def _play(self, name: str, disk: Disk, state: State, *, recover: bool) -> list[str]:
        disk.become(state)
        self.stage.said.write_bytes(self.said_before + state.acknowledged)
        try:
            wrong = [] if name in UNLIKE_ITS_WORLD else self._look()
            if recover and not wrong:
                wrong = self._recover(SCENARIOS[name])
        except TimeoutError as error:
            wrong = [f"hung: {error}"]
        if recover:
            self._end_everybody()
        return wrong

    def _look(self) -> list[str]:
        """Judge the state as it is found, before anybody recovers it."""
        try:
            return [str(violation) for violation in check_history(self.stage.read_history(settled=False))]
        except HiveError as error:
            return [f"the ledger is refused: {error}"]


def play_one(slot: PowerSlot, text: str) -> int:
    """Play one state again, as a failure prints it."""
    name, _, label = text.partition("/")
    state = next((state for state in slot.record(name) if state.label == label), None)
    if state is None:
        sys.stdout.write(f"{name} has no state {label} this time\n")
        return 2
    wrong = slot._play(name, Disk(slot.world), state, recover=True)  # noqa: SLF001 - its own main
    sys.stdout.write(f"{slot.stage.show()}\n\n{text}: {wrong or 'well'}\n")
    return 1 if wrong else 0


def answer(slot: PowerSlot, line: str) -> dict[str, Any]:
    name, *words = line.split()
    checked, recovered, seed, *most_bad = map(int, words)
    try:
        most = most_bad[0] if most_bad else None
        return slot.cut(name, checked=checked, recovered=recovered, seed=seed, most_bad=most).__dict__
    except Exception as error:  # noqa: BLE001 - whoever asked has to hear of it
        return {"scenario": name, "problem": f"{type(error).__name__}: {error}"}


def main(arguments: Sequence[str]) -> int:
    """Answer until standard input ends."""
    place = make_place()
    try:
        match arguments:
            case ["--state", text]:
                return play_one(PowerSlot(place), text)
            case ["--mutant", mutant]:
                MUTANTS[mutant].plant()
        slot = PowerSlot(place)
        for line in sys.stdin:
            sys.stdout.write(json.dumps(answer(slot, line)) + "\n")
            sys.stdout.flush()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
