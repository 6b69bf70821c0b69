"""The fetcher: brings a person's repository into the hive's mirror whenever a plan asks for it.

A fetch that was lost is repeated at once. A repository that cannot be read, because the network, a disk or the
repository is away, is tried again after seconds, later after minutes, for as long as it is wanted; after some minutes a
person is told. One that was read and cannot be used as it is waits for the person's next submission.

Where what landed goes to the person's branch itself and that was moved by somebody else, the integration branch begins
anew there, and what had landed is queued again: to be made on top of it, verified and landed like anything.
"""

from collections.abc import Sequence

from hivekeeper.clock import to_seconds, to_text
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
from hivekeeper.domain.waits import FIRST_FETCH_S, LONGEST_FETCH_S, back_off_s, is_waiting
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror
from hivekeeper.loops import Counts, Loop, Wakes
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

INTERVAL_S, WAITING_INTERVAL_S = 10.0, 0.5  # the second while something waits
FETCH_WALL_S = 1800.0


class Fetcher(Loop):
    """Keeps mirrors."""

    name = "fetcher"
    order = 30
    wakes = Wakes((e.RepoWanted, e.RepoFetchDelayed), ends_of=("fetch",))

    def run_once(self) -> Counts:
        """Intend a fetch for every wanted repository, and take note of those that ended."""
        with self._ledger.read() as connection:
            wanted = [repo for repo in queries.list_repos(connection) if repo.state is RepoState.FETCHING]
            pairs = [(repo, _list_fetches(connection, repo)) for repo in wanted]
        now = self._clock.now()
        waiting = [repo for repo in wanted if is_waiting(now, repo.fetch_failed_at, repo.fetch_retry_at or "")]
        self.interval_s = WAITING_INTERVAL_S if waiting else INTERVAL_S
        todo = [(repo, runs) for repo, runs in pairs if repo not in waiting and (not runs or not runs[0].is_open)]
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
            limits: dict[str, float | int | None] = {"wall_s": FETCH_WALL_S, "grace_s": 5.0}
            # With its time: no fetch is like another, and none of before an older ledger was put back is taken for it.
            root, environment = str(self._places.root), {**orders.CLEAN_ENVIRONMENT, "HIVE_WANTED_AT": tx.now}
            order = Order(_run_id(repo), "fetch", argv, root, environment, limits)
            intend_run(tx, order, boot_id=self._boot_id, repo=repo.name)
            return
        if repo.fetch_retry_at is not None:
            commands.fetch_again(tx, repo, why=str(repo.fetch_problem))
            return
        run = runs[0]
        integration = mirror.find_commit(orders.integration_ref(repo.branch))
        source = mirror.find_commit(orders.source_ref(repo.branch))
        if run.succeeded and integration and source:
            make_again(tx, mirror, repo, integration)
            commands.note_fetched(tx, repo, integration=integration, source=source)
            check_configuration(tx, mirror, repo, source)
        elif run.state is RunState.LOST:
            commands.fetch_again(tx, repo, why=describe_ending(run))
        elif run.exit_status != orders.UNUSABLE:
            commands.delay_fetch(tx, repo, describe_ending(run), retry_at=_find_retry_at(tx, repo, run))
        elif len(runs) < MAX_INFRASTRUCTURE_TRIES:  # git may have been killed under it
            commands.fetch_again(tx, repo, why=describe_ending(run))
        else:
            commands.note_fetch_failed(tx, repo, describe_ending(run))


def _find_retry_at(tx: Transaction, repo: RepoRow, run: RunRow) -> str:
    failures = repo.fetch_failures + 1
    wait_s = back_off_s(failures, first_s=FIRST_FETCH_S, longest_s=LONGEST_FETCH_S, seed=run.id)
    return to_text(to_seconds(tx.now) + wait_s)


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
