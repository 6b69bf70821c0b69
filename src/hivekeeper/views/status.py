"""The first thing a person reads in the morning: what needs me, then everything under way."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import join
from typing import Any

from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.hive_rows import HeartbeatRow, LeaseRow
from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.rows import AttemptRow, MergeRow, RepoRow, RunRow
from hivekeeper.domain.sequences import OUTPUTS_MISSING
from hivekeeper.domain.states import AttemptState, RepoState, RunState, TaskState
from hivekeeper.domain.steps import Retry, Start
from hivekeeper.places import Places
from hivekeeper.runs.local import LocalOutputs
from hivekeeper.sandbox.isolation import Level
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_head
from hivekeeper.views import convoys
from hivekeeper.views.failures import show_failure
from hivekeeper.views.queue import list_queue, say_look
from hivekeeper.views.runners import list_hold_needs, list_waits

MOST_NEEDS = 20
_LEAST_FREE = 1 << 20
_MOST_NAMED = 5
_KEPT = "refs/hive/attempts/*:refs/heads/hive/attempts/*"  # as the run that pushes names them
Need = dict[str, Any]


def find_tried_level(cache: Path, boot_id: str, wanted: str | None) -> Level | None:
    """Find the strongest isolation, none stronger than wanted, that held when tried in this boot; try nothing."""
    highest = Level(wanted) if wanted else Level.NAMESPACES
    if highest is Level.LIMITS:
        return highest
    with contextlib.suppress(OSError, ValueError, RecursionError):
        match json.loads(cache.read_bytes()):
            case {"key": [_, str(boot), *_], "held": [*held]} if boot == boot_id:
                known = [level for level in Level if level in held and level.rank <= highest.rank]
                return max(known, key=lambda level: level.rank, default=None)
    return None


def show_status(  # noqa: PLR0913 - one a fact that the tables do not hold
    connection: Connection,
    *,
    keeper_is_alive: bool,
    keeper_state: KeeperState | None = None,
    isolation: Level | None = None,
    require: str | None = None,
    free_bytes: int | None = None,
    now: str = "",
    places: Places | None = None,
    settings_problem: str = "",
) -> dict[str, Any]:
    """Show the hive as it is; `isolation` is that of workers, None when nobody knows, as of the past.

    `keeper_state` is what its silence makes of a living keeper, `free_bytes` what the hive's disk has left, and
    `settings_problem` what is wrong with its hive.toml, where that is known; `now` is when it is looked at, `places`
    where it lies.
    """
    head = read_head(connection)
    lease, beat = queries.find_lease(connection), queries.find_heartbeat(connection)
    state = keeper_state or (KeeperState.ACTIVE if keeper_is_alive else KeeperState.NONE)
    working = queries.list_open_attempts(connection, AttemptState.WORKING)
    return {
        "needs_me": [
            *_need_keeper(lease, beat, state),
            *_need_settings(settings_problem, places, keeper_is_alive=keeper_is_alive),
            *_need_isolation(isolation, require),
            *_need_disk(free_bytes, places),
            *list_hold_needs(connection, now=now),
            *list_needs(connection, keeper_is_alive=keeper_is_alive, places=places),
        ],
        "waits": list_waits(connection, now=now),
        "isolation": isolation and isolation.value,
        "keeper": _show_keeper(lease, beat, state),
        "convoys": convoys.list_convoys(connection, archived=False),
        "workers": [
            {"worker": attempt.worker, "task": task.key, "attempt": attempt.number, "since": attempt.started_at}
            for attempt, task in working
        ],
        "queue": [
            {name: row[name] for name in ("task", "repo", "state", "doing", "position", "since")}
            for row in list_queue(connection)
        ],
        "repos": [
            {
                "repo": repo.name,
                "path": repo.path,
                "branch": repo.branch,
                "state": repo.state.value,
                "integration": repo.integration,
                "published": repo.published,
                "published_as": repo.published_as,
                "publish_problem": repo.publish_problem,
                "agent_configuration": json.loads(repo.pinned_files),
            }
            for repo in queries.list_repos(connection)
        ],
        "events": head.seq,
        "epoch": head.epoch,
    }


def _need_keeper(lease: LeaseRow | None, beat: HeartbeatRow | None, state: KeeperState) -> Iterator[Need]:
    if state is KeeperState.ABANDONED and lease is not None and beat is not None:
        what = f"{lease.holder} is alive but has given no sign of life since {beat.at}: nothing is processed."
        yield {"what": what, "type": "hive up  (it ends that keeper and takes over)"}


def _show_keeper(lease: LeaseRow | None, beat: HeartbeatRow | None, state: KeeperState) -> dict[str, Any]:
    is_alive = state is not KeeperState.NONE
    return {
        "state": state.value,
        "holder": lease.holder if lease and is_alive else None,
        "since": lease.taken_at if lease and is_alive else None,
        "last_heartbeat": beat.at if beat else None,
    }


def _need_settings(problem: str, places: Places | None, *, keeper_is_alive: bool) -> Iterator[Need]:
    if problem and places is not None:
        until = "the keeper goes on with the settings of before" if keeper_is_alive else "no keeper starts"
        edit = join((os.environ.get("EDITOR") or "vi", str(places.root / "hive.toml")))
        yield {"what": f"hive.toml cannot be used, and {until}: {problem}", "type": edit}


def _need_disk(free_bytes: int | None, places: Places | None) -> Iterator[Need]:
    if free_bytes is not None and free_bytes < _LEAST_FREE:
        what = "The disk of this hive is full: the keeper waits, and goes on by itself."
        yield {"what": what, "type": join(("df", "-h", str(places.hive) if places else "."))}


def _need_isolation(found: Level | None, require: str | None) -> Iterator[Need]:
    if found and require and Level(require).rank > found.rank:
        what = f"hive.toml requires {require}, and this machine keeps workers apart by {found} only: no keeper starts."
        yield {"what": what, "type": "hive doctor  (it says why, and what to do)"}


def list_needs(connection: Connection, *, keeper_is_alive: bool, places: Places | None = None) -> list[Need]:
    """List what only a person can do, each with the command for it; of a failure the last lines, by its `places`."""
    needs: list[Need] = []
    active, attempts, _ = queries.count_open_work(connection)
    if (active or attempts) and not keeper_is_alive:
        needs.append({"what": "There is work, and the keeper is not running.", "type": "hive up"})
    waiting = queries.list_open_merges(connection)
    for repo in queries.list_repos(connection):
        mirror = str(places.mirror(repo.name)) if places else f".hive/repos/{repo.name}.git"
        needs += _need_repo(repo, [entry for entry in waiting if entry.repo == repo.name], mirror)
    for attempt in queries.list_removable_sandboxes(connection, MOST_NEEDS):
        runs = queries.list_runs_of_attempt(connection, attempt.task, attempt.number)
        needs += _need_removal(attempt, runs[-1], places) if runs else ()
    in_sight = [convoy.name for convoy in queries.list_convoys(connection)]
    needs += _need_backups(_list_not_pushed(connection, in_sight), places)
    for state in (TaskState.UNKNOWN, TaskState.FAILED):
        tasks = [task for task in queries.list_tasks_in_state(connection, state) if task.convoy in in_sight]
        for task in tasks[:MOST_NEEDS]:
            verb = "may have run" if state is TaskState.UNKNOWN else "failed"
            need: Need = {"what": f"{task.key} {verb}: {task.reason}.", "type": f"hive task retry {task.key}"}
            failure = show_failure(connection, task, LocalOutputs(places.runs) if places else None)
            needs.append({**need, "failure": failure} if failure else need)
    return needs


def say_move(repo: str) -> str:
    """Say how a person tells where a repository is now."""
    return f"hive repo set {repo} --path NEW"


def _need_repo(repo: RepoRow, waiting: Sequence[MergeRow], mirror: str) -> Iterator[Need]:
    if repo.state is RepoState.FAILED:
        what = f"Repository {repo.name} could not be fetched: {repo.problem}."
        yield {"what": what, "type": "hive convoy submit PLAN.yaml  (once it can be read)"}
    if repo.is_away:
        what = f"Repository {repo.name} ({repo.path}) cannot be read: {repo.fetch_problem}."
        again = "It is tried again every few minutes; if it has moved, say where it is now."
        yield {"what": f"{what} {again}", "type": say_move(repo.name)}
    if repo.publish_problem:
        what, _, command = repo.publish_problem.rpartition(" (type: ")
        yield {"what": f"{what or repo.publish_problem}.", "type": command.removesuffix(")")}
    resume = f"hive queue resume {repo.name}"
    if repo.stopped:
        yield {"what": f"The merge queue of {repo.name} stands still: {repo.stopped}.", "type": resume}
    elif repo.paused and waiting:
        what = f"The merge queue of {repo.name} is paused, and {len(waiting)} in it cannot land."
        yield {"what": what, "type": resume}
    for entry in (entry for entry in waiting if entry.held):
        look = say_look(repo, entry.commit_id, mirror)
        what = f"{entry.task} may not land unless you say so: {entry.held}. Look at it: {look}"
        yield {"what": what, "type": f"hive queue approve {entry.task}"}


def _need_removal(attempt: AttemptRow, last: RunRow, places: Places | None) -> Iterator[Need]:
    """Tell why a settled attempt's sandbox stays, by its last run; a lost one is repeated by the keeper."""
    if last.succeeded or last.is_open:
        return
    if last.kind == "snapshot" and last.exit_status != OUTPUTS_MISSING:
        what = f"What attempt {attempt.number} at {attempt.task} left could not be kept, so its sandbox stays"
        yield {"what": f"{what}: {describe_ending(last)}.", "type": f"hive task show {attempt.task}"}
    if last.kind == "remove" and last.state is RunState.EXITED:
        what = f"What attempt {attempt.number} at {attempt.task} made is kept, but its sandbox could not be removed"
        directories = _read_words(last, 2, places)
        yield {"what": f"{what}: {describe_ending(last)}.", "type": join(("sudo", "rm", "-rf", *directories))}


def _read_words(run: RunRow, count: int, places: Places | None) -> list[str]:
    """Read the last words of a run's command."""
    words = json.loads(run.argv)[-count:]
    return [places.resolve(word) for word in words] if places else list(words)


def _list_not_pushed(connection: Connection, convoys: Iterable[str]) -> Iterator[RunRow]:
    """List the last runs that were to push what an attempt made to a second repository, where none did."""
    last = Start("backup", int(Retry().max_runs or 0))
    for task in (task for convoy in convoys for task in queries.list_tasks_of_convoy(connection, convoy) if task.repo):
        for number in range(1, task.attempts + 1):
            run = queries.find_run(connection, attempt_owner(task.key, number, task.repo).name_run(last))
            if run is not None and not run.is_open and not run.succeeded:
                yield run


def _need_backups(runs: Iterable[RunRow], places: Places | None) -> Iterator[Need]:
    """Tell for each repository what was not pushed, all together: if one push fails, so do many."""
    by_target: dict[tuple[str, str], list[RunRow]] = {}
    for run in runs:
        mirror, target, _ref = _read_words(run, 3, places)
        by_target.setdefault((mirror, target), []).append(run)
    for (mirror, target), failed in by_target.items():
        names = ", ".join(f"{run.task} (attempt {run.attempt})" for run in failed[:_MOST_NAMED])
        more = " …" if len(failed) > _MOST_NAMED else ""
        what = f"What {len(failed)} attempts made was not pushed to {target}: {describe_ending(failed[-1])}."
        push = join(("git", f"--git-dir={mirror}", "push", "--force", target, _KEPT))
        yield {"what": f"{what} It is kept in {mirror}: {names}{more}.", "type": push}
