"""The publisher: brings what landed into the person's repository, in the way the plan says.

A task is COMPLETE when it has landed; publishing is a step apart that may be refused, wait and be tried again without
holding anything up: forward to a branch of the hive's own (`hive/BRANCH`), to the branch itself, or to that branch in
a clean check-out. Nothing is forced, and what is published already is published once more without harm. Where somebody
else has moved that branch it is fetched again, so that what landed is made again on top of it.

A refusal is tried again later and later. Where the person can end its cause with one command, as with a check-out that
is not clean, that is looked for every two seconds, and it is tried again as soon as the cause is gone.
"""

from collections.abc import Sequence
from shlex import join

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.commands import merges as commands
from hivekeeper.commands.runs import intend_run
from hivekeeper.domain import events as e
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.names import repo_run_id
from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.run import Order
from hivekeeper.domain.states import RepoState, RunState
from hivekeeper.domain.waits import LONGEST_PUBLISH_S, is_waiting
from hivekeeper.git import orders
from hivekeeper.git.forward import Refusal
from hivekeeper.git.remote import has_cleared
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction

INTERVAL_S, LOOK_EVERY_S = 10.0, 2.0  # how often to look whether the cause of a refusal is gone
RETRY_S = 60.0  # after a refusal, twice as long after each further one up to LONGEST_PUBLISH_S
PUSH_WALL_S = 600.0


class Publisher(Loop):
    """Publishes."""

    name = "publisher"
    order = 80
    wakes = Wakes(
        (e.MergeLanded, e.RepoFetched, e.RepoPublished, e.RepoPublishFailed, e.RepoPublishDue), ends_of=("publish",)
    )
    rest_s = 0.1

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._looked_s = -LOOK_EVERY_S

    def run_once(self) -> Counts:
        """Begin what is due, and take note of what ended."""
        now = self._clock.now()
        with self._ledger.read() as connection:
            repos = queries.list_repos(connection)
            last = {repo.name: queries.find_run(connection, _run_id(repo)) for repo in repos}
        wanted = [repo for repo in repos if repo.awaits_publishing and not repo.publishing]
        waiting = [repo for repo in wanted if _is_waiting(repo, now)]
        pushing = [(repo, last[repo.name]) for repo in repos if repo.publishing]
        cleared = self._find_cleared([(repo, run) for repo in waiting if (run := last[repo.name])])
        due = [repo for repo in wanted if repo not in waiting or repo in cleared]
        self.interval_s = LOOK_EVERY_S if waiting else INTERVAL_S
        ended = [(repo, run) for repo, run in pushing if run is not None and not run.is_open]
        if due or ended:
            with self._ledger.write(self._authority) as tx:
                for repo in due:
                    self._begin(tx, repo)
                for repo, run in ended:
                    self._end(tx, repo, run)
        return {"begun": len(due), "ended": len(ended)} if due or ended else {}

    def _find_cleared(self, waiting: Sequence[tuple[RepoRow, RunRow]]) -> list[RepoRow]:
        """Find the repositories in which the cause of the last refusal is gone; looked for now and then only."""
        now_s = self._clock.monotonic()
        if not waiting or now_s - self._looked_s < LOOK_EVERY_S:
            return []
        self._looked_s = now_s
        refused = ((repo, _find_refusal(run)) for repo, run in waiting)
        return [repo for repo, refusal in refused if refusal and has_cleared(repo.path, repo.branch, refusal)]

    def _begin(self, tx: Transaction, repo: RepoRow) -> None:
        commit = str(repo.integration)
        number = commands.begin_publishing(tx, repo, commit)
        argv = orders.publish_commit(self._places.mirror(repo.name), repo.path, commit, repo.branch, repo.publish)
        limits: dict[str, float | int | None] = {"wall_s": PUSH_WALL_S, "grace_s": 5.0}
        run, root = repo_run_id(repo.name, number, "publish"), str(self._places.root)
        order = Order(run, "publish", argv, root, dict(orders.CLEAN_ENVIRONMENT), limits)
        intend_run(tx, order, boot_id=self._boot_id, repo=repo.name)

    def _end(self, tx: Transaction, repo: RepoRow, run: RunRow) -> None:
        if run.succeeded:
            commands.note_published(tx, repo, str(repo.publishing), at=run.ended_at or tx.now)
            return
        retry_at = to_text(to_seconds(tx.now) + self._find_wait(tx, repo, run))
        problem = _describe_refusal(repo, run, str(self._places.mirror(repo.name)))
        commands.note_publish_failed(tx, repo, problem, retry_at=retry_at)
        # A fetch ends the wait. Every second time the wait is kept to, so that the two do not take turns without rest.
        is_fetched = repo.publish != "branch" and self._count_moved(tx, repo) % 2 == 1
        if is_fetched and repo.state is not RepoState.FETCHING:
            commands.fetch_again(tx, repo, why=problem)

    def _count_moved(self, tx: Transaction, repo: RepoRow) -> int:
        """Count the refusals in a row, up to the last, because somebody else had moved the branch."""
        count = 0
        while (run := queries.find_run(tx.connection, _run_id(repo, repo.publications - count))) is not None:
            if _find_refusal(run) is not Refusal.MOVED:
                break
            count += 1
        return count

    def _find_wait(self, tx: Transaction, repo: RepoRow, run: RunRow) -> float:
        """Tell how long to wait: longer with every failure in a row, but not for a run that was killed on its way."""
        wait_s, number = RETRY_S, repo.publications - 1
        before = queries.find_run(tx.connection, _run_id(repo, number))
        killed = run.state is RunState.LOST or (run.exit_status or 0) < 0
        if killed and (before is None or before.succeeded):
            return 0.0  # what it began in a check-out is not left like that
        while before is not None and not before.succeeded and wait_s < LONGEST_PUBLISH_S:
            wait_s, number = 2 * wait_s, number - 1
            before = queries.find_run(tx.connection, _run_id(repo, number))
        return min(wait_s, LONGEST_PUBLISH_S)


def _is_waiting(repo: RepoRow, now: str) -> bool:
    return repo.publish_problem is not None and is_waiting(now, repo.publish_failed_at, repo.publish_retry_at or "")


def _find_refusal(run: RunRow) -> Refusal | None:
    return next((each for each in Refusal if each == run.exit_status), None) if run.ended_by == "exit" else None


def _run_id(repo: RepoRow, number: int | None = None) -> str:
    return repo_run_id(repo.name, repo.publications if number is None else number, "publish")


def _describe_refusal(repo: RepoRow, run: RunRow, mirror: str) -> str:
    """Say what the person's repository did not take, why, and what to type; then, or later, it is tried again."""
    refusal = _find_refusal(run)
    why = describe_ending(run) if refusal is None else run.reason or "it gave no reason"
    branch = f"hive/{repo.branch}" if repo.publish == "branch" else repo.branch
    command = _advise(repo, refusal, mirror, branch)
    return f"Could not update {branch} in {repo.path}: {why} (type: {command})"


def _advise(repo: RepoRow, why: Refusal | None, mirror: str, branch: str) -> str:
    path, commit = repo.path, str(repo.publishing)
    take = join(("git", "-C", path, "merge", "--ff-only", "--no-overwrite-ignore", commit))
    match why:
        case Refusal.GONE:
            return join(("hive", "repo", "set", repo.name, "--path")) + " NEW"
        case Refusal.MOVED if repo.publish != "branch":  # what landed is made again on top of it
            return "hive queue ls"
        case Refusal.MOVED:  # what somebody else has put there is kept under another name
            theirs = f"refs/heads/{branch}-before-{commit[:10]}"
            git = ("git", f"--git-dir={mirror}")
            keep = (*git, "fetch", path, f"refs/heads/{branch}"), (*git, "push", path, f"FETCH_HEAD:{theirs}")
            return " && ".join(map(join, (*keep, (*git, "push", "--force", path, f"{commit}:refs/heads/{branch}"))))
        case Refusal.ELSEWHERE:
            return join(("git", "-C", path, "switch", branch))
        case Refusal.UNCLEAN:
            return join(("git", "-C", path, "status"))
        case Refusal.IN_THE_WAY:
            return join(("git", "-C", path, "status", "--ignored"))
        case Refusal.LOCKED:
            lock = join(("git", "-C", path, "rev-parse", "--path-format=absolute", "--git-path", "index.lock"))
            return f'rm "$({lock})"'
        case Refusal.NO_CHECKOUT:
            return "hive convoy submit PLAN.yaml, with publish: push"
        case Refusal.CHECKED_OUT | Refusal.UNABLE:
            return take
        case Refusal.DECLINED | None:
            push = ("git", f"--git-dir={mirror}", "push", path, f"{commit}:refs/heads/{branch}")
            return take if repo.publish == "checkout" else join(push)
