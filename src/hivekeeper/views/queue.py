"""The merge queue: its order and state, one entry's history, and how conflicts were resolved."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from shlex import join
from typing import Any

from hivekeeper.clock import to_seconds
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.merge import REDO, REWORK, find_regeneration
from hivekeeper.domain.names import advise
from hivekeeper.domain.rows import MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.states import AttemptState, MergeState, RepoState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.views.rows import pick

TIERS = ("clean", "rules", "regenerated", "ai", REDO, REWORK)


def get_repos(connection: Connection, name: str | None) -> list[RepoRow]:
    """Get a repository by name, or all of them."""
    repos = queries.list_repos(connection)
    found = [repo for repo in repos if name in (None, repo.name)]
    if not found:
        names = [repo.name for repo in repos]
        there = f"It has {', '.join(names)}." if names else "Add one with a plan: hive convoy submit PLAN.yaml"
        what = f"This hive has no repository '{name}'." if name else "This hive has no repository yet."
        raise InputError(what, advice=advise(name or "", names, there))
    return found


def show_queue(connection: Connection, repos: Collection[RepoRow], *, ended: bool = False) -> dict[str, Any]:
    """Show queues and their entries, with `ended` those of the past too, and how conflicts were resolved."""
    names = {repo.name for repo in repos}
    convoys = {convoy.name for convoy in queries.list_convoys(connection, archived=ended)}
    every = queries.list_rows(connection, MergeRow, "position")
    entries = [entry for entry in every if entry.repo in names and entry.task.partition("/")[0] in convoys]
    rows = [row for row in list_queue(connection) if row["repo"] in names]
    over = sorted((entry for entry in entries if entry.ended_at and ended), key=lambda entry: str(entry.ended_at))
    return {
        "repos": [_show_repo(repo) for repo in repos],
        "entries": rows + [_show_entry(entry) for entry in over],
        "tiers": _count_tiers(connection, {repo.name: repo for repo in repos}, entries),
    }


def _show_repo(repo: RepoRow) -> dict[str, Any]:
    why = repo.stopped or (repo.problem if repo.state is RepoState.FAILED else None)
    state = "stopped" if repo.stopped else "paused" if repo.paused else "not fetched" if why else "running"
    return {"repo": repo.name, "state": state, "why": why, "branch": repo.branch, "integration": repo.integration}


def list_queue(connection: Connection) -> list[dict[str, Any]]:
    """List the entries in landing order, one repository after the other, then branches that are still to be fetched."""
    entries = queries.list_open_merges(connection)
    entries.sort(key=lambda entry: (entry.repo, entry.state is not MergeState.LANDING))
    tips = {str(repo.integration): "what has landed" for repo in queries.list_repos(connection)}
    tips |= {str(entry.candidate): entry.task for entry in entries}
    rows = [
        _show_entry(entry, position, tips)
        for _, of_repo in groupby(entries, key=lambda entry: entry.repo)
        for position, entry in enumerate(of_repo, start=1)
    ]
    at_work = [task for _, task in queries.list_open_attempts(connection, AttemptState.WORKING) if task.branch]
    return rows + [_show_coming(task) for task in (*at_work, *queries.list_ready_branches(connection))]


def _show_entry(entry: MergeRow, position: int | None = None, tips: Mapping[str, str] | None = None) -> dict[str, Any]:
    shown = {**asdict(entry), "position": position, "doing": _say_state(entry, tips or {})}
    return {"commit": shown.pop("commit_id"), "since": entry.ended_at or entry.queued_at, **shown}


def _show_coming(task: TaskRow) -> dict[str, Any]:
    shown = pick(task, "repo", "state", "priority", task="key", attempt="attempts", since="added_at")
    coming = {"position": None, "doing": f"{task.branch} is to be fetched", "tier": None}
    return {**shown, **coming, "commit": task.get_details().get("commit")}


def _say_state(entry: MergeRow, tips: Mapping[str, str]) -> str:
    """Say what an entry does; `tips` names the commits that one may be built on."""
    match entry.state:
        case MergeState.LANDED:
            return f"landed as {str(entry.candidate)[:10]}"
        case MergeState.REJECTED:
            return f"rejected: {entry.reason}"
        case MergeState.WITHDRAWN:
            return f"withdrawn: {entry.reason}"
        case MergeState.LANDING:
            return "has passed and is landing"
        case _ if entry.held:
            return f"waiting for approval: {entry.held}"
        case _ if entry.failures:
            return "failed once; verifying it alone"
        case MergeState.VERIFYING:
            return f"verifying on top of {tips.get(str(entry.base), str(entry.base)[:10])}"
        case MergeState.QUEUED:
            return f"waiting: {entry.reason}" if entry.reason and not entry.flakes else "waiting"


def _count_tiers(
    connection: Connection, repos: Mapping[str, RepoRow], entries: Collection[MergeRow]
) -> list[dict[str, Any]]:
    """Count how often each way to resolve a conflict was used, how often that landed, and the time of its runs."""
    landed = {(entry.task, entry.attempt) for entry in entries if entry.state is MergeState.LANDED}
    tallies: dict[str, dict[str, Any]] = {tier: {"used": 0, "landed": 0, "seconds": 0.0} for tier in TIERS}
    for entry in entries:
        for tier, attempt, runs in _list_uses(connection, repos[entry.repo], entry):
            ended = [(run.started_at, run.ended_at) for run in runs if run.ended_at]
            tally = tallies.setdefault(tier, {"used": 0, "landed": 0, "seconds": 0.0})
            tally["used"] += 1
            tally["landed"] += (entry.task, attempt) in landed
            tally["seconds"] += sum(to_seconds(end) - to_seconds(start) for start, end in ended if start)
    return [{"tier": tier, **tally} for tier, tally in tallies.items()]


def _list_uses(connection: Connection, repo: RepoRow, entry: MergeRow) -> Iterator[tuple[str, int, list[RunRow]]]:
    """List the tiers an entry came to, each with the attempt that shows what came of it and the runs it took."""

    def list_runs(attempt: int, kind: str) -> list[RunRow]:
        runs = queries.list_runs_of_attempt(connection, entry.task, attempt)
        return [run for run in runs if run.kind == kind]

    is_refused = entry.state is MergeState.REJECTED
    if entry.round or entry.resolved or is_refused:
        tier, runs = entry.tier, list_runs(entry.attempt, "resolve") if is_refused or entry.resolved else []
        if runs and tier not in ("regenerated", "ai"):  # they tried, and in vain
            tier = "regenerated" if all(find_regeneration(repo, path) for path in entry.conflicts) else "ai"
        yield tier, entry.attempt, runs
    for message in _list_requests(connection, entry) if is_refused else ():
        if runs := list_runs(entry.attempt + 1, "agent"):  # else nobody was there to take it up
            yield str(message.get_payload().get("mode")), entry.attempt + 1, runs


def _list_requests(connection: Connection, entry: MergeRow) -> list[MailRow]:
    """List the rework requests after an entry was rejected."""
    messages = queries.list_mail(connection, entry.task, entry.attempt)
    return [message for message in messages if message.is_rejection]


def show_entry(connection: Connection, task: TaskRow) -> dict[str, Any]:
    """Show a task's last entry in the queue, how it was verified, and earlier rejections."""
    entries = queries.list_rows(connection, MergeRow, "attempt", task=task.key)
    if not entries:
        raise InputError(f"Nothing of {task.key} is in the queue yet.", advice=f"Type: hive task why {task.key}")
    last = entries[-1]
    runs = queries.list_runs_of_tree(connection, last.repo, last.tree) if last.tree else ()
    in_queue = (row for row in list_queue(connection) if (row["task"], row["attempt"]) == (task.key, last.attempt))
    requests = [message for entry in entries for message in _list_requests(connection, entry)]
    return {
        **next(in_queue, _show_entry(last)),
        "branch": task.branch,
        "gate_runs": [
            {"run": run.id, "kind": run.kind, "ending": describe_ending(run) if run.ended_at else None} for run in runs
        ],
        "earlier": [_show_entry(entry) for entry in entries[:-1]],
        "rework_requests": [{**asdict(message), "payload": message.get_payload()} for message in requests],
    }


def say_look(repo: RepoRow, commit: str, mirror: str) -> str:
    """Make the command that shows what a commit would change."""
    return join(("git", f"--git-dir={mirror}", "diff", f"{repo.branch}...{commit}"))
