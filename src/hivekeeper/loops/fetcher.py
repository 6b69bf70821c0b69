"""The fetcher: brings a person's repository into the hive's mirror whenever a plan asks for it.

A fetch that was lost is repeated at once. A repository that cannot be read, because the network, a disk or the
repository is away, is tried again after seconds, later after minutes, for as long as it is wanted; after some minutes a
person is told. One that was read and cannot be used as it is waits for the person's next submission.

Where what landed goes to the person's branch itself and that was moved by somebody else, the integration branch begins
anew there, and what had landed is queued again: to be made on top of it, verified and landed like anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.commands import merges as commands
from hivekeeper.commands.remake import Replaced, find_replaced, make_again
from hivekeeper.commands.runs import intend_run
from hivekeeper.commands.trust import Configuration, check_configuration, read_configuration
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


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What a fetch has brought into the mirror."""

    integration: str
    source: str
    replaced: Replaced
    configuration: Configuration


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
            looks = [self._look(repo, runs) for repo, runs in todo]
            with self._ledger.write(self._authority) as tx:
                for (repo, runs), fetched in zip(todo, looks, strict=True):
                    self._step(tx, repo, runs, fetched)
        return {"moved": len(todo)} if todo else {}

    def _look(self, repo: RepoRow, runs: Sequence[RunRow]) -> _Fetched | None:
        """Look at what a fetch that ended well has brought; git is asked before anything is written."""
        if not runs or not runs[0].succeeded or repo.fetch_retry_at is not None:
            return None
        mirror = Mirror(self._places.mirror(repo.name))
        integration = mirror.find_commit(orders.integration_ref(repo.branch))
        source = mirror.find_commit(orders.source_ref(repo.branch))
        if integration is None or source is None:
            return None
        replaced = find_replaced(mirror, repo, integration)
        return _Fetched(integration, source, replaced, read_configuration(mirror, repo, source))

    def _step(self, tx: Transaction, repo: RepoRow, runs: Sequence[RunRow], fetched: _Fetched | None) -> None:
        mirror = self._places.mirror(repo.name)
        if not runs:
            public = self._places.public(repo.name)
            argv = orders.fetch_repository(mirror, public, repo.path, repo.branch, repo.publish)
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
        if fetched is not None:
            make_again(tx, mirror, repo, fetched.replaced)
            commands.note_fetched(tx, repo, integration=fetched.integration, source=fetched.source)
            check_configuration(tx, repo, fetched.configuration)
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
