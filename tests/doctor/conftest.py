"""A hive that has done its work, once; every test spoils a copy of its own."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hivekeeper.doctor.examine import examine, repair
from hivekeeper.doctor.findings import Check, Finding, Level, Report, decide_exit_code
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.rows import RunRow
from hivekeeper.hive import open_hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.places import Places
from hivekeeper.store import queries
from hivekeeper.store.ledger import read_head
from hivekeeper.store.sqlite import reading_only
from tests.git import git
from tests.scenarios.conftest import Scene
from tests.stage import Repository

USES_OF_SANDBOX = 14  # at least as many as there are tests that ask for one


class Patient:
    """A hive nobody keeps, to be spoilt and examined."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places = Places(root)

    def examine(self) -> Report:
        return examine(self.root)

    def repair(self) -> Report:
        return repair(self.root)

    def find_wrong(self) -> list[Finding]:
        """What is not well, apart from the space on the disk of whoever runs the tests."""
        return list_wrong(self.examine())

    def exit_code(self) -> int:
        return decide_exit_code(self.find_wrong())

    def sql(self, statement: str, *values: str | int) -> None:
        """Change the ledger behind the hive's back."""
        connection = apsw.Connection(str(self.places.ledger))
        connection.execute(statement, values)
        connection.close()

    def count_events(self) -> int:
        with reading_only(self.places.ledger) as connection:
            return read_head(connection).seq

    @property
    def hive(self) -> str:
        with reading_only(self.places.ledger) as connection:
            return read_head(connection).hive

    def run(self, run: str) -> RunRow:
        with reading_only(self.places.ledger) as connection:
            found = queries.find_run(connection, run)
        assert found is not None
        return found

    def git(self, *arguments: str, public: bool = False) -> str:
        """Do something in the mirror, or in the public repository."""
        place = self.places.public if public else self.places.mirror
        return git(self.root, "--git-dir", str(place("app")), *arguments)

    def commit(self, *, parent: str = "refs/heads/main", public: bool = False) -> str:
        """Make a commit that no ref holds."""
        return self.git("commit-tree", "-p", parent, "-m", "more", f"{parent}^{{tree}}", public=public)

    def keep_until(self, condition: Callable[[], bool]) -> None:
        """Keep the hive for a while."""
        hive = open_hive(self.root)
        keeper = Keeper(hive)
        deadline = time.monotonic() + 30
        try:
            while not condition():
                assert time.monotonic() < deadline, "it did not come to that in time"
                keeper.step()
        finally:
            keeper.close()
            hive.close()

    def share(self) -> None:
        """Have the public repository hold what the mirror's branch does."""
        self.git("fetch", "--quiet", str(self.places.mirror("app")), "+refs/heads/main:refs/heads/main", public=True)


def list_wrong(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.level is not Level.OK and finding.check is not Check.DISK]


@pytest.fixture(scope="session")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hive with a task that landed, one that failed with its work kept, and one without a repository."""
    directory = tmp_path_factory.mktemp("worked")
    stage, repository = Scene(directory / "hive"), Repository(directory / "app")
    os.mkfifo(directory / "end")
    stage.submit(
        TaskSpec("A", "echo a > a", repo="app"),
        TaskSpec("B", f"echo b > b; read line < {directory}/end; exit 1", repo="app", attempts=1),
        TaskSpec("C", "echo c"),
        repos=(repository.spec(verify="true"),),
    )
    # Copied while its worker waits for its end, so that nothing in a copy is newer than the begin of the snapshot.
    sandbox = stage.hive.places.sandbox("work/B", 1)
    stage.step_until((sandbox / "work" / "b").exists)
    with (directory / "end").open("w"):
        for number in range(USES_OF_SANDBOX):
            shutil.copytree(sandbox, directory / "sandboxes" / str(number))
    stage.finish()
    stage.step_until(lambda: all(attempt.sandbox == "REMOVED" for task in "AB" for attempt in stage.attempts(task)))
    stage.close()
    return directory


@pytest.fixture
def patient(worked: Path, tmp_path: Path) -> Patient:
    root = tmp_path / "hive"
    shutil.copytree(worked / "hive", root, symlinks=True)
    return Patient(root)


@pytest.fixture
def sandbox_of_b(worked: Path, patient: Patient) -> Path:
    """The sandbox of the failed task as a power cut brings it back: its removal undone, nothing in it new."""
    path = patient.places.sandbox("work/B", 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    copy = next((worked / "sandboxes").iterdir())
    return copy.rename(path)  # moving it leaves the files in it untouched


@pytest.fixture
def dead_pid() -> int:
    """The number of a process that has been."""
    process = subprocess.Popen(("true",))
    process.wait()
    return process.pid


class Lingering:
    """A process that carries the marker of a run."""

    def __init__(self, marker: str) -> None:
        self.process = subprocess.Popen(("sleep", "300"), env={**os.environ, "HIVE_RUN": marker})

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
