"""The fetcher: updates the mirror of a repository from the user's branch, whenever a plan names it.

A lost fetch is repeated. One that could not read the repository (it or the network may be down) is retried with
backoff, without limit, and reported. One that read the repository and cannot use it fails after a few tries.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.commands import merges as commands
from hivekeeper.commands.remake import requeue_replaced
from hivekeeper.commands.trust import check_configuration
from hivekeeper.domain import events as e
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.landed import Configuration, Replaced
from hivekeeper.domain.owners import fetch_owner
from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.sequences import FETCH
from hivekeeper.domain.states import RepoState
from hivekeeper.domain.steps import Action, Cancelled, Done, Facts, Failed, Later, Park, Start, Stop, Wait, decide
from hivekeeper.domain.waits import is_waiting
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror
from hivekeeper.loops import Counts, Loop, Wakes
from hivekeeper.merging.source import find_replaced, read_configuration
from hivekeeper.specs.sandboxed import hive_limits
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction

INTERVAL_S, WAITING_INTERVAL_S = 10.0, 0.5  # the second while something waits
FETCH_WALL_S = 1800.0


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What a fetch found."""

    integration: str
    source: str
    replaced: Replaced
    configuration: Configuration


class Fetcher(Loop):
    """Fetches repositories."""

    name = "fetcher"
    order = 30
    wakes = Wakes((e.RepoWanted, e.RepoFetchDelayed), ends_of=FETCH.kinds)

    def run_once(self) -> Counts:
        """Start a fetch of every requested repository, and record those that ended."""
        with self._ledger.read() as connection:
            wanted = [repo for repo in queries.list_repos(connection) if repo.state is RepoState.FETCHING]
            busy = {run.repo for run in queries.list_open_runs(connection) if run.kind in FETCH.kinds}
            waiting = {repo.name for repo in wanted if self._is_waiting(repo)}
            due = [repo for repo in wanted if repo.name not in busy | waiting]
            pairs = [(repo, queries.list_runs_of(connection, fetch_owner(repo))) for repo in due]
        steps = [(repo, *self._decide(repo, runs)) for repo, runs in pairs]
        todo = [step for step in steps if not isinstance(step[1], Wait)]
        self.interval_s = WAITING_INTERVAL_S if waiting else INTERVAL_S
        if todo:
            with self._ledger.write(self._authority) as tx:
                for repo, action, fetched in todo:
                    self._record(tx, repo, action, fetched)
        return {"moved": len(todo)} if todo else {}

    def _decide(self, repo: RepoRow, runs: Sequence[RunRow]) -> tuple[Action, _Fetched | None]:
        """Decide what comes next; git is read before the transaction starts."""
        facts, fetched = Facts(self._boot_id), None
        action = decide(FETCH, runs, facts)
        if isinstance(action, Done) and (fetched := self._look(repo)) is None:
            action = decide(FETCH, runs, replace(facts, rejected=frozenset(run.id for run in runs if run.succeeded)))
        if isinstance(action, Later) and repo.fetch_failed_run == action.run.id:
            action = action.start  # the wait was recorded, and is over
        return action, fetched

    def _is_waiting(self, repo: RepoRow) -> bool:
        return is_waiting(self._clock.now(), repo.fetch_failed_at, repo.fetch_retry_at or "")

    def _look(self, repo: RepoRow) -> _Fetched | None:
        mirror = Mirror(self._places.mirror(repo.name))
        integration = mirror.find_commit(orders.integration_ref(repo.branch))
        source = mirror.find_commit(orders.source_ref(repo.branch))
        if integration is None or source is None:
            return None
        replaced = find_replaced(mirror, repo, integration)
        return _Fetched(integration, source, replaced, read_configuration(mirror, repo, source))

    def _record(self, tx: Transaction, repo: RepoRow, action: Action, fetched: _Fetched | None) -> None:
        match action:
            case Start() as start:
                mirror, public = self._places.mirror(repo.name), self._places.public(repo.name)
                argv = orders.fetch_repository(mirror, public, repo.path, repo.branch, repo.publish)
                # With its time: after a restore of the ledger, no earlier fetch is taken for this one.
                environment = {**orders.CLEAN_ENVIRONMENT, "HIVE_WANTED_AT": tx.now}
                spec = RunSpec(argv, str(self._places.root), environment, hive_limits(FETCH_WALL_S))
                self._intend(tx, fetch_owner(repo), start, spec)
            case Later(_, run, wait_s):
                retry_at = to_text(to_seconds(tx.now) + wait_s)
                commands.delay_fetch(tx, repo, run.id, describe_ending(run), retry_at=retry_at)
            case Done():
                assert fetched is not None
                requeue_replaced(tx, str(self._places.mirror(repo.name)), repo, fetched.replaced)
                commands.note_fetched(tx, repo, integration=fetched.integration, source=fetched.source)
                check_configuration(tx, repo, fetched.configuration)
            case Failed(run):
                commands.note_fetch_failed(tx, repo, describe_ending(run))
            case Wait() | Park() | Stop() | Cancelled():
                pass
            case _:
                assert_never(action)
