"""The fetcher: brings the mirror of a repository up to the person's branch, whenever a plan names it.

A fetch that was lost is repeated. One that could not read the repository (it may be away, or the network) is tried
again later and later, for as long as it takes, and says so; one that read it and cannot use it fails after a few tries.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.commands import merges as commands
from hivekeeper.commands.remake import make_again
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
    """What a fetch has brought into the mirror."""

    integration: str
    source: str
    replaced: Replaced
    configuration: Configuration


class Fetcher(Loop):
    """Keeps mirrors."""

    name = "fetcher"
    order = 30
    wakes = Wakes((e.RepoWanted, e.RepoFetchDelayed), ends_of=FETCH.kinds)

    def run_once(self) -> Counts:
        """Intend a fetch for every wanted repository, and take note of those that ended."""
        with self._ledger.read() as connection:
            wanted = [repo for repo in queries.list_repos(connection) if repo.state is RepoState.FETCHING]
            busy = {run.repo for run in queries.list_open_runs(connection) if run.kind in FETCH.kinds}
            pairs = [(repo, queries.list_runs_of(connection, fetch_owner(repo))) for repo in wanted]
        steps = [(repo, *self._decide(repo, runs)) for repo, runs in pairs if repo.name not in busy]
        todo = [step for step in steps if not isinstance(step[1], Wait) and not _is_noted(*step[:2])]
        waits = any(isinstance(action, Later) for _, action, _ in steps)
        self.interval_s = WAITING_INTERVAL_S if waits else INTERVAL_S
        if todo:
            with self._ledger.write(self._authority) as tx:
                for repo, action, fetched in todo:
                    self._record(tx, repo, action, fetched)
        return {"moved": len(todo)} if todo else {}

    def _decide(self, repo: RepoRow, runs: Sequence[RunRow]) -> tuple[Action, _Fetched | None]:
        """Decide what comes next; git is asked what a fetch has brought before anything is written."""
        facts, fetched = Facts(self._boot_id), None
        action = decide(FETCH, runs, facts)
        if isinstance(action, Done) and (fetched := self._look(repo)) is None:
            action = decide(FETCH, runs, replace(facts, rejected=frozenset({action.run.id})))
        if isinstance(action, Later) and _is_noted(repo, action) and not self._is_waiting(repo):
            action = action.start
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
                # With its time: no fetch of before an older ledger was put back is taken for this one.
                environment = {**orders.CLEAN_ENVIRONMENT, "HIVE_WANTED_AT": tx.now}
                spec = RunSpec(argv, str(self._places.root), environment, hive_limits(FETCH_WALL_S))
                self._intend(tx, fetch_owner(repo), start, spec)
            case Later(_, run, wait_s, failures):
                retry_at = to_text(to_seconds(tx.now) + wait_s)
                commands.delay_fetch(tx, repo, describe_ending(run), failures, retry_at=retry_at)
            case Done():
                assert fetched is not None
                make_again(tx, str(self._places.mirror(repo.name)), repo, fetched.replaced)
                commands.note_fetched(tx, repo, integration=fetched.integration, source=fetched.source)
                check_configuration(tx, repo, fetched.configuration)
            case Failed(run):
                commands.note_fetch_failed(tx, repo, describe_ending(run))
            case Wait() | Park() | Stop() | Cancelled():
                pass
            case _:
                assert_never(action)


def _is_noted(repo: RepoRow, action: Action) -> bool:
    """Tell whether a wait was noted: it lasts from then on, whatever the clock of the run said."""
    return isinstance(action, Later) and repo.fetch_problem is not None and repo.fetch_failures == action.failures
