"""The evidence of an attempt's work in the repository, and the commit that its successor starts from."""

from dataclasses import dataclass

from hivekeeper.domain import attempt as a
from hivekeeper.domain.merge import REWORK
from hivekeeper.domain.plan import find_stray
from hivekeeper.domain.rows import RepoRow, TaskRow
from hivekeeper.git import orders
from hivekeeper.git.mirror import EMPTY_TREE, Mirror, list_refs
from hivekeeper.places import Places
from hivekeeper.specs.attempt import Work
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.working.telling import find_rework


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The attempt succeeded: with a commit to merge, or its task's outputs."""

    commit: str | None = None
    output: str | None = None


def check_work(places: Places, work: Work, repo: RepoRow) -> Succeeded | a.Fail:
    """Judge an attempt by the repository, not by the exit code."""
    task, mirror = work.task, Mirror(places.mirror(repo.name))
    commit = mirror.find_commit(orders.attempt_ref(task.key, work.number))
    if commit is None:
        return a.Fail("its work is not in the mirror")
    pinned = work.row.pinned if work.row else None
    if pinned and mirror.find_commit(pinned) and mirror.is_ancestor(pinned, commit):
        commit = pinned  # what it made after it said that this commit is ready is not part of it
    if task.remakes:  # it has landed before, wherever the branch is now
        return Succeeded(commit=commit)
    base = mirror.find_merge_base(commit, orders.integration_ref(repo.branch))
    if base is None:
        return a.Fail("its work shares no history with the integration branch")
    if mirror.get_tree(commit) in {mirror.get_tree(base), mirror.get_tree(work.start or base)}:
        if work.row is not None and work.row.unchanged:
            return Succeeded(commit=commit)  # the gate says whether that is right
        return a.Fail("it ended with exit code 0 but changed nothing")
    if not mirror.list_changed(EMPTY_TREE, commit):
        return a.Fail("it ended with exit code 0 but deleted everything")
    if stray := find_stray(mirror.list_changed(base, commit), task.get_details().get("paths", ())):
        return a.Fail(f"it changed {stray}, outside its allowed `paths`")
    return Succeeded(commit=commit)


def choose_start(places: Places, connection: Connection, task: TaskRow, repo: RepoRow | None) -> str | None:
    """Choose the commit that an attempt starts from: its predecessor's final snapshot, or else its last save."""
    if not task.attempts or repo is None or task.branch is not None:
        return None
    number = task.attempts
    attempts = queries.list_attempts_of_task(connection, task.key)
    runs = queries.list_runs_of_attempt(connection, task.key, number)
    mirror = Mirror(places.mirror(repo.name))
    left = mirror.find_commit(orders.attempt_ref(task.key, number))
    saves = list(list_refs(mirror.path, orders.save_ref(task.key, number)).values()) if left is None else []
    saved = left or (saves[-1] if saves else None)
    rework = find_rework(connection, task.key, number)
    if rework and attempts:
        return attempts[-1].commit_id if rework["mode"] == REWORK else None
    if saved and mirror.find_merge_base(saved, orders.integration_ref(repo.branch)) is None:
        saved = None  # its git directory was gone: missing files may be deleted, or were never checked out
    return a.decide_start(attempts[-1] if attempts else None, runs, saved)
