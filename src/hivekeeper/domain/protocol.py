"""The mail protocol: the types of messages, who may send each to whom, and what it must contain.

Types are data: those below, and those of hive.toml ([mail.types.NAME]), which may be `like` a known one: the hive
handles them as that. `read_draft` reads what a worker wrote, except what it claims about sender, time and hops: the
router knows those.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hivekeeper.domain.names import find_nearest, show

MAX_ID = 200
_WORKER_ADDRESS = re.compile(r"(.*\.)?worker-\d+")
FREE_ADDRESS_RULE = "must not be an address of the hive (person, queue, all, ...) or of a numbered worker"
MAX_DEPTH = 64
ALL = "all"  # the address of a broadcast


class Role(StrEnum):
    """What a sender or receiver is."""

    WORKER = "worker"
    QUEUE = "queue"
    SUPERVISOR = "supervisor"
    DASHBOARD = "dashboard"
    PERSON = "person"
    COORDINATOR = "coordinator"


# The hive's own addresses, and the names that are understood for them.
ADDRESSES: Mapping[str, Role] = {
    **{role.value: role for role in Role if role is not Role.WORKER},
    "merge-queue": Role.QUEUE,
    "merge-processor": Role.QUEUE,
}

TASK_COMPLETE, MERGE_READY, REWORK_REQUEST = "TASK_COMPLETE", "MERGE_READY", "REWORK_REQUEST"
HELP_REQUEST, HANDOFF, STATUS_UPDATE = "HELP_REQUEST", "HANDOFF", "STATUS_UPDATE"
PRIORITY_MERGE, ACK, LESSON, INFORM, DONE = "PRIORITY_MERGE", "ACK", "LESSON", "inform", "done"
SEANCE = "SEANCE"

Routes = frozenset[tuple[Role, Role]]
_KINDS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
}


@dataclass(frozen=True, slots=True)
class MessageType:
    """A type: its routes, its payload's fields, and how it is treated.

    A field's kind is one of text, integer, number, boolean, list and object, or several with `|`; a `?` at its end
    means that the field may be missing. Other fields are allowed. An urgent message interrupts its receiver's turn.
    """

    name: str
    routes: Routes
    fields: Mapping[str, str] = field(default_factory=dict)
    expects_reply: bool = False
    is_urgent: bool = False
    may_broadcast: bool = False
    base: str = ""

    @property
    def handled_as(self) -> str:
        """The type that the hive handles it as."""
        return self.base or self.name


def make_routes(senders: Iterable[Role], receivers: Iterable[Role]) -> Routes:
    """Allow each sender to write to each receiver."""
    return frozenset((sender, receiver) for sender in senders for receiver in receivers)


_AGENTS = (Role.WORKER, Role.PERSON, Role.SUPERVISOR, Role.COORDINATOR)
_AMONG_AGENTS = make_routes(_AGENTS, _AGENTS)
_WORKER, _TO_WORKER = (Role.WORKER,), (Role.WORKER,)
_REPORT = {"task_id": "text?", "branch": "text?", "files_changed": "integer|list?", "summary": "text?"}

PROTOCOL: Mapping[str, MessageType] = {
    each.name: each
    for each in (
        MessageType(TASK_COMPLETE, make_routes(_WORKER, (Role.SUPERVISOR, Role.QUEUE)), _REPORT),
        MessageType(MERGE_READY, make_routes(_WORKER, (Role.QUEUE,)), _REPORT),
        MessageType(REWORK_REQUEST, make_routes((Role.QUEUE, Role.SUPERVISOR, Role.PERSON), _TO_WORKER)),
        MessageType(
            HELP_REQUEST,
            make_routes(_WORKER, (Role.SUPERVISOR,)),
            {"text": "text?", "summary": "text?", "blocking": "boolean?"},
            expects_reply=True,
        ),
        MessageType(HANDOFF, make_routes((Role.SUPERVISOR, Role.PERSON, Role.COORDINATOR), _TO_WORKER), is_urgent=True),
        MessageType(STATUS_UPDATE, make_routes(_WORKER, (Role.DASHBOARD,)), {"text": "text?", "summary": "text?"}),
        MessageType(
            PRIORITY_MERGE,
            make_routes((Role.QUEUE,), _TO_WORKER),
            expects_reply=True,
            is_urgent=True,
            may_broadcast=True,
        ),
        MessageType(LESSON, make_routes(_WORKER, (Role.SUPERVISOR,)), {"text": "text", "topic": "text?"}),
        MessageType(ACK, make_routes(_WORKER, (Role.QUEUE, *_AGENTS))),
        MessageType(SEANCE, make_routes(_WORKER, (Role.SUPERVISOR,)), {"text": "text?"}, expects_reply=True),
        MessageType("request", _AMONG_AGENTS, {"text": "text?"}, expects_reply=True),
        MessageType("query", _AMONG_AGENTS, {"text": "text?"}, expects_reply=True),
        MessageType("propose", _AMONG_AGENTS, {"text": "text?"}, expects_reply=True),
        MessageType(INFORM, _AMONG_AGENTS, {"text": "text?"}),
        MessageType(DONE, _AMONG_AGENTS, {"text": "text?"}),
    )
}


@dataclass(frozen=True, slots=True)
class Draft:
    """A message as a worker wrote it; `given_id` is the id that it chose.

    A reply without a receiver ("") is for whoever sent what it replies to.
    """

    type: str
    receiver: str
    payload: dict[str, Any]
    given_id: str | None = None
    in_reply_to: str | None = None


def read_draft(said: object, protocol: Mapping[str, MessageType]) -> Draft | str:
    """Read a message from its JSON; a sentence says why it is not one."""
    if not isinstance(said, dict):
        return "it is not a JSON object"
    type_, receiver = said.get("type"), said.get("receiver", said.get("to"))
    if not isinstance(type_, str) or not type_:
        return "it has no 'type'"
    known = protocol.get(type_) or next(
        (each for name, each in protocol.items() if name.lower() == type_.lower()), None
    )
    if known is None:
        meant = find_nearest(type_, protocol)
        return f"there is no type {show(type_)}" + (f"; did you mean {meant}?" if meant else "")
    if receiver is None and said.get("in_reply_to") is not None:
        receiver = ""  # whoever sent what it replies to
    elif not isinstance(receiver, str) or not receiver:
        return "it has no 'receiver'"
    if len(receiver) > MAX_ID or not receiver.isprintable():
        return "its 'receiver' is not a valid address"
    payload = _read_payload(said, known)
    if isinstance(payload, str):
        return payload
    given_id, parent = said.get("id"), said.get("in_reply_to")
    for name, value in (("id", given_id), ("in_reply_to", parent)):
        if value is not None and not (isinstance(value, str) and 0 < len(value) <= MAX_ID and value.isprintable()):
            return f"its '{name}' must be a text of at most {MAX_ID} printable characters"
    return Draft(known.name, receiver, payload, given_id, parent)


def _read_payload(said: Mapping[str, Any], type_: MessageType) -> dict[str, Any] | str:
    """Read what a message says; a sentence says why it cannot be what was meant."""
    if unknown := next((key for key in said if key not in _KEYS), None):
        meant = find_nearest(unknown, _KEYS)
        return f"it has an unknown key {show(unknown)}" + (f"; did you mean '{meant}'?" if meant else "")
    payload = said.get("payload", {})
    payload = {"text": payload} if isinstance(payload, str) else payload
    if not isinstance(payload, dict):
        return "its 'payload' is not an object"
    if key := _find_text(said):
        payload = {"text": said[key], **payload}
    if not payload and type_.name in _WITH_WORDS:
        return "it says nothing: it has no 'text' and no 'payload'"
    return check_payload(type_, payload) or payload


def check_payload(type_: MessageType, payload: Mapping[str, Any]) -> str:
    """Check a payload against its type; "" if it fits."""
    for name, kind in type_.fields.items():
        value = payload.get(name)
        if value is None:
            if not kind.endswith("?"):
                return f"its payload has no '{name}', which every {type_.name} has"
            continue
        kinds = tuple(each for word in kind.removesuffix("?").split("|") for each in _KINDS[word])
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            return f"'{name}' in its payload must be {kind.removesuffix('?').replace('|', ' or ')}"
    return ""


def is_free_address(name: str) -> bool:
    """Whether an agent may have this name: no address of the hive's own, nor one of a numbered worker."""
    return name not in ADDRESSES and name != ALL and _WORKER_ADDRESS.fullmatch(name) is None


def is_field_kind(kind: str) -> bool:
    """Whether this describes the kind of a payload's field."""
    return all(word in _KINDS for word in kind.removesuffix("?").split("|"))


def _find_text(said: Mapping[str, Any]) -> str | None:
    return next((key for key in _TEXTS if isinstance(said.get(key), str)), None)


_TEXTS = ("text", "body", "content", "message")
_KEYS = (
    *("type", "receiver", "to", "payload", "id", "in_reply_to", *_TEXTS),
    *("sender", "from", "timestamp", "hops", "thread", "expects_reply"),  # these are not believed
)
_WITH_WORDS = ("request", "query", "propose", INFORM, DONE)
