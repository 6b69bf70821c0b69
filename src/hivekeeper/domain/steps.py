"""Which run comes next where several follow one another: one decision for every sequence of the hive.

A sequence is a declared list of steps (`domain/sequences.py`). Its position is never stored: it follows from the runs
of its owner, so a crash between two runs loses nothing. A *try* is one pass from the first step; a step that leaves
unsynced files behind, or that has to find them, begins a new one.

1. A run that ended well is followed by the next step; after the last one the sequence is done.
2. What a step has to say about an ending (`again`) is repeated, up to its limit; an ending it says nothing about
   decides the sequence, unless the step `goes_on` whatever became of it.
3. What ended well before the machine restarted is STALE where its files were not synced.
4. A usage limit, or a run that was told to stop, counts for nothing.
5. A guarded step starts only if it is admitted (`domain/admission.py`).
"""

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from types import MappingProxyType

from hivekeeper.domain.admission import Go, Held
from hivekeeper.domain.report import LIMITED
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.states import RunState
from hivekeeper.domain.waits import back_off_s

# Of a command that died of these a shell, and the sandbox, say 128 and the number. Others are left out because programs
# end like that by themselves: git with 129, and 141 for what stopped reading from a pipe.
_FATAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL,
          signal.SIGSEGV, signal.SIGTERM)  # fmt: skip


class End(StrEnum):
    """How a run ended, as its sequence sees it."""

    WELL = "WELL"
    REFUSED = "REFUSED"  # its command said no, or its owner did after a look at the result
    BROKEN = "BROKEN"  # it gave no answer
    LOST = "LOST"  # nobody knows: it was killed from outside
    STALE = "STALE"  # it ended well, and what it made is gone
    LIMITED = "LIMITED"  # a usage limit
    STOPPED = "STOPPED"  # it was told to stop


@dataclass(frozen=True, slots=True)
class Retry:
    """Start at most `most` runs in all (None: any number), waiting longer each time, up to `longest_s`."""

    most: int | None = 3
    first_s: float = 0.0
    longest_s: float = 0.0

    def wait_s(self, failures: int, run: RunRow) -> float:
        """Tell how long to wait after so many failures, the last of which was a run's."""
        return back_off_s(failures, first_s=self.first_s, longest_s=self.longest_s, seed=run.id)


FREE = Retry(None)
THRICE: Mapping[End, Retry] = MappingProxyType(dict.fromkeys((End.BROKEN, End.LOST, End.STALE), Retry()))


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a sequence.

    `answers` are exit codes that are an answer and no trouble of ours; None: every exit code and limit is one.
    `fleeting` steps leave unsynced files. `from_start` begins a new try to repeat it. `keeps` still runs for an owner
    that was cancelled.
    """

    kind: str
    again: Mapping[End, Retry] = field(default_factory=lambda: THRICE)
    answers: frozenset[int] | None = frozenset()
    fleeting: bool = False
    from_start: bool = False
    goes_on: bool = False
    keeps: bool = False
    guarded: bool = False


_GO = Go()


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known beside the runs.

    `refused` are runs that ended well and whose result was looked at and refused, `gone` those whose files are not
    there any more, `excused` refusals that were counted elsewhere. `repeats` tells that the last run, which decides
    the sequence, is followed by another of its kind all the same: a further session.
    """

    boot_id: str
    admission: Go | Held = _GO
    is_cancelling: bool = False
    repeats: bool = False
    refused: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    excused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Start:
    """Start a run: the `number`th of its kind, in a try."""

    kind: str
    number: int = 1
    try_number: int = 1


@dataclass(frozen=True, slots=True)
class Wait:
    """A run is under way, or something has to happen first."""


@dataclass(frozen=True, slots=True)
class Later:
    """Start again when this long has passed since `run` ended."""

    start: Start
    run: RunRow
    wait_s: float
    failures: int


@dataclass(frozen=True, slots=True)
class Park:
    """Nothing can start now."""

    held: Held


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop these runs: their owner was cancelled."""

    runs: tuple[RunRow, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The last step is over."""

    run: RunRow


@dataclass(frozen=True, slots=True)
class Failed:
    """A run decided the sequence."""

    run: RunRow
    end: End


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Nothing of a cancelled owner runs any more, and what it made is kept."""


Action = Start | Wait | Later | Park | Stop | Done | Failed | Cancelled


@dataclass(frozen=True, slots=True)
class StepSequence:
    """Steps in a row; `parks` gives its worker free while a guarded step is not admitted."""

    steps: tuple[Step, ...]
    parks: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its runs, in order."""
        return tuple(step.kind for step in self.steps)

    def without(self, kinds: Iterable[str]) -> "StepSequence":
        """Leave steps out that an owner does not need."""
        left_out = set(kinds)
        return StepSequence(tuple(step for step in self.steps if step.kind not in left_out), self.parks)


def classify(step: Step, run: RunRow, facts: Facts) -> End:
    """Tell how an ended run ended."""
    if run.id in facts.refused:
        return End.REFUSED
    if run.outcome in LIMITED:
        return End.LIMITED
    if run.kill_requested_at is not None and not step.goes_on:
        return End.STOPPED
    if run.state is RunState.LOST:
        return End.LOST
    if run.ended_well:
        is_stale = run.id in facts.gone or (step.fleeting and run.boot_id != facts.boot_id)
        return End.STALE if is_stale else End.WELL
    if step.answers is None or (run.ended_by == "exit" and run.exit_status in step.answers):
        return End.BROKEN if run.ended_by in ("killed", "could-not-start") else End.REFUSED
    return End.BROKEN if find_signal(run) is None else End.LOST


def decide(sequence: StepSequence, runs: Sequence[RunRow], facts: Facts) -> Action:
    """Decide what comes next; `runs` are the owner's in the order they were intended, those of other kinds too."""
    ours = [run for run in runs if run.kind in sequence.kinds]
    action = _decide(sequence, ours, facts)
    if not facts.is_cancelling:
        return action
    kept = {step.kind for step in sequence.steps if step.keeps}
    to_stop = tuple(r for r in runs if r.is_open and r.kind not in kept and r.kill_requested_at is None)
    match action:
        case _ if to_stop:
            return Stop(to_stop)
        case Start(kind) if kind in kept:
            return action
        case Wait() if ours and ours[-1].is_open:
            return action
        case _:
            return Cancelled()


@dataclass(frozen=True, slots=True)
class _History:
    """An owner's runs, all over, and how each ended."""

    sequence: StepSequence
    runs: Sequence[RunRow]
    ends: Mapping[str, End]
    facts: Facts

    def get_step(self, run: RunRow) -> Step:
        return next(step for step in self.sequence.steps if step.kind == run.kind)

    def is_last_step(self, run: RunRow) -> bool:
        return run.kind == self.sequence.steps[-1].kind

    def start(self, step: Step, try_number: int) -> Start | Wait | Park:
        if step.guarded and isinstance(self.facts.admission, Held):
            return Park(self.facts.admission) if self.sequence.parks else Wait()
        return Start(step.kind, sum(run.kind == step.kind for run in self.runs) + 1, try_number)

    def go_on(self, run: RunRow) -> Start | Wait | Park | Done:
        """Take the step that follows in the same try."""
        steps = self.sequence.steps
        following = steps[steps.index(self.get_step(run)) + 1 :]
        return self.start(following[0], run.try_number) if following else Done(run)

    def find_verdict(self) -> Done | Failed | None:
        """Find a try that decides all of them: one that went well, or else the last that was refused for good."""
        refused = None
        for run in {run.try_number: run for run in self.runs}.values():
            step, end = self.get_step(run), self.ends[run.id]
            if end is End.WELL and self.is_last_step(run):
                return Done(run)
            if end is End.REFUSED and end not in step.again and not step.goes_on and run.id not in self.facts.excused:
                refused = run
        return Failed(refused, End.REFUSED) if refused else None

    def find_repeated(self, run: RunRow) -> Step:
        """Find the step that a repetition starts with: what a fleeting one needs is gone after a restart."""
        step = self.get_step(run)
        is_spoilt = self.ends[run.id] is End.STALE or (step.fleeting and run.boot_id != self.facts.boot_id)
        return self.sequence.steps[0] if step.from_start or is_spoilt else step

    def find_retry(self, run: RunRow) -> Retry | None:
        step, end = self.get_step(run), self.ends[run.id]
        return FREE if end in (End.STOPPED, End.LIMITED) and not step.goes_on else step.again.get(end)

    def repeat(self, run: RunRow, retry: Retry) -> Action | None:
        """Repeat a step, or begin anew; None where that was done as often as it may be."""
        again = self.find_repeated(run)
        # What was followed by the next step of its try had ended well.
        ended = [one for one, next_ in zip_longest(self.runs, self.runs[1:]) if not _is_passed(one, next_)]
        failures = sum(self.find_retry(one) == retry and self.find_repeated(one) is again for one in ended)
        if retry.most is not None and failures >= retry.most:
            return None
        is_new_try = again is self.sequence.steps[0]
        begun = self.start(again, run.try_number + is_new_try)
        wait_s = retry.wait_s(failures, run)
        return Later(begun, run, wait_s, failures) if wait_s and isinstance(begun, Start) else begun


def _decide(sequence: StepSequence, ours: Sequence[RunRow], facts: Facts) -> Action:
    if any(run.is_open or run.is_unread for run in ours):
        return Wait()
    steps = {step.kind: step for step in sequence.steps}
    ends = {run.id: classify(steps[run.kind], run, facts) for run in ours}
    history = _History(sequence, ours, ends, facts)
    if not ours:
        return history.start(sequence.steps[0], 1)
    last = ours[-1]
    step, end = steps[last.kind], ends[last.id]
    if end is End.WELL and not history.is_last_step(last) and not facts.repeats:
        return history.go_on(last)
    if (verdict := history.find_verdict()) is not None:
        return verdict
    if facts.repeats:
        return history.start(step, last.try_number)
    if last.id in facts.excused:
        return history.start(sequence.steps[0], last.try_number + 1)
    retry = history.find_retry(last)
    if retry is not None and (repeated := history.repeat(last, retry)) is not None:
        return repeated
    return history.go_on(last) if step.goes_on else Failed(last, end)


def _is_passed(run: RunRow, following: RunRow | None) -> bool:
    return following is not None and following.try_number == run.try_number and following.kind != run.kind


def count_refusals(sequence: StepSequence, runs: Sequence[RunRow], facts: Facts) -> int:
    """Count the runs that were refused, the excused ones too."""
    steps = {step.kind: step for step in sequence.steps}
    ended = (run for run in runs if run.kind in steps and not run.is_open)
    return sum(classify(steps[run.kind], run, facts) is End.REFUSED for run in ended)


def find_signal(run: RunRow) -> int | None:
    """Find the signal that a command died of."""
    status = run.exit_status or 0
    return -status if status < 0 else status - 128 if status - 128 in _FATAL else None
