"""Keeping a hive in the foreground: live progress on a terminal, plain lines elsewhere, Ctrl-C that harms nobody."""

import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from hivekeeper.cli import render
from hivekeeper.clock import to_seconds
from hivekeeper.domain.rows import ConvoyRow
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.errors import UnavailableError
from hivekeeper.hive import Hive
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_events, read_head
from hivekeeper.views.convoys import estimate_end, list_waits, summarise
from hivekeeper.views.events import NOTABLE
from hivekeeper.views.workers import list_workers

if TYPE_CHECKING:
    from hivekeeper.keeper.keeper import Keeper

INTERRUPTED = 130
_REST_S = 0.25  # four pictures a second are as live as anybody reads
_ESTIMATE_AGAIN_S = 5.0
_SWEEP_S = 3.0  # what cannot be removed by then is left to the next keeper


def is_settled(connection: Connection, convoy: str) -> bool:
    """Tell whether a convoy has ended and everything that follows from it is done or waits for a person."""
    found = queries.find_convoy(connection, convoy)
    _, attempts, runs = queries.count_open_work(connection)
    if found is None or attempts or runs:
        return False
    repos = queries.list_repos(connection)
    if found.state is ConvoyState.ACTIVE:
        return _waits_for_repository(connection, convoy, {repo.name for repo in repos if repo.is_away})
    return all(not repo.awaits_publishing or repo.publish_problem or repo.problem or repo.is_away for repo in repos)


def _waits_for_repository(connection: Connection, convoy: str, away: set[str]) -> bool:
    """Tell whether nothing of a convoy can start until a repository that is away is back."""
    open_states = (TaskState.PENDING, TaskState.IN_PROGRESS, TaskState.CANCELLING)
    tasks = [task for task in queries.list_tasks_of_convoy(connection, convoy) if task.state in open_states]
    free = [task for task in tasks if not queries.list_unfinished_predecessors(connection, task.key)] if away else []
    return bool(free) and all(task.repo in away for task in free)


def keep(keeper: "Keeper", hive: Hive, convoy: str | None) -> int:
    """Keep until the convoy is settled (for ever without one); tell the exit code."""
    interrupted, preempted = threading.Event(), threading.Event()

    def interrupt(number: int, _frame: object) -> None:
        if number == signal.SIGTERM:  # not from a person: the machine may be about to go
            preempted.set()
        interrupted.set()

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    with hive.ledger.read() as connection:
        seen = read_head(connection).seq
    display: _Picture | _Lines = _Picture(keeper, hive, convoy) if sys.stdout.isatty() else _Lines()
    keeper.start()
    settled_at: float | None = None
    try:
        with display:
            while not keeper.stopped.is_set() and not interrupted.is_set():
                keeper.wait_for_commit(0.5)
                with hive.ledger.read() as connection:
                    events = read_events(connection, seen, 10_000)
                    seen = events[-1].seq if events else seen
                    news = [render.say_line(event)[11:] for event in events if type(event.body) in NOTABLE]
                    display.show(connection, news)
                    if convoy is not None and is_settled(connection, convoy):
                        settled_at = settled_at or keeper.clock.monotonic()
                        left = queries.list_removable_sandboxes(connection, 1)
                        if not left or keeper.clock.monotonic() - settled_at > _SWEEP_S:
                            break
                for name, problem in keeper.problems.items():
                    sys.stderr.write(f"hive: {name} has trouble and tries again: {render.clean(problem)}\n")
                keeper.problems.clear()
                interrupted.wait(display.rest_s)
        if preempted.is_set():
            saved, workers = keeper.leave()
            sys.stdout.write(f"Stopping; saved the work of {saved} of {workers} workers.\n")
    finally:
        keeper.close()
    if keeper.fenced is not None:
        raise keeper.fenced
    return INTERRUPTED if interrupted.is_set() else 0


class _Lines:
    """What is new, a line each."""

    rest_s = 0.0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, _connection: Connection, news: Sequence[str]) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in news))
        sys.stdout.flush()


class _Picture:
    """A bar a convoy and a line a worker, drawn over and over; what is new scrolls by above.

    All of it is laid out as text: brackets in a title or in an agent's words are no markup.
    """

    rest_s = _REST_S

    def __init__(self, keeper: "Keeper", hive: Hive, convoy: str | None) -> None:
        self._runs = keeper.runs
        self._hive = hive
        self._convoy = convoy
        self._live = Live(console=render.console(), auto_refresh=False, transient=True)
        self._ends: dict[str, tuple[float, str | None]] = {}

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, connection: Connection, news: Sequence[str]) -> None:
        now = self._hive.ledger.clock.now()
        with suppress(UnavailableError):  # too few descriptors to look at runs, say: the last picture stays
            workers = list_workers(connection, self._runs, self._hive.places.runs, now=now)
            convoys = [convoy for convoy in queries.list_convoys(connection) if self._is_shown(convoy)]
            bars = [render.draw_convoy(self._show_convoy(connection, convoy, now)) for convoy in convoys]
            room = max(1, self._live.console.height - len(bars) - 2)
            self._live.update(Group(*bars, render.draw_workers(workers, room)))
        with self._live.console:  # one write for both, so that nothing flickers
            self._live.refresh()
            if news:
                self._live.console.print(Text("\n".join(news)))

    def _is_shown(self, convoy: ConvoyRow) -> bool:
        return convoy.state is ConvoyState.ACTIVE or convoy.name == self._convoy

    def _show_convoy(self, connection: Connection, convoy: ConvoyRow, now: str) -> dict[str, Any]:
        now_s = to_seconds(now)
        at_s, end = self._ends.get(convoy.name, (0.0, None))
        if now_s - at_s > _ESTIMATE_AGAIN_S:  # it reads every task, and a guess need not be fresh
            tasks = queries.list_tasks_of_convoy(connection, convoy.name)
            end = estimate_end(tasks, list_waits(connection, tasks), now=now)
            self._ends[convoy.name] = now_s, end
        left_s = max(0.0, to_seconds(end) - now_s) if end else None
        elapsed_s = to_seconds(convoy.ended_at or now) - to_seconds(convoy.submitted_at)
        return {**summarise(connection, convoy), "elapsed_s": elapsed_s, "left_s": left_s}
