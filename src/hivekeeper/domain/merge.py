"""What comes next for one entry of a merge queue: its landing, and the settling of its conflict by a run.

A landing is one run (`land-N`), believed when the branch holds the candidate. A conflict that no rule settles goes to a
run, in the sandbox: `conflict-N` lays the tree with its markers out, `resolve-N` is a command that makes the files
anew or the resolver, `settle-N` keeps what became of them. What that came to is checked like anybody's work.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import Any

from hivekeeper.domain.attempt import MAX_INFRASTRUCTURE_TRIES, describe_ending
from hivekeeper.domain.report import LIMITED
from hivekeeper.domain.rows import MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.states import RunState

MAX_ROUNDS = 200
HOTFIX_PRIORITY = 10_000
REWORK_REQUEST, PRIORITY_MERGE = "REWORK_REQUEST", "PRIORITY_MERGE"
ANEW, REWORK = "anew", "rework"
LONGEST_OUTPUT = 4_000
LONGEST_SUBJECT, LONGEST_BODY = 120, 4_000
_LEFT = "What the worker left "  # as the hive's own commits begin
_TRAILER = re.compile(r"\s*Hive-[A-Za-z]+\s*:", re.IGNORECASE)
SETTLING = ("conflict", "resolve", "settle")


@dataclass(frozen=True, slots=True)
class IntendRun:
    """The next run, by kind and number."""

    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class LookAtBranch:
    """The landing's run is over: see whether the branch moved."""

    at: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """The round came to nothing, through nobody's fault."""

    why: str


@dataclass(frozen=True, slots=True)
class LookAtSettled:
    """A run has settled the conflict, or says so: look at what it made."""

    number: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing settles the conflict here: the work is to be done anew."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A run is under way."""


LandingStep = IntendRun | LookAtBranch | Requeue | Wait
SettlingStep = IntendRun | LookAtSettled | GiveUp | Wait


def decide_landing(entry: MergeRow, runs: Sequence[RunRow]) -> LandingStep:
    """Decide what follows for an entry that is to land; `runs` are all of its attempt."""
    land = next((run for run in runs if run.kind == "land" and run.id.endswith(f".land-{entry.round}")), None)
    if land is None:
        return IntendRun("land", entry.round)
    if land.is_open:
        return Wait()
    if land.succeeded:  # only then is the branch safe on disk; a new round finds what moved already
        return LookAtBranch(land.ended_at or land.intended_at)
    return Requeue(f"its landing came to nothing: {describe_ending(land)}")


def choose_settling(repo: RepoRow, paths: Sequence[str], *, are_files: bool, has_resolver: bool) -> str | None:
    """Choose what settles a conflict: commands that make each file anew, the resolver, or nothing here."""
    if not are_files:
        return None
    return "regenerated" if all(find_regeneration(repo, path) for path in paths) else "ai" if has_resolver else None


def find_regeneration(repo: RepoRow, path: str) -> str | None:
    """Find the command that makes a file anew."""
    return next((command for pattern, command in repo.regenerate.items() if fnmatchcase(path, pattern)), None)


def decide_settling(
    runs: Sequence[RunRow], *, most: int, spent: int, boot_id: str, unfit: str = "", is_held: bool = False
) -> SettlingStep:
    """Decide what follows for an entry with a conflict of its own: at most so many times a run tries to settle it.

    `spent` is the number of the last one whose result was used, and which conflicts with what has landed since.
    `unfit` is what is wrong with the answer of whoever has just tried; while the resolver `is_held` up, nobody tries.
    """
    ours = [run for run in runs if run.kind in SETTLING]
    if not ours:
        return IntendRun("conflict", 1) if most else GiveUp("")
    last = ours[-1]
    number = int(last.id.rpartition("-")[2])
    if last.is_open or last.is_unread:
        return Wait()
    if last.outcome in LIMITED and most:
        return Wait() if is_held else IntendRun("conflict", number + 1)  # a limit uses up no try
    if last.kind == "settle" and last.succeeded and number > spent:
        return LookAtSettled(number)
    is_whole = last.boot_id == boot_id  # nothing in that directory is synced
    if last.ended_well and not unfit and last.kind != "settle" and is_whole:
        return IntendRun(SETTLING[SETTLING.index(last.kind) + 1], number)
    ends = [_tell_end(each, next_boot or boot_id) for each, next_boot in _list_rounds(ours)]
    tried, broken = ends.count(_End.TRIED), ends.count(_End.BROKEN)
    if tried < most and broken < MAX_INFRASTRUCTURE_TRIES:
        return IntendRun("conflict", number + 1)
    return GiveUp(unfit or ("" if last.succeeded else f"nobody could settle it: {describe_ending(last)}"))


class _End(Enum):
    """What a round of settling a conflict came to; only one in which somebody tried counts as a try."""

    TRIED = auto()
    LIMITED = auto()
    BROKEN = auto()


def _list_rounds(ours: Sequence[RunRow]) -> list[tuple[list[RunRow], str | None]]:
    """List the runs of each round, and the boot in which the next one began."""
    rounds: dict[str, list[RunRow]] = {}
    for run in ours:
        rounds.setdefault(run.id.rpartition("-")[2], []).append(run)
    found = list(rounds.values())
    return [(each, later[0].boot_id if later else None) for each, later in zip_longest(found, found[1:])]


def _tell_end(runs: Sequence[RunRow], next_boot: str) -> _End:
    last = runs[-1]
    if last.outcome in LIMITED:
        return _End.LIMITED
    if last.kind == "settle":
        return _End.TRIED if last.succeeded else _End.BROKEN
    is_answer = last.state is RunState.EXITED and last.ended_by not in ("killed", "could-not-start")
    # What ended well before a reboot is not believed; in the same boot its answer did not fit.
    is_spoilt = last.ended_well and last.boot_id != next_boot
    return _End.TRIED if last.kind == "resolve" and is_answer and not is_spoilt else _End.BROKEN


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
        return (f"{task}: {title[:LONGEST_SUBJECT]}" if title else task), "\n\n".join(own)[:LONGEST_BODY].rstrip()
    subject, _, rest = own[0].partition("\n")
    body = "\n\n".join(part for part in (rest.strip(), *own[1:]) if part)
    return f"{task}: {subject[:LONGEST_SUBJECT]}", body[:LONGEST_BODY].rstrip()


def _tidy(message: str) -> str:
    lines = ("".join(c for c in line if c.isprintable() or c == "\t").rstrip() for line in message.splitlines())
    return "\n".join(line for line in lines if not _TRAILER.match(line)).strip()
