"""What comes next for the entry at the head of a repository's merge queue.

One entry at a time: a candidate commit is made on the integration branch's head, laid out (`checkout`), verified
(`gate`) and landed (`land`), each a run of its own. Whatever is lost on the way, a new round begins on today's head;
only a candidate whose own gate passed lands. A tree laid out before the machine restarted is laid out again: nobody
synced it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.rows import MergeRow, RunRow
from hivekeeper.domain.states import MergeState, RunState

MAX_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Build:
    """Make a candidate on today's head."""


@dataclass(frozen=True, slots=True)
class IntendRun:
    """The next run of this round."""

    kind: str


@dataclass(frozen=True, slots=True)
class Land:
    """The gate passed: move the branch."""

    at: str


@dataclass(frozen=True, slots=True)
class LookAtBranch:
    """The landing's run is over: see whether the branch moved."""

    at: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """The round came to nothing, through nobody's fault."""

    why: str


@dataclass(frozen=True, slots=True)
class Reject:
    """The change does not land."""

    why: str
    at: str
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A run is under way."""


MergeStep = Build | IntendRun | Land | LookAtBranch | Requeue | Reject | Wait


def run_kind(kind: str, entry: MergeRow) -> str:
    """Name a kind of run in this round."""
    return f"{kind}-{entry.round}"


def decide_merge(entry: MergeRow, runs: Sequence[RunRow], *, has_gate: bool, boot_id: str) -> MergeStep:
    """Decide the next step in this boot; `runs` are all runs of the entry's attempt."""
    of_round = {run.kind: run for run in runs if run.id.endswith(f"-{entry.round}")}
    match entry.state:
        case MergeState.QUEUED if entry.round >= MAX_ROUNDS:
            return Reject(f"it has not landed in {entry.round} tries: {entry.reason}", entry.queued_at)
        case MergeState.QUEUED:
            return Build()
        case MergeState.VERIFYING if not has_gate:
            return Land(entry.queued_at)
        case MergeState.VERIFYING:
            return _verify(entry, of_round, boot_id)
        case MergeState.LANDING:
            land = of_round.get("land")
            if land is None:
                return IntendRun("land")
            return Wait() if land.is_open else _judge_landing(land)
        case MergeState.LANDED | MergeState.REJECTED | MergeState.WITHDRAWN:
            return Wait()
        case _:
            assert_never(entry.state)


def _judge_landing(land: RunRow) -> MergeStep:
    """Believe a landing that ended well: only then is the branch safe on disk. A new round finds what moved already."""
    if land.succeeded:
        return LookAtBranch(land.ended_at or land.intended_at)
    return Requeue(f"its landing came to nothing: {describe_ending(land)}")


def _verify(entry: MergeRow, runs: dict[str, RunRow], boot_id: str) -> MergeStep:
    for kind in ("checkout", "gate"):
        run = runs.get(kind)
        if run is None:
            laid_out = runs.get("checkout")
            if laid_out is not None and laid_out.boot_id != boot_id:
                return Requeue("the machine restarted after its tree was laid out")
            return IntendRun(kind)
        if run.is_open:
            return Wait()
        if run.succeeded:
            continue
        ended_at = run.ended_at or run.intended_at
        if run.state is RunState.EXITED and kind == "gate":
            return Reject(f"its gate did not pass: {describe_ending(run)}", ended_at, run.id)
        if entry.round >= MAX_ROUNDS:
            return Reject(f"it could not be verified in {entry.round} tries: {describe_ending(run)}", ended_at, run.id)
        return Requeue(f"its {kind} came to nothing: {describe_ending(run)}")
    return Land(runs["gate"].ended_at or runs["gate"].intended_at)
