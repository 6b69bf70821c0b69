"""What happens to a message."""

from dataclasses import dataclass
from typing import Any

from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.schema import AT, PERSON, SEQ, WHO, WHY, Body, event, field_of, inserts, moves, updates
from hivekeeper.domain.states import AttemptState, MailState


@dataclass(frozen=True, slots=True)
class Message(Body):
    """What a message is from the start."""

    mail: str
    type: str
    sender: str
    receiver: str
    task: str | None
    attempt: int | None
    payload: dict[str, Any]
    thread: str
    parent: str | None = None
    hops: int = 0
    expects_reply: bool = False
    origin: str = ""
    file: str | None = None
    digest: str | None = None
    given_id: str | None = None


@event("mail.accepted", "mail", inserts(MailRow, id=field_of("mail"), state=MailState.ACCEPTED, sent_at=AT, seq=SEQ))
class MailAccepted(Message):
    """A message is on its way to its receiver."""


@event(
    "mail.sent",
    "mail",
    inserts(MailRow, id=field_of("mail"), sender="person", state=MailState.ACCEPTED, sent_at=AT, seq=SEQ),
    by=PERSON,
)
class MailSent(Body):
    """A person wrote a message."""

    mail: str
    type: str
    receiver: str
    task: str | None
    attempt: int | None
    payload: dict[str, Any]
    thread: str
    parent: str | None = None
    hops: int = 0
    expects_reply: bool = False


@event(
    "mail.settled",
    "mail",
    inserts(
        MailRow,
        id=field_of("mail"),
        state=field_of("outcome"),
        sent_at=AT,
        seq=SEQ,
        ended_at=AT,
        ended_by=WHO,
        reason=WHY,
    ),
)
class MailSettled(Message):
    """A message was settled as it came: handled at once, quarantined, returned or dropped."""

    outcome: str = ""


@event(
    "mail.delivered",
    "mail",
    moves(MailRow, MailState.DELIVERED, delivered_run=field_of("run"), delivered_at=AT),
)
class MailDelivered(Body):
    """The message lies in its receiver's inbox, or a session that was given it has started (`run`)."""

    mail: str
    run: str | None = None


@event("mail.assigned", "mail", updates(MailRow, "task", "attempt", states=(MailState.ACCEPTED,)))
class MailAssigned(Body):
    """The agent that the message waited for has a worker now."""

    mail: str
    task: str
    attempt: int


@event("mail.forwarded", "mail", moves(MailRow, MailState.ACCEPTED, sources=(MailState.DELIVERED,)))
class MailForwarded(Body):
    """The worker that it was delivered to ended before it read it: the next one gets it."""

    mail: str


@event("mail.handled", "mail", moves(MailRow, MailState.HANDLED, ended_at=AT, ended_by=WHO, reason=WHY))
class MailHandled(Body):
    """The receiver has dealt with the message."""

    mail: str


@event(
    "mail.closed",
    "mail",
    moves(MailRow, MailState.HANDLED, ended_at=AT, ended_by=WHO, reason=WHY),
    by=PERSON,
)
class MailClosed(Body):
    """A person has read a message, or answered it."""

    mail: str


@event("mail.returned", "mail", moves(MailRow, MailState.RETURNED, ended_at=AT, ended_by=WHO, reason=WHY))
class MailReturned(Body):
    """The message can reach nobody any more."""

    mail: str


@event(
    "mail.requeued",
    "mail",
    moves(
        MailRow,
        MailState.ACCEPTED,
        "type",
        "receiver",
        "task",
        "attempt",
        "payload",
        "expects_reply",
        sources=(MailState.QUARANTINED,),
        seq=SEQ,
        ended_at=None,
        ended_by="",
        reason=WHY,
    ),
    by=PERSON,
)
class MailRequeued(Body):
    """A person had a quarantined message delivered after all."""

    mail: str
    type: str
    receiver: str
    task: str | None
    attempt: int | None
    payload: dict[str, Any]
    expects_reply: bool = False


@event(
    "mail.dropped",
    "mail",
    moves(MailRow, MailState.DROPPED, ended_at=AT, ended_by=WHO, reason=WHY),
    by=PERSON,
)
class MailDropped(Body):
    """A person threw a quarantined message away."""

    mail: str


@event("attempt.progressed", "task", updates(AttemptRow, states=(AttemptState.WORKING,), progress=field_of("text")))
class AttemptProgressed(Body):
    """A worker said how far it is."""

    task: str
    attempt: int
    text: str


@event(
    "attempt.finished",
    "task",
    updates(AttemptRow, "unchanged", states=(AttemptState.WORKING,), finished_at=AT, pinned=field_of("commit")),
)
class AttemptFinished(Body):
    """A worker said that its work is finished, and with which commit if it said so of a branch.

    `unchanged`: it says that nothing has to change.
    """

    task: str
    attempt: int
    commit: str | None = None
    unchanged: bool = False
