"""`hive repo`."""

from pathlib import Path
from typing import Annotated

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import Reason, me, open_here
from hivekeeper.commands.repos import move_repo
from hivekeeper.domain.plan import is_url
from hivekeeper.errors import InputError
from hivekeeper.git.mirror import Mirror, find_source_problem
from hivekeeper.git.orders import source_ref
from hivekeeper.git.remote import get_branch
from hivekeeper.views.queue import get_repos

repo_app = typer.Typer(no_args_is_help=True, help="Repositories named by plans.")


@repo_app.callback()
def _repos() -> None:
    """Work with repositories."""


@repo_app.command("set")
def repo_set(
    name: Annotated[str, typer.Argument(help="Its name in the plan.")],
    *,
    path: Annotated[str, typer.Option(help="Its new directory or URL.")],
    reason: Reason = "",
) -> None:
    """Set a repository's new place after it was moved."""
    hive = open_here()
    with hive.ledger.read() as connection:
        (repo,) = get_repos(connection, name)
    new = path if is_url(path) else str(Path(path).resolve())
    if not is_url(new) and (problem := find_source_problem(new, repo.branch)):
        raise InputError(f"Repository '{name}' cannot be there: {problem}.", advice="Nothing was changed.")
    mirror, tip = Mirror(hive.places.mirror(name)), get_branch(new, repo.branch)
    known = mirror.find_commit(source_ref(repo.branch)) if mirror.path.is_dir() else None
    if known is not None and not mirror.shares_history(known, new, tip):
        what = f"{new} is another repository: its branch '{repo.branch}' has no commit in common with {repo.path}."
        raise InputError(what, advice="Nothing was changed. Give it a name of its own in the plan.")
    with hive.ledger.write(me()) as tx:
        moved = move_repo(tx, repo, new, why=reason)
    render.print_lines(f"{name} is now fetched from {new}." if moved else f"{name} was at {new} already.")
