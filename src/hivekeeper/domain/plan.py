"""A plan as the hive understands it, after every check; parsing and line numbers are the edge's affair."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

# As git reads them: a scheme, or a host before the first colon; `name::address` would have git start a program.
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+|(?:[\w.+-]+@)?[A-Za-z0-9][^:/\s]*:(?!:)\S+", re.ASCII)
OUTPUT_RULE = "a relative path inside the hive directory, without '..' or '.git', not in '.hive' and not 'hive.toml'"
DEFAULT_PUBLISH = "branch"
PASSWORD = re.compile(r"://[^/]*:[^/]*@")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use; None is no limit. The wrapper beside the run enforces them, keeper or no keeper."""

    wall_s: float | None = None
    silence_s: float | None = None
    output_bytes: int | None = 64 * 1024 * 1024
    memory_bytes: int | None = None
    processes: int | None = 1000
    disk_bytes: int | None = 20 * 1024 * 1024 * 1024
    grace_s: float = 5.0


@dataclass(frozen=True, slots=True)
class RepoSpec:
    """A git repository tasks may work on; `path` is absolute, or a URL.

    `setup` makes a clone ready and `keep` names what it makes, which is kept for the next clone whose `lock` files are
    the same. `backup` is a second repository that what workers made is pushed to. `publish` says how what landed comes
    into the person's own (`branch`, `push` or `checkout`). A change to one of the `gate` files waits for a person;
    `regenerate` has commands that make a file anew when two changes to it conflict.
    """

    name: str
    path: str
    branch: str = "main"
    verify: str | None = None
    setup: str | None = None
    keep: tuple[str, ...] = ()
    lock: tuple[str, ...] = ()
    backup: str | None = None
    publish: str = DEFAULT_PUBLISH
    gate: tuple[str, ...] = ()
    regenerate: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One piece of work: a shell command, or a prompt for a runner, on a repository or without one.

    `runner` may take its prompt; of several the first is asked first. `paths` are the only ones it may change;
    `agent` or `strengths` say who should do it; `budget` what it may cost.
    """

    id: str
    command: str = ""
    repo: str | None = None
    title: str = ""
    after: tuple[str, ...] = ()
    verify: str | None = None
    priority: int = 0
    attempts: int = 3
    outputs: tuple[str, ...] = ()
    idempotent: bool = False
    limits: Limits = field(default_factory=Limits)
    prompt: str = ""
    runner: str | tuple[str, ...] = ""
    agent: str | None = None
    strengths: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    budget: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """Tasks over repositories, to be kept until done.

    `defaults` is what the plan says for tasks that do not say it themselves, by the fields of `TaskSpec`.
    """

    convoy: str
    tasks: tuple[TaskSpec, ...]
    repos: tuple[RepoSpec, ...] = ()
    accept: str | None = None
    budget: dict[str, float] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)


def make_task(said: Mapping[str, Any], defaults: Mapping[str, Any], limits: Limits) -> TaskSpec:
    """Make a task of what is said of it, else of its convoy's defaults, else of the hive's limits."""
    # The runner of the defaults is for prompts.
    taken = {name: value for name, value in defaults.items() if name != "runner" or not said.get("command")}
    fields: dict[str, Any] = {**taken, **said}
    fields["limits"] = replace(limits, **{**defaults.get("limits", {}), **said.get("limits", {})})
    if isinstance(named := fields.get("runner"), list):
        fields["runner"] = tuple(named) if named[1:] else named[0]
    return TaskSpec(**fields)


def is_url(text: str) -> bool:
    """Tell whether a repository is named by a URL, with a scheme or as `host:path`, and not by a path."""
    return URL.fullmatch(text) is not None


def has_password(url: str) -> bool:
    """Tell whether a URL carries a secret, which no ledger may keep."""
    return PASSWORD.search(url) is not None


def split_path(path: str) -> tuple[str, ...]:
    """Name the parts of a path, so that two ways to write it are one."""
    return tuple(part for part in path.split("/") if part not in ("", "."))


def is_inside(path: str) -> bool:
    """Tell whether a path stays below where it begins, and out of what git keeps there."""
    parts = split_path(path)
    return bool(parts) and not path.startswith("/") and "\n" not in path and not {"..", ".git"}.intersection(parts)


def is_output(path: str) -> bool:
    """Tell whether a task may leave a file there: inside the hive's directory, but nothing of the hive's own."""
    return is_inside(path) and split_path(path)[0] != ".hive" and split_path(path) != ("hive.toml",)


def find_stray(changed: Iterable[str], paths: Sequence[str]) -> str | None:
    """Find a changed path that is none of the allowed ones; where nothing is said, all are."""
    if not paths:
        return None
    # A directory stands for all that is in it.
    allowed = [pattern for path in paths for pattern in (path, f"{path.rstrip('/')}/*")]
    return next((path for path in changed if not any(fnmatchcase(path, pattern) for pattern in allowed)), None)


def find_cycle(after: dict[str, tuple[str, ...]]) -> list[str] | None:
    """Find tasks that wait for each other in a ring, as the ring itself; None when there is none."""
    done: set[str] = set()
    for start in after:
        path: list[str] = []
        on_path: set[str] = set()
        # Iterative, because a chain of ten thousand tasks must not end in a RecursionError.
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                path.pop()
                on_path.discard(name)
                done.add(name)
            elif name in on_path:
                return [*path[path.index(name) :], name]
            elif name not in done and name in after:
                path.append(name)
                on_path.add(name)
                stack.append((name, True))
                stack.extend((other, False) for other in after[name])
    return None
