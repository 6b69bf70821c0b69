"""What is to be said and decided about one entry of a merge queue: its conflict, its refusal, its commit."""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from hivekeeper.domain.rows import RepoRow, TaskRow

MAX_ROUNDS = 200
HOTFIX_PRIORITY = 10_000
REWORK_REQUEST, PRIORITY_MERGE = "REWORK_REQUEST", "PRIORITY_MERGE"
ANEW, REWORK = "anew", "rework"
MAX_OUTPUT = 4_000
MAX_SUBJECT, MAX_BODY = 120, 4_000
_LEFT = "What the worker left "  # as the hive's own commits begin
_TRAILER = re.compile(r"\s*Hive-[A-Za-z]+\s*:", re.IGNORECASE)


def choose_tier(repo: RepoRow, paths: Sequence[str], *, are_files: bool, has_resolver: bool) -> str | None:
    """Choose what settles a conflict: commands that make each file anew, the resolver, or nothing here."""
    if not are_files:
        return None
    return "regenerated" if all(find_regeneration(repo, path) for path in paths) else "ai" if has_resolver else None


def find_regeneration(repo: RepoRow, path: str) -> str | None:
    """Find the command that makes a file anew."""
    return next((command for pattern, command in repo.regenerate.items() if fnmatchcase(path, pattern)), None)


def choose_mode(task: TaskRow, earlier: Sequence[str], *, is_conflict: bool) -> str:
    """Choose how refused work is done again: anew on today's branch, or by going on from it.

    A command is simply run again. A worker that can read goes on from its work when its gate failed; after a conflict
    its work is made anew, and if that conflicts too it is asked to rebase.
    """
    if not task.command and (not is_conflict or ANEW in earlier):
        return REWORK
    return ANEW


def describe_rework(body: dict[str, Any]) -> str:
    """Say in words what a worker must know of the try before it."""
    anew = "What you made could not be used and is not here. Do the task again on today's branch."
    again = "What you made is here as you left it. It did not land: mend it, and merge the branch `origin` has first."
    parts = ["# Your last try did not land", anew if body["mode"] == ANEW else again, f"Why: {body['why']}."]
    for title, name in (("What the checks said", "output"), ("Where it conflicts", "hunks"), ("Your change", "diff")):
        if body.get(name):
            parts.append(f"## {title}\n\n```\n{body[name]}\n```")
    if body.get("reproduce"):
        parts.append(f"## To see it yourself\n\n    {body['reproduce']}")
    return "\n\n".join(parts) + "\n"


_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")  # as make looks for them
_INTERPRETER = re.compile(r"(ba|da|z)?sh|python[\d.]*|node|perl|ruby|\.|source")
# What only starts another command, or none.
_BEFORE = re.compile(r"env|exec|command|time|nice|timeout|if|then|else|while|do|!|\{|-.*|[\d.]+[smhd]?|\w+=.*")


def list_gate_files(repo: RepoRow, changed: Sequence[str], linked: Callable[[str], str | None]) -> list[str]:
    """List changed files that say what passes: those the plan names, and those its commands run.

    `linked` tells what a path of the integration branch leads to, if it is a link; None where there is no such path.
    """
    run = _list_run_files(f"{repo.verify or ''}\n{repo.setup or ''}")
    there = {path: target for path in run if (target := linked(path)) is not None}
    run = {*there, *filter(None, there.values()), *(_MAKEFILES if run.intersection(_MAKEFILES) else ())}
    return [path for path in changed if path in run or any(fnmatchcase(path, pattern) for pattern in repo.gate)]


def _list_run_files(commands: str) -> set[str]:
    """List what shell commands run: the first word of each, or what an interpreter is given."""
    run: set[str] = set()
    for command in re.split(r"[;&|()\n]+", commands):
        words = [word.strip("'\"") for word in command.split()]
        while words and _BEFORE.fullmatch(words[0]):
            words = words[1:]
        if words and words[0].rpartition("/")[2] == "make":
            run.update(_MAKEFILES)
        elif words:
            given = [word for word in words[1:] if not word.startswith("-")]
            is_interpreter = _INTERPRETER.fullmatch(words[0].rpartition("/")[2]) and given
            parts = (given[0] if is_interpreter else words[0]).split("/")
            run.add("/".join(part for part in parts if part not in ("", ".", "$PWD", "${PWD}")))
    return run


def describe_work(task: str, title: str, messages: Sequence[str]) -> tuple[str, str]:
    """Say what lands: a subject of the task's title, or else of the worker's own words, and all of these below it.

    Whoever worked may write anything, so nothing of it can be taken for a trailer of ours.
    """
    own = [_tidy(message) for message in messages if not message.startswith(_LEFT)]
    own = [message for message in own if message]
    if title or not own:
        return (f"{task}: {title[:MAX_SUBJECT]}" if title else task), "\n\n".join(own)[:MAX_BODY].rstrip()
    subject, _, rest = own[0].partition("\n")
    body = "\n\n".join(part for part in (rest.strip(), *own[1:]) if part)
    return f"{task}: {subject[:MAX_SUBJECT]}", body[:MAX_BODY].rstrip()


def _tidy(message: str) -> str:
    lines = ("".join(c for c in line if c.isprintable() or c == "\t").rstrip() for line in message.splitlines())
    return "\n".join(line for line in lines if not _TRAILER.match(line)).strip()
