"""A person's plan becomes a convoy: all of it or nothing."""

from collections import Counter
from dataclasses import asdict, dataclass

from hivekeeper.domain import events as e
from hivekeeper.domain.names import find_nearest, task_key
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec, find_cycle
from hivekeeper.domain.rows import ConvoyRow, TaskRow
from hivekeeper.domain.states import ConvoyState, RepoState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction


@dataclass(frozen=True, slots=True)
class Submitted:
    """What a plan came to: tasks new to the hive, and tasks it knew already."""

    convoy: str
    added: int
    known: int


def submit_plan(tx: Transaction, plan: PlanSpec, *, why: str = "") -> Submitted:
    """Take a plan in: the same one again adds nothing, new tasks are added, a changed one is refused with all of it."""
    existing = queries.find_convoy(tx.connection, plan.convoy)
    known = {task.id: task for task in queries.list_tasks_of_convoy(tx.connection, plan.convoy)}
    new = [spec for spec in plan.tasks if spec.id not in known]
    if existing and existing.state is ConvoyState.ARCHIVED and new:
        what = f"Convoy '{plan.convoy}' is finished and archived; it takes no new tasks."
        raise InputError(what, advice="Give the plan another convoy name.")
    _refuse_impossible(tx, plan, set(known))
    for spec in plan.tasks:
        if spec.id in known:
            _refuse_changes(tx, spec, known[spec.id])
    # A changed plan may name tasks of the earlier one, so a ring can span both.
    after = {task.id: tuple(_predecessors(tx, task)) for task in known.values()}
    after.update({spec.id: spec.after for spec in plan.tasks})
    if ring := find_cycle(after):
        raise InputError(f"Tasks wait for each other: {' -> '.join(ring)}.")
    if existing is None:
        stamp = tx.now[:19].replace("-", "").replace(":", "").replace("T", "_")
        tx.record(e.ConvoySubmitted(plan.convoy, f"pipeline_{plan.convoy}_{stamp}"), why=why)
    elif new:
        _reopen(tx, existing)
    if new:
        for repo in plan.repos:
            want_repo(tx, repo)
    for spec in new:
        tx.record(to_event(plan.convoy, spec), why=why)
    return Submitted(plan.convoy, len(new), len(plan.tasks) - len(new))


def add_task(tx: Transaction, convoy: str, spec: TaskSpec, *, why: str = "") -> bool:
    """Add one task to a convoy, which is made if need be; False when the very same task is there."""
    return submit_plan(tx, PlanSpec(convoy, (spec,)), why=why).added == 1


def want_repo(tx: Transaction, spec: RepoSpec) -> None:
    """Have a repository's mirror fetched; a name stands for one repository for ever."""
    known = queries.find_repo(tx.connection, spec.name)
    if known and (known.path, known.branch) != (spec.path, spec.branch):
        said, is_ = f"{spec.path} ({spec.branch})", f"{known.path} ({known.branch})"
        what = f"Repository '{spec.name}' is {is_} in this hive, not {said}."
        raise InputError(what, advice="Give the other one another name in the plan.")
    if known and known.state is RepoState.FETCHING and known.verify == spec.verify:
        return
    number = known.fetches + 1 if known else 1
    tx.record(e.RepoWanted(spec.name, spec.path, spec.branch, spec.verify, number))


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
        output=spec.output,
        idempotent=spec.idempotent,
        limits=asdict(spec.limits),
    )


def _predecessors(tx: Transaction, task: TaskRow) -> list[str]:
    return [key.partition("/")[2] for key in queries.list_predecessors(tx.connection, task.key)]


def _reopen(tx: Transaction, convoy: ConvoyRow) -> None:
    if convoy.state is not ConvoyState.ACTIVE:
        tx.record(e.ConvoyExtended(convoy.name))


def _refuse_impossible(tx: Transaction, plan: PlanSpec, known: set[str]) -> None:
    """Refuse what no order of events could make true; a plan's file was checked before, a program's tasks were not."""
    ids = [spec.id for spec in plan.tasks]
    repos, twice = {repo.name for repo in plan.repos}, {name for name, count in Counter(ids).items() if count > 1}
    for spec in plan.tasks:
        if spec.id in twice:
            raise InputError(f"There are two tasks '{spec.id}'.", advice="Give one of them another id.")
        if len(set(spec.after)) < len(spec.after):
            raise InputError(f"Task '{spec.id}' names a predecessor twice.")
        for other in spec.after:
            if other not in known and other not in ids:
                raise _unknown_predecessor(plan.convoy, other, known.union(ids))
        if spec.repo and spec.repo not in repos and queries.find_repo(tx.connection, spec.repo) is None:
            names = [repo.name for repo in queries.list_repos(tx.connection)]
            there = f"It knows {', '.join(names)}." if names else "It knows none yet."
            advice = f"{there} A repository comes with a plan: hive convoy submit PLAN.yaml"
            raise InputError(f"This hive has no repository '{spec.repo}'.", advice=advice)


def _unknown_predecessor(convoy: str, name: str, ids: set[str]) -> InputError:
    hint = find_nearest(name, ids)
    advice = f"Did you mean '{hint}'?" if hint else f"Type: hive convoy show {convoy}"
    return InputError(f"Convoy '{convoy}' has no task '{name}' to wait for.", advice=advice)


def _refuse_changes(tx: Transaction, spec: TaskSpec, known: TaskRow) -> None:
    changed = [
        name
        for name, new, old in (
            ("command", spec.command, known.command),
            ("repo", spec.repo, known.repo),
            ("verify", spec.verify, known.verify),
            ("title", spec.title, known.title),
            ("priority", spec.priority, known.priority),
            ("attempts", spec.attempts, known.attempts_planned),
            ("output", spec.output, known.output),
            ("idempotent", spec.idempotent, bool(known.idempotent)),
            ("limits", asdict(spec.limits), known.get_limits()),
            ("after", sorted(spec.after), sorted(_predecessors(tx, known))),
        )
        if new != old
    ]
    if changed:
        what = f"Task '{spec.id}' is already in convoy '{known.convoy}' with another {' and '.join(changed)}."
        raise InputError(what, advice="A task that was handed in does not change. Give the new one another id.")
