"""What an event is made of: a body, its envelope, and how both are written down."""

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any, ClassVar


class Body:
    """What happened to `subject`."""

    __slots__ = ()
    kind: ClassVar[str]
    subject_field: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    @property
    def subject(self) -> str:
        """Name what it happened to."""
        return str(getattr(self, self.subject_field))


@dataclass(frozen=True, slots=True)
class Event:
    """A body in its envelope, as the ledger keeps it."""

    seq: int
    body: Body
    who: str
    why: str
    occurred_at: str
    recorded_at: str
    epoch: int
    hash: str


def kind(name: str, subject: str) -> Any:  # noqa: ANN401 - a class decorator hands back the class it was given
    """Register a body under its kind, and tell which of its fields names its subject."""

    def register(cls: type[Body]) -> type[Body]:
        cls.kind, cls.subject_field = name, subject
        cls.names = tuple(each.name for each in fields(cls))  # type: ignore[arg-type]  # every body is a dataclass
        BODIES[name] = cls
        return cls

    return register


BODIES: dict[str, type[Body]] = {}


encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode_body(body: Body) -> str:
    """Write a body's fields as JSON."""
    return encode_json({name: getattr(body, name) for name in body.names})


def decode_body(kind: str, data: str) -> Body:
    """Read a body back; an unknown kind is a KeyError, unknown fields a TypeError."""
    return BODIES[kind](**json.loads(data))


def chain_hash(previous: str, *fields_as_stored: str) -> str:
    """Bind an event to all before it. Lengths come first, so that no two field lists read alike."""
    lengths = ",".join([str(len(value)) for value in fields_as_stored])
    text = f"{previous}{lengths};{''.join(fields_as_stored)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
