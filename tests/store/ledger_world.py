"""A hive's ledger driven through the commands, as the loops and a person would, into any state wanted."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from hivekeeper.commands import attempts, convoys, merges, plans, tasks
from hivekeeper.domain.convoy import decide_outcome
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec
from hivekeeper.domain.rows import AttemptRow, ConvoyRow, MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.run import Order
from hivekeeper.store import queries
from hivekeeper.store.ledger import Ledger, Transaction, create_ledger, open_ledger
from tests.intents import intend
from tests.store.ledger_kit import BOOT, COMMIT, PERSON, TickingClock, head_of, seize

T = TypeVar("T")

REPO = RepoSpec("r", "/repos/r")


class World:
    """A ledger with a keeper."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "ledger.db"
        create_ledger(self.path)
        self.clock = TickingClock()
        self.ledger: Ledger = open_ledger(self.path, self.clock)
        self.keeper = seize(self.ledger)

    def close(self) -> None:
        """Let go of the file."""
        self.ledger.close()

    def keep(self) -> AbstractContextManager[Transaction]:
        """Write as the keeper."""
        return self.ledger.write(self.keeper)

    def ask(self) -> AbstractContextManager[Transaction]:
        """Write as a person."""
        return self.ledger.write(PERSON)

    def seq(self) -> int:
        """Tell how many events there are."""
        return head_of(self.ledger).seq

    def submit(self, convoy: str, *specs: TaskSpec, repos: tuple[RepoSpec, ...] = ()) -> plans.Submitted:
        """Hand in a plan."""
        with self.ask() as tx:
            return plans.submit_plan(tx, PlanSpec(convoy, specs, repos), why="wanted")

    def task(self, key: str) -> TaskRow:
        """Find a task."""
        with self.ledger.read() as connection:
            return _there(queries.find_task(connection, key))

    def attempt(self, key: str, number: int = 1) -> AttemptRow:
        """Find an attempt."""
        with self.ledger.read() as connection:
            return queries.list_attempts_of_task(connection, key)[number - 1]

    def run(self, run: str) -> RunRow:
        """Find a run."""
        with self.ledger.read() as connection:
            return _there(queries.find_run(connection, run))

    def merge(self, key: str, number: int = 1) -> MergeRow:
        """Find an entry of the merge queue."""
        with self.ledger.read() as connection:
            return _there(queries.find_merge(connection, key, number))

    def repo(self, name: str = "r") -> RepoRow:
        """Find a repository."""
        with self.ledger.read() as connection:
            return _there(queries.find_repo(connection, name))

    def convoy(self, name: str) -> ConvoyRow:
        """Find a convoy."""
        with self.ledger.read() as connection:
            return _there(queries.find_convoy(connection, name))

    def fetch(self, name: str = "r") -> None:
        """Have a repository ready."""
        with self.keep() as tx:
            merges.note_fetched(tx, self.repo(name), integration=COMMIT, source=COMMIT)

    def dispatch(self, key: str) -> int:
        """Give a task to a worker."""
        with self.keep() as tx:
            return attempts.dispatch_task(tx, self.task(key)).number

    def fail(self, key: str, number: int = 1) -> None:
        """End an attempt badly."""
        with self.keep() as tx:
            attempts.fail_attempt(tx, self.task(key), self.attempt(key, number), why="it broke", at=tx.now)

    def hand_in(self, key: str, number: int = 1) -> None:
        """Put an attempt's change into the merge queue."""
        with self.keep() as tx:
            attempts.submit_attempt(tx, self.task(key), self.attempt(key, number), "b" * 40, at=tx.now)

    def cancel(self, key: str) -> bool:
        """Cancel a task as a person."""
        with self.ask() as tx:
            return tasks.cancel_task(tx, self.task(key))

    def complete(self, key: str, number: int = 1) -> None:
        """End a task well."""
        with self.keep() as tx:
            attempts.complete_task(tx, self.task(key), number, at=tx.now)

    def intend(self, run: str, task: str | None = None, attempt: int | None = None) -> None:
        """Intend a run."""
        order = Order(run, "agent", ("sh", "-c", "true"), "/", {"A": "b"}, {"wall_s": 1.5})
        with self.keep() as tx:
            intend(tx, order, boot_id=BOOT, task=task, attempt=attempt)

    def settle(self, name: str) -> bool:
        """End a convoy, if it has ended."""
        with self.keep() as tx:
            counts = queries.count_tasks_by_state(tx.connection, name)
            outcome = decide_outcome(counts, queries.count_startable(tx.connection, name))
            return convoys.end_convoy(tx, name, outcome, at=tx.now)

    def add(self, task_id: str, *, convoy: str = "c", attempts_allowed: int = 1) -> str:
        """Ask for one task on the repository; tell its key."""
        self.submit(convoy, TaskSpec(task_id, "true", repo="r", attempts=attempts_allowed), repos=(REPO,))
        if self.repo().state.value != "READY":
            self.fetch()
        return f"{convoy}/{task_id}"


def _there(row: T | None) -> T:
    assert row is not None
    return row
