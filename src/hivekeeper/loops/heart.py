"""The heart: shows that the keeper is alive, and what fails in it, in a row and not in an event."""

from hivekeeper.domain.schema import encode_json
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.store import queries


class Heart(Loop):
    """Updates the heartbeat."""

    name = "heart"
    order = 10
    wakes = Wakes()  # only its interval

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.interval_s = self._settings.heartbeat_s

    def run_once(self) -> Counts:
        """Update the heartbeat when it is old enough, or when something else fails than before.

        Its age is that of the clock that stops while the machine sleeps.
        """
        now, problems = self._clock.monotonic(), encode_json(dict(self._parts.problems))
        with self._ledger.read() as connection:
            last = queries.find_heartbeat(connection)
        same = last is not None and last.epoch == self._authority.epoch and last.boot_id == self._boot_id
        is_known = last is not None and last.problems == problems
        if last is not None and same and is_known and 0 <= now - last.monotonic_ms / 1000 < self.interval_s:
            return {}
        with self._ledger.write(self._authority) as tx:
            tx.beat(boot_id=self._boot_id, monotonic_s=now, problems=problems)
        return {"beats": 1}
