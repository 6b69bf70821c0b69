"""`hive queue`."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import NO_KEEPER, Json, Reason, me, read_here
from hivekeeper.commands import queue as commands
from hivekeeper.domain.merge import HOTFIX_PRIORITY
from hivekeeper.errors import InputError
from hivekeeper.git.mirror import check_git
from hivekeeper.git.remote import get_branch, has_branch
from hivekeeper.hive import is_kept
from hivekeeper.store import queries
from hivekeeper.views import queue as views
from hivekeeper.views.tasks import get_task

queue_app = typer.Typer(
    no_args_is_help=True, help="The merge queue: changes that wait to land on the integration branch."
)

Repo = Annotated[str | None, typer.Argument(help="Repository; default: all.")]
Priority = Annotated[int, typer.Option("--to", help="Priority; higher goes first.")]
_FACTS = (
    "branch", "commit", "base", "candidate", "tree", "resolved", "priority", "tier", "round", "failed_run", "flakes"
)  # fmt: skip


@queue_app.command("ls")
def queue_ls(
    *,
    repo: Annotated[str | None, typer.Option(help="Only this repository.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Include landed and rejected entries.")] = False,
    json: Json = False,
) -> None:
    """List the merge queue in landing order, and how conflicts were resolved."""
    with read_here().ledger.read() as connection:
        repos = views.get_repos(connection, repo) if repo is not None else queries.list_repos(connection)
        view = views.show_queue(connection, repos, ended=all_)
    render.print_json(view) if json else _print_queue(view)


def _print_queue(view: Mapping[str, Any]) -> None:
    for repo in view["repos"]:
        because = f": {repo['why']}" if repo["why"] else ""
        advice = f". To continue: hive queue resume {repo['repo']}" if repo["state"] in ("paused", "stopped") else ""
        render.print_lines(f"{repo['repo']}: {repo['state']}{because}{advice}")
        rows = [_show_line(row) for row in view["entries"] if row["repo"] == repo["repo"]]
        without_headings = dict.fromkeys(("place", "task", "doing", "details"), "")
        render.print_table(rows, without_headings, texts=("doing",), spare=("details",))
    if not view["entries"]:
        typer.echo("The merge queue is empty.")
    if tiers := [{**tier, "time": render.say_duration(tier["seconds"])} for tier in view["tiers"] if tier["used"]]:
        render.print_table(tiers, {"tier": "Tier", "used": "Tries", "landed": "Landed", "time": "Time of its runs"})


def _show_line(row: Mapping[str, Any]) -> dict[str, Any]:
    details = ", ".join(filter(None, (row["tier"], row["since"])))
    return {**row, "place": f"{row['position'] or '–':>4}", "details": f"({details})"}


@queue_app.command("show")
def queue_show(task: str, *, json: Json = False) -> None:
    """Show one entry: its change, its verification, and earlier rejections."""
    hive = read_here()
    with hive.ledger.read() as connection:
        view = views.show_entry(connection, get_task(connection, task))
        (repo,) = views.get_repos(connection, view["repo"])
    view["look"] = views.say_look(repo, view["commit"], str(hive.places.mirror(repo.name)))
    render.print_json(view) if json else _print_entry(view)


def _print_entry(view: Mapping[str, Any]) -> None:
    place = f"number {view['position']} of {view['repo']}" if view["position"] else view["repo"]
    lines = [f"{view['task']} (attempt {view['attempt']}, {place}): {view['doing']}"]
    lines += [f"  {name:10} {view[name]}" for name in _FACTS if view[name]]
    lines += [f"  {run['kind']:10} {run['ending'] or 'under way'} ({run['run']})" for run in view["gate_runs"]]
    lines += [f"  attempt {each['attempt']}  {each['doing']} ({each['commit'][:10]})" for each in view["earlier"]]
    for message in view["rework_requests"][-1:]:
        lines += [f"Retry instructions after attempt {message['attempt']}:"]
        for name, value in message["payload"].items():
            text = "\n".join(map(str, value)) if isinstance(value, list) else str(value)
            lines += [f"  {name}:", *(f"    {line}" for line in text.splitlines())]
    render.print_lines(*lines, f"To see the change: {view['look']}")


@queue_app.command("submit")
def queue_submit(
    branch: str,
    *,
    repo: Annotated[str | None, typer.Option(help="Repository of the branch, if several have it.")] = None,
    priority: Annotated[bool, typer.Option("--priority", help="Hotfix: put it at the head of the queue.")] = False,
    json: Json = False,
) -> None:
    """Submit a branch to the merge queue, as it is now."""
    check_git()
    hive = read_here()
    with hive.ledger.read() as connection:
        repos = views.get_repos(connection, repo)
        kept = is_kept(connection)
    if len(repos) > 1:
        names = ", ".join(each.name for each in repos)
        repos = [each for each in repos if has_branch(each.path, branch)]
        if len(repos) != 1:
            has = f"{' and '.join(each.name for each in repos)} have" if repos else "No repository of this hive has"
            raise InputError(f"{has} a branch '{branch}'.", advice=f"Choose one with --repo: {names}.")
    [chosen] = repos
    commit = get_branch(chosen.path, branch)
    with hive.ledger.write(me()) as tx:
        done = commands.submit_branch(tx, chosen, branch, commit, is_hotfix=priority, why="hive queue submit")
    advice = f" {NO_KEEPER}; type: hive up" if done.added and not kept else ""
    render.print_json(asdict(done)) if json else render.print_lines(f"{done.said}{advice}")


@queue_app.command("prioritize")
def queue_prioritize(task: str, to: Priority = HOTFIX_PRIORITY, reason: Reason = "") -> None:
    """Move an entry to the head of the queue, or give it a priority."""
    with read_here().ledger.write(me()) as tx:
        row = get_task(tx.connection, task)
        done = commands.prioritize_entry(tx, row, to, why=reason)
    typer.echo(f"{row.key} has priority {to} in the queue{'' if done else ' already'}.")


@queue_app.command("approve")
def queue_approve(task: str, reason: Reason = "") -> None:
    """Approve a change that waits for you. It still has to pass."""
    with read_here().ledger.write(me()) as tx:
        row = get_task(tx.connection, task)
        done = commands.approve_entry(tx, row, why=reason)
    typer.echo(f"{row.key} is approved{'' if done else ' already'}: it lands when it passes.")


@queue_app.command("pause")
def queue_pause(repo: Repo = None, reason: Reason = "") -> None:
    """Pause landing. Workers go on."""
    _change_queues(repo, reason, commands.pause_queue, "is paused: nothing lands", "was paused already")


@queue_app.command("resume")
def queue_resume(repo: Repo = None, reason: Reason = "") -> None:
    """Resume a paused or stopped queue. Everything is verified again."""
    _change_queues(repo, reason, commands.resume_queue, "continues; entries are verified again", "was not paused")


def _change_queues(name: str | None, why: str, change: Callable[..., bool], done: str, otherwise: str) -> None:
    with read_here().ledger.write(me()) as tx:
        changed = [(repo.name, change(tx, repo, why=why)) for repo in views.get_repos(tx.connection, name)]
    for repo, is_changed in changed:
        typer.echo(f"The merge queue of {repo} {done if is_changed else otherwise}.")
