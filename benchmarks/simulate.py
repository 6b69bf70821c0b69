"""`make bench-simulate`: the queue's own policy in virtual time, against one change at a time.

A tree is the set of changes in it (a bit each), so two candidates made of the same changes have one verdict. Whatever
the policy does is held against what must never be: simulating one that is wrong ends in an AssertionError.
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import mean
from typing import NamedTuple, assert_never

from benchmarks import Figure
from hivekeeper.domain import train as t
from hivekeeper.domain.train import Verdict

POLICIES: dict[str, t.Policy] = {"strict": t.plan_strict}
GOALS = {2: 1.7, 4: 3.0, 8: 4.0}  # slots, and how many times what lands one at a time
LANDINGS, LAST = 400, 20  # how many land in a simulation; a change may clash with one of so many before it
_STALLED = 1000  # a policy that changes its mind so often at one moment never comes to an end


@dataclass(frozen=True, slots=True)
class Odds:
    """How often something happens, as a share of all changes or runs, and how many seconds something takes."""

    bad: float = 0.05
    clash: float = 0.02
    flake: float = 0.0
    verify_s: float = 60.0
    spread: float = 0.2
    build_s: float = 0.05
    land_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """What comes to the queue; `clashes`, `conflicts` and `mends` are sets of other changes.

    It fails if it is bad and not mended, or with one it clashes with; with one it conflicts with it is not merged.
    """

    number: int
    is_bad: bool = False
    clashes: int = 0
    conflicts: int = 0
    mends: int = 0
    is_hotfix: bool = False

    @property
    def alone(self) -> int:
        """The set of it alone."""
        return 1 << self.number


@dataclass(slots=True)
class Entry:
    """A change in the queue: its candidate, its run or landing, and the tree whose failure made it a suspect."""

    change: Change
    base: str = ""
    commit: str = ""
    run: int | None = None
    landing: int | None = None
    forgiven: int | None = None


class Simulation:
    """One queue. `mains` are the trees that its integration branch has been at, the last one now."""

    def __init__(self, policy: t.Policy, odds: Odds, slots: int, chance: random.Random) -> None:
        self.policy, self.odds, self.slots, self.chance, self.now, self.runs = policy, odds, slots, chance, 0.0, 0
        self.entries, self.main = list[Entry](), Entry(Change(0), commit="main")
        self.trees, self.mains = {"": 0, "main": 0}, [0]
        self.passed, self.failed = {0}, Counter[int]()
        self.landed, self.refused, self.settled, self.wronged = (list[Change]() for _ in range(4))
        self._bad, self._special, self._names = 0, list[Change](), dict[tuple[int, str], str]()
        self._ends, self._numbers = list[tuple[float, int, Entry]](), count()

    def add(self, change: Change) -> None:
        """Hand in a change: a hotfix behind the other hotfixes, any other behind all."""
        self._know(change)
        place = sum(entry.change.is_hotfix for entry in self.entries) if change.is_hotfix else len(self.entries)
        self.entries.insert(place, Entry(change))

    def push(self, change: Change) -> None:
        """Move the integration branch from outside."""
        self._know(change)
        self._move(self._commit(change, self.main.commit))

    def resume(self) -> None:
        """Let a person say that the integration branch is to be tried again."""
        del self.failed[self.mains[-1]]

    def is_good(self, tree: int) -> bool:
        """Tell whether a tree passes, as far as the gate tells the truth."""
        inside, bad = [change for change in self._special if tree & change.alone], tree & self._bad
        for change in inside:
            bad &= ~change.mends
        return not bad and not any(change.clashes & tree for change in inside)

    def judge(self, entry: Entry) -> Verdict:
        """Tell what is known of a candidate, or of the integration branch."""
        tree = self.trees[entry.commit]
        if entry.run is not None:
            return Verdict.RUNNING
        if tree in self.passed and entry.commit:
            return Verdict.PASSED
        return Verdict.FAILED if self.failed[tree] > (tree == entry.forgiven) else Verdict.UNTRIED

    def step(self) -> bool:
        """Do all there is to do now, then go on to the end of something; tell whether there was one."""
        assert any(not self._act() for _ in range(_STALLED)), "the policy never comes to an end"
        while self._ends:
            at, number, entry = heapq.heappop(self._ends)
            if self._end(number, entry):
                self.now = max(self.now, at)
                return True
        return False

    def _know(self, change: Change) -> None:
        self._bad |= change.alone if change.is_bad else 0
        if change.clashes or change.conflicts or change.mends:
            self._special.append(change)

    def _commit(self, change: Change, onto: str) -> str:
        name = self._names.setdefault((change.number, onto), f"commit {len(self._names)}")
        self.trees[name] = self.trees[onto] | change.alone
        return name

    def _move(self, commit: str) -> None:
        self.main.commit, self.main.run = commit, None
        self.mains.append(self.trees[commit])

    def _see(self, entry: Entry) -> t.Car:
        change, is_suspect, is_landing = entry.change, entry.forgiven is not None, entry.landing is not None
        known = (str(change.number), entry.base or None, entry.commit or None, self.judge(entry))
        return t.Car(*known, is_suspect, is_landing, change.is_hotfix, partial(self._conflicts, change))

    def _conflicts(self, change: Change, onto: str) -> bool:
        tree = self.trees[onto]
        others = (other.conflicts for other in self._special if other.alone & tree)
        return bool(tree & change.conflicts) or any(conflicts & change.alone for conflicts in others)

    def _count_free(self) -> int:
        return self.slots - sum(entry.run is not None for entry in (self.main, *self.entries))

    def _act(self) -> bool:
        """Ask the policy and do what it says; tell whether that was anything."""
        cars = [self._see(entry) for entry in self.entries]
        now = t.Snapshot(self.main.commit, self.judge(self.main), cars, self._count_free())
        actions = [action for action in self.policy(now) if not isinstance(action, t.Stop)]
        for action in actions:
            self._do(action)
        return bool(actions)

    def _do(self, action: t.Action) -> None:
        entry = self.main
        if not isinstance(action, t.VerifyMain):
            [entry] = [each for each in self.entries if str(each.change.number) == action.key]
        change, verdict, is_red = entry.change, self.judge(entry), self.judge(self.main) is Verdict.FAILED
        assert entry.landing is None, "what lands is left alone"
        assert change.is_hotfix or not is_red, "on a red main nothing but a hotfix moves"
        match action:
            case t.Build(_, onto):
                assert not self._conflicts(change, onto), "what conflicts cannot be made"
                self.now += self.odds.build_s
                entry.base, entry.commit, entry.run = onto, self._commit(change, onto), None
            case t.Verify() | t.VerifyMain():
                assert verdict is Verdict.UNTRIED, "what is known is not tried again"
                assert self._count_free() > 0, "no more verifications at once than there are slots"
                self.runs += 1
                variance = math.log(1 + self.odds.spread**2)
                mu = math.log(self.odds.verify_s) - variance / 2
                entry.run = self._schedule(self.chance.lognormvariate(mu, math.sqrt(variance)), entry)
            case t.Land():
                assert entry.base == self.main.commit, "it lands on what it was made on"
                assert self.trees[entry.commit] in self.passed, "what lands has passed"
                assert all(each.landing is None for each in self.entries), "one lands at a time"
                entry.landing = self._schedule(self.odds.land_s, entry)
            case t.Suspect():
                assert verdict is Verdict.FAILED, "who has not failed is no suspect"
                assert entry.base == self.main.commit, "a failure counts when everything before it has landed"
                entry.forgiven = self.trees[entry.commit]
            case t.Clear():
                assert verdict is Verdict.PASSED, "who has not passed is not cleared"
                entry.forgiven = None
            case t.Reject():
                good = (tree for tree in self.mains if tree in self.passed)
                assert sum(self.failed[tree | change.alone] for tree in good) > 1, (
                    "refused: twice, alone on a good main"
                )
                self._leave(entry, self.refused)
                self.wronged += [change] if self.is_good(self.mains[-1] | change.alone) else []
            case t.Resolve():
                assert self._conflicts(change, self.main.commit), "it conflicts with what has landed"
                self._leave(entry, self.settled)
            case t.Stop():
                pass
            case _:
                assert_never(action)

    def _leave(self, entry: Entry, fate: list[Change]) -> None:
        self.entries.remove(entry)
        fate.append(entry.change)

    def _schedule(self, seconds: float, entry: Entry) -> int:
        number = next(self._numbers)
        heapq.heappush(self._ends, (self.now + seconds, number, entry))
        return number

    def _end(self, number: int, entry: Entry) -> bool:
        """End a verification or a landing; tell whether it had not been given up before."""
        tree = self.trees[entry.commit]
        if number == entry.landing:
            entry.landing = None
            if entry.base == self.main.commit:  # else somebody has pushed meanwhile, and the entry stays
                self._move(entry.commit)
                self._leave(entry, self.landed)
                assert self.is_good(tree), "main is good"
        elif number == entry.run:
            entry.run = None
            if self.is_good(tree) and self.chance.random() >= self.odds.flake:
                self.passed.add(tree)
            else:
                self.failed[tree] += 1
        else:
            return False
        return True


class Tally(NamedTuple):
    """What came of a simulation; `wrong` is the share of the good changes that were refused, in percent."""

    landings: float
    runs: float
    wrong: float

    def __str__(self) -> str:
        return f"{self.landings:.0f} landings an hour with {self.runs:.2f} runs each"


def draw_changes(odds: Odds, chance: random.Random) -> Iterator[Change]:
    """Draw changes without end."""
    for number in count():
        clashes = number > 0 and chance.random() < odds.clash
        other = 1 << (number - chance.randint(1, min(LAST, number))) if clashes else 0
        yield Change(number, is_bad=chance.random() < odds.bad, clashes=other)


def simulate(policy: t.Policy, odds: Odds, slots: int, landings: int, seed: int) -> Tally:
    """Let so many changes land, from a queue that is never empty."""
    changes = draw_changes(odds, random.Random(seed))  # noqa: S311 - chance of no secret
    queue = Simulation(policy, odds, slots, random.Random(f"runs {seed}"))  # noqa: S311 - as above
    while len(queue.landed) < landings:
        while len(queue.entries) < 3 * slots + 5:
            queue.add(next(changes))
        assert queue.step(), "the queue stands still"
    wronged = len(queue.wronged)
    return Tally(landings / queue.now * 3600, queue.runs / landings, wronged / (landings + wronged) * 100)


def run_all(seeds: int) -> Iterator[Figure]:
    """Simulate every policy, with every number of slots."""
    for name, policy in POLICIES.items():
        serial = _repeat(policy, Odds(), 1, seeds)
        for slots, goal in GOALS.items():
            tally = _repeat(policy, Odds(), slots, seeds)
            ratio, what = tally.landings / serial.landings, f"{name}, {slots} at once / one at a time, simulated"
            yield Figure(what, ratio, "×", f"≥ {goal:g}", ratio >= goal, f"{tally}; one at a time {serial}")
        for slots in (1, *GOALS):
            tally = _repeat(policy, Odds(flake=0.05), slots, seeds)
            what = f"{name}, {slots} at once, simulated: good changes refused when 5 % of all runs fail for nothing"
            yield Figure(what, tally.wrong, "%", "≤ 0.5", tally.wrong <= 0.5, str(tally))


def _repeat(policy: t.Policy, odds: Odds, slots: int, seeds: int) -> Tally:
    tallies = (simulate(policy, odds, slots, LANDINGS, seed) for seed in range(seeds))
    return Tally(*map(mean, zip(*tallies, strict=True)))
