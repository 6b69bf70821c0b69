"""What happens to convoys and their swarms."""

from dataclasses import field
from typing import Any

from hivekeeper.domain.rows import ConvoyRow, SwarmRow
from hivekeeper.domain.schema import AT, PERSON, SEQ, Body, event, field_of, inserts, moves, updates
from hivekeeper.domain.states import ConvoyState, SwarmState


@event(
    "convoy.submitted",
    "convoy",
    inserts(ConvoyRow, state=ConvoyState.ACTIVE, submitted_at=AT, opened_at=AT, opened_seq=SEQ),
    by=PERSON,
)
class ConvoySubmitted(Body):
    """A person handed in a plan under a new name."""

    convoy: str
    pipeline: str
    accept: str | None = None
    budget: dict[str, Any] = field(default_factory=dict)


@event(
    "convoy.extended",
    "convoy",
    moves(ConvoyRow, ConvoyState.ACTIVE, ended_at=None, opened_at=AT, opened_seq=SEQ),
    by=PERSON,
)
class ConvoyExtended(Body):
    """A person gave an existing convoy something more to do, so it is active again."""

    convoy: str


@event("convoy.completed", "convoy", moves(ConvoyRow, ConvoyState.COMPLETE, ended_at=AT))
class ConvoyCompleted(Body):
    """Every task of the convoy is COMPLETE, or was cancelled by a person."""

    convoy: str


@event("convoy.failed", "convoy", moves(ConvoyRow, ConvoyState.FAILED, ended_at=AT))
class ConvoyFailed(Body):
    """Nothing more can be done for the convoy without a person."""

    convoy: str


@event("convoy.archived", "convoy", moves(ConvoyRow, ConvoyState.ARCHIVED, archived_at=AT), by=PERSON)
class ConvoyArchived(Body):
    """The convoy is put away; its ids can never be dispatched again."""

    convoy: str


@event("convoy.defaults_set", "convoy", updates(ConvoyRow, "defaults"), by=PERSON)
class ConvoyDefaultsSet(Body):
    """The plan says what holds for tasks that do not say it themselves; also for those added to the convoy later."""

    convoy: str
    defaults: dict[str, Any]


@event(
    "swarm.opened",
    "convoy",
    inserts(SwarmRow, state=SwarmState.OPEN, opened_at=AT),
    updates(ConvoyRow, swarms=field_of("number")),
)
class SwarmOpened(Body):
    """A new batch of attempts began."""

    convoy: str
    number: int


@event("swarm.closed", "convoy", moves(SwarmRow, SwarmState.CLOSED, closed_at=AT))
class SwarmClosed(Body):
    """Every attempt of the batch has settled and a later batch takes new ones."""

    convoy: str
    number: int
