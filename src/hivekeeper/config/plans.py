"""A plan file to a `PlanSpec`: every problem in it is found and told together, each with its line.

The shape is held against models, and what one part says of another (dependencies, repositories) is checked on the
plain data beside it, so that a misspelt key in one task does not hide an unknown dependency in the next.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator

from hivekeeper.config.located import (
    NOT_TEXT,
    Checked,
    Filled,
    Loc,
    Located,
    Problems,
    check,
    parse_yaml,
    read_text,
    rule,
)
from hivekeeper.config.settings import BytesLimit, CountLimit, SecondsLimit
from hivekeeper.config.values import show
from hivekeeper.domain.names import NAME_RULE, TASK_ID_RULE, is_name, is_task_id
from hivekeeper.domain.plan import (
    OUTPUT_RULE,
    Limits,
    PlanSpec,
    RepoSpec,
    find_cycle,
    has_password,
    is_inside,
    is_output,
    is_url,
    make_task,
    split_path,
)

MAX_BYTES = 16 << 20
# One ring is usually all there is; a plan of nothing but rings is not worth a pass over it for each.
MAX_RINGS = 10
LONGEST_RING_SHOWN = 12

LIMIT_FIELDS = {
    "timeout": "wall_s",
    "silence": "silence_s",
    "output_limit": "output_bytes",
    "memory": "memory_bytes",
    "processes": "processes",
    "disk": "disk_bytes",
}


def _refuse_password(text: str) -> str:
    if has_password(text):
        # Not even here is it repeated.
        raise ValueError("holds a password, which the ledger would keep for ever; let git's credential helper have it")
    return text


def _read_runners(value: object) -> str | list[str]:
    """Read one runner, or several, best first."""
    if isinstance(value, str) or (isinstance(value, list) and value and all(isinstance(name, str) for name in value)):
        return value
    raise ValueError(f"must be a runner's name or a list of them, not {show(value)}")


Name = Annotated[str, rule(is_name, f"must be {NAME_RULE}")]
TaskId = Annotated[str, rule(is_task_id, f"must be {TASK_ID_RULE}")]
Output = Annotated[str, rule(is_output, f"must be {OUTPUT_RULE}")]
Inside = Annotated[str, rule(is_inside, "must be a relative path inside the repository, without '..' or '.git'")]
Local = Annotated[Filled, rule(lambda text: not is_url(text), "must be a path; a URL is written under 'url'")]
Url = Annotated[
    str,
    AfterValidator(_refuse_password),
    rule(is_url, "must be a URL such as https://host/lib.git or git@host:lib.git; a directory is written under 'path'"),
]


class _Repo(Checked):
    path: Local | None = None
    url: Url | None = None
    branch: Filled = "main"
    verify: Filled | None = None
    setup: Filled | None = None
    keep: list[Inside] = Field(default_factory=list)
    lock: list[Inside] = Field(default_factory=list)
    backup: Annotated[Filled, AfterValidator(_refuse_password)] | None = None
    publish: Literal["branch", "push", "checkout"] = "branch"
    gate: list[Inside] = Field(default_factory=list)
    regenerate: dict[Inside, Filled] = Field(default_factory=dict)


class _Budget(Checked):
    tokens: Annotated[int, Field(ge=1, le=10**15)] | None = None
    money: Annotated[float, Field(gt=0, le=10**9)] | None = None


class _Defaults(Checked):
    runner: Annotated[str | list[str], PlainValidator(_read_runners)] = ""
    timeout: SecondsLimit = None
    silence: SecondsLimit = None
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    output_limit: BytesLimit = None
    memory: BytesLimit = None
    processes: CountLimit = None
    disk: BytesLimit = None
    budget: _Budget = _Budget()


class _Task(_Defaults):
    id: TaskId
    command: Filled = ""
    prompt: Filled = ""
    repo: str | None = None
    title: str = ""
    after: list[str] = Field(default_factory=list)
    verify: Filled | None = None
    agent: Name | None = None
    strengths: list[Name] = Field(default_factory=list)
    paths: list[Inside] = Field(default_factory=list)
    outputs: list[Output] = Field(default_factory=list)
    output: Output = ""
    idempotent: bool = False


class _Plan(Checked):
    convoy: Name
    accept: Filled | None = None
    budget: _Budget = _Budget()
    repos: dict[str, _Repo] = Field(default_factory=dict)
    defaults: _Defaults = _Defaults()
    tasks: Annotated[list[_Task], Field(min_length=1)]


def load_plan(path: Path, limits: Limits | None = None, runners: Collection[str] | None = None) -> PlanSpec:
    """Read a plan; `limits` hold for what neither a task nor the plan's defaults say.

    `runners` are those that prompts may be given to; None, for whoever replaces them anyway, is any.
    Raises InputError, with every problem of the file, when anything is wrong.
    """
    problems = Problems(str(path), "nothing was submitted")
    try:
        text = read_text(path, problems, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        problems.stop("there is no such file; check the name and the directory")
    located = parse_yaml(text, problems)
    plan = check(_Plan, located, problems, lambda loc: _place(located, loc))
    _check_references(located, problems, runners)
    if plan is None or problems.found:
        raise problems.error()
    defaults = _read_fields(plan.defaults)
    return PlanSpec(
        convoy=plan.convoy,
        tasks=tuple(make_task(_read_task(task), defaults, limits or Limits()) for task in plan.tasks),
        repos=tuple(_repo_spec(name, repo, path.parent) for name, repo in plan.repos.items()),
        accept=plan.accept,
        budget=plan.budget.model_dump(exclude_none=True),
        defaults=defaults,
    )


def read_prompt(said: str) -> str:
    """Read a prompt as it is typed: the text itself, or `@` and the file it is in."""
    if not said.startswith("@"):
        return said
    problems = Problems(said[1:], "nothing was added")
    try:
        text = read_text(Path(said[1:]), problems, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        problems.stop("there is no such file; check the name and the directory")
    if found := NOT_TEXT.search(text):
        problems.stop("holds a NUL byte; remove it", text.count("\n", 0, found.start()) + 1)
    return text


def _read_fields(said: _Defaults) -> dict[str, Any]:
    """Read what is said at all, by the fields of a task."""
    fields: dict[str, Any] = said.model_dump(exclude_unset=True)
    limited = {field: fields.pop(key) for key, field in LIMIT_FIELDS.items() if key in fields}
    return {**fields, "limits": limited} if limited else fields


def _read_task(task: _Task) -> dict[str, Any]:
    fields = _read_fields(task)
    fields.pop("output", None)
    outputs = [task.output] if task.output else task.outputs
    lists = {"after": task.after, "strengths": task.strengths, "paths": task.paths, "outputs": outputs}
    return {**fields, **{name: tuple(items) for name, items in lists.items()}}


def _repo_spec(name: str, repo: _Repo, directory: Path) -> RepoSpec:
    return RepoSpec(
        name=name,
        path=repo.url or _make_absolute(repo.path or "", directory),
        branch=repo.branch,
        verify=repo.verify,
        setup=repo.setup,
        keep=tuple(repo.keep),
        lock=tuple(repo.lock),
        backup=_make_absolute(repo.backup, directory) if repo.backup else None,
        publish=repo.publish,
        gate=tuple(repo.gate),
        regenerate=repo.regenerate,
    )


def _make_absolute(place: str, directory: Path) -> str:
    if is_url(place):
        return place
    home = os.path.expanduser(place)  # noqa: PTH111 - that of Path raises when there is no such user.
    return os.path.realpath(directory / home)


def _place(located: Located, loc: Loc) -> tuple[str, type[Checked]]:
    match loc:
        case ("tasks", int(index), *rest):
            tasks = located.data["tasks"]
            who = _task_name(index, tasks[index] if isinstance(tasks, list) else None)
            return (f"'budget' of {who}", _Budget) if rest[:1] == ["budget"] else (who, _Task)
        case ("repos", *name):
            return f"repo {show(name[0])}" if name else "'repos'", _Repo
        case ("budget", *_):
            return "'budget' of the plan", _Budget
        case ("defaults", "budget", *_):
            return "'budget' of 'defaults'", _Budget
        case ("defaults", *_):
            return "'defaults'", _Defaults
    return "the plan", _Plan


def _task_name(index: int, task: object) -> str:
    name = task.get("id") if isinstance(task, dict) else None
    return f"task {show(name)}" if isinstance(name, str) else f"task {index + 1} of the list"


@dataclass(frozen=True, slots=True)
class _Part:
    """A mapping of the plan as it was written: what it is called, and where it stands."""

    who: str
    loc: Loc
    said: dict[str, object]
    model: type[Checked]
    located: Located
    problems: Problems

    def add(self, text: str, *keys: str | int) -> None:
        self.problems.add(text, self.located.line((*self.loc, *keys)))

    def list_texts(self, key: str) -> Iterator[tuple[int, str]]:
        """List what is text in a list, with its place; of the rest the model has spoken."""
        items = self.said.get(key)
        return ((i, item) for i, item in enumerate(items if isinstance(items, list) else []) if isinstance(item, str))

    def check_one_of(self, first: str, second: str, *, is_needed: bool) -> None:
        if first in self.said and second in self.said:
            self.add(f"{self.who} has both '{first}' and '{second}'; keep one", second)
        # Where a key is unknown, it is probably the missing one, misspelt.
        elif is_needed and first not in self.said and second not in self.said and not self._has_unknown_key():
            self.add(f"{self.who} has no '{first}' and no '{second}'; add one")

    def _has_unknown_key(self) -> bool:
        return not self.said.keys() <= self.model.model_fields.keys()


def _check_references(located: Located, problems: Problems, runners: Collection[str] | None) -> None:
    """Check what parts say of each other, as far as it can be read."""
    listed = located.data.get("tasks")
    repos, defaults = _mapping(located.data.get("repos")), _mapping(located.data.get("defaults"))
    for name, said in repos.items():
        repo = _Part(f"repo {show(name)}", ("repos", name), _mapping(said), _Repo, located, problems)
        if not is_name(name):
            repo.add(f"the name of {repo.who} must be {NAME_RULE}")
        if isinstance(said, dict):
            repo.check_one_of("path", "url", is_needed=True)
    tasks = [
        _Part(_task_name(index, said), ("tasks", index), said, _Task, located, problems)
        for index, said in enumerate(listed if isinstance(listed, list) else [])
        if isinstance(said, dict)
    ]
    first = _check_ids(tasks)
    _check_runners(tasks, defaults, located, problems, runners)
    _check_outputs(tasks)
    waits: dict[str, tuple[str, ...]] = {}
    for task in tasks:
        task.check_one_of("command", "prompt", is_needed=True)
        task.check_one_of("agent", "strengths", is_needed=False)
        _check_repo(task, repos)
        after = _check_after(task, first)
        if isinstance(who := task.said.get("id"), str):
            waits.setdefault(who, after)
    _check_rings(waits, {name: task.loc for name, task in first.items()}, located, problems)


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _check_ids(tasks: list[_Part]) -> dict[str, _Part]:
    """Find who has each id first, and tell those who have it too."""
    first: dict[str, _Part] = {}
    for task in tasks:
        name = task.said.get("id")
        if isinstance(name, str) and (earlier := first.setdefault(name, task)) is not task:
            line = task.located.line((*earlier.loc, "id"))
            task.add(f"the id {show(name)} is already used on line {line}; rename one of the two", "id")
    return first


def _check_runners(
    tasks: list[_Part],
    defaults: dict[str, object],
    located: Located,
    problems: Problems,
    runners: Collection[str] | None,
) -> None:
    places: list[_Part] = [_Part("'defaults'", ("defaults",), defaults, _Defaults, located, problems), *tasks]
    for place in places:
        said = place.said.get("runner")
        named = [said] if isinstance(said, str) else [name for _, name in place.list_texts("runner")]
        if "command" in place.said:
            if "runner" in place.said:
                place.add(f"{place.who} has a 'command', which takes no 'runner'; remove it", "runner")
        elif "prompt" in place.said and "runner" not in place.said and "runner" not in defaults:
            known = f" (known: {', '.join(runners)})" if runners else ""
            place.add(f"{place.who} has a 'prompt' but no 'runner' to give it to; add one here or in 'defaults'{known}")
        else:
            for runner in named:
                if runners is not None and runner not in runners:
                    meant = problems.did_you_mean(runner, runners)
                    advice = (
                        meant or f"; known here: {', '.join(runners)}. Others are added to hive.toml: [runners.NAME]"
                    )
                    place.add(f"unknown runner {show(runner)} in {place.who}{advice}", "runner")


def _check_outputs(tasks: list[_Part]) -> None:
    """Hold every promised file to one task, however its path is written."""
    first: dict[tuple[str, ...], str] = {}
    for task in tasks:
        task.check_one_of("output", "outputs", is_needed=False)
        output = task.said.get("output")
        said: list[tuple[Loc, str]] = [(("output",), output)] if isinstance(output, str) else []
        said += [(("outputs", index), text) for index, text in task.list_texts("outputs")]
        for keys, path in said:
            if (parts := split_path(path)) in first:
                task.add(f"{show(path)} of {task.who} is already promised {first[parts]}; keep one", *keys)
            elif parts:
                first[parts] = f"on line {task.located.line((*task.loc, *keys))} by {task.who}"


def _check_repo(task: _Part, names: dict[str, object]) -> None:
    repo = task.said.get("repo")
    for key, what in (("verify", "run it in"), ("paths", "find them in")):
        if key in task.said and "repo" not in task.said:
            task.add(f"{task.who} has '{key}' but no 'repo' to {what}; add 'repo' or remove '{key}'", key)
    if not isinstance(repo, str) or repo in names:
        return
    if names:
        task.add(f"unknown repo {show(repo)} in {task.who}{task.problems.did_you_mean(repo, names)}", "repo")
    else:
        said = f"{task.who} names repo {show(repo)}, but the plan has no 'repos'; add it there with its path"
        task.add(said, "repo")


def _check_after(task: _Part, known: dict[str, _Part]) -> tuple[str, ...]:
    """Check the dependencies of a task, and return those worth following."""
    good: dict[str, None] = {}
    for position, name in task.list_texts("after"):
        told = ""
        if name == task.said.get("id"):
            told = f"{task.who} waits for itself; remove it from 'after'"
        elif name in good:
            told = f"{show(name)} is twice in 'after' of {task.who}; keep one"
        elif name not in known:
            meant = task.problems.did_you_mean(name, known)
            told = f"unknown task {show(name)} in 'after' of {task.who}{meant}"
        else:
            good[name] = None
        if told:
            task.add(told, "after", position)
    return tuple(good)


def _check_rings(
    waits: dict[str, tuple[str, ...]], known: dict[str, Loc], located: Located, problems: Problems
) -> None:
    for _ in range(MAX_RINGS):
        ring = find_cycle(waits)
        if ring is None:
            return
        shown = [name if is_task_id(name) else show(name) for name in ring]
        if len(ring) > LONGEST_RING_SHOWN:
            shown = [*shown[:5], f"({len(ring) - 10} more)", *shown[-5:]]
        line = located.line((*known[ring[0]], "after"))
        problems.add(f"tasks wait for each other: {' -> '.join(shown)}; remove one 'after'", line)
        for name in ring[1:]:
            del waits[name]
