"""`make bench-door`: how long others wait for the ledger's write lock while a hotfix is told to many workers.

Every worker has changed every path of the hotfix, which is the most there can be to read and to write. Another thread
writes all the while, as a person or another loop would, and measures each of its waits.
"""

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks import Figure
from benchmarks.ledger import Say
from hivekeeper.clock import SystemClock
from hivekeeper.commands.attempts import dispatch_task
from hivekeeper.commands.leases import take_lease
from hivekeeper.commands.merges import note_fetched
from hivekeeper.commands.plans import submit_plan
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec
from hivekeeper.domain.rows import MergeRow
from hivekeeper.domain.states import AttemptState, MergeState
from hivekeeper.merging.entries import Entry, find_hotfix_notices, send_hotfix_notices
from hivekeeper.places import Places
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByKeeper, ByPerson, BySuccessor, Ledger, create_ledger, open_ledger

LONGEST_WAIT_MS = 50.0
_IDENTITY = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")


def run_all(say: Say, *, directory: Path | None, workers: int, paths: int) -> Iterator[Figure]:
    """Measure one hotfix."""
    with tempfile.TemporaryDirectory(prefix="hive-bench-", dir=directory) as name:
        places = Places(Path(name) / "hive")
        places.hive.mkdir(parents=True)
        names = [f"file-{number}" for number in range(paths)]
        base, hotfix = _make_repository(Path(name) / "app", places, names)
        create_ledger(places.ledger)
        with closing(open_ledger(places.ledger)) as ledger:
            say(f"{workers} workers, each with {paths} changed files …")
            keeper = _prepare(ledger, places, Path(name) / "app", base, workers, names)
            yield from _measure(ledger, keeper, places, (base, hotfix), names)


def _make_repository(source: Path, places: Places, names: list[str]) -> tuple[str, str]:
    """Make a repository and its mirror; return the commit that workers are at, and the hotfix on top of it."""
    source.mkdir()
    base = _commit(source, {path: f"{path}\n" for path in names})
    hotfix = _commit(source, dict.fromkeys(names, "mended\n"))
    mirror = places.mirror("app")
    mirror.parent.mkdir(parents=True)
    subprocess.run(("git", "clone", "--quiet", "--bare", str(source), str(mirror)), check=True)
    return base, hotfix


def _commit(source: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        (source / path).write_text(text)
    for argv in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "."),
        (*_IDENTITY, "commit", "--quiet", "-m", "of all files"),
    ):
        subprocess.run(("git", *argv), cwd=source, check=True)
    head = subprocess.run(("git", "rev-parse", "HEAD"), cwd=source, check=True, capture_output=True, text=True)
    return head.stdout.strip()


def _prepare(ledger: Ledger, places: Places, source: Path, base: str, workers: int, names: list[str]) -> ByKeeper:
    with ledger.write(BySuccessor("bench")) as tx:
        keeper = take_lease(tx, holder="bench", pid=1, start_ticks=1, boot_id="bench", why="")
    tasks = tuple(TaskSpec(f"t{number}", "true", repo="app") for number in range(workers))
    with ledger.write(ByPerson("bench")) as tx:
        submit_plan(tx, PlanSpec("crowd", tasks, (RepoSpec("app", str(source)),)))
    with ledger.write(keeper) as tx:
        for repo in queries.list_repos(tx.connection):
            note_fetched(tx, repo, integration=base, source=base)
    with ledger.write(keeper) as tx:
        for task in queries.list_tasks_of_convoy(tx.connection, "crowd"):
            work = places.sandbox(task.key, dispatch_task(tx, task).number) / "work"
            (work / ".git").mkdir(parents=True)
            (work / ".git" / "HEAD").write_text(base)
            for path in names:
                (work / path).write_text("changed\n")
    return keeper


def _measure(
    ledger: Ledger, keeper: ByKeeper, places: Places, commits: tuple[str, str], names: list[str]
) -> Iterator[Figure]:
    waits, stopped = list[float](), threading.Event()

    def write_on() -> None:
        with closing(open_ledger(places.ledger)) as other:
            while not stopped.is_set():
                began = time.perf_counter()
                with other.write(ByPerson("another")) as tx:
                    waits.append((time.perf_counter() - began) * 1000)
                    tx.move_cursor("another", tx.head.seq)
                time.sleep(0.001)

    with ledger.read() as connection:
        attempt, task = queries.list_open_attempts(connection, AttemptState.WORKING)[0]
        (repo,) = queries.list_repos(connection)
    row = MergeRow(
        task=task.key,
        attempt=1,
        repo="app",
        commit_id=commits[1],
        priority=0,
        position=1,
        state=MergeState.LANDING,
        queued_at=SystemClock().now(),
        base=commits[0],
        candidate=commits[1],
    )
    other = threading.Thread(target=write_on)
    other.start()
    try:
        time.sleep(0.3)  # it is at work
        began = time.perf_counter()
        with ledger.read() as connection:
            notices = find_hotfix_notices(connection, places, Entry(row, task, attempt, repo, ()), names)
        read_ms = (time.perf_counter() - began) * 1000
        with ledger.write(keeper) as tx:
            send_hotfix_notices(tx, notices)
        time.sleep(0.1)
    finally:
        stopped.set()
        other.join()
    assert all(body["touched"] == names for _, _, body in notices)
    longest, told = max(waits), len(notices)
    yield Figure(
        "a hotfix's changes looked for in every sandbox, before anything is written",
        read_ms,
        "ms",
        "none",
        reached=True,
    )
    name = f"longest wait for the write lock while {told} workers are told"
    detail = f"{len(waits)} writes meanwhile"
    yield Figure(name, longest, "ms", f"≤ {LONGEST_WAIT_MS:g}", longest <= LONGEST_WAIT_MS, detail)
