"""The state machines: one enum and one table of transitions each.

A state without transitions is terminal. The projection may only move a row along these tables, and the schema's CHECK
constraints repeat the states (a test checks that they agree).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType


class RunState(StrEnum):
    """A run is an effect outside the ledger; LOST means that it may have run and how it ended is unknown."""

    INTENDED = "INTENDED"
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    LOST = "LOST"


class TaskState(StrEnum):
    """A task is one piece of work; FAILED and UNKNOWN wait for a person, who may also retry a CANCELLED one."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    CANCELLING = "CANCELLING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    CANCELLED = "CANCELLED"


class AttemptState(StrEnum):
    """An attempt is one worker's try at a task; PARKED keeps its sandbox while a hold is in its way."""

    WORKING = "WORKING"
    PARKED = "PARKED"
    SUBMITTED = "SUBMITTED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    CANCELLED = "CANCELLED"


class MergeState(StrEnum):
    """A merge lands one attempt's commit on the integration branch."""

    QUEUED = "QUEUED"
    VERIFYING = "VERIFYING"
    LANDING = "LANDING"
    LANDED = "LANDED"
    REJECTED = "REJECTED"
    WITHDRAWN = "WITHDRAWN"


class MailState(StrEnum):
    """A message is accepted, delivered to where its receiver reads it, and handled; or it is refused.

    QUARANTINED messages could not be read and wait for a person; RETURNED ones have no possible receiver; DROPPED ones
    were too many.
    """

    ACCEPTED = "ACCEPTED"
    DELIVERED = "DELIVERED"
    HANDLED = "HANDLED"
    RETURNED = "RETURNED"
    QUARANTINED = "QUARANTINED"
    DROPPED = "DROPPED"


class ConvoyState(StrEnum):
    """A convoy is a submitted plan."""

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


# A person may retry a FAILED, UNKNOWN or CANCELLED task; COMPLETE is final.
# A task that is being cancelled may have landed already: then it is COMPLETE.
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
            # From VERIFYING to itself: the candidate is rebuilt on another one before it.
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
        MailState: {
            MailState.ACCEPTED: frozenset({MailState.DELIVERED, MailState.HANDLED, MailState.RETURNED}),
            # From DELIVERED to itself: a session was given what lies in its inbox. Back to ACCEPTED: its worker ended
            # before it read it, so its successor gets it.
            MailState.DELIVERED: frozenset(
                {MailState.DELIVERED, MailState.ACCEPTED, MailState.HANDLED, MailState.RETURNED}
            ),
            MailState.HANDLED: frozenset(),
            MailState.RETURNED: frozenset(),
            MailState.QUARANTINED: frozenset({MailState.ACCEPTED, MailState.DROPPED}),
            MailState.DROPPED: frozenset(),
        },
        SwarmState: {SwarmState.OPEN: frozenset({SwarmState.CLOSED}), SwarmState.CLOSED: frozenset()},
        RepoState: {
            RepoState.FETCHING: frozenset({RepoState.READY, RepoState.FAILED}),
            RepoState.READY: frozenset({RepoState.FETCHING}),
            RepoState.FAILED: frozenset({RepoState.FETCHING}),
        },
    }
)


# By machine first: states of two machines with the same name are equal strings and would share an entry.
_SOURCES: Mapping[type[StrEnum], Mapping[StrEnum, tuple[StrEnum, ...]]] = {
    machine: {target: tuple(source for source in table if target in table[source]) for target in table}
    for machine, table in TRANSITIONS.items()
}


OPEN_RUNS = (RunState.INTENDED, RunState.RUNNING)
OPEN_ATTEMPTS = (AttemptState.WORKING, AttemptState.PARKED, AttemptState.SUBMITTED)
OPEN_MAIL = (MailState.ACCEPTED, MailState.DELIVERED)
REFUSED_MAIL = (MailState.QUARANTINED, MailState.RETURNED, MailState.DROPPED)
OPEN_TASKS = (TaskState.PENDING, TaskState.IN_PROGRESS, TaskState.CANCELLING)
OPEN_MERGES = (MergeState.QUEUED, MergeState.VERIFYING, MergeState.LANDING)
SETTLED_ATTEMPTS = tuple(state for state in AttemptState if state not in OPEN_ATTEMPTS)
AT_REST = (TaskState.FAILED, TaskState.UNKNOWN, TaskState.CANCELLED)


def is_in(states: Iterable[StrEnum], column: str = "state") -> str:
    """Return the SQL condition that a row is in one of these states."""
    names = ", ".join(f"'{state.value}'" for state in states)
    return f"{column} IN ({names})"


def sources_of(state: StrEnum) -> tuple[StrEnum, ...]:
    """Return the states that a row may come from to this one."""
    return _SOURCES[type(state)][state]


def is_terminal(state: StrEnum) -> bool:
    """Whether a state has no transitions."""
    return not TRANSITIONS[type(state)][state]


def may_move(source: StrEnum, target: StrEnum) -> bool:
    """Whether this transition is allowed."""
    return target in TRANSITIONS[type(source)][source]
