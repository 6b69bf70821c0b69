"""Types of messages that a hive adds in hive.toml: `[mail.types.NAME]`."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from hivekeeper.config.located import Checked, Filled, Listed, Problems, rule
from hivekeeper.domain.names import show
from hivekeeper.domain.protocol import PROTOCOL, MessageType, Role, is_field_kind

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_KIND_RULE = (
    'must be text, integer, number, boolean, list or object, several with "|", and "?" behind it if it may be missing'
)
_FieldKind = Annotated[str, rule(is_field_kind, _KIND_RULE)]


class MailType(Checked):
    """The table of a type."""

    like: str = ""
    payload: dict[str, _FieldKind] = Field(default_factory=dict)
    routes: Listed[Filled] = ()
    reply: bool | None = None
    urgent: bool | None = None
    broadcast: bool | None = None


def find_type_problems(name: str, table: MailType, problems: Problems) -> Iterator[tuple[str, ...]]:
    """Find what is wrong with a type: a sentence, and the key it is about if there is one."""
    place = f"[mail.types.{name}]"
    if not _NAME.fullmatch(name):
        yield (f"the type {show(name)} must be letters, digits, '_' and '-', at most 40, beginning with a letter",)
    if name in PROTOCOL:
        yield (f"the type {show(name)} is built in; give yours another name, and say what it is 'like'",)
    if table.like and table.like not in PROTOCOL:
        meant = problems.did_you_mean(table.like, PROTOCOL)
        yield f"'like' in {place} is {show(table.like)}, which is not a known type{meant}", "like"
    if not table.like and not table.routes:
        yield (f"{place} has no 'routes'; add them, or say which type it is 'like'",)
    for route in table.routes:
        if (problem := _find_route_problem(route, problems)) is not None:
            yield f"'routes' in {place}: {problem}", "routes"


def make_type(name: str, table: MailType) -> MessageType:
    """Make a type from its table: what it does not say is as in the type it is like."""
    known = PROTOCOL.get(table.like) or MessageType(name, frozenset())
    return MessageType(
        name,
        frozenset(map(_read_route, table.routes)) or known.routes,
        {**known.fields, **table.payload},
        expects_reply=known.expects_reply if table.reply is None else table.reply,
        is_urgent=known.is_urgent if table.urgent is None else table.urgent,
        may_broadcast=bool(table.broadcast),
        base=known.name if table.like else "",
    )


def make_protocol(tables: Mapping[str, MailType]) -> dict[str, MessageType]:
    """Add types to those that every hive has."""
    return {**PROTOCOL, **{name: make_type(name, table) for name, table in tables.items()}}


def _read_route(route: str) -> tuple[Role, Role]:
    sender, _, receiver = route.partition("->")
    return Role(sender.strip()), Role(receiver.strip())


def _find_route_problem(route: str, problems: Problems) -> str | None:
    sender, arrow, receiver = (part.strip() for part in route.partition("->"))
    if not arrow:
        return f'{show(route)} is no route; write it like "worker -> person"'
    for word in (sender, receiver):
        if word not in list(Role):
            return f"{show(word)} is none of {', '.join(Role)}{problems.did_you_mean(word, list(Role))}"
    return None
