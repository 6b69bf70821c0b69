"""A hive on a stage: one directory that a scenario prepares, acts in, dies in, and that somebody else recovers.

Everything is played in one thread, pass by pass, with real runs and real git. After every pass the stage waits until
the runs that were asked for have ended, so that a scenario makes the same calls each time it is played.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from hivekeeper.clock import SystemClock, to_seconds
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.domain.run import Alive, Unclaimed
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.domain.waits import MAX_FETCH_WAIT_S
from hivekeeper.errors import HiveError, IllegalTransitionError, StaleEpochError
from hivekeeper.hive import Hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.settings import Settings
from hivekeeper.store import queries
from hivekeeper.store.ledger import Ledger
from hivekeeper.store.replay import list_differences, rebuilt
from hivekeeper.testing.history import History, check_history, read_history
from tests.git import NOBODYS
from tests.stage import Stage

PATIENCE_S = 30.0
MOST_PASSES = 300
MOST_FAILED = 40  # passes in a row: then it is not a matter of time
# Always the same commits, so that two plays can be held against each other.
LONG_AGO = {f"GIT_{who}_DATE": "@1700000000 +0000" for who in ("AUTHOR", "COMMITTER")}


class Play(Stage):
    """A world with a hive, perhaps a person's repository, the marks of the agents, and what people were told."""

    def __init__(self, world: Path) -> None:
        super().__init__(world / "hive", LONG_AGO)
        self.remote = world / "remote.git"  # another one of the person's, without files, where a scenario needs it
        # Outside what a power cut can touch: a line for every agent that truly began, and for all that was promised.
        self.said = world.with_name(f"{world.name}.said")
        self.errors = world.with_name(f"{world.name}.errors")  # of passes that failed and were made again
        self.copy = world / "copy.db"  # of a ledger, from before more was done
        self.settings = Settings(workers=2, level="limits", parallel=2)

    def tell(self, *lines: str) -> None:
        """Say something that must be true from now on."""
        descriptor = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for line in lines:
            os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)

    def list_said(self) -> list[str]:
        return self.said.read_text().splitlines() if self.said.exists() else []

    @property
    def mark(self) -> str:
        """The command by which an agent says that it has begun."""
        return f'echo "begun $HIVE_CONVOY/$HIVE_TASK $HIVE_ATTEMPT" >> {self.said}'

    def task(self, name: str, *, repo: bool = False, **more: object) -> TaskSpec:
        """Name a task that leaves its mark when it begins, then makes a file of its own name."""
        values: dict[str, object] = {"command": f"{self.mark} && echo {name} > {name}.txt", **more}
        return TaskSpec(name, repo="app" if repo else None, **values)  # type: ignore[arg-type]

    def repo(self, verify: str | None = "ls *.txt") -> RepoSpec:
        return RepoSpec("app", str(self.app), "main", verify)

    def note_submitted(self, convoy: str) -> None:
        self.tell(f"submitted {convoy}")

    @contextlib.contextmanager
    def keeper(self) -> Iterator[Keeper]:
        """Be the keeper of the hive."""
        with self.ledger() as ledger:
            keeper = self.take_lease(ledger)
            try:
                yield keeper
            finally:
                try:
                    keeper.close()
                except HiveError as error:
                    self._note("lease", error)

    def take_lease(self, ledger: Ledger) -> Keeper:
        return Keeper(Hive(self.places, self.settings, ledger))

    def play(self, keeper: Keeper, until: Callable[[], bool]) -> None:
        """Step until the condition holds, telling of every task that is complete."""
        complete: set[str] = set()
        failed = 0
        for _ in range(MOST_PASSES):
            if until():
                return
            failed = failed + 1 if self.step(keeper) else 0
            if failed == MOST_FAILED:
                raise TimeoutError(f"{failed} passes failed, one after another")
            for key in self.list_complete(keeper):
                if key not in complete:
                    complete.add(key)
                    self.tell(f"complete {key}")
        raise TimeoutError(f"after {MOST_PASSES} passes it has not come to that")

    def step(self, keeper: Keeper) -> bool:
        """Make one pass of every loop, then wait for the runs that it asked for; tell whether a pass failed."""
        has_failed = False
        asked = self.list_open_runs(keeper)
        for loop in keeper.loops:
            try:
                loop.run_once()
            except StaleEpochError:
                raise
            except (IllegalTransitionError, HiveError) as error:
                self._note(loop.name, error)
                has_failed = True
                time.sleep(0.01)  # real time: as the keeper does, it goes on with the next pass a moment later
        still_open = set(self.list_open_runs(keeper))
        for run in asked:
            if run in still_open:
                self.wait_for(keeper, run)
        with keeper.hive.ledger.read() as connection:
            retries = [repo.fetch_retry_at for repo in queries.list_repos(connection) if repo.fetch_retry_at]
        if retries and not still_open:  # a killed git is taken for a repository that is away for seconds
            wait_s = to_seconds(min(retries)) - to_seconds(SystemClock().now())
            time.sleep(min(max(wait_s, 0.0), MAX_FETCH_WAIT_S))  # real time: as long as the keeper would wait
        return has_failed

    def _note(self, loop: str, error: Exception) -> None:
        """Write down that a pass failed: the judge of a play is told, and undisturbed there may be none."""
        with contextlib.suppress(OSError):  # perhaps this very call is the one that fails
            descriptor = os.open(self.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(descriptor, f"the {loop}: {type(error).__name__}: {error}".replace("\n", " ").encode() + b"\n")
            os.close(descriptor)

    def list_errors(self) -> list[str]:
        return self.errors.read_text().splitlines() if self.errors.exists() else []

    def wait_for(self, keeper: Keeper, run: str) -> None:
        """Wait for a run's exit record without looking inside, so that no call of ours depends on how long it took."""
        record, deadline = f"{self.root}/.hive/runs/{run}/exit", time.monotonic() + 0.7
        while not os.path.exists(record) and time.monotonic() < deadline:  # noqa: PTH110 - the least there is to do
            time.sleep(0.002)  # real time: another process writes it
        deadline = time.monotonic() + PATIENCE_S
        while isinstance(keeper.runs.look(run), Alive | Unclaimed) and time.monotonic() < deadline:
            time.sleep(0.01)  # real time: another process ends

    @staticmethod
    def list_open_runs(keeper: Keeper) -> list[str]:
        with keeper.hive.ledger.read() as connection:
            return [run.id for run in queries.list_open_runs(connection)]

    @staticmethod
    def list_complete(keeper: Keeper) -> list[str]:
        with keeper.hive.ledger.read() as connection:
            return [task.key for task in queries.list_tasks_in_state(connection, TaskState.COMPLETE)]

    @staticmethod
    def is_settled(keeper: Keeper) -> bool:
        """Tell whether nothing is under way: no attempt, run or active convoy, nothing left to publish or remove."""
        with keeper.hive.ledger.read() as connection:
            if queries.count_open_work(connection) != (0, 0, 0) or queries.list_closable_swarms(connection):
                return False
            for attempt in queries.list_removable_sandboxes(connection, 100):
                runs = queries.list_runs_of_attempt(connection, attempt.task, attempt.number)
                kept = [run.succeeded for run in runs if run.kind == "snapshot"]
                if not kept or any(kept):  # what could not be kept stays where it is, for a person
                    return False
            now, repos = SystemClock().now(), queries.list_repos(connection)
            waits = [r.publish_problem is not None and now < (r.publish_retry_at or "") for r in repos]
            published = [r.published == r.integration or wait for r, wait in zip(repos, waits, strict=True)]
            return all(published) and not any(r.publishing for r in repos)

    def finish(self) -> None:
        """Keep the hive until everything has come to its end."""
        with self.keeper() as keeper:
            self.play(keeper, lambda: self.is_settled(keeper))

    def archive(self) -> None:
        """Archive what is complete, as the janitor does after a while."""
        self.settings = replace(self.settings, archive_after_s=1e-6)
        with self.keeper() as keeper:
            self.play(keeper, lambda: self._is_archived(keeper))

    @staticmethod
    def _is_archived(keeper: Keeper) -> bool:
        with keeper.hive.ledger.read() as connection:
            return not any(c.state is ConvoyState.COMPLETE for c in queries.list_convoys(connection))

    def read_history(self, *, settled: bool) -> History:
        said = self.list_said()
        marks = [line.removeprefix("begun ") for line in said if line.startswith("begun ")]
        return read_history(self.root, marks=marks, acknowledged=said, settled=settled, restored=self.copy.exists())

    def list_states(self) -> dict[str, str]:
        with self.ledger() as ledger, ledger.read() as connection:
            rows = connection.rows("SELECT key, state FROM task ORDER BY key")
        return dict(rows)

    def check(self) -> list[str]:
        """Judge what has become of the hive: its history, its tables against its log, its repository."""
        history = self.read_history(settled=True)
        found = [str(violation) for violation in check_history(history)]
        with self.ledger() as ledger, ledger.read() as connection, rebuilt(connection) as again:
            found += [f"replay differs: {what}" for what in list_differences(connection, again)]
        for repository in (self.places.mirror("app"), self.app, self.remote):
            if repository.exists():
                found += _check_repository(repository)
        if self.app.exists():
            found += self._check_checkout()
        return found + [f"lost: {key}: {what} is not what it wrote" for key, what in self._list_spoilt(history)]

    def _check_checkout(self) -> list[str]:
        """Look for anything that is not as the person, or git itself, would have left it in their check-out."""
        changed = self.git("--no-optional-locks", "status", "--porcelain").splitlines()
        left = [path.name for path in (self.app / ".git").iterdir() if path.suffix == ".lock" or "hive" in path.name]
        mine = (self.app / "notes").exists()
        if mine and (self.app / "notes").read_text() != "mine\n":
            left.append("other notes")
        expected = ["?? notes"] if mine else []
        return [f"the person's check-out: {changed} {left}"] if changed != expected or left else []

    def _list_spoilt(self, history: History) -> Iterator[tuple[str, str]]:
        """Find outputs and landed files that are not what their task wrote: its own name."""
        for task in history.tasks:
            if task.state is TaskState.COMPLETE and task.output_path:
                output = self.root / task.output_path
                if not output.is_file() or output.read_text() != f"{task.id}\n":
                    yield task.key, task.output_path
        for landed in history.landed:
            name = landed.task.partition("/")[2]
            mirror = self.places.mirror("app")
            argv = ("git", "--git-dir", str(mirror), "show", f"{landed.commit}:{name}.txt")
            shown = subprocess.run(argv, check=False, capture_output=True, text=True)
            if shown.returncode == 0 and shown.stdout != f"{name}\n":
                yield landed.task, f"{name}.txt in {landed.commit[:10]}"

    def show(self) -> str:
        """Show the log, for a person who looks at a failure."""
        with self.ledger() as ledger, ledger.read() as connection:
            rows = connection.rows("SELECT seq, kind, subject, why, who FROM event ORDER BY seq")
        return "\n".join(" ".join(map(str, row)) for row in rows)


def _check_repository(repository: Path) -> list[str]:
    argv = ("git", "-C", str(repository), "fsck", "--connectivity-only", "--no-dangling", "--no-progress")
    done = subprocess.run(argv, env={**os.environ, **NOBODYS}, check=False, capture_output=True, text=True)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "notice:" not in line]
    return [] if done.returncode == 0 else [f"git fsck of {repository.name}: {'; '.join(said[:3])}"]
