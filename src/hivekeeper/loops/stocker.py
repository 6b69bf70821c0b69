"""The stocker: has clones ready before they are needed, as many as tasks wait for and no more than it may.

A clone of the pool was never used: whoever takes it renames it away, and it never comes back. One of an earlier boot
may be torn, so it is thrown away, like those nobody waits for any more.
"""

from collections.abc import Sequence
from pathlib import Path

from hivekeeper.commands.runs import intend_run
from hivekeeper.domain import events as e
from hivekeeper.domain.names import repo_run_id
from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.run import Order
from hivekeeper.git import orders
from hivekeeper.loops import Counts, Loop, Wakes
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction

WALL_S = 1800.0


class Stocker(Loop):
    """Fills and empties the pool."""

    name = "stocker"
    order = 40
    wakes = Wakes(
        (e.TaskAdded, e.RepoFetched, e.TaskDispatched, e.TaskCancelled, e.ConvoyCompleted, e.ConvoyFailed),
        ends_of=("pool",),
    )
    rest_s = 0.1
    interval_s = 30.0

    def run_once(self) -> Counts:
        """Bring every repository's part of the pool to what is wanted."""
        with self._ledger.read() as connection:
            waiting = queries.count_waiting_by_repo(connection)
            runs = [run for run in queries.list_open_runs(connection) if run.kind == "pool"]
            repos = queries.list_repos(connection)
        todo = [(repo, argv) for repo in repos for argv in self._decide(repo, waiting.get(repo.name, 0), runs)]
        if todo:
            with self._ledger.write(self._authority) as tx:
                for repo, argv in todo:
                    self._intend(tx, repo, argv)
        return {"begun": len(todo)} if todo else {}

    def _decide(self, repo: RepoRow, waiting: int, runs: Sequence[RunRow]) -> list[orders.Argv]:
        """Decide what to run for a repository: fill one place at a time, or throw away."""
        if any(run.repo == repo.name for run in runs):
            return []
        pool = self._places.pool(repo.name)
        mine = f"{pool.name}.{self._boot_id[:8]}."
        found = [path for path in _list(pool) if _is_of(path, pool.name)]
        ready = [path for path in found if path.name.startswith(mine) and path.suffix != ".new"]
        useless = [path for path in found if path not in ready] if waiting else found
        if useless:
            return [orders.empty_pool(*useless)]
        if len(ready) < min(waiting, self._settings.pool):
            taken = {path.name for path in ready}
            free = next(number for number in range(1, len(ready) + 2) if f"{mine}{number}" not in taken)
            return [orders.fill_pool(self._places.public(repo.name), repo.branch, pool.with_name(f"{mine}{free}"))]
        return []

    def _intend(self, tx: Transaction, repo: RepoRow, argv: orders.Argv) -> None:
        limits: dict[str, float | int | None] = {"wall_s": WALL_S, "grace_s": 5.0}
        run, root = repo_run_id(repo.name, tx.head.seq + 1, "pool"), str(self._places.root)
        order = Order(run, "pool", argv, root, dict(orders.FLEETING_ENVIRONMENT), limits)
        intend_run(tx, order, boot_id=self._boot_id, repo=repo.name)


def _list(pool: Path) -> list[Path]:
    return sorted(pool.parent.iterdir()) if pool.parent.is_dir() else []


def _is_of(path: Path, repo: str) -> bool:
    """Tell a repository's clones from those of another whose name begins alike: two parts follow the name."""
    name = path.name.removesuffix(".new")
    return name.rpartition(".")[0].rpartition(".")[0] == repo
