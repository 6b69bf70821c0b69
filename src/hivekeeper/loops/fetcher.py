"""The fetcher: brings a person's repository into the hive's mirror whenever a plan asks for it.

A fetch that was lost is repeated; one that failed too, because git may have been killed under it, until it has failed
several times in a row. Then the repository waits for a person.

Where what landed goes to the person's branch itself and that was moved by somebody else, the integration branch begins
anew there, and what had landed is queued again: to be made on top of it, verified and landed like anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.commands import merges as commands
from hivekeeper.commands.remake import make_again
from hivekeeper.commands.runs import intend_run
from hivekeeper.commands.trust import check_configuration
from hivekeeper.domain import events as e
from hivekeeper.domain.attempt import MAX_INFRASTRUCTURE_TRIES, describe_ending
from hivekeeper.domain.names import repo_run_id
from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.run import Order
from hivekeeper.domain.states import RepoState, RunState
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror
from hivekeeper.loops import Counts, is_end_of
from hivekeeper.places import Places
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import ByKeeper, Ledger, Transaction


@dataclass(frozen=True, slots=True)
class Settings:
    """`fetch_wall_s`: how long a fetch may take."""

    interval_s: float = 10.0
    fetch_wall_s: float = 1800.0


class Fetcher:
    """Keeps mirrors."""

    name = "fetcher"
    rest_s = 0.0

    def __init__(self, ledger: Ledger, authority: ByKeeper, places: Places, boot_id: str, settings: Settings) -> None:
        self.interval_s = settings.interval_s
        self._ledger = ledger
        self._authority = authority
        self._places = places
        self._boot_id = boot_id
        self._settings = settings

    def hears(self, body: e.Body) -> bool:
        return isinstance(body, e.RepoWanted) or is_end_of(body, "fetch")

    def run_once(self) -> Counts:
        """Intend a fetch for every wanted repository, and take note of those that ended."""
        with self._ledger.read() as connection:
            wanted = [repo for repo in queries.list_repos(connection) if repo.state is RepoState.FETCHING]
            pairs = [(repo, _list_fetches(connection, repo)) for repo in wanted]
        todo = [(repo, runs) for repo, runs in pairs if not runs or not runs[0].is_open]
        if todo:
            with self._ledger.write(self._authority) as tx:
                for repo, runs in todo:
                    self._step(tx, repo, runs)
        return {"moved": len(todo)} if todo else {}

    def _step(self, tx: Transaction, repo: RepoRow, runs: Sequence[RunRow]) -> None:
        mirror = Mirror(self._places.mirror(repo.name))
        if not runs:
            public = self._places.public(repo.name)
            argv = orders.fetch_repository(mirror.path, public, repo.path, repo.branch, repo.publish)
            limits: dict[str, float | int | None] = {"wall_s": self._settings.fetch_wall_s, "grace_s": 5.0}
            # With its time: no fetch is like another, and none of before an older ledger was put back is taken for it.
            root, environment = str(self._places.root), {**orders.CLEAN_ENVIRONMENT, "HIVE_WANTED_AT": tx.now}
            order = Order(_run_id(repo), "fetch", argv, root, environment, limits)
            intend_run(tx, order, boot_id=self._boot_id, repo=repo.name)
            return
        run = runs[0]
        integration = mirror.find_commit(orders.integration_ref(repo.branch))
        source = mirror.find_commit(orders.source_ref(repo.branch))
        if run.succeeded and integration and source:
            make_again(tx, mirror, repo, integration)
            commands.note_fetched(tx, repo, integration=integration, source=source)
            check_configuration(tx, mirror, repo, source)
        elif run.state is RunState.LOST or len(runs) < MAX_INFRASTRUCTURE_TRIES:
            commands.fetch_again(tx, repo, why=describe_ending(run))
        else:
            commands.note_fetch_failed(tx, repo, describe_ending(run))


def _run_id(repo: RepoRow) -> str:
    return repo_run_id(repo.name, repo.fetches, "fetch")


def _list_fetches(connection: Connection, repo: RepoRow) -> list[RunRow]:
    """List the present fetch and those just before it that failed like it, the present one first; none if not begun."""
    found: list[RunRow] = []
    for number in range(repo.fetches, max(0, repo.fetches - MAX_INFRASTRUCTURE_TRIES), -1):
        run = queries.find_run(connection, repo_run_id(repo.name, number, "fetch"))
        if run is None or (found and (run.state is not RunState.EXITED or run.succeeded)):
            break
        found.append(run)
    return found
