"""A plan file to a `PlanSpec`: every problem in it is found and told together, each with its line.

The shape is held against models, and what one part says of another (dependencies, repositories) is checked on the
plain data beside it, so that a misspelt key in one task does not hide an unknown dependency in the next.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from hivekeeper.config.located import Checked, Loc, Located, Problems, check, parse_yaml, read_text
from hivekeeper.config.settings import BytesLimit, SecondsLimit
from hivekeeper.config.values import show
from hivekeeper.domain.names import NAME_RULE, TASK_ID_RULE, is_name, is_task_id
from hivekeeper.domain.plan import Limits, PlanSpec, RepoSpec, TaskSpec, find_cycle

MAX_BYTES = 16 << 20
# One ring is usually all there is; a plan of nothing but rings is not worth a pass over it for each.
MAX_RINGS = 10
LONGEST_RING_SHOWN = 12

LIMIT_FIELDS = {"timeout": "wall_s", "silence": "silence_s", "output_limit": "output_bytes", "memory": "memory_bytes"}


def _rule(fits: Callable[[str], bool], sentence: str) -> AfterValidator:
    def hold(value: str) -> str:
        if not fits(value):
            raise ValueError(f"{sentence}; it is {show(value)}")
        return value

    return AfterValidator(hold)


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts


Filled = Annotated[str, _rule(lambda text: bool(text.strip()), "must not be blank")]
Name = Annotated[str, _rule(is_name, f"must be {NAME_RULE}")]
TaskId = Annotated[str, _rule(is_task_id, f"must be {TASK_ID_RULE}")]
Inside = Annotated[str, _rule(_is_inside, "must be a relative path inside the hive directory, without '..'")]


class _Repo(Checked):
    path: Filled
    branch: Filled = "main"
    verify: Filled | None = None


class _Defaults(Checked):
    timeout: SecondsLimit = None
    silence: SecondsLimit = None
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    output_limit: BytesLimit = None
    memory: BytesLimit = None


class _Task(_Defaults):
    id: TaskId
    command: Filled
    repo: str | None = None
    title: str = ""
    after: list[str] = Field(default_factory=list)
    verify: Filled | None = None
    output: Inside | None = None
    idempotent: bool = False


class _Plan(Checked):
    convoy: Name
    repos: dict[str, _Repo] = Field(default_factory=dict)
    defaults: _Defaults = _Defaults()
    tasks: Annotated[list[_Task], Field(min_length=1)]


def load_plan(path: Path, limits: Limits | None = None) -> PlanSpec:
    """Read a plan; `limits` hold for what neither a task nor the plan's defaults say.

    Raises InputError, with every problem of the file, when anything is wrong.
    """
    problems = Problems(str(path), "nothing was submitted")
    try:
        text = read_text(path, problems, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        problems.stop("there is no such file; check the name and the directory")
    located = parse_yaml(text, problems)
    plan = check(_Plan, located, problems, lambda loc: _place(located, loc))
    _check_references(located, problems)
    if plan is None or problems.found:
        raise problems.error()
    return PlanSpec(
        convoy=plan.convoy,
        tasks=tuple(_task_spec(task, plan.defaults, limits or Limits()) for task in plan.tasks),
        repos=tuple(_repo_spec(name, repo, path.parent) for name, repo in plan.repos.items()),
    )


def _task_spec(task: _Task, defaults: _Defaults, limits: Limits) -> TaskSpec:
    said: dict[str, Any] = defaults.model_dump(exclude_unset=True) | task.model_dump(exclude_unset=True)
    limited = {field: said.pop(key) for key, field in LIMIT_FIELDS.items() if key in said}
    return TaskSpec(**said | {"after": tuple(task.after), "limits": replace(limits, **limited)})


def _repo_spec(name: str, repo: _Repo, directory: Path) -> RepoSpec:
    home = os.path.expanduser(repo.path)  # noqa: PTH111 - that of Path raises when there is no such user.
    path = os.path.realpath(directory / home)
    return RepoSpec(name, path, repo.branch, repo.verify)


def _place(located: Located, loc: Loc) -> tuple[str, type[Checked]]:
    match loc:
        case ("tasks", int(index), *_):
            tasks = located.data["tasks"]
            return _task_name(index, tasks[index] if isinstance(tasks, list) else None), _Task
        case ("repos", *name):
            return f"repo {show(name[0])}" if name else "'repos'", _Repo
        case ("defaults", *_):
            return "'defaults'", _Defaults
    return "the plan", _Plan


def _task_name(index: int, task: object) -> str:
    name = task.get("id") if isinstance(task, dict) else None
    return f"task {show(name)}" if isinstance(name, str) else f"task {index + 1} of the list"


def _check_references(located: Located, problems: Problems) -> None:
    """Check what tasks say of each other and of repositories, as far as it can be read."""
    repos, listed = located.data.get("repos"), located.data.get("tasks")
    names: dict[str, object] = repos if isinstance(repos, dict) else {}
    for repo in names:
        if not is_name(repo):
            problems.add(f"the name of repo {show(repo)} must be {NAME_RULE}", located.line(("repos", repo)))
    tasks = {i: task for i, task in enumerate(listed if isinstance(listed, list) else []) if isinstance(task, dict)}
    first: dict[str, int] = {}
    for index, task in tasks.items():
        name = task.get("id")
        if isinstance(name, str) and (earlier := first.setdefault(name, index)) != index:
            line = located.line(("tasks", earlier, "id"))
            said = f"the id {show(name)} is already used on line {line}; rename one of the two"
            problems.add(said, located.line(("tasks", index, "id")))
    waits: dict[str, tuple[str, ...]] = {}
    for index, task in tasks.items():
        _check_repo(index, task, names, located, problems)
        after = _check_after(index, task, first, located, problems)
        if isinstance(name := task.get("id"), str):
            waits.setdefault(name, after)
    _check_rings(waits, first, located, problems)


def _check_repo(
    index: int, task: dict[str, object], names: dict[str, object], located: Located, problems: Problems
) -> None:
    who, repo = _task_name(index, task), task.get("repo")
    if "verify" in task and "repo" not in task:
        line = located.line(("tasks", index, "verify"))
        problems.add(f"{who} has 'verify' but no 'repo' to run it in; add 'repo' or remove 'verify'", line)
    if not isinstance(repo, str) or repo in names:
        return
    line = located.line(("tasks", index, "repo"))
    if names:
        problems.add(f"unknown repo {show(repo)} in {who}{problems.did_you_mean(repo, names)}", line)
    else:
        problems.add(f"{who} names repo {show(repo)}, but the plan has no 'repos'; add it there with its path", line)


def _check_after(
    index: int, task: dict[str, object], known: dict[str, int], located: Located, problems: Problems
) -> tuple[str, ...]:
    """Check the dependencies of a task, and return those worth following."""
    who, after = _task_name(index, task), task.get("after")
    good: dict[str, None] = {}
    for position, name in enumerate(after if isinstance(after, list) else []):
        line = located.line(("tasks", index, "after", position))
        if not isinstance(name, str):
            continue  # The model has said so.
        if name == task.get("id"):
            problems.add(f"{who} waits for itself; remove it from 'after'", line)
        elif name in good:
            problems.add(f"{show(name)} is twice in 'after' of {who}; keep one", line)
        elif name not in known:
            problems.add(f"unknown task {show(name)} in 'after' of {who}{problems.did_you_mean(name, known)}", line)
        else:
            good[name] = None
    return tuple(good)


def _check_rings(
    waits: dict[str, tuple[str, ...]], known: dict[str, int], located: Located, problems: Problems
) -> None:
    for _ in range(MAX_RINGS):
        ring = find_cycle(waits)
        if ring is None:
            return
        shown = [name if is_task_id(name) else show(name) for name in ring]
        if len(ring) > LONGEST_RING_SHOWN:
            shown = [*shown[:5], f"({len(ring) - 10} more)", *shown[-5:]]
        line = located.line(("tasks", known[ring[0]], "after"))
        problems.add(f"tasks wait for each other: {' -> '.join(shown)}; remove one 'after'", line)
        for name in ring[1:]:
            del waits[name]
