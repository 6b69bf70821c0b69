"""Keeping a hive in the foreground: live progress on a terminal, plain lines elsewhere, Ctrl-C that harms nobody."""

import signal
import sys
import threading
from collections.abc import Callable

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from hivekeeper.cli.render import clean, console
from hivekeeper.domain.states import ConvoyState
from hivekeeper.keeper.keeper import Hive, Keeper
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_events, read_head
from hivekeeper.views.convoys import summarise
from hivekeeper.views.events import NOTABLE, say_event

INTERRUPTED = 130


def is_settled(connection: Connection, convoy: str) -> bool:
    """Tell whether a convoy has ended and everything that follows from it is done or waits for a person."""
    found = queries.find_convoy(connection, convoy)
    _, attempts, runs = queries.count_open_work(connection)
    if found is None or found.state is ConvoyState.ACTIVE or attempts or runs:
        return False
    return all(r.published == r.integration or r.publish_problem or r.problem for r in queries.list_repos(connection))


def keep(keeper: Keeper, hive: Hive, convoy: str | None) -> int:
    """Keep until the convoy is settled (for ever without one); tell the exit code."""
    interrupted = threading.Event()

    def interrupt(_number: int, _frame: object) -> None:
        interrupted.set()

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    with hive.ledger.read() as connection:
        seen = read_head(connection).seq
    keeper.start()
    try:
        with _display(convoy) as show:
            while not keeper.stopped.is_set() and not interrupted.is_set():
                keeper.wait_for_commit(0.5)
                with hive.ledger.read() as connection:
                    seen = show(connection, seen)
                    if convoy is not None and is_settled(connection, convoy):
                        break
                for name, problem in keeper.problems.items():
                    sys.stderr.write(f"hive: {name} has trouble and tries again: {clean(problem)}\n")
                keeper.problems.clear()
    finally:
        keeper.close()
    if keeper.fenced is not None:
        raise keeper.fenced
    return INTERRUPTED if interrupted.is_set() else 0


class _display:  # noqa: N801 - used as a context manager only
    def __init__(self, convoy: str | None) -> None:
        self._convoy = convoy
        self._progress: Progress | None = None
        if sys.stdout.isatty() and convoy is not None:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._progress = Progress(*columns, TimeElapsedColumn(), console=console())
            self._bar = self._progress.add_task(convoy, total=None)

    def __enter__(self) -> Callable[[Connection, int], int]:
        if self._progress:
            self._progress.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def _say(self, line: str) -> None:
        if self._progress:
            self._progress.console.print(Text(line))  # as text: brackets in an agent's words are no markup
        else:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def _show(self, connection: Connection, seen: int) -> int:
        """Say what is new; tell up to which event."""
        events = read_events(connection, seen, 10_000)
        for event in events:
            if type(event.body) in NOTABLE:
                self._say(clean(say_event(event)))
        if self._progress and self._convoy is not None and (row := queries.find_convoy(connection, self._convoy)):
            view = summarise(connection, row)
            self._progress.update(self._bar, total=view["tasks"], completed=view["complete"])
        return events[-1].seq if events else seen
