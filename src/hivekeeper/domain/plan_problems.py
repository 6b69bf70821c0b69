"""Finds every problem in a plan's tasks, whether they come from a file or a program, and its place in the plan.

Tasks are checked key by key, as written. A value of the wrong type is skipped: parsing the file reports it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hivekeeper.domain.names import find_nearest, is_task_id, show
from hivekeeper.domain.plan import OUTPUT_RULE, find_cycle, is_output, split_path

Place = tuple[str | int, ...]
Fields = Mapping[str, object]
Suggest = Callable[[str, Iterable[str]], str | None]

# There is rarely more than one cycle; each takes a pass over the whole plan.
MAX_CYCLES = 10
MAX_CYCLE_SHOWN = 12
_NOTHING: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, and what to do about it; `first` is the earlier place that it conflicts with.

    The `place` of a missing key is the mapping that lacks it.
    """

    place: Place
    what: str
    advice: str = ""
    first: Place | None = None


def find_problems(
    tasks: Mapping[int, Fields],
    *,
    repos: Collection[str],
    defaults: Fields = _NOTHING,
    runners: Collection[str] | None = None,
    earlier: Mapping[str, tuple[str, ...]] = _NOTHING,
    suggest: Suggest = find_nearest,
) -> Iterator[Problem]:
    """Find the problems of a plan's tasks; without `runners`, every runner name is accepted.

    `earlier` maps the convoy's known tasks to their predecessors.
    """
    listed = [_Task(("tasks", number), fields) for number, fields in tasks.items()]
    first: dict[str, _Task] = {}
    for task in listed:
        if task.id is not None and (other := first.setdefault(task.id, task)) is not task:
            advice = "rename one of the two"
            yield task.problem(f"the id {show(task.id)} is already used", advice, "id", first=(*other.place, "id"))
    yield from _check_runners(listed, defaults, runners, suggest)
    yield from _check_outputs(listed)
    known = {**first, **earlier}
    for task in listed:
        yield from find_exclusive(task.place, task.who, task.fields, ("command", "prompt"), is_needed=True)
        yield from find_exclusive(task.place, task.who, task.fields, ("agent", "strengths"))
        yield from _check_repo(task, repos, suggest)
        yield from _check_after(task, known, suggest)
    yield from _find_cycles(first, earlier)


def name_task(number: int, fields: object) -> str:
    """Name a task in a sentence: by its id, or by its place in the list if it has none."""
    name = fields.get("id") if isinstance(fields, Mapping) else None
    return f"task {show(name)}" if isinstance(name, str) else f"task {number + 1} of the list"


def find_exclusive(
    place: Place, who: str, fields: Fields, keys: tuple[str, str], *, is_needed: bool = False
) -> Iterator[Problem]:
    """Find whether two exclusive keys are both present, or both absent although one `is_needed`."""
    first, second = keys
    if first in fields and second in fields:
        yield Problem((*place, second), f"{who} has both '{first}' and '{second}'", "keep one")
    elif is_needed and first not in fields and second not in fields:
        yield Problem(place, f"{who} has no '{first}' and no '{second}'", "add one")


@dataclass(frozen=True, slots=True)
class _Task:
    place: Place
    fields: Fields

    @property
    def id(self) -> str | None:
        name = self.fields.get("id")
        return name if isinstance(name, str) else None

    @property
    def who(self) -> str:
        return name_task(int(self.place[1]), self.fields)

    def problem(self, what: str, advice: str, *keys: str | int, first: Place | None = None) -> Problem:
        return Problem((*self.place, *keys), what, advice, first)

    def list_texts(self, key: str) -> list[tuple[int, str]]:
        items = self.fields.get(key)
        items = items if isinstance(items, list | tuple) else ()
        return [(position, item) for position, item in enumerate(items) if isinstance(item, str)]


def _suggest(word: str, options: Collection[str], suggest: Suggest, otherwise: str) -> str:
    meant = suggest(word, options)
    return f"did you mean {show(meant)}?" if meant else otherwise


def _check_runners(
    tasks: Iterable[_Task], defaults: Fields, runners: Collection[str] | None, suggest: Suggest
) -> Iterator[Problem]:
    known = ", ".join(runners or ())
    parts = ((("defaults",), "'defaults'", defaults), *((task.place, task.who, task.fields) for task in tasks))
    for place, who, fields in parts:
        if "command" in fields:
            if "runner" in fields:
                yield Problem((*place, "runner"), f"{who} has a 'command', which takes no 'runner'", "remove it")
        elif "prompt" in fields and "runner" not in fields and "runner" not in defaults:
            advice = f"add one to the task or to 'defaults'{known and f' (known: {known})'}"
            yield Problem(place, f"{who} has a 'prompt' but no 'runner' to give it to", advice)
        elif runners is not None:
            named = fields.get("runner")
            for name in named if isinstance(named, list | tuple) else (named,):
                if isinstance(name, str) and name not in runners:
                    others = f"known here: {known}. Others are added to hive.toml: [runners.NAME]"
                    advice = _suggest(name, runners, suggest, others)
                    yield Problem((*place, "runner"), f"unknown runner {show(name)} in {who}", advice)


def _check_outputs(tasks: Iterable[_Task]) -> Iterator[Problem]:
    """Find invalid outputs, and outputs of two tasks that are or contain the same path, however it is written."""
    owners: dict[tuple[str, ...], tuple[str, Place]] = {}
    for task in tasks:
        yield from find_exclusive(task.place, task.who, task.fields, ("output", "outputs"))
        output = task.fields.get("output")
        paths: list[tuple[Place, str]] = [(("output",), output)] if isinstance(output, str) else []
        for keys, path in (*paths, *((("outputs", i), text) for i, text in task.list_texts("outputs"))):
            parts = split_path(path)
            if not is_output(path):
                yield task.problem(f"{task.who} cannot promise {show(path)}", f"an output is {OUTPUT_RULE}", *keys)
            elif parts in owners:
                owner, first = owners[parts]
                what = f"{show(path)} of {task.who} is already promised by {owner}"
                yield task.problem(what, "keep one", *keys, first=first)
            else:
                owners[parts] = task.who, (*task.place, *keys)
    for parts, (who, place) in owners.items():
        if above := next((parts[:end] for end in range(1, len(parts)) if parts[:end] in owners), None):
            owner, first = owners[above]
            what = f"{show('/'.join(parts))} of {who} is inside {show('/'.join(above))}, which is promised by {owner}"
            yield Problem(place, what, "let one of them promise it", first)


def _check_repo(task: _Task, repos: Collection[str], suggest: Suggest) -> Iterator[Problem]:
    for key, what in (("verify", "run it in"), ("paths", "find them in")):
        if key in task.fields and "repo" not in task.fields:
            advice = f"add 'repo' or remove '{key}'"
            yield task.problem(f"{task.who} has '{key}' but no 'repo' to {what}", advice, key)
    repo = task.fields.get("repo")
    if isinstance(repo, str) and repo not in repos:
        known = f"known here: {', '.join(repos)}" if repos else "add it to the 'repos' of a plan, with its path"
        yield task.problem(f"unknown repo {show(repo)} in {task.who}", _suggest(repo, repos, suggest, known), "repo")


def _check_after(task: _Task, known: Collection[str], suggest: Suggest) -> Iterator[Problem]:
    seen: set[str] = set()
    for position, name in task.list_texts("after"):
        if name == task.id:
            yield task.problem(f"{task.who} waits for itself", "remove it from 'after'", "after", position)
        elif name in seen:
            yield task.problem(f"{show(name)} is twice in 'after' of {task.who}", "keep one", "after", position)
        elif name not in known:
            advice = _suggest(name, known, suggest, "it names tasks of this convoy only")
            yield task.problem(f"unknown task {show(name)} in 'after' of {task.who}", advice, "after", position)
        seen.add(name)


def _find_cycles(tasks: Mapping[str, _Task], earlier: Mapping[str, tuple[str, ...]]) -> Iterator[Problem]:
    """Find tasks that wait for each other; a cycle may include tasks that were known before."""
    own = {name: tuple(other for _, other in task.list_texts("after") if other != name) for name, task in tasks.items()}
    waits = {**earlier, **own}
    for _ in range(MAX_CYCLES):
        if (cycle := find_cycle(waits)) is None:
            return
        shown = [name if is_task_id(name) else show(name) for name in cycle]
        if len(cycle) > MAX_CYCLE_SHOWN:
            shown = [*shown[:5], f"({len(cycle) - 10} more)", *shown[-5:]]
        place: Place = next(((*tasks[name].place, "after") for name in cycle if name in tasks), ())
        yield Problem(place, f"tasks wait for each other: {' -> '.join(shown)}", "remove one 'after'")
        for name in cycle[1:]:
            del waits[name]
