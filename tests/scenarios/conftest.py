"""A hive, a person's repository, and a keeper driven step by step, with real git and real processes."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hivekeeper.clock import SystemClock, to_seconds, to_text
from hivekeeper.doctor.facts import find_marker
from hivekeeper.domain.rows import AttemptRow, ConvoyRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.hive import Hive, open_hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.runs.local import LocalRuns
from hivekeeper.store import queries
from hivekeeper.store.ledger import Ledger, read_head
from tests.stage import Repository, Stage

DEADLINE_S = 30.0


class ShiftedClock(SystemClock):
    """The machine's clock, moved forward by hand."""

    def __init__(self) -> None:
        self._ahead_s = self._passed_s = 0.0

    def now(self) -> str:
        return to_text(to_seconds(super().now()) + self._ahead_s)

    def monotonic(self) -> float:
        return super().monotonic() + self._passed_s

    def advance(self, seconds: float) -> None:
        """Set the clock."""
        self._ahead_s += seconds

    def let_pass(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead_s += seconds
        self._passed_s += seconds


class Scene(Stage):
    """A hive that is kept step by step; `keeper` may be replaced by a successor."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.make_hive()
        # Workers of these stories look for signs outside of their sandboxes, beside the hive.
        (root / "hive.toml").write_text(f"[sandbox]\nwrite = ['{root.parent}']\n")
        self.changed = threading.Event()
        self.clock = ShiftedClock()
        self.hive: Hive = open_hive(root, self.clock)
        self.keeper: Keeper | None = None

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        yield self.hive.ledger

    def take(self, *, workers: int = 4) -> Keeper:
        with self.hive.ledger.read() as connection:
            name = read_head(connection).hive
        runs = LocalRuns(self.hive.places.runs, name, self.changed.set)
        self.keeper = Keeper(self.hive, workers=workers, runs=runs)
        return self.keeper

    def step_until(self, condition: Callable[[], bool]) -> None:
        """Step the keeper until the condition holds; fail when it does not in time."""
        keeper = self.keeper or self.take()
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "it did not come to that in time"
            self.changed.clear()
            if not keeper.step():
                self.changed.wait(0.1)

    def finish(self, convoy: str = "work") -> ConvoyState:
        """Step until the convoy has ended and nothing runs any more."""
        self.step_until(lambda: self.convoy(convoy).state is not ConvoyState.ACTIVE and self.is_quiet())
        return self.convoy(convoy).state

    def is_quiet(self) -> bool:
        with self.hive.ledger.read() as connection:
            repos = queries.list_repos(connection)
            return queries.count_open_work(connection)[1:] == (0, 0) and not any(
                repo.publishing or (repo.integration != repo.published and not repo.publish_problem) for repo in repos
            )

    def convoy(self, name: str = "work") -> ConvoyRow:
        with self.hive.ledger.read() as connection:
            found = queries.find_convoy(connection, name)
        assert found is not None
        return found

    def task(self, task_id: str, convoy: str = "work") -> TaskRow:
        with self.hive.ledger.read() as connection:
            found = queries.find_task(connection, f"{convoy}/{task_id}")
        assert found is not None
        return found

    def states(self, convoy: str = "work") -> dict[str, TaskState]:
        with self.hive.ledger.read() as connection:
            return {task.id: task.state for task in queries.list_tasks_of_convoy(connection, convoy)}

    def attempts(self, task_id: str) -> list[AttemptRow]:
        with self.hive.ledger.read() as connection:
            return queries.list_attempts_of_task(connection, f"work/{task_id}")

    def runs(self, task_id: str, attempt: int = 1) -> list[RunRow]:
        with self.hive.ledger.read() as connection:
            return queries.list_runs_of_attempt(connection, f"work/{task_id}", attempt)

    def gate_runs(self) -> list[RunRow]:
        """List every run that verified a tree, oldest first."""
        with self.hive.ledger.read() as connection:
            return queries.list_rows(connection, RunRow, "intended_seq, id", owner_kind="tree")

    def count_publications(self, name: str = "app") -> int:
        """Count how often publishing was tried."""
        with self.hive.ledger.read() as connection:
            return len(queries.list_rows(connection, RunRow, "id", repo=name, kind="publish"))

    def repo(self, name: str = "app") -> RepoRow:
        with self.hive.ledger.read() as connection:
            found = queries.find_repo(connection, name)
        assert found is not None
        return found

    def list_processes(self, run: str = "") -> list[int]:
        """List the living processes of a run, or of all, whatever their numbers are inside their sandboxes."""
        with self.hive.ledger.read() as connection:
            marker = f"{read_head(connection).hive}/{run}"
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        found = {pid: find_marker(pid) or "" for pid in pids}
        return [pid for pid in pids if (found[pid] == marker if run else found[pid].startswith(marker))]

    def close(self) -> None:
        """Leave the hive; what runs goes on."""
        if self.keeper is not None:
            self.keeper.close()
        self.hive.close()

    def end(self) -> None:
        """Leave nobody behind."""
        for pid in self.list_processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Scene]:
    stage = Scene(tmp_path / "hive")
    yield stage
    stage.end()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "app")
