"""Planted bugs, by name: each breaks one promise, and some tier must notice."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hivekeeper.domain import events as e
from hivekeeper.domain import project as projection
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.run import Alive, Unclaimed
from hivekeeper.keeper import lease
from hivekeeper.loops import dispatcher, executor
from hivekeeper.runs import local, wrapper
from hivekeeper.store import ledger, sqlite
from hivekeeper.store.database import Connection


@dataclass(frozen=True)
class Mutant:
    """A bug, the promise it breaks, and what has to catch it: points of the crash tier, or a power-cut scenario."""

    promise: str
    plant: Callable[[], None]
    points: tuple[str, ...] = ()
    power: str = ""


def sync_too_little() -> None:
    """Let SQLite return before a commit is on disk."""
    pragmas = dict(sqlite._WRITE_PRAGMAS)  # noqa: SLF001 - planted where it would be written
    sqlite._WRITE_PRAGMAS = {**pragmas, "synchronous": 1}  # type: ignore[misc]  # noqa: SLF001


def act_before_intent() -> None:
    """Start a task's agent before anything about it is committed."""
    dispatch = dispatcher.Dispatcher.run_once

    def run_once(self: dispatcher.Dispatcher) -> dict[str, int]:
        from hivekeeper.store import queries  # noqa: PLC0415

        with self._ledger.read() as connection:
            ready = [task for task in queries.list_ready_tasks(connection, 1) if not task.repo]
        for task in ready:
            order = self._order(task, task.attempts + 1, "agent", f"{task.key}.{task.attempts + 1}.agent", {})
            runs = local.LocalRuns(self._places.runs, "early")
            runs.start(order)
            while isinstance(runs.look(order.run), Unclaimed | Alive):
                pass
            runs.close()
        return dispatch(self)

    dispatcher.Dispatcher.run_once = run_once  # type: ignore[method-assign]


def forget_epochs() -> None:
    """Let a keeper write whose epoch is over."""
    write = ledger.Ledger.write

    @contextmanager
    def careless(self: ledger.Ledger, authority: ledger.Authority) -> Iterator[ledger.Transaction]:
        if isinstance(authority, ledger.ByKeeper):
            with self.read() as connection:
                authority = ledger.ByKeeper(authority.who, ledger.read_head(connection).epoch)
        with write(self, authority) as transaction:
            yield transaction

    ledger.Ledger.write = careless  # type: ignore[method-assign]


def claim_without_excluding() -> None:
    """Let a second claim replace the first: the wrapper's file, with the one flag left out."""
    source = Path(wrapper.__file__).read_text()
    mutated = source.replace("_AT_FDCWD, os.fsencode(name), _RENAME_NOREPLACE)", "_AT_FDCWD, os.fsencode(name), 0)")
    assert mutated != source
    copy = Path(os.environ.get("HIVE_MUTANT_PLACE", "/tmp")) / f"wrapper-{os.getpid()}.py"  # noqa: S108
    copy.write_text(mutated)
    wrapper.__file__ = str(copy)
    executor_start = executor.Executor._start  # noqa: SLF001

    def start_twice(self: executor.Executor, row: RunRow) -> int:
        started = executor_start(self, row)
        self._asked.clear()
        return started and executor_start(self, row)

    executor.Executor._start = start_twice  # type: ignore[method-assign]  # noqa: SLF001


def release_anybodys() -> None:
    """Give a lease back whoever holds it: a loser's clean-up ends the winner's lease."""
    release = lease.Lease.release

    def careless(self: lease.Lease) -> None:
        with self._ledger.read() as connection:
            epoch = ledger.read_head(connection).epoch
            holder = connection.rows("SELECT holder FROM lease")[0][0]
        if self.authority.epoch != epoch:
            with self._ledger.write(ledger.ByKeeper(holder, epoch)) as tx:
                tx.record(e.LeaseReleased(holder))
        release(self)

    lease.Lease.release = careless  # type: ignore[method-assign]


def believe_exit_codes() -> None:
    """Take exit code 0 for success, without a look at what was made."""

    def believe(
        self: dispatcher.Dispatcher, connection: Connection, task: TaskRow, attempt: AttemptRow, runs: Sequence[RunRow]
    ) -> dispatcher.Proven:
        del self, connection, attempt, runs
        return dispatcher.Proven(output=task.output)

    dispatcher.Dispatcher._look_at_work = believe  # type: ignore[method-assign]  # noqa: SLF001


def project_differently() -> None:
    """Let the live tables show what a replay would not."""

    def live(event: e.Event) -> tuple[projection.Change, ...]:
        changes = projection.project(event)
        return changes[:1] if isinstance(event.body, e.SwarmOpened) else changes

    ledger.project = live  # type: ignore[attr-defined]


MUTANTS: dict[str, Mutant] = {
    "synchronous=NORMAL": Mutant("what was acknowledged is durable", sync_too_little, power="submit"),
    "effect before intent": Mutant(
        "no effect without an earlier durable intent", act_before_intent, ("dispatch/pwrite64",)
    ),
    "no epoch check": Mutant("an older epoch writes nothing", forget_epochs, ("two-keepers/fdatasync",)),
    "start without the exclusive claim": Mutant("a run starts once", claim_without_excluding, ("start/fdatasync",)),
    "release by a non-owner": Mutant("only the holder releases", release_anybodys, ("two-keepers/fdatasync",)),
    "outcome from an exit code alone": Mutant(
        "a task is done when its work is there", believe_exit_codes, ("lie/fdatasync",)
    ),
    "projection differing from replay": Mutant("state = fold(log)", project_differently, ("dispatch/fdatasync",)),
}
