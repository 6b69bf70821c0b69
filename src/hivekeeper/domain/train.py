"""The strict train: several candidates are verified at once, each made on those before it, and each lands by itself.

A policy is a pure function of one snapshot of a repository's queue to what is to be done now; whatever happens, it is
asked again. Its rules:

1. The queue's order is the train's. A car is made on the nearest car before it that has not failed.
2. A car lands when it has passed and everything before it has landed: what passed is what lands.
3. A car that failed counts as failed once everything before it has landed. It is then tried once more, alone on the
   integration branch, while the others go on without it. Passed: it was a flake, and the car takes its place again.
   Failed again: it is refused. Neither failure counts unless the integration branch itself is known to pass.
4. If the integration branch does not pass, nobody is to blame: the queue stands still. Only a hotfix still moves.
5. A car that cannot be merged with those before it waits until they have landed; only then is the conflict its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What is known of a tree under a gate; BROKEN is a gate that could not be run."""

    UNTRIED = "UNTRIED"
    RUNNING = "RUNNING"
    PASSED = "PASSED"
    FAILED = "FAILED"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Car:
    """An entry of the queue: its candidate `commit` is made on `base`.

    `verdict` is that of its candidate's tree; of a suspect, which has failed alone once, without that failure.
    `conflicts` tells whether it cannot be merged onto a commit. One that `is_landed` is on the branch already, and
    nobody took note of it.
    """

    key: str
    base: str | None = None
    commit: str | None = None
    verdict: Verdict = Verdict.UNTRIED
    is_suspect: bool = False
    is_landing: bool = False
    is_hotfix: bool = False
    conflicts: Callable[[str], bool] = lambda _onto: False
    is_landed: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A repository's queue: its integration branch, what is known of that, and the cars in order.

    `slots` is how many more verifications may begin.
    """

    head: str
    main: Verdict
    cars: Sequence[Car]
    slots: int


@dataclass(frozen=True, slots=True)
class Build:
    """Make the car's candidate anew, on another commit."""

    key: str
    onto: str


@dataclass(frozen=True, slots=True)
class Verify:
    """Verify the car's candidate."""

    key: str


@dataclass(frozen=True, slots=True)
class VerifyMain:
    """Verify the integration branch itself."""


@dataclass(frozen=True, slots=True)
class Land:
    """Move the integration branch to the car's candidate."""

    key: str


@dataclass(frozen=True, slots=True)
class Suspect:
    """Count a failure: the car is tried alone from now on."""

    key: str


@dataclass(frozen=True, slots=True)
class Clear:
    """A suspect passed: it was a flake."""

    key: str


@dataclass(frozen=True, slots=True)
class Reject:
    """The car failed twice on an integration branch that passes."""

    key: str


@dataclass(frozen=True, slots=True)
class Resolve:
    """The car conflicts with what has landed."""

    key: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing can be verified: the integration branch is red, or (with a key) a car's gate cannot be run."""

    key: str | None = None


Action = Build | Verify | VerifyMain | Land | Suspect | Clear | Reject | Resolve | Stop
Policy = Callable[[Snapshot], list[Action]]


def plan_strict(now: Snapshot) -> list[Action]:
    """Decide what to do now, in order. A Build changes the snapshot, so nothing is decided behind it."""
    actions: list[Action] = []
    landing = next((car for car in now.cars if car.is_landing), None)
    parent, slots = now.head if landing is None or landing.is_landed else (landing.commit or now.head), now.slots
    for car in now.cars:
        if car.is_landing or (now.main is Verdict.FAILED and not car.is_hotfix):
            continue
        if car.is_landed:
            action = _plan_landed(car, slots, may_land=landing is None)
        else:
            action = _plan_suspect(car, now, slots) if car.is_suspect else _plan_car(car, parent, now, slots)
        if action and action not in actions:  # several may wait for the integration branch to be verified
            actions.append(action)
        if isinstance(action, Build):
            return actions
        slots -= isinstance(action, Verify | VerifyMain)
        if car.is_suspect or car.is_landed or car.verdict in (Verdict.FAILED, Verdict.BROKEN) or car.conflicts(parent):
            continue  # nobody is made on it
        if car.verdict is Verdict.UNTRIED and action is None:
            break  # there is no slot for it, so there is none for those behind it
        parent = car.commit or parent
    if now.main in (Verdict.FAILED, Verdict.BROKEN):
        actions.append(Stop())
    return actions


def _plan_landed(car: Car, slots: int, *, may_land: bool) -> Action | None:
    """Take note of what landed, which is a fact; what its gate says of it is wanted all the same."""
    match car.verdict:
        case Verdict.UNTRIED:
            return Verify(car.key) if slots > 0 else None
        case Verdict.RUNNING:
            return None
        case _:
            return Land(car.key) if may_land else None


def _plan_car(car: Car, parent: str, now: Snapshot, slots: int) -> Action | None:
    is_first = parent == now.head  # everything before it has landed
    if car.conflicts(parent):
        return Resolve(car.key) if is_first else None
    if car.base != parent:
        return Build(car.key, parent)
    match car.verdict:
        case Verdict.UNTRIED:
            return Verify(car.key) if slots > 0 else None
        case Verdict.PASSED:
            return Land(car.key) if is_first else None
        case Verdict.FAILED:
            return _blame(Suspect(car.key), now, slots) if is_first else None
        case Verdict.BROKEN:
            return Stop(car.key)
        case Verdict.RUNNING:
            return None


def _plan_suspect(car: Car, now: Snapshot, slots: int) -> Action | None:
    match car.verdict:
        case Verdict.RUNNING:
            return None  # whatever has landed since, it began alone
        case Verdict.PASSED:
            return Clear(car.key)
        case Verdict.FAILED:
            return _blame(Reject(car.key), now, slots)
        case Verdict.BROKEN:
            return Stop(car.key)
        case Verdict.UNTRIED if car.conflicts(now.head):
            return Resolve(car.key)
        case Verdict.UNTRIED if car.base != now.head:
            return _blame(Build(car.key, now.head), now, slots)
        case Verdict.UNTRIED:
            return Verify(car.key) if slots > 0 else None


def _blame(action: Action, now: Snapshot, slots: int) -> Action | None:
    """Hold a failure against a car only where the integration branch is known to pass; find that out first."""
    if now.main is Verdict.PASSED:
        return action
    return VerifyMain() if now.main is Verdict.UNTRIED and slots > 0 else None
