"""The merge queue's policy, asked about anything and simulated to the end: whatever happens, what must not be is not.

What must never be is asserted by the simulator as it goes; here it is given every kind of change, push and flake, and
policies with a planted bug, each of which has to be caught.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from benchmarks.simulate import POLICIES, Change, Odds, Simulation, simulate
from hivekeeper.domain import train as t
from hivekeeper.domain.train import Verdict
from tests.property.budget import PATIENCE, tries

pytestmark = PATIENCE

FAR, NONE = 4, 0  # a change has to do with one of so few before it, or with none
OTHERS = st.sampled_from([NONE, NONE, NONE, *range(1, FAR + 1)])


@st.composite
def cars(draw: st.DrawFn, key: str) -> t.Car:
    """A car of which anything may be known: its candidate was made on the head, or on one that is there or was."""
    conflicts = draw(st.sampled_from([frozenset[str](), frozenset[str](), frozenset({"head"}), frozenset("01234567")]))
    car = t.Car(key, is_hotfix=draw(st.booleans()), conflicts=conflicts.__contains__)
    if draw(st.integers(0, 4)) == 0:
        return car
    base, verdict = draw(st.sampled_from(["head", *"01234567"])), draw(st.sampled_from(Verdict))
    return replace(car, base=base, commit=key, verdict=verdict, is_suspect=draw(st.booleans()))


@st.composite
def snapshots(draw: st.DrawFn) -> t.Snapshot:
    """Any facts at all, also such as no queue could come to."""
    drawn = [draw(cars(str(number))) for number in range(draw(st.integers(0, 6)))]
    if draw(st.booleans()) and drawn:
        drawn[draw(st.integers(0, len(drawn) - 1))] = t.Car("7", "head", "7", Verdict.PASSED, is_landing=True)
    return t.Snapshot("head", draw(st.sampled_from(Verdict)), drawn, draw(st.integers(0, 4)))


@pytest.mark.parametrize("name", POLICIES)
@given(now=snapshots())
@tries(400)
def test_whatever_the_facts_are_what_is_decided_follows_from_them(name: str, now: t.Snapshot) -> None:
    see_that_it_follows(now, POLICIES[name](now), POLICIES[name](now))


def see_that_it_follows(now: t.Snapshot, actions: list[t.Action], again: list[t.Action]) -> None:
    """Hold what a policy decided against the facts it was given."""
    assert actions == again, "the same facts, another answer"
    named = [action.key for action in actions if not isinstance(action, t.VerifyMain) and action.key is not None]
    assert len(set(named)) == len(named), "one thing at a time is done with a car"
    begun = [action for action in actions if isinstance(action, t.Verify | t.VerifyMain)]
    assert len(begun) <= now.slots, "more verifications than slots"
    assert len([action for action in begun if isinstance(action, t.VerifyMain)]) <= (now.main is Verdict.UNTRIED)
    assert not any(isinstance(action, t.Build) for action in actions[:-1]), "something is decided behind a Build"
    by_key = {car.key: (place, car) for place, car in enumerate(now.cars)}
    for action in actions:
        if isinstance(action, t.VerifyMain) or action.key is None:
            continue
        place, car = by_key[action.key]
        assert not car.is_landing, "what lands is left alone"
        assert now.main is not Verdict.FAILED or car.is_hotfix, "on a red main nothing but a hotfix moves"
        match action:
            case t.Land():
                assert car.verdict is Verdict.PASSED, "it lands without having passed"
                assert car.base == now.head, "it lands on something else than it was made on"
                assert not any(each.is_landing for each in now.cars), "two landings out of one head"
                assert all(has_failed(each, now) for each in now.cars[:place]), "it overtakes one that has not failed"
            case t.Reject():
                assert car.is_suspect, "refused at its first failure"
                assert car.verdict is Verdict.FAILED
                assert now.main is Verdict.PASSED, "refused on a main that is not known to pass"
            case t.Suspect():
                assert (car.verdict, car.base, car.is_suspect) == (Verdict.FAILED, now.head, False)
            case t.Resolve():
                assert car.conflicts(now.head)
            case t.Build():
                assert not car.conflicts(action.onto)
            case t.Verify():
                assert car.verdict is Verdict.UNTRIED
            case t.Clear():
                assert car.is_suspect
                assert car.verdict is Verdict.PASSED
            case t.Stop():
                assert car.verdict is Verdict.BROKEN
    assert len([action for action in actions if isinstance(action, t.Land)]) <= 1, "two landings out of one head"


def has_failed(car: t.Car, now: t.Snapshot) -> bool:
    """Tell whether a car has lost its place in the queue's order."""
    may_not_move = now.main is Verdict.FAILED and not car.is_hotfix
    failed = car.is_suspect or car.verdict in (Verdict.FAILED, Verdict.BROKEN)
    return failed or may_not_move or car.conflicts(now.head)


class Trains(RuleBasedStateMachine):
    """People hand in changes and push, gates tell the truth or do not, and time passes."""

    def __init__(self, policy: t.Policy = t.plan_strict) -> None:
        super().__init__()
        self.policy = policy
        self.number = 0
        self.pushed_bad = 0

    @initialize(
        slots=st.integers(1, 5),
        flake=st.sampled_from([0.0, 0.0, 0.2, 0.6]),
        land_s=st.sampled_from([0.0, 1.0, 100.0]),
        seed=st.integers(0, 2**32),
    )
    def begin(self, slots: int, flake: float, land_s: float, seed: int) -> None:
        odds = Odds(flake=flake, land_s=land_s, spread=0.5)
        self.queue = Simulation(self.decide, odds, slots, random.Random(seed))  # noqa: S311 - chance of no secret

    def decide(self, now: t.Snapshot) -> list[t.Action]:
        """Ask the policy, and hold what it says against the facts."""
        actions = self.policy(now)
        see_that_it_follows(now, actions, self.policy(now))
        return actions

    def make_change(self, *, bad: bool, clash: int = NONE, conflict: int = NONE, hotfix: bool = False) -> Change:
        """Make the next change; it has to do with those that came so many before it."""
        clashes, conflicts = (
            1 << (self.number - back) if NONE < back <= self.number else 0 for back in (clash, conflict)
        )
        mends = self.pushed_bad if hotfix else 0
        self.number += 1
        return Change(self.number - 1, bad, clashes, conflicts, mends, is_hotfix=hotfix)

    @rule(bad=st.integers(0, 3), clash=OTHERS, conflict=OTHERS, hotfix=st.integers(0, 5))
    def hand_in(self, bad: int, clash: int, conflict: int, hotfix: int) -> None:
        self.queue.add(self.make_change(bad=bad == 0, clash=clash, conflict=conflict, hotfix=hotfix == 0))

    @rule(bad=st.booleans())
    def push(self, *, bad: bool) -> None:
        change = self.make_change(bad=bad)
        self.queue.push(change)
        self.pushed_bad |= change.alone if bad else 0

    @rule(times=st.integers(1, 6))
    def let_time_pass(self, times: int) -> None:
        for _ in range(times):
            self.queue.step()

    @rule()
    @precondition(lambda self: self.queue.judge(self.queue.main) is Verdict.FAILED)
    def resume(self) -> None:
        self.queue.resume()

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.let_everything_end()

    def let_everything_end(self) -> None:
        """From now on gates tell the truth and a person mends the integration branch: nobody waits for ever."""
        queue = self.queue
        queue.odds = replace(queue.odds, flake=0.0)
        bound = 4 * (len(queue.entries) + 1) ** 2
        for _ in range(bound):
            if queue.step():
                continue
            if not queue.entries:
                break
            assert queue.judge(queue.main) is Verdict.FAILED, "the queue stands still"
            if queue.is_good(queue.mains[-1]):
                queue.resume()
            else:
                queue.add(self.make_change(bad=False, hotfix=True))
        assert not queue.entries, f"somebody still waits after {bound} steps"
        decided = queue.landed + queue.refused + queue.settled
        assert len({change.number for change in decided}) == len(decided), "one change has one fate"


def test_whatever_happens_main_is_good_and_nobody_is_wronged_or_waits_for_ever() -> None:
    run_state_machine_as_test(Trains, settings=tries(100, steps=30))


def test_a_simulation_depends_on_its_seed_and_on_nothing_else() -> None:
    first, again, other = (simulate(t.plan_strict, Odds(flake=0.05), 4, 30, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def misread(**facts: Callable[[t.Car, t.Snapshot], Any]) -> t.Policy:
    """Plant a bug: the policy sees something else of every car than there is."""

    def decide(now: t.Snapshot) -> list[t.Action]:
        seen = [replace(car, **{name: fact(car, now) for name, fact in facts.items()}) for car in now.cars]
        return t.plan_strict(replace(now, cars=seen))

    return decide


def take_main(verdict: Verdict, *, for_: Verdict) -> t.Policy:
    """Plant a bug: the policy sees something else of the integration branch than is known."""
    return lambda now: t.plan_strict(replace(now, main=for_) if now.main is verdict else now)


def forget(kind: type[t.Action]) -> t.Policy:
    """Plant a bug: something is never done."""
    return lambda now: [action for action in t.plan_strict(now) if not isinstance(action, kind)]


def land_what_passed_anywhere(now: t.Snapshot) -> list[t.Action]:
    """Plant a bug: whoever has passed first lands."""
    passed = [car for car in now.cars if car.verdict is Verdict.PASSED and not car.is_landing]
    return [t.Land(passed[0].key)] if passed else t.plan_strict(now)


def refuse_at_once(now: t.Snapshot) -> list[t.Action]:
    """Plant a bug: nobody is tried again."""
    return [t.Reject(action.key) if isinstance(action, t.Suspect) else action for action in t.plan_strict(now)]


def blame_for_a_red_main(now: t.Snapshot) -> list[t.Action]:
    """Plant a bug: only who is to be refused asks whether main passes, and it may have been mended meanwhile."""
    if now.main is not Verdict.UNTRIED:
        return t.plan_strict(now)
    actions = t.plan_strict(replace(now, main=Verdict.PASSED))
    if not any(isinstance(action, t.Reject) for action in actions):
        return actions
    return [t.VerifyMain()] if now.slots > 0 else []


PLANTED: dict[str, tuple[t.Policy, str]] = {
    "a gate that runs is taken for one that passed": (
        misread(verdict=lambda car, _: Verdict.PASSED if car.verdict is Verdict.RUNNING else car.verdict),
        "without having passed",
    ),
    "what passed lands wherever it was made": (land_what_passed_anywhere, "something else than it was made on"),
    "a landing under way is not seen": (misread(is_landing=lambda _car, _now: False), "left alone"),
    "a conflict is not seen": (misread(conflicts=lambda _car, _now: lambda _onto: False), "conflicts"),
    "a conflict is never settled": (forget(t.Resolve), "stands still"),
    "a slot too many is counted": (lambda now: t.plan_strict(replace(now, slots=now.slots + 1)), "slots"),
    "a red main is taken for a good one": (take_main(Verdict.FAILED, for_=Verdict.PASSED), "nothing but a hotfix"),
    "an untried main is taken for a good one": (take_main(Verdict.UNTRIED, for_=Verdict.PASSED), "not known to pass"),
    "a failure on a red main is counted": (blame_for_a_red_main, "alone on a good main"),
    "who comes last is served first": (lambda now: t.plan_strict(replace(now, cars=now.cars[::-1])), "overtakes"),
    "hotfixes have no precedence": (
        lambda now: t.plan_strict(replace(now, cars=sorted(now.cars, key=lambda car: car.is_hotfix))),
        "overtakes",
    ),
    "the first failure is the last": (refuse_at_once, "first failure"),
    "a failure is never counted": (forget(t.Suspect), "stands still"),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught_and_the_promise_it_breaks_is_named(bug: str) -> None:
    policy, promise = PLANTED[bug]
    with pytest.raises(AssertionError, match=promise):
        run_state_machine_as_test(lambda: Trains(policy), settings=tries(150, steps=30))  # type: ignore[arg-type]  # it is called
