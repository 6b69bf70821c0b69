"""A plan after every check; parsing and line numbers are in `config`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

# As git reads them: a scheme, or a host before the first colon. `name::address` would make git start a program.
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+|(?:[\w.+-]+@)?[A-Za-z0-9][^:/\s]*:(?!:)\S+", re.ASCII)
OUTPUT_RULE = "a relative path inside the hive directory, without '..' or '.git', not in '.hive' and not 'hive.toml'"
DEFAULT_PUBLISH = "branch"
PASSWORD = re.compile(r"://[^/]*:[^/]*@")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run; None is no limit. Its wrapper enforces them, whether or not a keeper is running."""

    wall_s: float | None = None
    silence_s: float | None = None
    output_bytes: int | None = 64 * 1024 * 1024
    memory_bytes: int | None = None
    processes: int | None = 1000
    disk_bytes: int | None = 20 * 1024 * 1024 * 1024
    grace_s: float = 5.0


@dataclass(frozen=True, slots=True)
class RepoSpec:
    """A git repository that tasks may work on; `path` is absolute, or a URL.

    `setup` prepares a clone; the directories in `keep` are cached for later clones with the same `lock` files.
    `backup` is a second repository that workers' work is pushed to. `publish` says how what landed is published in the
    user's repository (`branch`, `push` or `checkout`). A change to a `gate` file waits for approval. `regenerate` has
    commands that regenerate a file when two changes to it conflict.
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

    `runner` takes its prompt; of several, the first that is free. `paths` are the only ones it may change; `agent` or
    `strengths` say which agent should do it, and `budget` what it may cost.
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
    """Tasks over repositories.

    `defaults` are values for fields of `TaskSpec` that a task does not set.
    """

    convoy: str
    tasks: tuple[TaskSpec, ...]
    repos: tuple[RepoSpec, ...] = ()
    accept: str | None = None
    budget: dict[str, float] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)


def make_task(said: Mapping[str, Any], defaults: Mapping[str, Any], limits: Limits) -> TaskSpec:
    """Build a task from its own fields, its convoy's defaults and the hive's limits, in that order."""
    # A default runner is for prompts only.
    taken = {name: value for name, value in defaults.items() if name != "runner" or not said.get("command")}
    fields: dict[str, Any] = {**taken, **said}
    fields["limits"] = replace(limits, **{**defaults.get("limits", {}), **said.get("limits", {})})
    if isinstance(named := fields.get("runner"), list):
        fields["runner"] = tuple(named) if named[1:] else named[0]
    return TaskSpec(**fields)


def is_url(text: str) -> bool:
    """Whether this is a URL, with a scheme or as `host:path`, and not a path."""
    return URL.fullmatch(text) is not None


def has_password(url: str) -> bool:
    """Whether a URL contains a password, which must not be in the ledger."""
    return PASSWORD.search(url) is not None


def split_path(path: str) -> tuple[str, ...]:
    """Split a path into parts, so that two spellings of it are equal."""
    return tuple(part for part in path.split("/") if part not in ("", "."))


def is_inside(path: str) -> bool:
    """Whether a path is relative, and stays below its start and out of `.git`."""
    parts = split_path(path)
    return bool(parts) and not path.startswith("/") and "\n" not in path and not {"..", ".git"}.intersection(parts)


def is_output(path: str) -> bool:
    """Whether a task may write an output there: inside the hive's root, but not a file of the hive's own."""
    return is_inside(path) and split_path(path)[0] != ".hive" and split_path(path) != ("hive.toml",)


def find_stray(changed: Iterable[str], paths: Sequence[str]) -> str | None:
    """Find a changed path outside the allowed ones; without `paths`, all are allowed."""
    if not paths:
        return None
    # A directory includes everything in it.
    allowed = [pattern for path in paths for pattern in (path, f"{path.rstrip('/')}/*")]
    return next((path for path in changed if not any(fnmatchcase(path, pattern) for pattern in allowed)), None)


def find_cycle(after: dict[str, tuple[str, ...]]) -> list[str] | None:
    """Find a cycle of tasks that wait for each other; None if there is none."""
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
