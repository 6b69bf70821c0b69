"""A person's plan becomes a convoy: what is new is taken in, what is known stays, and what cannot be is refused."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from shlex import quote
from typing import Any

from hivekeeper.domain import events as e
from hivekeeper.domain.names import task_key
from hivekeeper.domain.plan import DEFAULT_PUBLISH, PlanSpec, RepoSpec, TaskSpec, split_path
from hivekeeper.domain.plan_problems import find_problems
from hivekeeper.domain.rows import ConvoyRow, RepoRow, TaskRow
from hivekeeper.domain.states import OPEN_TASKS, ConvoyState, RepoState, TaskState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction

REPO_DETAILS = ("setup", "keep", "lock", "backup", "publish", "gate", "regenerate")


@dataclass(frozen=True, slots=True)
class Submitted:
    """What a plan came to: tasks new to the hive, tasks it knew already, and why some of the plan changed nothing."""

    convoy: str
    added: int
    known: int
    unchanged_because: tuple[str, ...] = ()


def submit_plan(tx: Transaction, plan: PlanSpec, *, why: str = "") -> Submitted:
    """Take a plan in: the same one again adds nothing; of a changed one what is new is added, and what is known stays.

    What could never be true is refused with all of it.
    """
    existing = queries.find_convoy(tx.connection, plan.convoy)
    known = {task.id: task for task in queries.list_tasks_of_convoy(tx.connection, plan.convoy)}
    new = [spec for spec in plan.tasks if spec.id not in known]
    if existing and existing.state is ConvoyState.ARCHIVED and new:
        what = f"Convoy '{plan.convoy}' is finished and archived; it takes no new tasks."
        raise InputError(what, advice="Give the plan another convoy name.")
    _refuse_impossible(tx, plan, known.values())
    unchanged = [_describe_change(tx, spec, known[spec.id]) for spec in plan.tasks if spec.id in known]
    if existing is None:
        stamp = tx.now[:19].replace("-", "").replace(":", "").replace("T", "_")
        tx.record(e.ConvoySubmitted(plan.convoy, f"pipeline_{plan.convoy}_{stamp}", plan.accept, plan.budget), why=why)
    elif existing.accept != plan.accept:
        is_ = f"Convoy '{plan.convoy}' already exists with {'another' if existing.accept else 'no'} accept command"
        unchanged.append(f"{is_}; it was not changed. To change it, submit the plan under another convoy name.")
    if plan.defaults != (existing.get_defaults() if existing else {}):
        tx.record(e.ConvoyDefaultsSet(plan.convoy, plan.defaults), why=why)
    unchanged += [_take_repo(tx, repo, is_wanted=bool(new)) for repo in plan.repos]
    if existing and (new or _was_refused(tx, existing)):
        _reopen(tx, existing)
    for spec in new:
        tx.record(to_event(plan.convoy, spec), why=why)
    return Submitted(plan.convoy, len(new), len(plan.tasks) - len(new), tuple(filter(None, unchanged)))


def add_tasks(tx: Transaction, convoy: str, specs: Iterable[TaskSpec], *, why: str = "") -> Submitted:
    """Add tasks to a convoy, which is created if missing; of the convoy itself this says nothing."""
    existing = queries.find_convoy(tx.connection, convoy)
    plan = PlanSpec(convoy, tuple(specs))
    if existing:
        plan = replace(plan, accept=existing.accept, defaults=existing.get_defaults())
    return submit_plan(tx, plan, why=why)


def add_task(tx: Transaction, convoy: str, spec: TaskSpec, *, why: str = "") -> bool:
    """Add one task to a convoy; False when the very same task is there, and no other one may have its id."""
    submitted = add_tasks(tx, convoy, (spec,), why=why)
    if submitted.unchanged_because:
        raise InputError("\n".join(submitted.unchanged_because))
    return submitted.added == 1


def request_fetch(tx: Transaction, spec: RepoSpec) -> None:
    """Have a repository's mirror fetched; a name stands for one repository for ever."""
    known = _find_same_repo(tx, spec)
    is_under_way = known is not None and known.state is RepoState.FETCHING and known.fetch_retry_at is None
    if known and is_under_way and not _list_repo_changes(spec, known):
        return
    number = known.fetches + 1 if known else 1
    details = _details(**{name: getattr(spec, name) for name in REPO_DETAILS})
    if spec.publish == DEFAULT_PUBLISH:
        del details["publish"]  # as before there was another way
    tx.record(e.RepoWanted(spec.name, spec.path, spec.branch, spec.verify, number, details))


def to_event(convoy: str, spec: TaskSpec) -> e.TaskAdded:
    """Say a task of a plan as an event."""
    return e.TaskAdded(
        task=task_key(convoy, spec.id),
        convoy=convoy,
        id=spec.id,
        title=spec.title,
        command=spec.command,
        repo=spec.repo,
        after=[task_key(convoy, other) for other in spec.after],
        verify=spec.verify,
        priority=spec.priority,
        attempts_allowed=spec.attempts,
        output="\n".join(spec.outputs) or None,
        idempotent=spec.idempotent,
        limits=asdict(spec.limits),
        prompt=spec.prompt,
        details=_task_details(spec),
    )


def _task_details(spec: TaskSpec) -> dict[str, Any]:
    paths = tuple("/".join(split_path(path)) for path in spec.paths)  # as git writes them, to be held against changes
    return _details(runner=spec.runner, agent=spec.agent, strengths=spec.strengths, paths=paths, budget=spec.budget)


def _details(**said: object) -> dict[str, Any]:
    """Keep what is said at all, as JSON has it, so that it can be held against what the ledger keeps."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in said.items() if value}


def _predecessors(tx: Transaction, task: TaskRow) -> list[str]:
    return [key.partition("/")[2] for key in queries.list_predecessors(tx.connection, task.key)]


def _was_refused(tx: Transaction, convoy: ConvoyRow) -> bool:
    """Tell whether a convoy failed as a whole: its tasks are complete, so handing it in again is to try it again."""
    states = queries.count_tasks_by_state(tx.connection, convoy.name).keys()
    return convoy.state is ConvoyState.FAILED and bool(convoy.accept) and states == {TaskState.COMPLETE}


def _reopen(tx: Transaction, convoy: ConvoyRow) -> None:
    if convoy.state is not ConvoyState.ACTIVE:
        tx.record(e.ConvoyExtended(convoy.name))


def _refuse_impossible(tx: Transaction, plan: PlanSpec, known: Iterable[TaskRow]) -> None:
    """Refuse what no order of events could make true; a plan's file was checked before, a program's tasks were not."""
    tasks = {number: _read_fields(spec) for number, spec in enumerate(plan.tasks)}
    repos = {spec.name for spec in plan.repos}.union(row.name for row in queries.list_repos(tx.connection))
    earlier = {task.id: tuple(_predecessors(tx, task)) for task in known}
    for problem in find_problems(tasks, repos=repos, earlier=earlier):
        what, advice = (f"{words[:1].upper()}{words[1:]}" for words in (problem.what, problem.advice))
        raise InputError(f"{what}.", advice=advice if advice.endswith("?") else f"{advice}.")


def _read_fields(spec: TaskSpec) -> dict[str, Any]:
    """Read the fields of a task as a plan's file has them, without those that are blank."""
    found = {field.name: getattr(spec, field.name) for field in fields(spec)}
    return {name: value for name, value in found.items() if value and str(value).strip()}


def _describe_change(tx: Transaction, spec: TaskSpec, known: TaskRow) -> str:
    """Say what of a known task the plan would have otherwise; nothing when nothing."""
    now, then = _task_details(spec), known.get_details()
    limits = asdict(spec.limits)
    changed = [
        name
        for name, new, old in (
            ("command", spec.command, known.command),
            ("prompt", spec.prompt, queries.find_prompt(tx.connection, known.key)),
            ("repo", spec.repo, known.repo),
            ("verify", spec.verify, known.verify),
            ("title", spec.title, known.title),
            ("priority", spec.priority, known.priority),
            ("attempts", spec.attempts, known.attempts_planned),
            ("outputs", spec.outputs, known.outputs),
            ("idempotent", spec.idempotent, bool(known.idempotent)),
            # An earlier version wrote fewer limits down: of the others it says nothing.
            ("limits", limits, {**limits, **known.get_limits()}),
            ("after", sorted(spec.after), sorted(_predecessors(tx, known))),
            *((name, now.get(name), then.get(name)) for name in sorted({*now, *then})),
        )
        if new != old
    ]
    if not changed:
        return ""
    is_ = f"Task '{spec.id}' already exists with a different {' and '.join(changed)}"
    return f"{is_}; it was not changed. To add it, use another id."


def _list_repo_changes(spec: RepoSpec, known: RepoRow) -> list[str]:
    return [name for name in ("verify", *REPO_DETAILS) if getattr(spec, name) != getattr(known, name)]


def _find_same_repo(tx: Transaction, spec: RepoSpec) -> RepoRow | None:
    known = queries.find_repo(tx.connection, spec.name)
    if known and (known.path, known.branch) != (spec.path, spec.branch):
        said, is_ = f"{spec.path} ({spec.branch})", f"{known.path} ({known.branch})"
        what = f"Repository '{spec.name}' is {is_} in this hive, not {said}."
        advice = f"Give the other one another name in the plan, or if it has moved: hive repo set {spec.name} --path "
        raise InputError(what, advice=f"{advice}{quote(spec.path)}")
    return known


def _take_repo(tx: Transaction, spec: RepoSpec, *, is_wanted: bool) -> str:
    """Have a repository fetched for new tasks, or because it changed; say so if it may not change under those at work.

    Its gate must be one and the same for all that are in the queue together.
    """
    known = _find_same_repo(tx, spec)
    changed = _list_repo_changes(spec, known) if known else []
    user = _find_user(tx, spec.name) if changed else None
    if user:
        spec = replace(spec, **{name: getattr(known, name) for name in changed})
    if is_wanted or (changed and not user):
        request_fetch(tx, spec)
    if not user:
        return ""
    said = f"Repository '{spec.name}' already exists with a different {' and '.join(changed)}, and {user} is to use it"
    return f"{said}; it was not changed. Submit the plan again when nothing uses it."


def _find_user(tx: Transaction, repo: str) -> str | None:
    """Find a task that is at work on a repository, or will be."""
    active = [convoy for convoy in queries.list_convoys(tx.connection) if convoy.state is ConvoyState.ACTIVE]
    return next(
        (
            task.key
            for convoy in active
            for task in queries.list_tasks_of_convoy(tx.connection, convoy.name)
            if task.repo == repo and task.state in OPEN_TASKS
        ),
        None,
    )
