"""The publisher: brings what landed into the person's repository, as a branch of its own.

A task is COMPLETE when it has landed; publishing is a step apart that may fail, wait and be tried again without
holding anything up. It pushes forward to `hive/BRANCH` and touches no check-out.
"""

from dataclasses import dataclass

from hivekeeper.clock import Clock, to_seconds, to_text
from hivekeeper.commands import merges as commands
from hivekeeper.commands.runs import intend_run
from hivekeeper.domain import events as e
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.names import repo_run_id
from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.run import Order
from hivekeeper.git import orders
from hivekeeper.loops import Counts, is_end_of
from hivekeeper.places import Places
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByKeeper, Ledger, Transaction


@dataclass(frozen=True, slots=True)
class Settings:
    """`retry_s`: how long to wait after a refusal."""

    interval_s: float = 10.0
    retry_s: float = 60.0
    push_wall_s: float = 600.0


class Publisher:
    """Publishes."""

    name = "publisher"
    rest_s = 0.1

    def __init__(
        self, ledger: Ledger, authority: ByKeeper, places: Places, boot_id: str, clock: Clock, settings: Settings
    ) -> None:
        self.interval_s = settings.interval_s
        self._ledger = ledger
        self._authority = authority
        self._places = places
        self._boot_id = boot_id
        self._clock = clock
        self._settings = settings

    def hears(self, body: e.Body) -> bool:
        return isinstance(body, (e.MergeLanded, e.RepoFetched, e.RepoPublished)) or is_end_of(body, "publish")

    def run_once(self) -> Counts:
        """Begin what is due, and take note of what ended."""
        now = self._clock.now()
        with self._ledger.read() as connection:
            repos = queries.list_repos(connection)
            due = [repo for repo in repos if _is_due(repo, now)]
            pushing = [(repo, queries.find_run(connection, _run_id(repo))) for repo in repos if repo.publishing]
        ended = [(repo, run) for repo, run in pushing if run is not None and not run.is_open]
        if due or ended:
            with self._ledger.write(self._authority) as tx:
                for repo in due:
                    self._begin(tx, repo)
                for repo, run in ended:
                    self._end(tx, repo, run)
        return {"begun": len(due), "ended": len(ended)} if due or ended else {}

    def _begin(self, tx: Transaction, repo: RepoRow) -> None:
        commit = str(repo.integration)
        number = commands.begin_publishing(tx, repo, commit)
        mirror, ref = self._places.mirror(repo.name), orders.published_ref(repo.branch)
        argv = orders.publish_commit(mirror, repo.path, commit, ref)
        limits: dict[str, float | int | None] = {"wall_s": self._settings.push_wall_s, "grace_s": 5.0}
        run, root = repo_run_id(repo.name, number, "publish"), str(self._places.root)
        order = Order(run, "publish", argv, root, dict(orders.CLEAN_ENVIRONMENT), limits)
        intend_run(tx, order, boot_id=self._boot_id, repo=repo.name)

    def _end(self, tx: Transaction, repo: RepoRow, run: RunRow) -> None:
        if run.succeeded:
            commands.note_published(tx, repo, str(repo.publishing), at=run.ended_at or tx.now)
            return
        retry_at = to_text(to_seconds(tx.now) + self._settings.retry_s)
        problem = f"{repo.path} did not take branch hive/{repo.branch}: {describe_ending(run)}"
        commands.note_publish_failed(tx, repo, problem, retry_at=retry_at)


def _is_due(repo: RepoRow, now: str) -> bool:
    if repo.integration is None or repo.publishing or repo.integration == repo.published:
        return False
    return repo.publish_problem is None or now >= (repo.publish_retry_at or "")


def _run_id(repo: RepoRow) -> str:
    return repo_run_id(repo.name, repo.publications, "publish")
