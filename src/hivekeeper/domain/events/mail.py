"""What happens to a message."""

from typing import Any

from hivekeeper.domain.rows import MailRow
from hivekeeper.domain.schema import AT, PERSON, SEQ, WHY, Body, event, field_of, inserts, made, moves
from hivekeeper.domain.states import MailState


@event("mail.accepted", "task", inserts(MailRow, state=MailState.ACCEPTED, sent_at=AT, seq=SEQ))
class MailAccepted(Body):
    """The hive itself wrote to the worker of a task."""

    mail: str
    type: str
    sender: str
    receiver: str
    task: str
    attempt: int
    payload: dict[str, Any]


@event(
    "mail.sent",
    "task",
    inserts(
        MailRow,
        type="inform",
        sender="person",
        payload=made(lambda body: {"text": body.text}),
        state=MailState.ACCEPTED,
        sent_at=AT,
        seq=SEQ,
    ),
    by=PERSON,
)
class MailSent(Body):
    """A person wrote to the worker of a task."""

    mail: str
    receiver: str
    task: str
    attempt: int
    text: str


@event("mail.delivered", "task", moves(MailRow, MailState.DELIVERED, delivered_run=field_of("run"), delivered_at=AT))
class MailDelivered(Body):
    """A run that was given the message has started."""

    mail: str
    task: str
    run: str


@event("mail.handled", "task", moves(MailRow, MailState.HANDLED, ended_at=AT, reason=WHY))
class MailHandled(Body):
    """The work that the message was delivered to has ended."""

    mail: str
    task: str


@event("mail.returned", "task", moves(MailRow, MailState.RETURNED, ended_at=AT, reason=WHY))
class MailReturned(Body):
    """The message can reach nobody any more."""

    mail: str
    task: str
