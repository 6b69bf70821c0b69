"""A plan before it runs: who waits for whom, what may conflict, which commands it has, and what it may cost."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hivekeeper.domain.budget import MICRO
from hivekeeper.domain.picture import Command, LandedCost, find_clashes, find_steps, list_commands
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.domain.wording import say_count
from hivekeeper.store import queries
from hivekeeper.store.database import Connection

_WIDTH = 80
_MAX_COLUMN = 24
_MAX_SHOWN = 200
_MAX_TITLE = 100


def show_plan(
    connection: Connection, plan: PlanSpec, *, author: str = "", written: Sequence[Command] | None = None
) -> dict[str, Any]:
    """Show a plan; `written` are the commands of the runner that is its author, all of its commands without one."""
    clashes = find_clashes(plan.tasks)
    steps = find_steps(plan.tasks)
    commands = list_commands(plan) if written is None else written
    used = {task.repo for task in plan.tasks}
    tested = {task.repo for task in plan.tasks if task.verify}
    tasks = [{"step": step, **_show_task(task)} for step, of_step in enumerate(steps, 1) for task in of_step]
    return {
        "convoy": plan.convoy,
        "author": author or None,
        "steps": len(steps),
        "tasks": tasks,
        "clashes": None if clashes is None else [asdict(clash) for clash in clashes],
        "any_path": _group((task.repo, task.id) for task in plan.tasks if task.repo and not task.paths),
        "untested": [
            repo.name for repo in plan.repos if repo.name in used and not (repo.verify or repo.name in tested)
        ],
        "commands": [asdict(command) for command in commands],
        "expected": _show_expected(plan, queries.list_landed_costs(connection)),
    }


def _show_task(task: TaskSpec) -> dict[str, Any]:
    first_line = next(iter((task.prompt or task.command).strip().splitlines()), "")
    return {
        "task": task.id,
        "title": task.title or first_line[:_MAX_TITLE],
        "repo": task.repo,
        "runner": _find_runner(task),
        "after": list(task.after),
        "paths": list(task.paths),
        "attempts": task.attempts,
    }


def _find_runner(task: TaskSpec) -> str | None:
    """Find the runner that most likely gets the prompt."""
    return (task.runner if isinstance(task.runner, str) else task.runner[0]) or None


def _group(pairs: Iterable[tuple[str | None, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for group, name in pairs:
        groups.setdefault(group or "", []).append(name)
    return groups


def _show_expected(plan: PlanSpec, landed: Iterable[LandedCost]) -> dict[str, Any]:
    """Show what prompts may cost: as much as those that landed in the same repository, by the same runner."""
    history = {(cost.repo, cost.runner): cost for cost in landed}
    prompts = [task for task in plan.tasks if task.prompt]
    known = [(task, cost) for task in prompts if (cost := history.get((task.repo or "", _find_runner(task) or "")))]
    used = {cost: sum(other is cost for _, other in known) for _, cost in known}
    unknown = [task for task in prompts if (task.repo or "", _find_runner(task) or "") not in history]
    return {
        "tasks": len(known),
        "money": round(sum(cost.microusd / cost.tasks * count for cost, count in used.items()) / MICRO, 4),
        "tokens": round(sum(cost.tokens / cost.tasks * count for cost, count in used.items())),
        "attempts": round(sum(cost.attempts / cost.tasks * count for cost, count in used.items()), 1),
        "by_repo_and_runner": [_show_cost(cost, count) for cost, count in used.items()],
        "without_history": len(unknown),
        "attempts_allowed": sum(task.attempts for task in unknown),
    }


def _show_cost(cost: LandedCost, count: int) -> dict[str, Any]:
    return {
        "repo": cost.repo,
        "runner": cost.runner,
        "tasks": count,
        "landed": cost.tasks,
        "money": round(cost.microusd / cost.tasks / MICRO, 4),
        "tokens": round(cost.tokens / cost.tasks),
        "attempts": round(cost.attempts / cost.tasks, 1),
    }


def draw_plan(view: Mapping[str, Any]) -> list[str]:
    """Draw a plan in lines of at most 80 columns; commands are shown to the last character."""
    return [
        _escape(line) for part in (_draw_steps, _draw_clashes, _draw_commands, _draw_expected) for line in part(view)
    ]


def _draw_steps(view: Mapping[str, Any]) -> Iterator[str]:
    tasks, by = view["tasks"], f", by {view['author']}" if view["author"] else ""
    yield from _wrap(f"{view['convoy']}: {say_count(len(tasks), 'task')} in {say_count(view['steps'], 'step')}{by}", "")
    rows = [
        (task, task["task"], ", ".join(filter(None, (task["repo"], task["runner"])))) for task in tasks[:_MAX_SHOWN]
    ]
    widths = [min(_MAX_COLUMN, max(len(row[column]) for row in rows)) for column in (1, 2)]
    step = 0
    for task, name, who in rows:
        if task["step"] != step:
            step = task["step"]
            yield f"Step {step}"
        head = f"  {name:<{widths[0]}}  {who:<{widths[1]}}  "
        edge = " " * (widths[0] + widths[1] + 6)
        if len(head) > len(edge):  # longer names get a line of their own
            yield from _wrap(head.rstrip(), "  ")
            head = edge
        yield from _wrap(head + task["title"], edge)
        if task["after"]:
            yield from _wrap(f"{edge}← {', '.join(task['after'])}", f"{edge}  ")
    if len(tasks) > len(rows):
        yield f"  … and {say_count(len(tasks) - len(rows), 'more task')}"


def _draw_clashes(view: Mapping[str, Any]) -> Iterator[str]:
    if view["clashes"] is None:
        yield from ("", "Too many tasks to compare their paths.")
    elif view["clashes"]:
        yield from ("", "These may change the same files at the same time, and conflict:")
    for clash in (view["clashes"] or ())[:_MAX_SHOWN]:
        yield from _wrap(f"  {clash['repo']}, {' and '.join(clash['paths'])}: {', '.join(clash['tasks'])}", "    ")
    for repo, names in view["any_path"].items():
        if len([task for task in view["tasks"] if task["repo"] == repo]) > 1:
            yield from ("", *_wrap(f"Without `paths`, so they may change any file of {repo}: {', '.join(names)}", "  "))
    if view["untested"]:
        yield from ("", *_wrap(f"Without a verify command, so untested: {', '.join(view['untested'])}", "  "))


def _draw_commands(view: Mapping[str, Any]) -> Iterator[str]:
    if view["commands"]:
        head = f"Commands that {view['author']} wrote; read them before you run the plan:"
        yield from ("", head if view["author"] else "Commands:")
    for command in view["commands"]:
        yield from _wrap(f"  {command['part']}, {command['key']}", "    ")
        for line in map(_escape, command["text"].rstrip("\n").split("\n")):
            pieces = [line[at : at + _WIDTH - 6] for at in range(0, len(line), _WIDTH - 6)] or [""]
            yield from (f"    {'|' if number == 0 else '↳'} {piece}" for number, piece in enumerate(pieces))


def _draw_expected(view: Mapping[str, Any]) -> Iterator[str]:
    expected = view["expected"]
    if expected["tasks"]:
        whole = f"{_say_cost(expected)} in {_say_attempts(expected['attempts'])}"
        yield from ("", *_wrap(f"Expected for {say_count(expected['tasks'], 'task')}: {whole}, as before:", "  "))
    for each in expected["by_repo_and_runner"]:
        mean = f"{_say_cost(each)} and {_say_attempts(each['attempts'])} a task ({each['landed']} landed)"
        yield from _wrap(f"  {each['repo']}, {each['runner']}: {mean}", "    ")
    if expected["without_history"]:
        unknown = (
            f"{say_count(expected['without_history'], 'task')}, at most {_say_attempts(expected['attempts_allowed'])}"
        )
        yield from ("", *_wrap(f"Nothing like it has landed yet: {unknown}, cost unknown", "  "))


def _say_cost(row: Mapping[str, Any]) -> str:
    money = f"${row['money']:,.2f}, " if row["money"] else ""
    return f"{money}{row['tokens']:,} tokens"


def _say_attempts(number: float) -> str:
    """Say a mean or a sum of attempts."""
    return f"{number:,g} {'attempt' if number == 1 else 'attempts'}"


def _wrap(text: str, edge: str) -> list[str]:
    """Break a line where it is too long."""
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent=edge, drop_whitespace=True, replace_whitespace=True, break_on_hyphens=False
    ) or [""]


def _escape(text: str) -> str:
    """Write what a terminal would obey or hide as what it is."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
