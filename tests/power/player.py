"""Cuts the power at every moment of a scenario: records it once, then makes every disk state a cut could have left.

`python -m tests.power.player` reads lines `SCENARIO SECONDS SEED [MOST-BAD [recover]]` and answers a JSON line each.
In so many CPU seconds states are checked as they are found (SQLite's own recovery, the chain, everything that was
promised), in an order chosen by the seed; some of them, or all, are brought to their end by a keeper of the next boot.
Only the chosen ones are made. `--state SCENARIO/LABEL` plays one state and shows its log.
"""

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hivekeeper.errors import HiveError
from hivekeeper.keeper import lease
from hivekeeper.runs import wrapper
from hivekeeper.testing.history import check_history
from tests.budget import LEAST_STATES, SOAK, read_cpu_s
from tests.crash.player import make_place
from tests.crash.scenarios import MUTANTS, SCENARIOS
from tests.crash.slot import Slot
from tests.crash.tracing import run_traced
from tests.power.disk import Disk, State, enumerate_states, list_labels
from tests.power.trace import parse_trace, strace_argv
from tests.power.tree import load_tree

BEFORE = "the-boot-before-the-power-cut"
# Without any sync there are as many states as pairs of operations; of those in flight the newest few are dropped.
MOST_DROPPED = None if SOAK else 12
# Where the ledger itself is being made: before that is acknowledged it may be refused, and can be made again.
UNMADE = ("create",)


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
    states: int
    checked: int = 0
    recovered: int = 0
    bad: list[str] = field(default_factory=list)


class PowerSlot(Slot):
    """A place whose power is cut."""

    def record(self, name: str) -> None:
        """Play a scenario once, and keep what happened on the disk."""
        scenario = self.prepare(name, in_boot=before_the_cut)
        self._put_back()
        # What is wrong before anything was done is no power cut's doing: a ledger put back knows less than its world.
        self._known = [] if name in UNMADE else self._look()
        self._put_back()  # a look is not without traces in SQLite's files
        self._start = load_tree(self.world)
        self._said_before = self.stage.said.read_bytes() if self.stage.said.exists() else b""
        status = run_traced(before_the_cut(lambda: scenario.act(self.stage)), strace_argv(self.log))
        assert status == 0, f"{name} ended with {status} while it was recorded"
        self._end_everybody()
        self._ops = parse_trace(self.log.read_text(), self.world, self.stage.said)

    def list_labels(self) -> list[str]:
        """Name every state in which the disk could be."""
        return list_labels(self._start, self._ops, MOST_DROPPED)

    def make(self, labels: Sequence[str]) -> Iterator[State]:
        """Make the states of these names."""
        return enumerate_states(self._start, self._ops, MOST_DROPPED, set(labels))

    def cut(
        self, name: str, seconds: float, seed: int, most_bad: int | None = None, *, recover_all: bool = False
    ) -> Summary:
        """Check states of a scenario in no order, and recover some, until the time is used or enough are bad."""
        end = read_cpu_s() + seconds
        self.record(name)
        labels = self.list_labels()
        random.Random(f"{seed} {name}").shuffle(labels)  # noqa: S311 - a choice, not a secret
        summary, disk, recovering_s, size = Summary(name, len(labels)), Disk(self.world), 0.0, LEAST_STATES
        began = read_cpu_s()
        while labels and (summary.checked < LEAST_STATES or read_cpu_s() < end):
            chunk, labels, size = labels[:size], labels[size:], size * 2
            for state in self.make(chunk):
                before = read_cpu_s()
                if before > end and summary.checked >= LEAST_STATES:
                    break
                # A recovery takes as long as many checks: a third of the time is for them.
                recover = recover_all or not summary.recovered or recovering_s * 3 < before - began
                if wrong := self._play(name, disk, state, recover=recover):
                    summary.bad.append(f"make power STATE={name}/{state.label}   # {wrong[0][-2000:]}")
                    if len(summary.bad) == most_bad:
                        return summary
                summary.checked += 1
                if recover:
                    summary.recovered += 1
                    recovering_s += read_cpu_s() - before
        return summary

    def _play(self, name: str, disk: Disk, state: State, *, recover: bool) -> list[str]:
        disk.become(state)
        self.stage.said.write_bytes(self._said_before + state.acknowledged)
        try:
            wrong = [what for what in self._look(promised=name not in UNMADE) if what not in self._known]
            if recover and not wrong:
                wrong = self._recover(SCENARIOS[name])
        except TimeoutError as error:
            wrong = [f"hung: {error}"]
        if recover:
            self._end_everybody()
        return wrong

    def _look(self, *, promised: bool = True) -> list[str]:
        """Judge the state as it is found, before anybody recovers it.

        A ledger that nobody was told of may be half made. Whoever makes it then gets a whole one.
        """
        try:
            return [str(violation) for violation in check_history(self.stage.read_history(settled=False))]
        except HiveError as error:
            if promised or self.stage.list_said():
                return [f"the ledger is refused: {error}"]
        return self._judge(self._make_again)

    def _make_again(self) -> list[str]:
        self.stage.make_hive()
        return [str(violation) for violation in check_history(self.stage.read_history(settled=False))]


def play_one(slot: PowerSlot, text: str) -> int:
    """Play one state again, as a failure prints it."""
    name, _, label = text.partition("/")
    slot.record(name)
    state = next(slot.make([label]), None)
    if state is None:
        sys.stdout.write(f"{name} has no state {label} this time\n")
        return 2
    wrong = slot._play(name, Disk(slot.world), state, recover=True)  # noqa: SLF001 - its own main
    sys.stdout.write(f"{slot.stage.show()}\n\n{text}: {wrong or 'well'}\n")
    return 1 if wrong else 0


def answer(slot: PowerSlot, line: str) -> dict[str, Any]:
    name, seconds, seed, *more = line.split()
    most_bad = int(more[0]) if more else None
    try:
        return slot.cut(name, float(seconds), int(seed), most_bad, recover_all="recover" in more).__dict__
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
            before = read_cpu_s()
            reply = answer(slot, line)
            sys.stdout.write(json.dumps({**reply, "cpu_s": read_cpu_s() - before}) + "\n")
            sys.stdout.flush()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
