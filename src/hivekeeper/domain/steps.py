"""Decides which run of a sequence comes next. Every sequence of the hive uses this decision.

A sequence is a declared list of steps (`domain/sequences.py`). Its position is never stored: it is derived from the
runs of its owner, so a crash between two runs loses nothing. A *try* is one pass from the first step. A step that
writes or needs unsynced files is retried in a new try.

1. After a successful run comes the next step; after the last one the sequence is done.
2. An end that the step lists in `retries` is retried up to its limit. Any other end decides the sequence, unless the
   step `continues_on_error`.
3. A run that succeeded before the machine restarted is STALE if its files were not synced.
4. A usage limit and a requested stop do not count as failures.
5. A step that `needs_admission` starts only when no hold is in its way (`domain/admission.py`).
"""

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from types import MappingProxyType

from hivekeeper.domain.admission import Admitted, Held
from hivekeeper.domain.report import LIMITED
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.states import RunState
from hivekeeper.domain.waits import back_off_s

# A shell, and the sandbox, report a command killed by one of these as 128 plus its number. Other signals are left out
# because programs exit with such codes themselves: git with 129, and 141 after a broken pipe.
_FATAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL,
          signal.SIGSEGV, signal.SIGTERM)  # fmt: skip


class End(StrEnum):
    """How a run ended, as its sequence sees it."""

    SUCCEEDED = "SUCCEEDED"
    REJECTED = "REJECTED"  # a verdict: the command said no, or its result was rejected
    ERROR = "ERROR"  # no verdict
    LOST = "LOST"  # unknown: it was killed from outside
    STALE = "STALE"  # it succeeded, and its files are gone
    LIMITED = "LIMITED"  # a usage limit
    STOPPED = "STOPPED"  # a stop was requested


@dataclass(frozen=True, slots=True)
class Retry:
    """Start at most `max_runs` runs in all (None: any number), with exponential backoff up to `max_wait_s`.

    The first `immediate` retries do not wait.
    """

    max_runs: int | None = 3
    first_wait_s: float = 0.0
    max_wait_s: float = 0.0
    immediate: int = 0

    def wait_s(self, failures: int, run: RunRow) -> float:
        """Return the wait after this many failures, the last of which was `run`."""
        counted = failures - self.immediate
        if counted <= 0:
            return 0.0
        return back_off_s(counted, first_wait_s=self.first_wait_s, max_wait_s=self.max_wait_s, seed=run.id)


UNLIMITED = Retry(None)
DEFAULT_RETRIES: Mapping[End, Retry] = MappingProxyType(dict.fromkeys((End.ERROR, End.LOST, End.STALE), Retry()))


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a sequence.

    `verdict_codes` are the exit codes that are a verdict, not an error; None: all of them, and exceeded limits too.
    `ephemeral` steps leave unsynced files. A step that `restarts` is retried from the first step, in a new try.
    """

    kind: str
    retries: Mapping[End, Retry] = field(default_factory=lambda: DEFAULT_RETRIES)
    verdict_codes: frozenset[int] | None = frozenset()
    ephemeral: bool = False
    restarts: bool = False
    continues_on_error: bool = False
    runs_when_cancelled: bool = False
    needs_admission: bool = False


_GO = Admitted()


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known besides the runs.

    `rejected` are successful runs whose result was rejected, `gone` those whose files are missing, and `excused`
    rejections that were counted elsewhere. `repeats_last_step`: the last run is followed by another of its kind (the
    next session), whatever it decided.
    """

    boot_id: str
    admission: Admitted | Held = _GO
    is_cancelling: bool = False
    repeats_last_step: bool = False
    rejected: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    excused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Start:
    """Start a run, the `number`th of its kind."""

    kind: str
    number: int = 1
    try_number: int = 1


@dataclass(frozen=True, slots=True)
class Wait:
    """A run is open or unread, or a hold is in the way."""


@dataclass(frozen=True, slots=True)
class Later:
    """Start when this long has passed since `run` ended."""

    start: Start
    run: RunRow
    wait_s: float


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
    """The last step has ended."""

    run: RunRow


@dataclass(frozen=True, slots=True)
class Failed:
    """A run decided the sequence."""

    run: RunRow
    end: End


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The owner was cancelled; nothing of it runs any more, and its work is saved."""


Action = Start | Wait | Later | Park | Stop | Done | Failed | Cancelled


@dataclass(frozen=True, slots=True)
class StepSequence:
    """Steps in order; a sequence that `parks` frees its worker while a step waits for admission."""

    steps: tuple[Step, ...]
    parks: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its runs, in order."""
        return tuple(step.kind for step in self.steps)

    def without(self, kinds: Iterable[str]) -> "StepSequence":
        """Leave out steps that an owner does not need."""
        left_out = set(kinds)
        return StepSequence(tuple(step for step in self.steps if step.kind not in left_out), self.parks)


def classify(step: Step, run: RunRow, facts: Facts) -> End:
    """Classify the end of a run."""
    if run.id in facts.rejected:
        return End.REJECTED
    if run.outcome in LIMITED:
        return End.LIMITED
    if run.kill_requested_at is not None and step.retries:
        return End.STOPPED
    if run.state is RunState.LOST:
        return End.LOST
    if run.ended_well:
        is_stale = run.id in facts.gone or (step.ephemeral and run.boot_id != facts.boot_id)
        return End.STALE if is_stale else End.SUCCEEDED
    if step.verdict_codes is None or (run.ended_by == "exit" and run.exit_status in step.verdict_codes):
        return End.ERROR if run.ended_by in ("killed", "could-not-start") else End.REJECTED
    return End.LOST if run.ended_by == "exit" and find_signal(run) is not None else End.ERROR


def decide(sequence: StepSequence, runs: Sequence[RunRow], facts: Facts) -> Action:
    """Decide what comes next; `runs` are all of the owner's, of other kinds too, in the order of their intents."""
    ours = [run for run in runs if run.kind in sequence.kinds]
    action = _decide(sequence, ours, facts)
    if not facts.is_cancelling:
        return action
    allowed = {step.kind for step in sequence.steps if step.runs_when_cancelled}
    to_stop = tuple(r for r in runs if r.is_open and r.kind not in allowed and r.kill_requested_at is None)
    match action:
        case _ if to_stop:
            return Stop(to_stop)
        case Start(kind) if kind in allowed:
            return action
        case Wait() if any(run.is_open or run.is_unread for run in ours):
            return action
        case _:
            return Cancelled()


@dataclass(frozen=True, slots=True)
class _History:
    """An owner's ended runs, and how each ended."""

    sequence: StepSequence
    runs: Sequence[RunRow]
    ends: Mapping[str, End]
    facts: Facts

    def get_step(self, run: RunRow) -> Step:
        return next(step for step in self.sequence.steps if step.kind == run.kind)

    def is_last_step(self, run: RunRow) -> bool:
        return run.kind == self.sequence.steps[-1].kind

    def start(self, step: Step, try_number: int) -> Start | Wait | Park:
        if step.needs_admission and isinstance(self.facts.admission, Held):
            return Park(self.facts.admission) if self.sequence.parks else Wait()
        return Start(step.kind, sum(run.kind == step.kind for run in self.runs) + 1, try_number)

    def start_following(self, run: RunRow) -> Start | Wait | Park | Done:
        """Start the next step of the same try."""
        steps = self.sequence.steps
        following = steps[steps.index(self.get_step(run)) + 1 :]
        return self.start(following[0], run.try_number) if following else Done(run)

    def find_verdict(self) -> Done | Failed | None:
        """Find the try that decides: one that succeeded, or else the last one with a final rejection."""
        rejected = None
        for run in {run.try_number: run for run in self.runs}.values():
            step, end = self.get_step(run), self.ends[run.id]
            if end is End.SUCCEEDED and self.is_last_step(run):
                return Done(run)
            is_final = end not in step.retries and not step.continues_on_error
            if end is End.REJECTED and is_final and run.id not in self.facts.excused:
                rejected = run
        return Failed(rejected, End.REJECTED) if rejected else None

    def find_retried_step(self, run: RunRow) -> Step:
        """Find the step that a retry starts with: after a restart, the files that an ephemeral step needs are gone."""
        step = self.get_step(run)
        is_stale = self.ends[run.id] is End.STALE or (step.ephemeral and run.boot_id != self.facts.boot_id)
        return self.sequence.steps[0] if step.restarts or is_stale else step

    def find_retry(self, run: RunRow) -> Retry | None:
        step, end = self.get_step(run), self.ends[run.id]
        return UNLIMITED if end in (End.STOPPED, End.LIMITED) and step.retries else step.retries.get(end)

    def retry(self, run: RunRow, retry: Retry) -> Action | None:
        """Retry a step, or the whole sequence in a new try; None when its retries are used up."""
        step = self.find_retried_step(run)
        # A run that was followed by the next step of its try had succeeded.
        ended = [one for one, next_ in zip_longest(self.runs, self.runs[1:]) if not _was_followed(one, next_)]
        failures = sum(self.find_retry(one) == retry and self.find_retried_step(one) is step for one in ended)
        if retry.max_runs is not None and failures >= retry.max_runs:
            return None
        is_new_try = step is self.sequence.steps[0]
        action = self.start(step, run.try_number + is_new_try)
        wait_s = retry.wait_s(failures, run)
        return Later(action, run, wait_s) if wait_s and isinstance(action, Start) else action


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
    if end is End.SUCCEEDED and not history.is_last_step(last) and not facts.repeats_last_step:
        return history.start_following(last)
    if facts.repeats_last_step:
        return history.start(step, last.try_number)
    if (verdict := history.find_verdict()) is not None:
        return verdict
    if last.id in facts.excused:
        return history.start(sequence.steps[0], last.try_number + 1)
    retry = history.find_retry(last)
    if retry is not None and (action := history.retry(last, retry)) is not None:
        return action
    return history.start_following(last) if step.continues_on_error else Failed(last, end)


def _was_followed(run: RunRow, following: RunRow | None) -> bool:
    return following is not None and following.try_number == run.try_number and following.kind != run.kind


def count_rejections(sequence: StepSequence, runs: Sequence[RunRow], facts: Facts) -> int:
    """Count the runs that were rejected, including the excused ones."""
    steps = {step.kind: step for step in sequence.steps}
    ended = (run for run in runs if run.kind in steps and not run.is_open)
    return sum(classify(steps[run.kind], run, facts) is End.REJECTED for run in ended)


def find_signal(run: RunRow) -> int | None:
    """Find the signal that killed a command."""
    status = run.exit_status or 0
    return -status if status < 0 else status - 128 if status - 128 in _FATAL else None
