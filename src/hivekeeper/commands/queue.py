"""A person's wishes about the merge queue: what to take in, what comes first, what may land, when to stand still."""

import re
from dataclasses import dataclass, replace
from itertools import count, takewhile

from hivekeeper.commands.plans import add_tasks, to_event
from hivekeeper.domain import events as e
from hivekeeper.domain.merge import HOTFIX_PRIORITY
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.rows import ConvoyRow, MergeRow, RepoRow, TaskRow
from hivekeeper.domain.states import ConvoyState, MergeState, TaskState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction

CONVOY = "queue"  # one that is archived has a successor with a number
_MAX_STEM = 48  # with a number and a commit behind it, it is still a task's id
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9._-]+|\.{2,}")


@dataclass(frozen=True, slots=True)
class SubmittedBranch:
    """What came of a branch: its task, the commit it was at, and what is to be said of it."""

    task: str
    commit: str
    added: bool
    said: str


def submit_branch(
    tx: Transaction, repo: RepoRow, branch: str, commit: str, *, is_hotfix: bool = False, why: str = ""
) -> SubmittedBranch:
    """Hand a person's branch to the queue as it is now; of a commit that is known it is told what became of it."""
    queues = list_queues(tx)
    known = [task for convoy in queues for task in queries.list_tasks_of_convoy(tx.connection, convoy.name)]
    for task in known:
        if task.repo == repo.name and task.get_details().get("commit") == commit:
            return SubmittedBranch(task.key, commit, added=False, said=_describe_outcome(tx, task))
    taken, stem = {task.id for task in known}, _NOT_IN_AN_ID.sub("-", branch).strip("-._")[:_MAX_STEM] or "branch"
    # The same commit may be wanted in two repositories: then the second has a number.
    ids = (f"{stem}{f'-{number}' if number else ''}-{commit[:10]}" for number in count())
    task_id = next(task_id for task_id in ids if task_id not in taken)
    spec = TaskSpec(task_id, repo=repo.name, title=branch, priority=HOTFIX_PRIORITY if is_hotfix else 0)
    added = replace(to_event(open_queue(tx, queues, why), spec), details={"branch": branch, "commit": commit})
    tx.record(added, why=why)
    said = (
        f"{branch} goes to the {'head of the ' if is_hotfix else ''}queue of {repo.name}, as it is now: {added.task}."
    )
    return SubmittedBranch(added.task, commit, added=True, said=said)


def list_queues(tx: Transaction) -> list[ConvoyRow]:
    """List the convoys of what was handed in, oldest first."""
    found = (queries.find_convoy(tx.connection, f"{CONVOY}-{n}" if n > 1 else CONVOY) for n in count(1))
    return [convoy for convoy in takewhile(bool, found) if convoy]


def open_queue(tx: Transaction, queues: list[ConvoyRow], why: str) -> str:
    """Have the last of these take something in, or a successor; tell its name."""
    if not queues or queues[-1].state is ConvoyState.ARCHIVED:
        return add_tasks(tx, f"{CONVOY}-{len(queues) + 1}" if queues else CONVOY, (), why=why).convoy
    if queues[-1].state is not ConvoyState.ACTIVE:
        tx.record(e.ConvoyExtended(queues[-1].name), why=why)
    return queues[-1].name


def _describe_outcome(tx: Transaction, task: TaskRow) -> str:
    """Tell what became of a commit, or refuse it if it came to nothing: the same commit has the same result."""
    what = f"{task.branch} at {task.get_details()['commit'][:10]}"
    anew = "The same commit has the same result. Commit a change to the branch, then submit it again."
    match task.state:
        case TaskState.PENDING | TaskState.IN_PROGRESS:
            return f"{what} is in the queue already. To move it to the head: hive queue prioritize {task.key}"
        case TaskState.COMPLETE:
            return f"{what} has landed already, as {str(task.commit_id)[:10]} at {task.completed_at}."
        case TaskState.CANCELLING | TaskState.CANCELLED:
            raise InputError(f"{what} was cancelled as {task.key}: {task.reason}.", advice=anew)
        case TaskState.FAILED | TaskState.UNKNOWN:
            entry = queries.find_merge(tx.connection, task.key, task.attempts)
            if entry is None or entry.state is not MergeState.REJECTED:
                raise InputError(f"{what} failed: {task.reason}.", advice=f"To try again: hive task retry {task.key}")
            advice = f"{anew}\nThe whole story: hive queue show {task.key}"
            raise InputError(f"{what} was refused: {task.reason}.", advice=advice)


def prioritize_entry(tx: Transaction, task: TaskRow, priority: int = HOTFIX_PRIORITY, *, why: str = "") -> bool:
    """Give what waits in the queue another place; False when it has that priority already."""
    entry = _get_waiting(tx, task)
    if entry.priority != priority:
        tx.record(e.MergePrioritized(entry.task, entry.attempt, priority), why=why)
    return entry.priority != priority


def approve_entry(tx: Transaction, task: TaskRow, *, why: str = "") -> bool:
    """Let land what waits for a person, if it passes; False when that was said before."""
    entry = _get_waiting(tx, task)
    if entry.held is not None:
        tx.record(e.MergeApproved(entry.task, entry.attempt), why=why)
    elif not entry.approved:
        raise InputError(f"{task.key} does not wait for you: it lands when it passes.", advice="Type: hive queue ls")
    return entry.held is not None


def pause_queue(tx: Transaction, repo: RepoRow, *, why: str = "") -> bool:
    """Let nothing more land in a repository for now; False when that was said before."""
    if not repo.paused:
        tx.record(e.RepoPaused(repo.name), why=why)
    return not repo.paused


def resume_queue(tx: Transaction, repo: RepoRow, *, why: str = "") -> bool:
    """Have a paused or stopped queue go on, verifying everything anew; False when it does."""
    if repo.paused or repo.stopped:
        tx.record(e.RepoResumed(repo.name), why=why)
    return bool(repo.paused or repo.stopped)


def _get_waiting(tx: Transaction, task: TaskRow) -> MergeRow:
    """Get the entry of a task that can still be told something."""
    entry = queries.find_merge(tx.connection, task.key, task.attempts)
    if entry is None or entry.state not in (MergeState.QUEUED, MergeState.VERIFYING):
        is_ = f"it is {entry.state} there" if entry else "it has not been submitted to the queue"
        advice = f"Type: hive task why {task.key}"
        raise InputError(f"{task.key} does not wait in the merge queue: {is_}.", advice=advice)
    return entry
