"""A clock that stands still and runs that end when told: for tests and simulations, at no real time at all."""

from collections.abc import Callable
from typing import BinaryIO

from hivekeeper.clock import to_text
from hivekeeper.domain.run import Alive, Claim, Ended, Ending, Gone, Look, Order, Unclaimed


class FakeClock:
    """Time passes only by `advance`."""

    def __init__(self, start: float = 1_776_000_000.0) -> None:
        self._now = start
        self._monotonic = 1000.0

    def now(self) -> str:
        return to_text(self._now)

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float, *, asleep: bool = False) -> None:
        """Let time pass; a machine that is asleep has no monotonic time."""
        self._now += seconds
        self._monotonic += 0.0 if asleep else seconds


class FakeRuns:
    """Runs without processes: `decide` says how a started run ends, None leaves it running."""

    def __init__(self, clock: FakeClock, decide: Callable[[Order], int | None] = lambda _order: 0) -> None:
        self.boot_id = "fake-boot"
        self.started: list[Order] = []
        self._clock = clock
        self._decide = decide
        self._looks: dict[str, Look] = {}

    def start(self, order: Order, isolated: tuple[str, ...] | None = None) -> None:
        del isolated  # there is nobody to isolate
        if order.run in self._looks:
            return
        self.started.append(order)
        claim = Claim(4711, 4711, self.boot_id, self._clock.now())
        status = self._decide(order)
        self._looks[order.run] = Alive(claim)
        if status is not None:
            self.end(order.run, status)

    def end(self, run: str, status: int) -> None:
        """End a living run."""
        look = self.look(run)
        if isinstance(look, Alive):
            self._looks[run] = Ended(look.claim, Ending(status, "exit", 0, self._clock.now()))

    def lose(self, run: str) -> None:
        """Kill a run together with its wrapper."""
        look = self.look(run)
        self._looks[run] = Gone(look.claim if isinstance(look, Alive) else None)

    def look(self, run: str, known: Claim | None = None) -> Look:
        del known
        return self._looks.get(run, Unclaimed())

    def stop(self, run: str, *, hard: bool = False) -> None:
        self.end(run, -9 if hard else -15)

    def forbid(self, run: str) -> None:
        self._looks.setdefault(run, Gone(None, why="it was cancelled before it started"))

    def kill_leftovers(self, pids: tuple[int, ...]) -> None:
        pass

    def read_output(self, run: str, tail_bytes: int = 4000) -> str:
        del run, tail_bytes
        return ""

    def name_output(self, run: str) -> str:
        return run

    def open_output(self, run: str) -> BinaryIO | None:
        del run
        return None

    def close(self) -> None:
        pass
