"""What the ledger says of an attempt, as excerpts: how it ended and why, its last words, its messages."""

from collections.abc import Iterator, Sequence

from hivekeeper.commands.mail import name_origin
from hivekeeper.domain import events as e
from hivekeeper.domain.events import Event
from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.domain.protocol import REWORK_REQUEST, SEANCE
from hivekeeper.domain.report import ENDED_WELL
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.seance import ASKED

DOCUMENT = "ledger"


def read_record(task: str, number: int, events: Sequence[Event], runs: Sequence[RunRow]) -> list[Excerpt]:
    """Read what happened to an attempt, in its order; a position is the number of an event."""
    found = [excerpt for event in events for excerpt in _read_event(task, number, event)]
    found += (excerpt for run in runs for excerpt in _read_run(run))
    return sorted(found, key=lambda excerpt: excerpt.position)


def _read_event(task: str, number: int, event: Event) -> Iterator[Excerpt]:
    body = event.body
    if getattr(body, "task", task) != task:
        return
    match body:
        case e.AttemptFailed(attempt=attempt) | e.AttemptUnknown(attempt=attempt) if attempt == number:
            yield _note(event, Role.REJECTED, f"attempt {number} failed: {event.why}")
        case e.AttemptCancelled(attempt=attempt) if attempt == number:
            yield _note(event, Role.REJECTED, f"attempt {number} was cancelled: {event.why}")
        case e.AttemptParked(attempt=attempt) if attempt == number:
            yield _note(event, Role.ERROR, f"it had to wait: {event.why}")
        case e.MergeFailed(attempt=attempt) if attempt == number:
            yield _note(event, Role.ERROR, f"its change failed: {event.why}")
        case e.TaskCompleted(attempt=attempt) if attempt == number:
            commit = f", landed as {body.commit[:12]}" if body.commit else ""
            yield _note(event, Role.LANDED, f"attempt {number} completed the task{commit}")
        case e.MailAccepted() | e.MailSettled() | e.MailSent():
            yield from _read_mail(task, number, event, body)


def _read_mail(
    task: str, number: int, event: Event, body: e.MailAccepted | e.MailSettled | e.MailSent
) -> Iterator[Excerpt]:
    """Read a message from or to an attempt; what it asked of the record is no part of it."""
    is_own = getattr(body, "origin", "") == name_origin(task, number)
    if not (is_own or body.attempt == number) or body.type == SEANCE or ASKED in body.payload:
        return
    sender = "person" if isinstance(body, e.MailSent) else body.sender
    said = [str(body.payload[name]) for name in ("text", "summary", "why") if body.payload.get(name)]
    if said:
        role = Role.REJECTED if body.type == REWORK_REQUEST else Role.MAIL
        yield _note(event, role, f"{body.type} from {sender} to {body.receiver}: {' '.join(said)}")
    if body.type == REWORK_REQUEST and body.payload.get("output"):
        yield _note(event, Role.ERROR, str(body.payload["output"]))


def _read_run(run: RunRow) -> Iterator[Excerpt]:
    """Read how a run ended: what its program said last, or why it was ended."""
    if run.words:
        role = Role.SAID if run.outcome in ENDED_WELL else Role.ERROR
        yield Excerpt(role, run.words, run.reported_seq, run.reported_at or "")
    elif not run.is_open and not run.ended_well and run.kind in ("agent", "setup"):
        how = run.reason or (f"exit code {run.exit_status}" if run.exit_status is not None else "it was lost")
        yield Excerpt(Role.ERROR, f"{run.kind}: {how}", run.reported_seq or run.intended_seq, run.ended_at or "")


def _note(event: Event, role: Role, text: str) -> Excerpt:
    return Excerpt(role, text.rstrip(": "), event.seq, event.occurred_at)
