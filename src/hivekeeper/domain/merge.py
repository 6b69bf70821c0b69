"""Decisions and texts about one entry of a merge queue: its conflict, its rejection, its commit message."""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from hivekeeper.domain.rows import RepoRow, TaskRow
from hivekeeper.domain.shell import find_script, get_name, skip_prefixes

MAX_ROUNDS = 200
HOTFIX_PRIORITY = 10_000
REDO, REWORK = "anew", "rework"
MAX_OUTPUT = 4_000
MAX_SUBJECT, MAX_BODY = 120, 4_000
_LEFT = "What the worker left "  # as the hive's own commits begin
_TRAILER = re.compile(r"\s*Hive-[A-Za-z]+\s*:", re.IGNORECASE)


def choose_tier(repo: RepoRow, paths: Sequence[str], *, are_files: bool, has_resolver: bool) -> str | None:
    """Choose the tier that resolves a conflict: commands that regenerate each file, the resolver, or None."""
    if not are_files:
        return None
    return "regenerated" if all(find_regeneration(repo, path) for path in paths) else "ai" if has_resolver else None


def find_regeneration(repo: RepoRow, path: str) -> str | None:
    """Find the command that regenerates a file."""
    return next((command for pattern, command in repo.regenerate.items() if fnmatchcase(path, pattern)), None)


def choose_mode(task: TaskRow, earlier: Sequence[str], *, is_conflict: bool) -> str:
    """Choose what happens to rejected work: the task is redone on today's branch, or the work is continued.

    A command is run again. A prompt's next worker continues the work after a failed gate; after a conflict the task is
    redone, and if that conflicts too, the next worker is asked to rebase.
    """
    if not task.command and (not is_conflict or REDO in earlier):
        return REWORK
    return REDO


def describe_rework(body: dict[str, Any]) -> str:
    """Write the retry instructions for the next worker."""
    redo = "Your previous work is not here. Start over on the current branch."
    rework = "Your previous work is in this directory. Merge `origin`'s branch first, then fix the problem below."
    parts = ["# Your last try did not land", redo if body["mode"] == REDO else rework, f"Why: {body['why']}."]
    for title, name in (("Output of the checks", "output"), ("Conflicting hunks", "hunks"), ("Your change", "diff")):
        if body.get(name):
            parts.append(f"## {title}\n\n```\n{body[name]}\n```")
    if body.get("reproduce"):
        parts.append(f"## To reproduce it\n\n    {body['reproduce']}")
    return "\n\n".join(parts) + "\n"


_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")  # in the order that make tries them


def list_gate_files(repo: RepoRow, changed: Sequence[str], linked: Callable[[str], str | None]) -> list[str]:
    """List changed files that decide what passes: those the plan names, and those that its commands run.

    `linked` returns the target of a link on the integration branch, "" for a file and None for a missing path.
    """
    run = _list_run_files(f"{repo.verify or ''}\n{repo.setup or ''}")
    there = {path: target for path in run if (target := linked(path)) is not None}
    run = {*there, *filter(None, there.values()), *(_MAKEFILES if run.intersection(_MAKEFILES) else ())}
    return [path for path in changed if path in run or any(fnmatchcase(path, pattern) for pattern in repo.gate)]


def _list_run_files(commands: str) -> set[str]:
    """List the files that shell commands run: the first word of each, or an interpreter's script."""
    run: set[str] = set()
    for command in re.split(r"[;&|()\n]+", commands):
        words = skip_prefixes([word.strip("'\"") for word in command.split()])
        if words and get_name(words[0]) == "make":
            run.update(_MAKEFILES)
        elif words:
            parts = (find_script(words) or words[0]).split("/")
            run.add("/".join(part for part in parts if part not in ("", ".", "$PWD", "${PWD}")))
    return run


def describe_work(task: str, title: str, messages: Sequence[str]) -> tuple[str, str]:
    """Return subject and body of the commit that lands: the task's title, or else the worker's first message.

    Lines of a worker that look like one of our trailers are removed.
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
