"""The gate that a tree must pass, and the verdict of the runs that verified it.

A tree is verified in a reused checkout (`domain/sequences.py`, GATE). Its runs are owned by the tree and the gate, so
they are the cache of results.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.sequences import gate_sequence
from hivekeeper.domain.steps import Done, End, Facts, Failed, Start, count_rejections, decide
from hivekeeper.domain.train import Verdict

_NOT_FOUND = (126, 127)  # exit codes of a shell that could not start a command


@dataclass(frozen=True, slots=True)
class Gate:
    """The commands that a tree must pass: the repository's and a task's, after the repository's setup."""

    repo: RepoRow
    task_verify: str | None = None

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands, the repository's first."""
        return tuple(command for command in (self.repo.verify, self.task_verify) if command)

    @property
    def digest(self) -> str:
        """A hash that identifies the gate; resuming the queue changes it, which discards earlier results."""
        repo = self.repo
        said = [self.commands, repo.setup, repo.keep, repo.lock, repo.resumptions]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Found:
    """The result for a tree: `run` decided it, `failures` counts rejected runs.

    `start` is the next run to start: in checkout `slot` if a try is under way, else of a new try.
    """

    verdict: Verdict
    run: RunRow | None = None
    start: Start | None = None
    slot: int | None = None
    failures: int = 0


def judge(gate: Gate, runs: Sequence[RunRow], facts: Facts) -> Found:
    """Judge a tree by the runs that verified it."""
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
    """Whether a gate failed because its command was not found."""
    return run.ended_by == "exit" and run.exit_status in _NOT_FOUND
