"""What a tree must pass, and what the runs that verify it say of it.

A tree is verified in a check-out that is used again and again (`domain/sequences.py`, GATE). Its runs belong to the
tree and the gate, so whoever asks for the same again finds what was found before.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.sequences import gate_sequence
from hivekeeper.domain.steps import Done, End, Facts, Failed, Start, count_rejections, decide
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


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a tree: `run` tells it, `failures` counts the failed.

    `start` is the next run, in the check-out `slot` of a try that is under way, or of a new try.
    """

    verdict: Verdict
    run: RunRow | None = None
    start: Start | None = None
    slot: int | None = None
    failures: int = 0


def judge(gate: Gate, runs: Sequence[RunRow], facts: Facts) -> Found:
    """Tell what is known of a tree."""
    sequence = gate_sequence(gate.repo)
    failures = count_rejections(sequence, runs, facts)
    match decide(sequence, runs, facts):
        case Start(kind) as start if kind == sequence.kinds[0]:
            return Found(Verdict.UNTRIED, start=start, failures=failures)
        case Start() as start:
            return Found(Verdict.RUNNING, start=start, slot=runs[-1].slot, failures=failures)
        case Done(run):
            return Found(Verdict.PASSED, run, failures=failures)
        case Failed(run, end):
            verdict = Verdict.FAILED if end is End.REJECTED else Verdict.BROKEN
            return Found(verdict, run, failures=failures)
        case _:
            return Found(Verdict.RUNNING, slot=runs[-1].slot, failures=failures)


def could_not_run(run: RunRow) -> bool:
    """Tell whether a gate failed because there was no such command."""
    return run.ended_by == "exit" and run.exit_status in _NOT_FOUND
