"""The loops: each reads tables, looks at the world, decides purely, commits once, then acts.

They never call each other; the circle closes through the ledger. Nothing waits inside a pass.
"""

from typing import Protocol

from hivekeeper.domain.events import Body

Counts = dict[str, int]


class Loop(Protocol):
    """What the keeper runs, one thread each."""

    name: str
    listens: frozenset[type[Body]]
    interval_s: float

    def run_once(self) -> Counts:
        """Make one pass; tell what it did. An empty answer means that another pass would do nothing either."""
        ...
