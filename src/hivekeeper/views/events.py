"""Events as data, and as one line each."""

import json
from typing import Any

from hivekeeper.domain import events as e
from hivekeeper.domain.events import Event
from hivekeeper.domain.holds import describe_hold
from hivekeeper.domain.protocol import ADDRESSES
from hivekeeper.domain.states import MailState
from hivekeeper.views.rows import pick

_LONGEST_WHY = 120
# Events a person watching a run wants to see; the rest is in `hive log`.
NOTABLE: frozenset[type[e.Body]] = frozenset(
    {e.TaskDispatched, e.TaskCompleted, e.AttemptFailed, e.AttemptUnknown, e.TaskCancelled, e.RepoFetchFailed,
     e.RepoPublishFailed, e.RepoStopped, e.RepoRecovered, e.ConvoyCompleted, e.ConvoyFailed, e.MergeRejected,
     e.MergeHeld, e.HoldPlaced, e.HoldLifted, e.AttemptResumed}
)  # fmt: skip


def show_event(event: Event) -> dict[str, Any]:
    """Show an event as it is recorded, and of a message that was dropped what a reader of drops looks for."""
    return {
        **pick(event.body, "kind", "subject"),
        **pick(event, "seq", "occurred_at", "recorded_at", "who", "why", "epoch", "hash"),
        "data": json.loads(e.encode_body(event.body)),
        **_show_drop(event.body, event.why),
    }


def _show_drop(body: e.Body, why: str) -> dict[str, Any]:
    match body:
        case e.MailSettled(outcome=MailState.DROPPED):
            limit = why.partition(":")[0]  # its name comes first
            shown = pick(body, "thread", "hops", **{"from": "sender", "to": "receiver", "id": "mail"})
            return {"drop": {"kind": "drop", "reason": limit, **shown}}
        case _:
            return {}


def say_event(event: Event) -> str:
    """Say an event in one line, without its time."""
    body = event.body
    match body:
        case e.TaskDispatched():
            text = f"{body.task} → worker {body.worker}" + (f" (attempt {body.attempt})" if body.attempt > 1 else "")
        case e.TaskCompleted():
            text = f"{body.task} ✓" + (f" landed as {body.commit[:10]}" if body.commit else "")
        case e.AttemptFailed():
            text = f"{body.task} ✗ {event.why}" + ("; no attempt is left" if body.final else "; it will be retried")
        case e.AttemptResumed():
            text = f"{body.task} continues"
        case e.HoldPlaced():
            said = describe_hold(body.scope, body.name, body.cause, body.until, _shorten(event.why))
            text = said if body.until else f"{said}; type: hive status"
        case e.HoldLifted():
            text = f"{body.scope} {body.name} continues" + (f": {event.why}" if event.why else "")
        case e.MergeHeld():
            text = f"{body.task} waits for you: {event.why}; type: hive queue approve {body.task}"
        case e.RepoStopped() | e.RepoRecovered():
            does = "continues" if isinstance(body, e.RepoRecovered) else f"is stopped: {event.why}"
            text = f"the merge queue of {body.repo} {does}"
        case e.MailAccepted() | e.MailSent() | e.MailSettled():
            text = _say_message(body, event.why)
        case e.ConvoyCompleted():
            text = f"convoy {body.convoy} is complete"
        case e.ConvoyFailed():
            text = f"convoy {body.convoy} has ended with tasks that need you"
        case _:
            noun, _, verb = body.kind.partition(".")
            text = f"{noun} {body.subject} {verb.replace('_', ' ')}" + (f": {event.why}" if event.why else "")
    return text


def _say_message(body: e.MailAccepted | e.MailSent | e.MailSettled, why: str) -> str:
    sender = "person" if isinstance(body, e.MailSent) else body.sender
    said = body.payload.get("text") or body.payload.get("summary") or ""
    outcome = f" ({body.outcome.lower()}: {why})" if isinstance(body, e.MailSettled) else f" ({body.mail})"
    return f"{sender} → {body.receiver}: {body.type}{f': {_shorten(str(said))}' if said else ''}{outcome}"


def is_notable(event: Event) -> bool:
    """Whether a person watching a run wants to see an event; of messages, those to the hive and to people."""
    body = event.body
    return type(body) in NOTABLE or (isinstance(body, e.MailAccepted) and body.receiver in ADDRESSES)


def _shorten(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST_WHY else f"{line[: _LONGEST_WHY - 2]} …"
