"""What can be told of a plan before it runs: its steps, which tasks may conflict, and its commands."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hivekeeper.domain.plan import PlanSpec, TaskSpec, split_path

MAX_PAIRS = 200_000
MAX_COMPARED = 10_000  # of more tasks than this it is not told which may conflict
_MAX_CELLS = 1 << 20
_WILD = re.compile(r"[*?\[]")
_FILE = re.compile(r"[^/]\.[^./*?]+$")
_CLASS = re.compile(r"\[!?\]?[^]]*\]")


@dataclass(frozen=True, slots=True)
class Clash:
    """Tasks that may change the same files at the same time: nothing makes one of them wait for another."""

    repo: str
    paths: tuple[str, ...]
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A command in a plan: which part of it says so, under which key."""

    part: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class LandedCost:
    """What tasks of a repository that landed have cost with a runner, all of them together."""

    repo: str
    runner: str
    tasks: int
    tokens: int
    microusd: int
    attempts: int


def find_steps(tasks: Sequence[TaskSpec]) -> list[list[TaskSpec]]:
    """Order tasks in steps: each waits for something in the step before it, and for nothing in its own or a later."""
    steps: dict[int, list[TaskSpec]] = {}
    level: dict[str, int] = {}
    for task in _order(tasks):
        level[task.id] = 1 + max((level[other] for other in task.after if other in level), default=0)
    for task in tasks:
        steps.setdefault(level[task.id], []).append(task)
    return [steps[number] for number in sorted(steps)]


def find_clashes(tasks: Sequence[TaskSpec]) -> list[Clash] | None:
    """Find which tasks may change the same files; None when there are too many to compare."""
    if len(tasks) > MAX_COMPARED:
        return None
    order = _Order(tasks)
    found: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    pairs = 0
    for repo, owners in _list_owners(tasks).items():
        for one, other in _list_overlaps(sorted(owners)):
            for first in owners[one]:
                for second in owners[other]:
                    pairs += 1
                    if pairs > MAX_PAIRS:
                        return None
                    if order.are_free(first, second):
                        key = repo, tuple(dict.fromkeys((one, other)))
                        found.setdefault(key, set()).update((first, second))
    places = {task.id: number for number, task in enumerate(tasks)}
    return [Clash(*key, tuple(sorted(names, key=places.__getitem__))) for key, names in found.items()]


def list_commands(plan: PlanSpec) -> list[Command]:
    """List every command that a plan would run."""
    found = [Command("the plan", "accept", plan.accept)] if plan.accept else []
    for repo in plan.repos:
        more = ((f"regenerate {path}", text) for path, text in repo.regenerate.items())
        said = (("setup", repo.setup), ("verify", repo.verify), *more)
        found += [Command(f"repo {repo.name}", key, text) for key, text in said if text]
    for task in plan.tasks:
        said = (("command", task.command), ("verify", task.verify))
        found += [Command(f"task {task.id}", key, text) for key, text in said if text]
    return found


def may_overlap(one: str, other: str) -> bool:
    """Tell whether a file is likely to be allowed by two entries of `paths`; a directory includes everything in it."""
    return any(_may_match(a, b) for a in _list_forms(one, other) for b in _list_forms(other, one))


def _order(tasks: Sequence[TaskSpec]) -> Iterator[TaskSpec]:
    """Give tasks in an order in which each comes after what it waits for."""
    by_id, seen = {task.id: task for task in tasks}, set[str]()
    for task in tasks:
        todo = [(task, False)]  # iterative: a chain of ten thousand tasks must not end in a RecursionError
        while todo:
            current, is_ready = todo.pop()
            if is_ready:
                yield current
            elif current.id not in seen:
                seen.add(current.id)
                todo.append((current, True))
                todo += [(by_id[other], False) for other in current.after if other in by_id]


class _Order:
    """Which task comes before which, also by way of others; a set of tasks is a number with a bit for each."""

    def __init__(self, tasks: Sequence[TaskSpec]) -> None:
        self._bits: dict[str, int] = {}
        self._before: dict[str, int] = {}
        for number, task in enumerate(_order(tasks)):
            before = 0
            for other in task.after:
                before |= self._before.get(other, 0) | self._bits.get(other, 0)
            self._bits[task.id], self._before[task.id] = 1 << number, before

    def are_free(self, one: str, other: str) -> bool:
        """Tell whether two different tasks may be at work at the same time."""
        is_ordered = self._before[one] & self._bits[other] or self._before[other] & self._bits[one]
        return one != other and not is_ordered


def _list_owners(tasks: Sequence[TaskSpec]) -> Mapping[str, dict[str, list[str]]]:
    """List by repository and path the tasks that may change it."""
    owners: dict[str, dict[str, list[str]]] = {}
    for task in tasks:
        for path in dict.fromkeys("/".join(split_path(path)) for path in task.paths):
            owners.setdefault(task.repo or "", {}).setdefault(path, []).append(task.id)
    return owners


def _list_overlaps(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """List pairs of sorted paths that may overlap, each path with itself too."""
    starts = sorted((_read_start(path), path) for path in paths)
    for number, (start, path) in enumerate(starts):
        # What both match begins with both starts, so one start begins with the other: these follow one another.
        last = bisect_right(starts, (f"{start}\U0010ffff",))
        for _, other in starts[number:last]:
            if other == path or may_overlap(path, other):
                yield path, other


def _read_start(path: str) -> str:
    """Read what every file that a path allows begins with."""
    wild = _WILD.search(path)
    return path[: wild.start()] if wild else path


def _list_forms(path: str, other: str) -> tuple[str, ...]:
    # `*.md` could be the name of a directory too, but then every `*.py` would clash with README.md.
    is_file = _FILE.search(path) and not other.startswith(f"{path}/")
    return (path,) if is_file else (path, f"{path}/*")


def _may_match(one: str, other: str) -> bool:
    """Tell whether two patterns may match the same text. A set of characters counts as any character."""
    first, second = (_CLASS.sub("?", pattern) for pattern in (one, other))
    if len(first) * len(second) > _MAX_CELLS:
        return True
    # fits[j]: what is left of the first pattern, from i on, and of the second, from j on, can match the same text.
    fits = [False] * len(second) + [True]
    for j in range(len(second) - 1, -1, -1):
        fits[j] = second[j] == "*" and fits[j + 1]
    for i in range(len(first) - 1, -1, -1):
        below, fits = fits, [False] * (len(second) + 1)
        fits[-1] = first[i] == "*" and below[-1]
        for j in range(len(second) - 1, -1, -1):
            if "*" in (first[i], second[j]):
                fits[j] = below[j] or fits[j + 1]  # a star ends, or takes a character of the other
            else:
                fits[j] = ("?" in (first[i], second[j]) or first[i] == second[j]) and below[j + 1]
    return fits[0]
