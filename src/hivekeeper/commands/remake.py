"""What had landed when somebody else moved the person's branch: it is queued again, to land on what is there now."""

from collections.abc import Sequence
from dataclasses import replace
from shlex import join

from hivekeeper.commands.plans import to_event
from hivekeeper.commands.queue import list_queues, open_queue
from hivekeeper.domain.landed import LandedChange, Replaced
from hivekeeper.domain.merge import HOTFIX_PRIORITY
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.rows import ConvoyRow, RepoRow
from hivekeeper.domain.states import MergeState
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction

PRIORITY = HOTFIX_PRIORITY - 1


def requeue_replaced(tx: Transaction, mirror: str, repo: RepoRow, replaced: Replaced) -> int:
    """Queue what was replaced, in its order and once; tell how many."""
    queues = list_queues(tx)
    known = _list_known(tx, repo, queues)
    new = [each for each in replaced.landed if each.commit not in known and each.change not in replaced.taken]
    originals = {each.task: queries.find_task(tx.connection, each.task) for each in new}
    new = [each for each in new if (task := originals[each.task]) is None or task.repo == repo.name]
    if new:
        why = f"{repo.branch} of {repo.path} was moved by somebody else"
        convoy = open_queue(tx, queues, why)
        for change in new:
            original = originals[change.task]
            _queue(tx, mirror, repo, convoy, change, original.verify if original else None, why)
    return len(new)


def _list_known(tx: Transaction, repo: RepoRow, queues: Sequence[ConvoyRow]) -> set[str]:
    """List the commits that were queued again before, and those not yet seen to land, which is tried again."""
    tasks = (task for queue in queues for task in queries.list_tasks_of_convoy(tx.connection, queue.name))
    details = (task.get_details() for task in tasks if task.repo == repo.name)
    entries = queries.list_open_merges(tx.connection)
    landing = {str(entry.candidate) for entry in entries if entry.state is MergeState.LANDING}
    return landing | {said["commit"] for said in details if "remakes" in said}


def _queue(  # noqa: PLR0913, PLR0917 - what a task consists of
    tx: Transaction, mirror: str, repo: RepoRow, convoy: str, change: LandedChange, verify: str | None, why: str
) -> None:
    task_id = f"remake-{change.commit[:10]}"
    spec = TaskSpec(task_id, repo=repo.name, title=change.subject, verify=verify, priority=PRIORITY)
    fetch = join(("git", "fetch", mirror, change.commit))
    details = {
        "branch": f"what landed as {change.commit[:10]}",
        "commit": change.commit,
        "remakes": change.task,
        "by_hand": f"{fetch} && git cherry-pick FETCH_HEAD",
    }
    tx.record(replace(to_event(convoy, spec), details=details), why=why)
