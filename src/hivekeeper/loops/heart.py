"""The heart: says that the keeper is alive, as a row and never as an event."""

from dataclasses import dataclass

from hivekeeper.clock import Clock
from hivekeeper.domain.events import Body
from hivekeeper.loops import Counts
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByKeeper, Ledger


@dataclass(frozen=True, slots=True)
class Settings:
    """`beat_s`: how often."""

    beat_s: float = 60.0


class Heart:
    """Beats."""

    name = "heart"
    rest_s = 0.0

    def __init__(self, ledger: Ledger, authority: ByKeeper, boot_id: str, clock: Clock, settings: Settings) -> None:
        self.interval_s = settings.beat_s
        self._ledger = ledger
        self._authority = authority
        self._boot_id = boot_id
        self._clock = clock

    def hears(self, body: Body) -> bool:
        del body  # time alone moves it
        return False

    def run_once(self) -> Counts:
        """Beat when the last beat of this epoch is old enough, by the clock that stops while the machine sleeps."""
        now = self._clock.monotonic()
        with self._ledger.read() as connection:
            last = queries.find_heartbeat(connection)
        same = last is not None and last.epoch == self._authority.epoch and last.boot_id == self._boot_id
        if last is not None and same and 0 <= now - last.monotonic_ms / 1000 < self.interval_s:
            return {}
        with self._ledger.write(self._authority) as tx:
            tx.beat(boot_id=self._boot_id, monotonic_s=now)
        return {"beats": 1}
