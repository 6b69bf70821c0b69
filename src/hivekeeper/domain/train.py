"""The strict train: several candidates are verified at once, each built on those before it, and each lands by itself.

A policy is a pure function from a snapshot of a repository's queue to the actions to take now. It is asked again after
every change. Its rules:

1. Cars are in queue order. A car is built on the nearest car before it that has not failed.
2. A car lands when it has passed and everything before it has landed: what passed is what lands.
3. A failure counts once everything before the car has landed. Then the car is verified once more, alone on the
   integration branch, while the others continue without it. If it passes, it was a flake, and the car takes its place
   again. If it fails, it is rejected. No failure counts unless the integration branch itself passes.
4. If the integration branch fails, the queue stops. Only a hotfix still moves.
5. A car that conflicts with those before it waits until they have landed; only then is the conflict its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The result of a gate for a tree; BROKEN: the gate could not be run."""

    UNTRIED = "UNTRIED"
    RUNNING = "RUNNING"
    PASSED = "PASSED"
    FAILED = "FAILED"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Car:
    """An entry of the queue: its candidate `commit` is built on `base`.

    `verdict` is that of its candidate's tree; for a suspect, which has failed once, that failure does not count.
    `conflicts` says whether it cannot be merged onto a commit. A car that `is_landed` is on the branch already, and
    the landing was not recorded.
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
    """A repository's queue: its integration branch, the verdict on it, and the cars in order.

    `slots` is how many more verifications may start.
    """

    head: str
    main: Verdict
    cars: Sequence[Car]
    slots: int


@dataclass(frozen=True, slots=True)
class Build:
    """Rebuild the car's candidate on another commit."""

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
    """Count a failure: from now on the car is verified alone."""

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
    """Nothing can be verified: the integration branch fails, or (with a key) a car's gate cannot be run."""

    key: str | None = None


Action = Build | Verify | VerifyMain | Land | Suspect | Clear | Reject | Resolve | Stop
Policy = Callable[[Snapshot], list[Action]]


def plan_strict(now: Snapshot) -> list[Action]:
    """Decide what to do now, in order. A Build changes the snapshot, so nothing is decided after it."""
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
        if action and action not in actions:  # several may need the integration branch to be verified
            actions.append(action)
        if isinstance(action, Build):
            return actions
        slots -= isinstance(action, Verify | VerifyMain)
        if car.is_suspect or car.is_landed or car.verdict in (Verdict.FAILED, Verdict.BROKEN) or car.conflicts(parent):
            continue  # no car is built on it
        if car.verdict is Verdict.UNTRIED and action is None:
            break  # no slot for it, so none for those behind it
        parent = car.commit or parent
    if now.main in (Verdict.FAILED, Verdict.BROKEN):
        actions.append(Stop())
    return actions


def _plan_landed(car: Car, slots: int, *, may_land: bool) -> Action | None:
    """Verify and then record a change that has landed already."""
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
            return None  # it started alone, whatever has landed since
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
    """Count a failure only if the integration branch passes; if that is unknown, verify it first."""
    if now.main is Verdict.PASSED:
        return action
    return VerifyMain() if now.main is Verdict.UNTRIED and slots > 0 else None
