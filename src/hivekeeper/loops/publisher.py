"""The publisher: publishes what landed in the user's repository, in the way the plan says.

A task is COMPLETE when it has landed; publishing is separate, and may fail and be retried without blocking anything. It
fast-forwards the hive's own branch (`hive/BRANCH`), the branch itself, or the branch in a clean checkout. Nothing is
forced, and publishing twice is harmless. If the branch has moved, it is fetched again, so that what landed lands again
on top of it.

A failed publish is retried with backoff. If the user can fix the cause with one command, as with a checkout that is not
clean, that is checked every two seconds, and the publish is retried as soon as the cause is gone.
"""

from collections.abc import Sequence
from itertools import takewhile
from shlex import join

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.commands import merges as commands
from hivekeeper.domain import events as e
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.owners import publish_owner
from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.sequences import PUBLISH
from hivekeeper.domain.states import RepoState
from hivekeeper.domain.steps import Action, Done, Facts, Later, Start, Wait, decide
from hivekeeper.domain.waits import is_waiting
from hivekeeper.git import orders
from hivekeeper.git.forward import Refusal
from hivekeeper.git.remote import has_cleared
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.specs.sandboxed import hive_limits
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction

INTERVAL_S, LOOK_EVERY_S = 10.0, 2.0  # the second: how often to check whether the cause of a failure is gone
PUSH_WALL_S = 600.0


class Publisher(Loop):
    """Publishes what landed."""

    name = "publisher"
    order = 80
    wakes = Wakes(
        (e.MergeLanded, e.RepoFetched, e.RepoPublished, e.RepoPublishFailed, e.RepoPublishDue), ends_of=PUBLISH.kinds
    )
    rest_s = 0.1

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._looked_s = -LOOK_EVERY_S

    def run_once(self) -> Counts:
        """Start what is due, and record what ended."""
        with self._ledger.read() as connection:
            repos = [repo for repo in queries.list_repos(connection) if repo.publishing or repo.awaits_publishing]
            pairs = [(repo, queries.list_runs_of(connection, publish_owner(repo))) for repo in repos]
        tries = [(repo, [run for run in runs if run.kind in PUBLISH.kinds]) for repo, runs in pairs]
        steps = [(repo, runs, decide(PUBLISH, runs, Facts(self._boot_id))) for repo, runs in tries]
        ended = [step for step in steps if step[0].publishing and not isinstance(step[2], Wait)]
        wanted = [step for step in steps if not step[0].publishing]
        waiting = [step for step in wanted if self._is_waiting(step[0])]
        cleared = self._find_cleared([(repo, runs[-1]) for repo, runs, _ in waiting if runs])
        due = [step for step in wanted if step not in waiting or step[0] in cleared]
        self.interval_s = LOOK_EVERY_S if waiting else INTERVAL_S
        if due or ended:
            with self._ledger.write(self._authority) as tx:
                for repo, _, action in due:
                    self._begin(tx, repo, action.start if isinstance(action, Later) else action)
                for repo, runs, action in ended:
                    self._end(tx, repo, runs, action)
        return {"begun": len(due), "ended": len(ended)} if due or ended else {}

    def _is_waiting(self, repo: RepoRow) -> bool:
        now, until = self._clock.now(), repo.publish_retry_at or ""
        return repo.publish_problem is not None and is_waiting(now, repo.publish_failed_at, until)

    def _find_cleared(self, waiting: Sequence[tuple[RepoRow, RunRow]]) -> list[RepoRow]:
        """Find the repositories in which the cause of the last failure is gone; checked every two seconds at most."""
        now_s = self._clock.monotonic()
        if not waiting or now_s - self._looked_s < LOOK_EVERY_S:
            return []
        self._looked_s = now_s
        refused = ((repo, _find_refusal(run)) for repo, run in waiting)
        return [repo for repo, refusal in refused if refusal and has_cleared(repo.path, repo.branch, refusal)]

    def _begin(self, tx: Transaction, repo: RepoRow, action: Action) -> None:
        assert isinstance(action, Start)
        commit = str(repo.integration)
        commands.begin_publishing(tx, repo, commit)
        argv = orders.publish_commit(self._places.mirror(repo.name), repo.path, commit, repo.branch, repo.publish)
        spec = RunSpec(argv, str(self._places.root), dict(orders.CLEAN_ENVIRONMENT), hive_limits(PUSH_WALL_S))
        self._intend(tx, publish_owner(repo), action, spec)

    def _end(self, tx: Transaction, repo: RepoRow, runs: Sequence[RunRow], action: Action) -> None:
        run = runs[-1]
        if isinstance(action, Done):
            commands.note_published(tx, repo, str(repo.publishing), at=run.ended_at or tx.now)
            return
        # A lost publish is repeated at once: it may have left a checkout half updated.
        retry_at = to_text(to_seconds(tx.now) + (action.wait_s if isinstance(action, Later) else 0.0))
        problem = _describe_refusal(repo, run, str(self._places.mirror(repo.name)))
        commands.note_publish_failed(tx, repo, problem, retry_at=retry_at)
        # A fetch ends the wait. Every second time there is no fetch, so that the two do not alternate without a pause.
        moved = takewhile(lambda each: _find_refusal(each) is Refusal.MOVED, reversed(runs))
        is_fetched = repo.publish != "branch" and sum(1 for _ in moved) % 2 == 1
        if is_fetched and repo.state is not RepoState.FETCHING:
            commands.fetch_again(tx, repo, why=problem)


def _find_refusal(run: RunRow) -> Refusal | None:
    return next((each for each in Refusal if each == run.exit_status), None) if run.ended_by == "exit" else None


def _describe_refusal(repo: RepoRow, run: RunRow, mirror: str) -> str:
    """Describe what could not be published, why, and what to type."""
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
        case Refusal.MOVED if repo.publish != "branch":  # what landed lands again on top of it
            return "hive queue ls"
        case Refusal.MOVED:  # save the other commits under another name
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
