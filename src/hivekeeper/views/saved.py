"""The saved work of a task's attempts, where each began, and what is known not to be saved."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hivekeeper.clock import to_text
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.rows import AttemptRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.steps import Start
from hivekeeper.errors import InputError
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror, list_refs
from hivekeeper.places import Places
from hivekeeper.runs.local import LocalOutputs
from hivekeeper.store import queries
from hivekeeper.store.database import Connection

_NOT_SAVED = "not kept: "  # as runs print it
_MOST_READ = 1 << 20


class Kind(StrEnum):
    """How something was saved."""

    END = "end of attempt"
    SAVED = "saved while it worked"
    REST = "ignored files"
    OUTPUTS = "outputs"


@dataclass(frozen=True, slots=True)
class Saved:
    """Something saved of an attempt; `object` is its git object, `run` the run that saved it.

    `changed` counts the files in which it differs from `base`, where the attempt began.
    """

    attempt: int
    kind: Kind
    at: str | None
    object: str | None = None
    base: str | None = None
    changed: int | None = None
    run: RunRow | None = None


def list_saved(connection: Connection, places: Places, task: TaskRow) -> list[Saved]:
    """List what is saved of a task, newest first."""
    repo = queries.find_repo(connection, task.repo) if task.repo else None
    saved: list[Saved] = []
    for attempt in reversed(queries.list_attempts_of_task(connection, task.key)):
        if repo is None:
            saved += _find_outputs(places, attempt)
        elif (mirror := Mirror(places.mirror(repo.name))).path.exists():
            runs = queries.list_runs_of_attempt(connection, task.key, attempt.number)
            saved += _list_in_mirror(mirror, repo, attempt, runs)
    return saved


def choose_saved(task: TaskRow, saved: Sequence[Saved], attempt: int | None) -> Saved:
    """Choose the newest of an attempt, or of the newest attempt that has anything saved."""
    whole = [each for each in saved if each.kind is not Kind.REST]
    if not whole:
        raise InputError(describe_nothing(task), advice=f"Type: hive task show {task.key}")
    found = next((each for each in whole if attempt in (None, each.attempt)), None)
    if found is None:
        advice = f"To see what is saved: hive task restore {task.key} --list"
        raise InputError(f"Nothing is saved of attempt {attempt} at {task.key}.", advice=advice)
    return found


def describe_nothing(task: TaskRow) -> str:
    """Say why nothing is saved of a task."""
    if not task.attempts:
        return f"Nothing is saved of {task.key}: it has had no worker yet."
    if not task.has_sandbox:
        return f"Nothing is saved of {task.key}: its workers work directly in the hive's directory."
    if not task.repo:
        return f"Nothing is saved of {task.key}: its outputs are saved separately only when an attempt fails."
    return f"Nothing is saved of {task.key} yet: work is saved at intervals while a worker runs, and at its end."


def list_not_saved(places: Places, task: TaskRow, saved: Saved) -> list[str]:
    """List what is known not to be saved, as the run that saved the rest reported it."""
    if saved.kind is Kind.OUTPUTS:
        there = places.kept(task.key, saved.attempt)
        missing = (output for output in task.outputs if not (there / output).exists())
        return [f"{output} (missing, or not a regular file)" for output in missing]
    words = saved.run.reason if saved.run else ""  # its last ones; the whole output is beside it
    if saved.run and (file := LocalOutputs(places.runs).open_output(saved.run.id)):
        with file:
            words = file.read(_MOST_READ).decode("utf-8", "replace")
    said = [line.removeprefix(_NOT_SAVED) for line in words.splitlines() if line.startswith(_NOT_SAVED)]
    at_end = "ignored files and nested repositories, which are saved at its end only"
    return said if saved.kind is Kind.END else [*said, at_end]


def _find_outputs(places: Places, attempt: AttemptRow) -> Iterator[Saved]:
    there = places.kept(attempt.task, attempt.number)
    if there.is_dir():
        files = sum(path.is_file() for path in there.rglob("*"))
        yield Saved(attempt.number, Kind.OUTPUTS, to_text(there.stat().st_mtime), changed=files)


def _list_in_mirror(mirror: Mirror, repo: RepoRow, attempt: AttemptRow, runs: Sequence[RunRow]) -> Iterator[Saved]:
    task, number = attempt.task, attempt.number
    by_id = {run.id: run for run in runs}
    snapshot = next((run for run in reversed(runs) if run.kind == "snapshot" and run.succeeded), None)
    saves = list_refs(mirror.path, orders.save_ref(task, number))
    ends = list_refs(mirror.path, orders.attempt_ref(task, number)).values()
    found = [(Kind.END, commit, snapshot) for commit in ends]
    found += [(Kind.SAVED, saves[ref], by_id.get(_name_save(attempt, ref))) for ref in sorted(saves, reverse=True)]
    base = _find_base(mirror, repo, attempt, found[0][1]) if found else None
    for kind, commit, run in found:
        changed = len(mirror.list_changed(base, commit)) if base else None
        yield Saved(number, kind, _tell_end(run), commit, base, changed, run)
    for blob in list_refs(mirror.path, orders.rest_ref(task, number)).values():
        yield Saved(number, Kind.REST, _tell_end(snapshot), blob, run=snapshot)


def _find_base(mirror: Mirror, repo: RepoRow, attempt: AttemptRow, commit: str) -> str | None:
    landed = orders.integration_ref(repo.branch)
    return attempt.start or mirror.find_merge_base(commit, landed) or mirror.find_commit(landed)


def _name_save(attempt: AttemptRow, ref: str) -> str:
    return attempt_owner(attempt.task, attempt.number, None).name_run(Start("save", int(ref.rpartition("/")[2])))


def _tell_end(run: RunRow | None) -> str | None:
    # Not the commit's time: that may be of a worker's own clock.
    return run.ended_at if run else None
