"""Running the keeper in the foreground, or following another: a live picture or plain lines, and a harmless Ctrl-C."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from hivekeeper.cli import render
from hivekeeper.clock import to_seconds
from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.rows import ConvoyRow
from hivekeeper.domain.states import OPEN_TASKS, AttemptState, ConvoyState
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import UnavailableError
from hivekeeper.hive import Hive, find_keeper_state
from hivekeeper.runs.local import LocalRuns, Runs
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_events, read_head
from hivekeeper.views.convoys import estimate_end, list_waits, summarise
from hivekeeper.views.events import is_notable
from hivekeeper.views.tasks import waits_for_person
from hivekeeper.views.workers import list_workers

if TYPE_CHECKING:
    from hivekeeper.keeper.keeper import Keeper

INTERRUPTED = 130
_REST_S = 0.25  # nobody reads more than four pictures a second
_LOOK_AGAIN_S = 0.1
_ESTIMATE_AGAIN_S = 5.0
_SWEEP_S = 3.0  # what cannot be removed by then is left to the next keeper


def is_settled(connection: Connection, convoy: str, *, now: str, is_attended: bool, is_ours: bool = True) -> bool:
    """Tell whether a convoy has ended, and publishing too, or waits for a person.

    If no person is there (not `is_attended`), it is also settled when nothing can go on until one acts. A keeper of our
    own (`is_ours`) stays until no worker is left.
    """
    found = queries.find_convoy(connection, convoy)
    at_work = [attempt.convoy for attempt, _ in queries.list_open_attempts(connection, AttemptState.WORKING)]
    runs = queries.count_open_work(connection)[2]
    if found is None or convoy in at_work or (is_ours and (at_work or runs)):
        return False
    repos = queries.list_repos(connection)
    if found.state is ConvoyState.ACTIVE:
        away = _waits_for_repository(connection, convoy, {repo.name for repo in repos if repo.is_unreachable})
        return away or (not is_attended and waits_for_person(connection, convoy, now=now))
    return all(
        not repo.awaits_publishing or repo.publish_problem or repo.problem or repo.is_unreachable for repo in repos
    )


def _waits_for_repository(connection: Connection, convoy: str, away: set[str]) -> bool:
    """Tell whether nothing of a convoy can start until a repository that cannot be read is back."""
    tasks = queries.list_tasks_of_convoy(connection, convoy) if away else []
    waits = list_waits(connection, convoy, tasks)
    free = [task for task in tasks if task.state in OPEN_TASKS and not waits.get(task.key)]
    return bool(free) and all(task.repo in away for task in free)


class _Signals:
    """Ctrl-C and SIGTERM: they end the watching and nothing else."""

    def __init__(self) -> None:
        self.interrupted, self.preempted = threading.Event(), threading.Event()
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._interrupt)

    def _interrupt(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM:  # not from a person: the machine may be about to go
            self.preempted.set()
        self.interrupted.set()


def keep(keeper: "Keeper", hive: Hive, convoy: str | None) -> int:
    """Run the keeper until the convoy is settled, for ever without one; return the exit code."""
    signals = _Signals()
    with hive.ledger.read() as connection:
        seen = read_head(connection).seq
    keeper.start()
    settled_at: float | None = None
    told: dict[str, str] = {}

    def is_over(connection: Connection) -> bool:
        nonlocal settled_at
        now = hive.ledger.clock.now()
        if convoy is None or not is_settled(connection, convoy, now=now, is_attended=sys.stdout.isatty()):
            return False
        settled_at = settled_at or keeper.clock.monotonic()
        left = queries.list_removable_sandboxes(connection, 1)
        return not left or keeper.clock.monotonic() - settled_at > _SWEEP_S

    try:
        for _ in _watch(hive, keeper.runs, convoy, seen, keeper.wait_for_commit, is_over, signals):
            problems = dict(keeper.problems)
            for name, problem in problems.items():
                if told.get(name) != problem:
                    sys.stderr.write(f"hive: {name} failed and will retry: {render.clean(problem)}\n")
            told = problems
            if keeper.stopped.is_set():
                break
        if signals.preempted.is_set():
            saved, workers = keeper.leave()
            sys.stdout.write(f"Stopping; saved the work of {saved} of {say_count(workers, 'worker')}.\n")
    finally:
        keeper.close()
    if keeper.fenced is not None:
        raise keeper.fenced
    return INTERRUPTED if signals.interrupted.is_set() else 0


def follow(hive: Hive, convoy: str, seen: int) -> int:
    """Watch a convoy of another process's keeper until it is settled; that keeper goes on, whatever happens here."""
    signals = _Signals()
    with hive.ledger.read() as connection:
        name = read_head(connection).hive

    def wait(longest_s: float) -> None:
        clock, version = hive.ledger.clock, hive.ledger.version()
        deadline = clock.monotonic() + longest_s
        while hive.ledger.version() == version and clock.monotonic() < deadline:
            if signals.interrupted.wait(_LOOK_AGAIN_S):
                return

    def is_over(connection: Connection) -> bool:
        now = hive.ledger.clock.now()
        return is_settled(connection, convoy, now=now, is_attended=sys.stdout.isatty(), is_ours=False)

    with closing(LocalRuns(hive.places.runs, name)) as runs:
        for connection in _watch(hive, runs, convoy, seen, wait, is_over, signals):
            match find_keeper_state(connection, hive.ledger.clock, hive.settings.abandoned_after_s):
                case KeeperState.NONE:
                    what = "The keeper that took the plan has stopped; workers go on."
                    raise UnavailableError(what, advice="Type: hive up")
                case KeeperState.ABANDONED:
                    what = "The keeper that took the plan is alive but has recorded no heartbeat for too long."
                    raise UnavailableError(what, advice="Type: hive up  (it ends that keeper and takes over)")
    return INTERRUPTED if signals.interrupted.is_set() else 0


def _watch(  # noqa: PLR0913, PLR0917 - all that a keeper and one who follows do differently
    hive: Hive,
    runs: Runs,
    convoy: str | None,
    seen: int,
    wait: Callable[[float], None],
    is_over: Callable[[Connection], bool],
    signals: _Signals,
) -> Iterator[Connection]:
    """Show what is new since an event, again and again, until it is over or interrupted; yield after each time."""
    display: _Picture | _Lines = _Picture(runs, hive, convoy) if sys.stdout.isatty() else _Lines()
    with display.live:
        while not signals.interrupted.is_set():
            wait(0.5)
            with hive.ledger.read() as connection:
                events = read_events(connection, seen, 10_000)
                seen = events[-1].seq if events else seen
                news = [render.say_line(event)[11:] for event in events if is_notable(event)]
                display.show(connection, news)
                if is_over(connection):
                    return
                yield connection
            signals.interrupted.wait(display.rest_s)


class _Lines:
    """What is new, one line each."""

    rest_s = 0.0
    live = nullcontext()

    def show(self, _connection: Connection, news: Sequence[str]) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in news))
        sys.stdout.flush()


class _Picture:
    """A bar per convoy and a line per worker, redrawn; what is new scrolls by above.

    All of it is laid out as text: brackets in a title or in an agent's words are not markup.
    """

    rest_s = _REST_S

    def __init__(self, runs: Runs, hive: Hive, convoy: str | None) -> None:
        self._runs = runs
        self._hive = hive
        self._convoy = convoy
        self.live = Live(console=render.console(), auto_refresh=False, transient=True)
        self._ends: dict[str, tuple[float, str | None]] = {}

    def show(self, connection: Connection, news: Sequence[str]) -> None:
        now = self._hive.ledger.clock.now()
        with suppress(UnavailableError):  # for example no descriptors left to look at runs: the last picture stays
            workers = list_workers(connection, self._runs, now=now)
            convoys = [convoy for convoy in queries.list_convoys(connection) if self._is_shown(convoy)]
            bars = [render.draw_convoy(self._show_convoy(connection, convoy, now)) for convoy in convoys]
            height = max(1, self.live.console.height - len(bars) - 2)
            self.live.update(Group(*bars, render.draw_workers(workers, height, self.live.console.width)))
        with self.live.console:  # one write for both, so that nothing flickers
            self.live.refresh()
            if news:
                self.live.console.print(Text("\n".join(news)))

    def _is_shown(self, convoy: ConvoyRow) -> bool:
        return convoy.state is ConvoyState.ACTIVE or convoy.name == self._convoy

    def _show_convoy(self, connection: Connection, convoy: ConvoyRow, now: str) -> dict[str, Any]:
        now_s = to_seconds(now)
        at_s, end = self._ends.get(convoy.name, (0.0, None))
        if now_s - at_s > _ESTIMATE_AGAIN_S:  # it reads every task, and a guess need not be fresh
            tasks = queries.list_tasks_of_convoy(connection, convoy.name)
            end = estimate_end(tasks, list_waits(connection, convoy.name, tasks), now=now)
            self._ends[convoy.name] = now_s, end
        left_s = max(0.0, to_seconds(end) - now_s) if end else None
        elapsed_s = to_seconds(convoy.ended_at or now) - to_seconds(convoy.submitted_at)
        return {**summarise(connection, convoy), "elapsed_s": elapsed_s, "left_s": left_s}
