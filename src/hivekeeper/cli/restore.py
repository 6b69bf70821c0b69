"""`hive task restore`: saved work as files."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import Json, find_here
from hivekeeper.domain.rows import TaskRow
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.git.restore import Unpacked, lay_out, new_directory, unpack_rest
from hivekeeper.places import Places
from hivekeeper.store.sqlite import check_identity, reading_only
from hivekeeper.views import saved as views
from hivekeeper.views.tasks import get_task


def restore(
    task: str,
    *,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Attempt number; default: the last with saved work.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Directory to create; default: ./TASK.ATTEMPT.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Only list what is saved.")] = False,
    json: Json = False,
) -> None:
    """Restore a worker's saved work as files in a new directory."""
    places = Places(find_here().resolve())
    with reading_only(places.ledger) as connection:
        check_identity(connection, places.ledger)
        row = get_task(connection, task)
        saved = views.list_saved(connection, places, row)
    if list_:
        shown = [_show(each) for each in saved if attempt in (None, each.attempt)]
        render.print_json(shown) if json else _print_list(row, shown)
        return
    chosen = views.choose_saved(row, saved, attempt)
    target = _choose_target(places, row, chosen, to)
    rest = next((e.object for e in saved if e.kind is views.Kind.REST and e.attempt == chosen.attempt), None)
    try:
        unpacked = _write(places, row, chosen, rest if chosen.kind is views.Kind.END else None, target)
    except OSError as error:
        raise UnavailableError(f"{target} could not be written: {error.strerror}.", advice=_ANOTHER) from None
    view = {
        "task": row.key,
        **_show(chosen),
        "to": str(target),
        "not_kept": views.list_not_saved(places, row, chosen),
        **asdict(unpacked),
        "look": _say_look(places, row, chosen),
    }
    render.print_json(view) if json else _print(view)


def _choose_target(places: Places, task: TaskRow, saved: views.Saved, to: Path | None) -> Path:
    target = (to or Path(f"{task.id}.{saved.attempt}")).resolve()
    if target.is_relative_to(places.hive):
        problem = "is inside the hive's own directory"
    elif target.is_dir() and any(target.iterdir()):
        problem = "exists already and is not empty"
    elif target.exists() and not target.is_dir():
        problem = "exists already and is not a directory"
    else:
        return target
    advice = f"Nothing was written. Type: hive task restore {task.key} --attempt {saved.attempt} --to ANOTHER-DIRECTORY"
    raise InputError(f"{target} {problem}.", advice=advice)


def _write(places: Places, task: TaskRow, saved: views.Saved, rest: str | None, target: Path) -> Unpacked:
    with new_directory(target) as draft:
        if saved.object is None:
            shutil.copytree(places.kept(task.key, saved.attempt), draft, symlinks=True, dirs_exist_ok=True)
            return Unpacked()
        mirror = places.mirror(task.repo or "")
        lay_out(mirror, saved.object, draft)
        return unpack_rest(mirror, rest, draft) if rest else Unpacked()


def _say_look(places: Places, task: TaskRow, saved: views.Saved) -> str:
    if saved.object is None or saved.base is None:
        return ""
    return f"git --git-dir={quote(str(places.mirror(task.repo or '')))} diff {saved.base[:12]} {saved.object[:12]}"


def _show(saved: views.Saved) -> dict[str, Any]:
    return {**asdict(saved), "kind": saved.kind.value, "run": saved.run.id if saved.run else None}


def _print_list(task: TaskRow, shown: Sequence[Mapping[str, Any]]) -> None:
    if not shown:
        typer.echo(views.describe_nothing(task))
        return
    columns = {"attempt": "Attempt", "kind": "What", "at": "When", "object": "Git object", "changed": "Files changed"}
    short = [{**row, "at": render.localize(row["at"]), "object": (row["object"] or "")[:12]} for row in shown]
    render.print_table(short, columns, spare=("changed", "object", "at"))
    typer.echo(f"To restore it as files: hive task restore {task.key}")


def _print(view: Mapping[str, Any]) -> None:
    saved = f"{view['kind']}, {render.localize(view['at'])}"
    lines = [f"Restored the work of attempt {view['attempt']} at {view['task']} ({saved}) to {view['to']}."]
    lines += [f"  not saved: {words}" for words in view["not_kept"]]
    lines += [f"  not restored: {name} (it leads out of the directory)" for name in view["refused"]]
    warning = "is a repository made by the worker: any git command there runs its hooks and settings."
    lines += [f"  {name} {warning}" for name in view["repositories"]]
    if view["look"]:
        lines.append(f"Files changed since its start: {view['changed']}. To see the changes: {view['look']}")
    render.print_lines(*lines)


_ANOTHER = "Free some space there, or name another directory with --to; then retry."
