"""The first thing a person reads in the morning: what needs me, then everything under way."""

from typing import Any

from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.rows import HeartbeatRow, LeaseRow
from hivekeeper.domain.states import AttemptState, RepoState, TaskState
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_head
from hivekeeper.views import convoys

MOST_NEEDS = 20


def show_status(connection: Connection, *, keeper_is_alive: bool) -> dict[str, Any]:
    """Show the hive as it is."""
    head = read_head(connection)
    lease, beat = queries.find_lease(connection), queries.find_heartbeat(connection)
    working = queries.list_open_attempts(connection, AttemptState.WORKING)
    queue = queries.list_open_merges(connection)
    return {
        "needs_me": list_needs(connection, keeper_is_alive=keeper_is_alive),
        "keeper": _show_keeper(lease, beat, is_alive=keeper_is_alive),
        "convoys": convoys.list_convoys(connection, archived=False),
        "workers": [
            {"worker": attempt.worker, "task": task.key, "attempt": attempt.number, "since": attempt.started_at}
            for attempt, task in working
        ],
        "queue": [{"task": entry.task, "repo": entry.repo, "state": entry.state.value} for entry in queue],
        "repos": [
            {
                "repo": repo.name,
                "path": repo.path,
                "branch": repo.branch,
                "state": repo.state.value,
                "integration": repo.integration,
                "published": repo.published,
            }
            for repo in queries.list_repos(connection)
        ],
        "events": head.seq,
        "epoch": head.epoch,
    }


def _show_keeper(lease: LeaseRow | None, beat: HeartbeatRow | None, *, is_alive: bool) -> dict[str, Any]:
    return {
        "state": "ACTIVE" if is_alive else "NONE",
        "holder": lease.holder if lease and is_alive else None,
        "since": lease.taken_at if lease and is_alive else None,
        "last_heartbeat": beat.at if beat else None,
    }


def list_needs(connection: Connection, *, keeper_is_alive: bool) -> list[dict[str, str]]:
    """List what only a person can do, each with the command for it."""
    needs: list[dict[str, str]] = []
    active, attempts, _ = queries.count_open_work(connection)
    if (active or attempts) and not keeper_is_alive:
        needs.append({"what": "There is work, and nobody keeps this hive.", "type": "hive up"})
    for repo in queries.list_repos(connection):
        if repo.state is RepoState.FAILED:
            what = f"Repository {repo.name} could not be fetched: {repo.problem}."
            needs.append({"what": what, "type": "hive convoy submit PLAN.yaml  (once it can be read)"})
        if repo.publish_problem:
            needs.append({"what": f"{repo.publish_problem}.", "type": f"git -C {repo.path} status"})
    for attempt in queries.list_removable_sandboxes(connection, MOST_NEEDS):
        runs = queries.list_runs_of_attempt(connection, attempt.task, attempt.number)
        if runs and runs[-1].kind == "snapshot" and not runs[-1].is_open and not runs[-1].succeeded:
            what = f"What attempt {attempt.number} at {attempt.task} left could not be kept, so its sandbox stays"
            needs.append({"what": f"{what}: {describe_ending(runs[-1])}.", "type": f"hive task show {attempt.task}"})
    in_sight = {convoy.name for convoy in queries.list_convoys(connection)}
    for state in (TaskState.UNKNOWN, TaskState.FAILED):
        tasks = [task for task in queries.list_tasks_in_state(connection, state) if task.convoy in in_sight]
        for task in tasks[:MOST_NEEDS]:
            verb = "may have run" if state is TaskState.UNKNOWN else "failed"
            needs.append({"what": f"{task.key} {verb}: {task.reason}.", "type": f"hive task retry {task.key}"})
    return needs
