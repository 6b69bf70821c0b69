"""The status: what needs a person, then what is running."""

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
from hivekeeper.domain.names import name_some
from hivekeeper.domain.rows import AttemptRow, MergeRow, RepoRow, RunRow
from hivekeeper.domain.sequences import OUTPUTS_MISSING
from hivekeeper.domain.states import AttemptState, RepoState, RunState, TaskState
from hivekeeper.domain.steps import Retry
from hivekeeper.domain.wording import say_count
from hivekeeper.places import Places
from hivekeeper.runs.local import LocalOutputs
from hivekeeper.sandbox.isolation import Level
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_head
from hivekeeper.views import convoys
from hivekeeper.views.failures import show_failure
from hivekeeper.views.holds import list_hold_needs, list_waits
from hivekeeper.views.mail import list_mail_needs
from hivekeeper.views.queue import list_queue, say_look
from hivekeeper.views.rows import pick

MAX_NEEDS = 20
_MIN_FREE = 1 << 20
_SAVED_REFS = "refs/hive/attempts/*:refs/heads/hive/attempts/*"  # as the run that pushes names them
Need = tuple[str, str]  # what, and the command for it


def find_tried_level(cache: Path, boot_id: str, wanted: str | None) -> Level | None:
    """Find the strongest isolation, up to the wanted one, that passed the self-test in this boot; run no test."""
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
    keeper: KeeperState,
    *,
    now: str = "",
    isolation: Level | None = None,
    require: str | None = None,
    free_bytes: int | None = None,
    places: Places | None = None,
    reply_within_s: float = 1800.0,
    settings_problem: str = "",
) -> dict[str, Any]:
    """Show the hive as it is, or was; what is not known of the past is None.

    `isolation` is that of workers, `free_bytes` what is free on the hive's disk, `settings_problem` what is wrong with
    its hive.toml, `places` where it lies.
    """
    head = read_head(connection)
    lease, beat = queries.find_lease(connection), queries.find_heartbeat(connection)
    is_alive = keeper is not KeeperState.NONE
    holder = lease if is_alive else None
    needs = [
        *_need_keeper(lease, beat, keeper),
        *_need_settings(settings_problem, places, keeper_is_alive=is_alive),
        *(_need_loops(beat, settings_problem) if holder and beat and beat.epoch == holder.epoch else ()),
        *_need_isolation(isolation, require),
        *_need_disk(free_bytes, places),
        *list_hold_needs(connection, now=now),
        *(list_mail_needs(connection, reply_within_s, now=now) if now else ()),
    ]
    return {
        "needs_me": [*_show_needs(needs), *list_needs(connection, keeper_is_alive=is_alive, places=places)],
        "waits": list_waits(connection, now=now),
        "isolation": isolation,
        "keeper": {
            "state": keeper,
            "holder": holder and holder.holder,
            "since": holder and holder.taken_at,
            "last_heartbeat": beat and beat.at,
        },
        "convoys": convoys.list_convoys(connection, archived=False),
        "workers": [
            pick(attempt, "worker", "task", attempt="number", since="started_at")
            for attempt, _ in queries.list_open_attempts(connection, AttemptState.WORKING)
        ],
        "queue": [
            {name: row[name] for name in ("task", "repo", "state", "doing", "position", "since")}
            for row in list_queue(connection)
        ],
        "repos": [_show_repo(repo) for repo in queries.list_repos(connection)],
        "events": head.seq,
        "epoch": head.epoch,
    }


def _show_repo(repo: RepoRow) -> dict[str, Any]:
    names = ("path", "branch", "state", "integration", "published", "published_as", "publish_problem")
    return {**pick(repo, *names, repo="name"), "agent_configuration": json.loads(repo.pinned_files)}


def _show_needs(needs: Iterable[Need]) -> list[dict[str, Any]]:
    return [{"what": what, "type": command} for what, command in needs]


def _need_keeper(lease: LeaseRow | None, beat: HeartbeatRow | None, state: KeeperState) -> Iterator[Need]:
    if state is KeeperState.ABANDONED and lease is not None and beat is not None:
        what = f"{lease.holder} is alive but has not recorded a heartbeat since {beat.at}: nothing is processed."
        yield what, "hive up  (it ends that keeper and takes over)"


def _need_settings(problem: str, places: Places | None, *, keeper_is_alive: bool) -> Iterator[Need]:
    if problem and places is not None:
        until = "the keeper keeps the previous settings" if keeper_is_alive else "no keeper can start"
        edit = join((os.environ.get("EDITOR") or "vi", str(places.root / "hive.toml")))
        yield f"hive.toml cannot be used, and {until}: {problem}", edit


def _need_loops(beat: HeartbeatRow, settings_problem: str) -> Iterator[Need]:
    for name, problem in json.loads(beat.problems).items():
        if name != "hive.toml":
            yield f"The {name} of the keeper fails and is retried: {problem}", "hive doctor"
        elif not settings_problem:
            yield f"The changed hive.toml is not in use: {problem}", "hive down && hive up"


def _need_disk(free_bytes: int | None, places: Places | None) -> Iterator[Need]:
    if free_bytes is not None and free_bytes < _MIN_FREE:
        what = "The disk of this hive is full: the keeper waits, and continues by itself when there is space."
        yield what, join(("df", "-h", str(places.hive) if places else "."))


def _need_isolation(isolation: Level | None, require: str | None) -> Iterator[Need]:
    if isolation and require and Level(require).rank > isolation.rank:
        what = f"hive.toml requires {require}, and this machine isolates workers by {isolation} only: no keeper starts."
        yield what, "hive doctor  (it says why, and what to do)"


def list_needs(connection: Connection, *, keeper_is_alive: bool, places: Places | None = None) -> list[dict[str, Any]]:
    """List what only a person can do, each with its command; of a failure the last lines, if `places` is given."""
    needs: list[Need] = []
    active, attempts, _ = queries.count_open_work(connection)
    if (active or attempts) and not keeper_is_alive:
        needs.append(("There is work, and the keeper is not running.", "hive up"))
    waiting = queries.list_open_merges(connection)
    for repo in queries.list_repos(connection):
        mirror = str(places.mirror(repo.name)) if places else f".hive/repos/{repo.name}.git"
        needs += _need_repo(repo, [entry for entry in waiting if entry.repo == repo.name], mirror)
    for attempt in queries.list_removable_sandboxes(connection, MAX_NEEDS):
        runs = queries.list_runs_of_attempt(connection, attempt.task, attempt.number)
        needs += _need_sandbox(attempt, runs[-1], places) if runs else ()
    in_sight = [convoy.name for convoy in queries.list_convoys(connection)]
    needs += _need_backups(queries.list_failed_backups(connection, int(Retry().max_runs or 0)), places)
    shown = _show_needs(needs)
    for state, verb in ((TaskState.UNKNOWN, "may have run"), (TaskState.FAILED, "failed")):
        tasks = [task for task in queries.list_tasks_in_state(connection, state) if task.convoy in in_sight]
        for task in tasks[:MAX_NEEDS]:
            need = {"what": f"{task.key} {verb}: {task.reason}.", "type": f"hive task retry {task.key}"}
            failure = show_failure(connection, task, LocalOutputs(places.runs) if places else None)
            shown.append({**need, "failure": failure} if failure else need)
    return shown


def _need_repo(repo: RepoRow, waiting: Sequence[MergeRow], mirror: str) -> Iterator[Need]:
    if repo.state is RepoState.FAILED:
        what = f"Repository {repo.name} could not be fetched: {repo.problem}."
        yield what, "hive convoy submit PLAN.yaml  (once it can be read)"
    if repo.is_unreachable:
        what = f"Repository {repo.name} ({repo.path}) cannot be read: {repo.fetch_problem}."
        advice = "It is retried every few minutes; if it has moved, set its new path."
        yield f"{what} {advice}", f"hive repo set {repo.name} --path NEW"
    if repo.publish_problem:
        what, _, command = repo.publish_problem.rpartition(" (type: ")
        yield f"{what or repo.publish_problem}.", command.removesuffix(")")
    resume = f"hive queue resume {repo.name}"
    if repo.stopped:
        yield f"The merge queue of {repo.name} is stopped: {repo.stopped}.", resume
    elif repo.paused and waiting:
        yield f"The merge queue of {repo.name} is paused, and {len(waiting)} in it cannot land.", resume
    for entry in (entry for entry in waiting if entry.held):
        look = say_look(repo, entry.commit_id, mirror)
        what = f"{entry.task} waits for your approval: {entry.held}. To see the change: {look}"
        yield what, f"hive queue approve {entry.task}"


def _need_sandbox(attempt: AttemptRow, last: RunRow, places: Places | None) -> Iterator[Need]:
    """Tell why the sandbox of an ended attempt stays, by its last run; the keeper repeats a lost one."""
    if last.succeeded or last.is_open:
        return
    if last.kind == "snapshot" and last.exit_status != OUTPUTS_MISSING:
        what = f"The work of attempt {attempt.number} at {attempt.task} could not be saved, so its sandbox stays"
        yield f"{what}: {describe_ending(last)}.", f"hive task show {attempt.task}"
    if last.kind == "remove" and last.state is RunState.EXITED:
        what = f"The work of attempt {attempt.number} at {attempt.task} is saved, but its sandbox could not be removed"
        yield f"{what}: {describe_ending(last)}.", join(("sudo", "rm", "-rf", *_read_words(last, 2, places)))


def _read_words(run: RunRow, count: int, places: Places | None) -> list[str]:
    """Read the last words of a run's command."""
    words = json.loads(run.argv)[-count:]
    return [places.resolve(word) for word in words] if places else list(words)


def _need_backups(runs: Iterable[RunRow], places: Places | None) -> Iterator[Need]:
    """Report what was not pushed, once per repository: if one push fails, so do many."""
    by_target: dict[tuple[str, str], list[RunRow]] = {}
    for run in runs:
        mirror, target, _ref = _read_words(run, 3, places)
        by_target.setdefault((mirror, target), []).append(run)
    for (mirror, target), failed in by_target.items():
        names = name_some([f"{run.task} (attempt {run.attempt})" for run in failed])
        attempts, why = say_count(len(failed), "attempt"), describe_ending(failed[-1])
        what = f"The work of {attempts} was not pushed to {target}: {why}."
        push = join(("git", f"--git-dir={mirror}", "push", "--force", target, _SAVED_REFS))
        yield f"{what} It is saved in {mirror}: {names}.", push
