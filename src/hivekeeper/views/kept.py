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
from hivekeeper.views.tasks import get_task

_SAID = "not kept: "
_MOST_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    """A task, its attempts and their runs."""

    task: TaskRow
    repo: RepoRow | None
    attempts: tuple[tuple[AttemptRow, tuple[RunRow, ...]], ...]


class Kind(StrEnum):
    """How something was saved."""

    END = "end of attempt"
    SAVED = "saved while it worked"
    REST = "ignored files"
    OUTPUTS = "outputs"


@dataclass(frozen=True, slots=True)
class Kept:
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


def read_facts(connection: Connection, name: str) -> Facts:
    """Read a task and its attempts from the ledger."""
    task = get_task(connection, name)
    attempts = tuple(
        (attempt, tuple(queries.list_runs_of_attempt(connection, task.key, attempt.number)))
        for attempt in queries.list_attempts_of_task(connection, task.key)
    )
    return Facts(task, queries.find_repo(connection, task.repo) if task.repo else None, attempts)


def list_kept(places: Places, facts: Facts) -> list[Kept]:
    """List what is saved of a task, newest first."""
    kept: list[Kept] = []
    for attempt, runs in reversed(facts.attempts):
        if facts.repo is None:
            kept += _find_outputs(places, attempt)
        elif (mirror := Mirror(places.mirror(facts.repo.name))).path.exists():
            kept += _list_in_mirror(mirror, facts.repo, attempt, runs)
    return kept


def choose_kept(task: TaskRow, kept: Sequence[Kept], attempt: int | None) -> Kept:
    """Choose the newest of an attempt, or of the newest attempt that has anything saved."""
    whole = [each for each in kept if each.kind is not Kind.REST]
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


def list_not_kept(places: Places, task: TaskRow, kept: Kept) -> list[str]:
    """List what is known not to be saved, as the run that saved the rest reported it."""
    if kept.kind is Kind.OUTPUTS:
        there = places.kept(task.key, kept.attempt)
        missing = (output for output in task.outputs if not (there / output).exists())
        return [f"{output} (missing, or not a regular file)" for output in missing]
    words = kept.run.reason if kept.run else ""  # its last ones; the whole output is beside it
    if kept.run and (file := LocalOutputs(places.runs).open_output(kept.run.id)):
        with file:
            words = file.read(_MOST_READ).decode("utf-8", "replace")
    said = [line.removeprefix(_SAID) for line in words.splitlines() if line.startswith(_SAID)]
    at_end = "ignored files and nested repositories, which are saved at its end only"
    return said if kept.kind is Kind.END else [*said, at_end]


def _find_outputs(places: Places, attempt: AttemptRow) -> Iterator[Kept]:
    there = places.kept(attempt.task, attempt.number)
    if there.is_dir():
        files = sum(path.is_file() for path in there.rglob("*"))
        yield Kept(attempt.number, Kind.OUTPUTS, to_text(there.stat().st_mtime), changed=files)


def _list_in_mirror(mirror: Mirror, repo: RepoRow, attempt: AttemptRow, runs: Sequence[RunRow]) -> Iterator[Kept]:
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
        yield Kept(number, kind, _tell_end(run), commit, base, changed, run)
    for blob in list_refs(mirror.path, orders.rest_ref(task, number)).values():
        yield Kept(number, Kind.REST, _tell_end(snapshot), blob, run=snapshot)


def _find_base(mirror: Mirror, repo: RepoRow, attempt: AttemptRow, commit: str) -> str | None:
    landed = orders.integration_ref(repo.branch)
    return attempt.start or mirror.find_merge_base(commit, landed) or mirror.find_commit(landed)


def _name_save(attempt: AttemptRow, ref: str) -> str:
    return attempt_owner(attempt.task, attempt.number, None).name_run(Start("save", int(ref.rpartition("/")[2])))


def _tell_end(run: RunRow | None) -> str | None:
    # Not the commit's time: that may be of a worker's own clock.
    return run.ended_at if run else None
