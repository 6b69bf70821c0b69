"""The loops: each reads tables, observes the world, decides purely, commits once, then acts.

Loops never call each other; they communicate through the ledger. Nothing waits inside a pass. A loop is one file that
declares what wakes it; `find_loops` discovers it.
"""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import ClassVar, Protocol

from hivekeeper.clock import Clock
from hivekeeper.commands.runs import intend_run
from hivekeeper.domain.agents import AgentFile
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
    """A shutdown of the keeper: since when it saves all work, or whether it `is_closing` and stops all workers."""

    since: str | None = None
    is_closing: bool = False


class AgentFiles(Protocol):
    """Knows the form of agents' files."""

    def read_agent_file(self, names: Sequence[str], file: str, path: str, text: str) -> AgentFile:
        """Read one."""

    def write_agent_file(self, file: str, values: Mapping[str, str | int | Sequence[str]], old: str = "") -> str:
        """Write one on top of what it was."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What loops are built from.

    `find_problem` explains why a runner cannot be started on this machine; `problems` says what fails in this keeper.
    `agent_files` knows the form of the files that people edit.
    """

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
    problems: dict[str, str] = field(default_factory=dict)
    agent_files: AgentFiles | None = None


@dataclass(frozen=True, slots=True)
class Wakes:
    """What wakes a loop: events of these kinds, and the ends of runs of these kinds."""

    events: tuple[type[Body], ...] = ()
    ends_of: tuple[str, ...] = ()
    run_changed: bool = False  # any change of a run, before it is recorded

    def is_woken_by(self, body: Body) -> bool:
        """Whether this event wakes the loop."""
        if isinstance(body, (RunExited, RunLost)) and body.run_kind in self.ends_of:
            return True
        return isinstance(body, self.events)


class Loop(ABC):
    """A loop of the keeper, in its own thread: runs when woken, after a pause of `rest_s`, or every `interval_s`.

    `order` is its place when one thread runs all loops; those that `saves_work` still run while workers are stopped.
    """

    name: ClassVar[str]
    order: ClassVar[int]
    wakes: ClassVar[Wakes]
    saves_work: ClassVar[bool] = False
    rest_s: float = 0.0
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

    def is_woken_by(self, body: Body) -> bool:
        """Whether this event wakes the loop."""
        return self.wakes.is_woken_by(body)

    def hear(self, bodies: Sequence[Body]) -> bool:
        """Hear of all events of a commit; whether they wake the loop."""
        return any(map(self.is_woken_by, bodies))

    def _intend(self, tx: Transaction, owner: Owner, start: Start, spec: RunSpec) -> None:
        """Record the intent of a run."""
        intend_run(tx, owner, start, name_places(self._places, spec), boot_id=self._boot_id)

    def watch(self, wake: Callable[[], None]) -> None:  # noqa: B027 - most loops watch nothing
        """Start to watch what wakes this loop besides events."""

    def unwatch(self) -> None:  # noqa: B027 - as above
        """Stop watching."""

    def finish(self) -> None:  # noqa: B027 - most loops leave everything to the next keeper
        """Do what the keeper does last, when no loop runs any more."""

    @abstractmethod
    def run_once(self) -> Counts:
        """Make one pass and return what it did; empty means that another pass would do nothing either."""


@cache
def find_loops() -> tuple[type[Loop], ...]:
    """Find all loops, in order: the classes in the modules of this package."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found = {value for module in modules for value in vars(module).values() if _is_loop(value)}
    return tuple(sorted(found, key=lambda loop: loop.order))


def _is_loop(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Loop) and value is not Loop
