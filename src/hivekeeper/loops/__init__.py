"""The loops: each reads tables, looks at the world, decides purely, commits once, then acts.

They never call each other; the circle closes through the ledger. Nothing waits inside a pass. A loop is one file: it
says by declaration what wakes it and reads its settings; `find_loops` finds it.
"""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import ClassVar

from hivekeeper.clock import Clock
from hivekeeper.commands.runs import intend_run
from hivekeeper.domain.events import Body, RunExited, RunLost
from hivekeeper.domain.owners import Owner
from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.runner import Runner
from hivekeeper.domain.steps import Start
from hivekeeper.places import Places
from hivekeeper.runs.local import Runs
from hivekeeper.sandbox.isolation import Isolation
from hivekeeper.settings import Settings
from hivekeeper.specs.names import name_places
from hivekeeper.store.ledger import ByKeeper, Ledger, Transaction

Counts = dict[str, int]


@dataclass(slots=True)
class Shutdown:
    """Whether the keeper is about to leave its workers, since when, and whether it is to end them first."""

    since: str | None = None
    is_closing: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    """What loops are built from; `find_problem` tells why a runner cannot be started on this machine."""

    ledger: Ledger
    authority: ByKeeper
    places: Places
    runs: Runs
    clock: Clock
    settings: Settings
    find_isolation: Callable[[], Isolation]
    find_problem: Callable[[Runner], str | None] = lambda _: None
    environment: Mapping[str, str] = field(default_factory=dict)
    shutdown: Shutdown = field(default_factory=Shutdown)


@dataclass(frozen=True, slots=True)
class Wakes:
    """What may give a loop something to do: events of these kinds, and the ends of runs of these kinds."""

    events: tuple[type[Body], ...] = ()
    ends_of: tuple[str, ...] = ()
    run_changed: bool = False  # whatever happens to a run, before anybody has taken note of it

    def hears(self, body: Body) -> bool:
        """Tell whether an event is one of them."""
        if isinstance(body, (RunExited, RunLost)) and body.run_kind in self.ends_of:
            return True
        return isinstance(body, self.events)


class Loop(ABC):
    """What the keeper runs, one thread each: at a nudge but not before `rest_s`, and at least every `interval_s`.

    `order` is its place where one thread runs all of them; `saves_work` is true of those that are needed to save what
    workers have made.
    """

    name: ClassVar[str]
    order: ClassVar[int]
    wakes: ClassVar[Wakes]
    rest_s: ClassVar[float] = 0.0
    saves_work: ClassVar[bool] = False
    interval_s: float = 10.0

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ledger = parts.ledger
        self._authority = parts.authority
        self._places = parts.places
        self._runs = parts.runs
        self._boot_id = parts.runs.boot_id
        self._clock = parts.clock
        self._settings = parts.settings

    def hears(self, body: Body) -> bool:
        """Tell whether this event may give the loop something to do."""
        return self.wakes.hears(body)

    def _intend(self, tx: Transaction, owner: Owner, start: Start, spec: RunSpec) -> None:
        """Write the intent of a run of this hive, in this boot."""
        intend_run(tx, owner, start, name_places(self._places, spec), boot_id=self._boot_id)

    @abstractmethod
    def run_once(self) -> Counts:
        """Make one pass; tell what it did. An empty answer means that another pass would do nothing either."""


@cache
def find_loops() -> tuple[type[Loop], ...]:
    """Find every loop there is: the classes of the modules beside this one, in their order."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found = {value for module in modules for value in vars(module).values() if _is_loop(value)}
    return tuple(sorted(found, key=lambda loop: loop.order))


def _is_loop(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Loop) and value is not Loop
