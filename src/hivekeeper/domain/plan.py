"""A plan as the hive understands it, after every check; parsing and line numbers are the edge's affair."""

import hashlib
import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use; None is no limit. The wrapper beside the run enforces them, keeper or no keeper."""

    wall_s: float | None = None
    silence_s: float | None = None
    output_bytes: int | None = 64 * 1024 * 1024
    memory_bytes: int | None = None
    grace_s: float = 5.0


@dataclass(frozen=True, slots=True)
class RepoSpec:
    """A git repository tasks may work on; `path` is absolute."""

    name: str
    path: str
    branch: str = "main"
    verify: str | None = None


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One piece of work: a shell command, on a repository or without one."""

    id: str
    command: str
    repo: str | None = None
    title: str = ""
    after: tuple[str, ...] = ()
    verify: str | None = None
    priority: int = 0
    attempts: int = 3
    output: str | None = None
    idempotent: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """Tasks over repositories, to be kept until done."""

    convoy: str
    tasks: tuple[TaskSpec, ...]
    repos: tuple[RepoSpec, ...] = ()

    def fingerprint(self) -> str:
        """Tell two plans apart by what they say, not by how they are written."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


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
