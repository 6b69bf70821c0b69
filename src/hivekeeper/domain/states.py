"""The state machines: one enum and one table of transitions each.

Terminal states are those the table leads nowhere from. The projection may only move a row along these tables, and
the schema's CHECK constraints repeat the states (a test says they agree).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType


class RunState(StrEnum):
    """A run is an effect outside the ledger; LOST means it may have run and nobody can say how it ended."""

    INTENDED = "INTENDED"
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    LOST = "LOST"


class TaskState(StrEnum):
    """A task is what a person wants; FAILED and UNKNOWN wait for a person, who may also revive a CANCELLED one."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    CANCELLING = "CANCELLING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    CANCELLED = "CANCELLED"


class AttemptState(StrEnum):
    """An attempt is one worker's try at a task; PARKED keeps its sandbox and waits for a limit to pass."""

    WORKING = "WORKING"
    PARKED = "PARKED"
    SUBMITTED = "SUBMITTED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    CANCELLED = "CANCELLED"


class MergeState(StrEnum):
    """A merge takes one attempt's commit to the integration branch."""

    QUEUED = "QUEUED"
    VERIFYING = "VERIFYING"
    LANDING = "LANDING"
    LANDED = "LANDED"
    REJECTED = "REJECTED"
    WITHDRAWN = "WITHDRAWN"


class ConvoyState(StrEnum):
    """A convoy is a plan being kept."""

    ACTIVE = "ACTIVE"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    ARCHIVED = "ARCHIVED"


class SwarmState(StrEnum):
    """A swarm is one batch of a convoy's attempts."""

    OPEN = "OPEN"
    CLOSED = "CLOSED"


class RepoState(StrEnum):
    """A repository's mirror is being fetched, is ready, or could not be fetched."""

    FETCHING = "FETCHING"
    READY = "READY"
    FAILED = "FAILED"


# A person may lead a task out of FAILED, UNKNOWN and CANCELLED; nobody leads one out of COMPLETE.
# A task being cancelled may still turn out to have landed: the landing is a fact, the cancelling was a wish.
TRANSITIONS: Mapping[type[StrEnum], Mapping[StrEnum, frozenset[StrEnum]]] = MappingProxyType(
    {
        RunState: {
            RunState.INTENDED: frozenset({RunState.RUNNING, RunState.LOST}),
            RunState.RUNNING: frozenset({RunState.EXITED, RunState.LOST}),
            RunState.EXITED: frozenset(),
            RunState.LOST: frozenset(),
        },
        TaskState: {
            TaskState.PENDING: frozenset({TaskState.IN_PROGRESS, TaskState.CANCELLED}),
            TaskState.IN_PROGRESS: frozenset(
                {TaskState.PENDING, TaskState.COMPLETE, TaskState.FAILED, TaskState.UNKNOWN, TaskState.CANCELLING}
            ),
            TaskState.CANCELLING: frozenset({TaskState.CANCELLED, TaskState.COMPLETE}),
            TaskState.FAILED: frozenset({TaskState.PENDING, TaskState.CANCELLED}),
            TaskState.UNKNOWN: frozenset({TaskState.PENDING, TaskState.CANCELLED}),
            TaskState.COMPLETE: frozenset(),
            TaskState.CANCELLED: frozenset({TaskState.PENDING}),
        },
        AttemptState: {
            AttemptState.WORKING: frozenset(
                {
                    AttemptState.PARKED,
                    AttemptState.SUBMITTED,
                    AttemptState.SUCCEEDED,
                    AttemptState.FAILED,
                    AttemptState.UNKNOWN,
                    AttemptState.CANCELLED,
                }
            ),
            AttemptState.PARKED: frozenset({AttemptState.WORKING}),
            AttemptState.SUBMITTED: frozenset({AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELLED}),
            AttemptState.SUCCEEDED: frozenset(),
            AttemptState.FAILED: frozenset(),
            AttemptState.UNKNOWN: frozenset(),
            AttemptState.CANCELLED: frozenset(),
        },
        MergeState: {
            MergeState.QUEUED: frozenset({MergeState.VERIFYING, MergeState.REJECTED, MergeState.WITHDRAWN}),
            # From VERIFYING to itself: the candidate is made anew on another one before it.
            MergeState.VERIFYING: frozenset(
                {
                    MergeState.VERIFYING,
                    MergeState.LANDING,
                    MergeState.QUEUED,
                    MergeState.REJECTED,
                    MergeState.WITHDRAWN,
                }
            ),
            MergeState.LANDING: frozenset({MergeState.LANDED, MergeState.QUEUED}),
            MergeState.LANDED: frozenset(),
            MergeState.REJECTED: frozenset(),
            MergeState.WITHDRAWN: frozenset(),
        },
        ConvoyState: {
            ConvoyState.ACTIVE: frozenset({ConvoyState.COMPLETE, ConvoyState.FAILED}),
            ConvoyState.COMPLETE: frozenset({ConvoyState.ACTIVE, ConvoyState.ARCHIVED}),
            ConvoyState.FAILED: frozenset({ConvoyState.ACTIVE, ConvoyState.ARCHIVED}),
            ConvoyState.ARCHIVED: frozenset(),
        },
        SwarmState: {SwarmState.OPEN: frozenset({SwarmState.CLOSED}), SwarmState.CLOSED: frozenset()},
        RepoState: {
            RepoState.FETCHING: frozenset({RepoState.READY, RepoState.FAILED}),
            RepoState.READY: frozenset({RepoState.FETCHING}),
            RepoState.FAILED: frozenset({RepoState.FETCHING}),
        },
    }
)


# By machine first: members of two machines with one name are equal strings, and would share one entry.
_SOURCES: Mapping[type[StrEnum], Mapping[StrEnum, tuple[StrEnum, ...]]] = {
    machine: {target: tuple(source for source in table if target in table[source]) for target in table}
    for machine, table in TRANSITIONS.items()
}


OPEN_RUNS = (RunState.INTENDED, RunState.RUNNING)
OPEN_ATTEMPTS = (AttemptState.WORKING, AttemptState.PARKED, AttemptState.SUBMITTED)
OPEN_TASKS = (TaskState.PENDING, TaskState.IN_PROGRESS, TaskState.CANCELLING)
OPEN_MERGES = (MergeState.QUEUED, MergeState.VERIFYING, MergeState.LANDING)
SETTLED_ATTEMPTS = tuple(state for state in AttemptState if state not in OPEN_ATTEMPTS)
AT_REST = (TaskState.FAILED, TaskState.UNKNOWN, TaskState.CANCELLED)


def is_in(states: Iterable[StrEnum], column: str = "state") -> str:
    """Write the condition that a row is in one of these states, as SQL says it."""
    names = ", ".join(f"'{state.value}'" for state in states)
    return f"{column} IN ({names})"


def sources_of(state: StrEnum) -> tuple[StrEnum, ...]:
    """Tell from which states a row may come to this one."""
    return _SOURCES[type(state)][state]


def is_terminal(state: StrEnum) -> bool:
    """Tell whether nothing can follow this state."""
    return not TRANSITIONS[type(state)][state]


def may_move(source: StrEnum, target: StrEnum) -> bool:
    """Tell whether the table has this edge."""
    return target in TRANSITIONS[type(source)][source]
