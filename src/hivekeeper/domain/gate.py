"""What the runs that verify a tree add up to, and which comes next.

A tree is verified in a check-out that is used again and again, by a few runs in a row: `checkout` lays exactly that
tree out, `setup` makes it ready, `stash` keeps what setup made for others, `gate` runs the commands. Runs are named by
the tree and the gate, so whoever asks for the same again finds what was found before. One try is all of them, in one
check-out, in one boot; a try that came to nothing is no verdict.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hivekeeper.domain.attempt import MAX_INFRASTRUCTURE_TRIES
from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.states import RunState
from hivekeeper.domain.train import Verdict

_NOT_FOUND = (126, 127)  # how a shell says that it could not start a command


@dataclass(frozen=True, slots=True)
class Gate:
    """What a tree must pass: the repository's commands and a task's, after the repository's setup."""

    repo: RepoRow
    task_verify: str | None = None

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands, the repository's first."""
        return tuple(command for command in (self.repo.verify, self.task_verify) if command)

    @property
    def digest(self) -> str:
        """Tell one gate from another; after a person had the queue go on, what was verified before is no more."""
        repo = self.repo
        said = [self.commands, repo.setup, repo.keep, repo.lock, repo.resumptions]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of run it takes, in their order."""
        setup = ("setup",) if self.repo.setup else ()
        stash = ("stash",) if self.repo.setup and self.repo.keep else ()
        return ("checkout", *setup, *stash, "gate")


@dataclass(frozen=True, slots=True)
class Try:
    """One try at a tree: its number, its check-out, its runs."""

    number: int
    slot: int
    runs: tuple[RunRow, ...]

    @property
    def last(self) -> RunRow:
        """Its latest run."""
        return self.runs[-1]


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a tree: `run` tells it, `under_way` is the try that goes on, `failures` counts the failed."""

    verdict: Verdict
    run: RunRow | None = None
    under_way: Try | None = None
    tries: int = 0
    failures: int = 0


def list_tries(runs: Sequence[RunRow]) -> list[Try]:
    """Sort runs into tries; an id ends in `.NUMBER.SLOT.KIND`."""
    tries: dict[tuple[int, int], list[RunRow]] = {}
    for run in runs:
        number, slot = run.id.rsplit(".", 3)[1:3]
        tries.setdefault((int(number), int(slot)), []).append(run)
    return [Try(number, slot, tuple(of_try)) for (number, slot), of_try in sorted(tries.items())]


def judge(runs: Sequence[RunRow], kinds: Sequence[str], *, boot_id: str, without: str | None = None) -> Found:
    """Tell what is known of a tree, in this boot; `without` is a failure that was counted already."""
    tries, broken = list_tries(runs), 0
    failures = sum(_has_failed(each.last) for each in tries)
    found = Found(Verdict.UNTRIED, tries=len(tries), failures=failures)
    for each in tries:
        last = each.last
        # One that was given up between two runs is not taken up again once another has begun.
        is_between = each is tries[-1] and last.succeeded and last.kind != kinds[-1] and last.boot_id == boot_id
        if last.is_open or is_between:
            # One that was told to end gives its check-out back, and is no verdict.
            if last.kill_requested_at is None:
                return replace(found, verdict=Verdict.RUNNING, under_way=each)
        elif last.kind == "gate" and last.succeeded and last.kill_requested_at is None:
            return replace(found, verdict=Verdict.PASSED, run=last)
        elif _has_failed(last):
            if last.id != without:
                found = replace(found, verdict=Verdict.FAILED, run=last)
        elif last.kill_requested_at is None and not last.succeeded:
            broken += 1
            if broken >= MAX_INFRASTRUCTURE_TRIES and found.verdict is Verdict.UNTRIED:
                found = replace(found, verdict=Verdict.BROKEN, run=last)
    return found


def _has_failed(run: RunRow) -> bool:
    """Tell whether a command of the person's has said no: by its exit code, or by a limit that it ran into."""
    ended = run.state is RunState.EXITED and run.kill_requested_at is None and run.kind in ("setup", "gate")
    return ended and not run.succeeded and run.ended_by not in ("killed", "could-not-start")


def could_not_run(run: RunRow) -> bool:
    """Tell whether a gate failed because there was no such command."""
    return run.ended_by == "exit" and run.exit_status in _NOT_FOUND


def next_kind(under_way: Try, kinds: Sequence[str]) -> str | None:
    """Tell which run of a try comes next; None while one is at work."""
    return None if under_way.last.is_open else kinds[kinds.index(under_way.last.kind) + 1]
