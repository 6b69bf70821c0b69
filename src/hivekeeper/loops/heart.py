"""The heart: shows that the keeper is alive, in a row and not in an event."""

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
        """Update the heartbeat when it is old enough, by the clock that stops while the machine sleeps."""
        now = self._clock.monotonic()
        with self._ledger.read() as connection:
            last = queries.find_heartbeat(connection)
        same = last is not None and last.epoch == self._authority.epoch and last.boot_id == self._boot_id
        if last is not None and same and 0 <= now - last.monotonic_ms / 1000 < self.interval_s:
            return {}
        with self._ledger.write(self._authority) as tx:
            tx.beat(boot_id=self._boot_id, monotonic_s=now)
        return {"beats": 1}
