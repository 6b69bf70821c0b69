"""A plan file to a `PlanSpec`: every problem in it is found and told together, each with its line.

Models check the shape. What one part says of another (dependencies, repositories) is checked on the plain data beside
them, so that a misspelt key in one task does not hide an unknown dependency in the next.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema

from hivekeeper.config.located import (
    NOT_TEXT,
    Checked,
    Filled,
    Listed,
    Loc,
    Located,
    Problems,
    check,
    matching,
    parse_yaml,
    read_text,
    rule,
)
from hivekeeper.config.settings import BytesLimit, CountLimit, SecondsLimit
from hivekeeper.domain.names import NAME, NAME_RULE, TASK_ID, TASK_ID_RULE, is_name, is_task_id, show
from hivekeeper.domain.plan import URL, Limits, PlanSpec, RepoSpec, has_password, is_inside, is_url, make_task
from hivekeeper.domain.plan_problems import Problem, find_exclusive, find_problems, name_task
from hivekeeper.domain.protocol import FREE_ADDRESS_RULE, is_free_address

MAX_BYTES = 16 << 20
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
        # It is not repeated, not even here.
        raise ValueError("contains a password, which the ledger would keep for ever; use git's credential helper")
    return text


def _read_runners(value: object) -> str | list[str]:
    """Read one runner, or several in order of preference."""
    if isinstance(value, str) or (isinstance(value, list) and value and all(isinstance(name, str) for name in value)):
        return value
    raise ValueError(f"must be a runner's name or a list of them, not {show(value)}")


_REF = r"(?!.*(\.\.|\.$|\.lock$))"
NAME_PATTERN = f"^{_REF}{NAME.pattern}$"
_INSIDE = matching(r"^(?!/)(?!(.*/)?(\.\.|\.git)(/|$))(?!(\.?/)*\.?$).+$")
Name = Annotated[str, rule(is_name, f"must be {NAME_RULE}"), matching(NAME_PATTERN)]
TaskId = Annotated[str, rule(is_task_id, f"must be {TASK_ID_RULE}"), matching(f"^{_REF}{TASK_ID.pattern}$")]
Inside = Annotated[
    str, rule(is_inside, "must be a relative path inside the repository, without '..' or '.git'"), _INSIDE
]
Output = Annotated[str, _INSIDE]  # what else an output must be is checked beside the other tasks'
Local = Annotated[Filled, rule(lambda text: not is_url(text), "must be a path; a URL is written under 'url'")]
Url = Annotated[
    str,
    AfterValidator(_refuse_password),
    rule(is_url, "must be a URL such as https://host/lib.git or git@host:lib.git; a directory is written under 'path'"),
    matching(f"^({URL.pattern})$"),
]
Runners = Annotated[
    str | list[str],
    PlainValidator(_read_runners),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


class _Repo(Checked):
    path: Local | None = None
    url: Url | None = None
    branch: Filled = "main"
    verify: Filled | None = None
    setup: Filled | None = None
    keep: Listed[Inside] = ()
    lock: Listed[Inside] = ()
    backup: Annotated[Filled, AfterValidator(_refuse_password)] | None = None
    publish: Literal["branch", "push", "checkout"] = "branch"
    gate: Listed[Inside] = ()
    regenerate: dict[Inside, Filled] = Field(default_factory=dict)


class _Budget(Checked):
    tokens: Annotated[int, Field(ge=1, le=10**15)] | None = None
    money: Annotated[float, Field(gt=0, le=10**9)] | None = None


class _Defaults(Checked):
    runner: Runners = ""
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
    after: Listed[str] = ()
    verify: Filled | None = None
    agent: Annotated[Name, rule(is_free_address, FREE_ADDRESS_RULE)] | None = None
    strengths: Listed[Name] = ()
    paths: Listed[Inside] = ()
    outputs: Listed[Output] = ()
    output: Output = ""
    idempotent: bool = False


class Plan(Checked):
    """A plan's file, key by key."""

    convoy: Name
    accept: Filled | None = None
    budget: _Budget = _Budget()
    repos: dict[str, _Repo] = Field(default_factory=dict)
    defaults: _Defaults = _Defaults()
    tasks: Annotated[list[_Task], Field(min_length=1)]


def load_plan(path: Path, limits: Limits | None = None, runners: Collection[str] | None = None) -> PlanSpec:
    """Read a plan; `limits` hold for what neither a task nor the plan's defaults say.

    `runners` are those that prompts may name; None allows any, for a caller that replaces them anyway.
    Raises InputError, with every problem of the file, when anything is wrong.
    """
    problems = Problems(str(path), "nothing was submitted")
    try:
        text = read_text(path, problems, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        problems.stop("there is no such file; check the name and the directory")
    return read_plan(text, path, problems, limits, runners)


def read_plan(
    text: str, path: Path, problems: Problems, limits: Limits | None = None, runners: Collection[str] | None = None
) -> PlanSpec:
    """Read the text of a plan that is, or will be, in this file."""
    located = parse_yaml(text, problems)
    plan = check(Plan, located, problems, lambda loc: _place(located, loc))
    _check_parts(located, problems, runners)
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


def read_prompt(typed: str) -> str:
    """Read a prompt as it is typed: the text itself, or `@` and the file it is in."""
    if not typed.startswith("@"):
        return typed
    problems = Problems(typed[1:], "nothing was added")
    try:
        text = read_text(Path(typed[1:]), problems, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        problems.stop("there is no such file; check the name and the directory")
    if found := NOT_TEXT.search(text):
        problems.stop("contains a NUL byte; remove it", text.count("\n", 0, found.start()) + 1)
    return text


def _read_fields(part: _Defaults) -> dict[str, Any]:
    """Read the keys that are there, by the fields of a task."""
    fields: dict[str, Any] = part.model_dump(exclude_unset=True)
    limited = {field: fields.pop(key) for key, field in LIMIT_FIELDS.items() if key in fields}
    return {**fields, "limits": limited} if limited else fields


def _read_task(task: _Task) -> dict[str, Any]:
    fields = _read_fields(task)
    output = fields.pop("output", None)
    return {**fields, "outputs": (output,)} if output is not None else fields


def _repo_spec(name: str, repo: _Repo, directory: Path) -> RepoSpec:
    fields = repo.model_dump(exclude={"url"})
    fields["path"] = repo.url or _make_absolute(repo.path or "", directory)
    fields["backup"] = _make_absolute(repo.backup, directory) if repo.backup else None
    return RepoSpec(name, **fields)


def _make_absolute(place: str, directory: Path) -> str:
    if is_url(place):
        return place
    home = os.path.expanduser(place)  # noqa: PTH111 - that of Path raises when there is no such user.
    return os.path.realpath(directory / home)


def _place(located: Located, loc: Loc) -> tuple[str, type[Checked]]:
    match loc:
        case ("tasks", int(index), *rest):
            tasks = located.data["tasks"]
            who = name_task(index, tasks[index] if isinstance(tasks, list) else None)
            return (f"'budget' of {who}", _Budget) if rest[:1] == ["budget"] else (who, _Task)
        case ("repos", *name):
            return f"repo {show(name[0])}" if name else "'repos'", _Repo
        case ("budget", *_):
            return "'budget' of the plan", _Budget
        case ("defaults", "budget", *_):
            return "'budget' of 'defaults'", _Budget
        case ("defaults", *_):
            return "'defaults'", _Defaults
    return "the plan", Plan


def _check_parts(located: Located, problems: Problems, runners: Collection[str] | None) -> None:
    """Check what parts say of each other, as far as it can be read; the models report the rest."""
    repos, listed = _mapping(located.data.get("repos")), located.data.get("tasks")
    tasks = {n: said for n, said in enumerate(listed if isinstance(listed, list) else []) if isinstance(said, dict)}
    found: list[Problem] = []
    for name, said in repos.items():
        if not is_name(name):
            problems.add(f"the name of repo {show(name)} must be {NAME_RULE}", located.line(("repos", name)))
        if isinstance(said, dict):
            found += find_exclusive(("repos", name), f"repo {show(name)}", said, ("path", "url"), is_needed=True)
    found += find_problems(
        tasks,
        repos=repos,
        defaults=_mapping(located.data.get("defaults")),
        runners=runners,
        suggest=problems.suggest,
    )
    for problem in found:
        if not _is_misspelt(located, problem.place):
            first = f" on line {located.line(problem.first)}" if problem.first else ""
            advice = f"; {problem.advice}" if problem.advice else ""
            problems.add(f"{problem.what}{first}{advice}", located.line(problem.place))


def _is_misspelt(located: Located, place: Loc) -> bool:
    """Tell whether what a task or repository lacks is probably there, misspelt."""
    match place:
        case ("tasks" | "repos" as part, key):
            items: Any = located.data[part]
            _, model = _place(located, place)
            return not items[key].keys() <= model.model_fields.keys()
    return False


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
