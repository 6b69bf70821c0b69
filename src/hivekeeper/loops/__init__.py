"""The loops: each reads tables, looks at the world, decides purely, commits once, then acts.

They never call each other; the circle closes through the ledger. Nothing waits inside a pass.
"""

from typing import Protocol

from hivekeeper.domain.events import Body, RunExited, RunLost

Counts = dict[str, int]


def is_end_of(body: Body, *kinds: str) -> bool:
    """Tell whether a run of one of these kinds has ended."""
    return isinstance(body, (RunExited, RunLost)) and body.run_kind in kinds


class Loop(Protocol):
    """What the keeper runs, one thread each: at a nudge but not before `rest_s`, and at least every `interval_s`."""

    name: str
    interval_s: float
    rest_s: float

    def hears(self, body: Body) -> bool:
        """Tell whether this event may give the loop something to do."""
        ...

    def run_once(self) -> Counts:
        """Make one pass; tell what it did. An empty answer means that another pass would do nothing either."""
        ...
