"""A whole keeper whose clock and runs are ours: time passes, runs end and keepers die only when told."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hivekeeper.commands.plans import submit_plan
from hivekeeper.domain.plan import PlanSpec, RepoSpec
from hivekeeper.domain.run import Alive, Order
from hivekeeper.domain.states import RunState
from hivekeeper.errors import IllegalTransitionError
from hivekeeper.hive import Hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.loops import Loop
from hivekeeper.places import Places
from hivekeeper.settings import Settings
from hivekeeper.store import queries
from hivekeeper.store.ledger import Authority, ByPerson, Ledger, Transaction, create_ledger
from hivekeeper.store.sqlite import SqliteDatabase
from hivekeeper.testing.fakes import FakeClock, FakeRuns
from tests.git import git
from tests.property.budget import MEMORY
from tests.store.ledger_kit import PERSON, dump_all

WORKERS = 2
EVENT_WIDTH = 10  # columns of an event; a heartbeat has fewer


class RacedLedger(Ledger):
    """A ledger in which somebody else is faster: `meanwhile` happens between a pass's look and its write."""

    meanwhile: Callable[[], None] | None = None

    @contextmanager
    def write(self, authority: Authority) -> Iterator[Transaction]:
        if self.meanwhile is not None and not isinstance(authority, ByPerson):
            act, self.meanwhile = self.meanwhile, None
            act()
        with super().write(authority) as tx:
            yield tx


class WatchedRuns(FakeRuns):
    """Runs without processes, except git's, which are over at once; S1 is looked at in the moment of the start."""

    def __init__(self, clock: FakeClock, ledger: Ledger) -> None:
        super().__init__(clock, self._begin)
        self.accident = ""  # what befalls the next run: its wrapper dies "before" the command or "after" it
        self._ledger = ledger

    def start(self, order: Order, isolated: tuple[str, ...] | None = None) -> None:
        with self._ledger.read() as connection:
            row = queries.find_run(connection, order.run)
        assert row is not None, f"S1: {order.run} is started without an intent"
        assert row.state is RunState.INTENDED, f"{order.run} is started though it is {row.state}"
        assert row.kill_requested_at is None, f"{order.run} is started though its end was asked for"
        accident, known = self.accident, len(self.started)
        super().start(order, isolated)
        if accident and len(self.started) > known:
            self.accident = ""
            self.lose(order.run)

    def _begin(self, order: Order) -> int | None:
        if order.kind == "agent" or self.accident == "before":
            return None
        status = subprocess.run(
            order.argv, cwd=order.directory, env={**os.environ, **order.environment}, check=False, capture_output=True
        ).returncode
        return None if self.accident else status

    def list_living(self) -> list[Order]:
        """List what runs."""
        return [order for order in self.started if isinstance(self.look(order.run), Alive)]


class KeeperWorld:
    """A hive on disk, a keeper, and whoever was its keeper before."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="hive-passes-", dir=MEMORY)
        self.place = Path(self._directory.name)
        places = Places(self.place / "hive")
        places.hive.mkdir(parents=True)
        create_ledger(places.ledger)
        self.clock = FakeClock()
        self.ledger = RacedLedger(SqliteDatabase(places.ledger), self.clock)
        self.hive = Hive(places, Settings(workers=WORKERS, level="limits"), self.ledger)
        self.runs = WatchedRuns(self.clock, self.ledger)
        self.keeper = Keeper(self.hive, runs=self.runs)
        self.fenced: list[Keeper] = []
        self.repos: tuple[RepoSpec, ...] = ()

    def close(self) -> None:
        """Leave nothing behind."""
        self.keeper.close()
        self.ledger.close()
        self._directory.cleanup()

    def make_repository(self) -> None:
        """Have a person's repository with one commit."""
        path = self.place / "app"
        git(self.place, "init", "--quiet", "--initial-branch=main", str(path))
        (path / "README").write_text("hello\n")
        git(path, "add", "--all")
        git(path, "commit", "--quiet", "-m", "first")
        self.repos = (RepoSpec("app", str(path), "main", "test -e README"),)

    def submit(self, plan: PlanSpec) -> None:
        """Hand in a plan."""
        with self.ledger.write(PERSON) as tx:
            submit_plan(tx, plan)

    def finish(self, order: Order, status: int, file: str) -> None:
        """End a run; an agent that ends well on a repository has written a file."""
        if status == 0 and order.kind == "agent" and order.directory != str(self.hive.places.root):
            (Path(order.directory) / file).write_text(order.run)
        self.runs.end(order.run, status)

    def run_pass(self, loop: Loop) -> bool:
        """Make one pass; False when it did nothing, and then it must have done nothing."""
        before, started = dump_all(self.ledger), len(self.runs.started)
        counts = loop.run_once()
        if not counts:
            assert dump_all(self.ledger) == before, f"the {loop.name} says it did nothing"
            assert len(self.runs.started) == started, f"the {loop.name} says it did nothing"
        return bool(counts)

    def race(self, loop: Loop, act: Callable[[], None]) -> None:
        """Make a pass in which somebody else is faster; if it comes to nothing, it leaves nothing."""
        after: list[object] = []

        def meanwhile() -> None:
            act()
            after.append(dump_all(self.ledger))

        self.ledger.meanwhile, started = meanwhile, len(self.runs.started)
        try:
            loop.run_once()
        except IllegalTransitionError:
            assert after == [dump_all(self.ledger)], f"the {loop.name} was refused and left something"
            assert len(self.runs.started) == started, f"the {loop.name} was refused and started something"
        finally:
            self.ledger.meanwhile = None

    def take_over(self, *, crash: bool) -> None:
        """Put another keeper in the place of this one."""
        old, before = self.keeper, dump_all(self.ledger)
        if crash:
            lock = old._lease._lock  # noqa: SLF001 - as the kernel does at a process's end
            assert lock is not None
            os.close(lock)
            self.fenced.append(old)
        else:
            old.close()
        self.keeper = Keeper(self.hive, runs=self.runs)
        after = dump_all(self.ledger)
        log = [row for row in before[2] if len(row) == EVENT_WIDTH]
        assert after[2][: len(log)] == log, "an event was lost"
        assert {**after[1], "lease": []} == {**before[1], "lease": []}, "a change of keepers changes nothing else"
