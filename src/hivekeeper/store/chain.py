"""The whole log held against its own hash chain, from the first event to the head, a page at a time."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hivekeeper.domain.events import BODIES, chain_hash
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import GENESIS, read_head

PAGE = 10_000
MAX_BREAKS = 20


@dataclass(frozen=True, slots=True)
class ChainAudit:
    """What a walk over the log found: the first few breaks, and how many events are of a kind nobody here knows."""

    events: int
    breaks: tuple[str, ...]
    unknown: Mapping[str, int]


def audit_chain(connection: Connection, say: Callable[[int, int], None]) -> ChainAudit:
    """Walk the log to its end whatever is found on the way; `say` hears the event it has come to, and the last one."""
    head = read_head(connection)
    breaks: list[str] = []
    unknown: Counter[str] = Counter()
    seq, previous, epoch, count = 0, GENESIS, 0, 0
    while rows := connection.rows(_EVENTS_AFTER, (seq, PAGE)):
        for found, kind, *rest, epoch, digest in rows:
            if found != seq + 1:
                breaks.append(f"event {seq + 1} is missing" + (f", up to {found - 1}" if found > seq + 2 else ""))
            elif _hash(previous, (found, kind, *rest, epoch)) != digest:
                breaks.append(f"event {found} is not what was written")
            if kind not in BODIES:
                unknown[str(kind)] += 1
            # The walk goes on from what is stored: one damaged event is one break, and not all that follow.
            seq, previous, count = found, digest, count + 1
        say(seq, head.seq)
    if (seq, previous, epoch) != (head.seq, head.hash, head.epoch):
        breaks.append(f"the head says event {head.seq} of epoch {head.epoch}, and the log ends with {seq} of {epoch}")
    return ChainAudit(count, tuple(breaks[:MAX_BREAKS]), unknown)


def _hash(previous: str, values: tuple[object, ...]) -> str | None:
    """Make an event's hash; None when a damaged row holds what is no text."""
    first, *texts, last = values
    if not all(isinstance(text, str) for text in (previous, *texts)):
        return None
    return chain_hash(previous, str(first), *map(str, texts), str(last))


_EVENTS_AFTER = """SELECT seq, kind, subject, data, who, why, occurred_at, recorded_at, epoch, hash FROM event
WHERE seq > ? ORDER BY seq LIMIT ?"""
