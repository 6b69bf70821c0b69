"""Taking and giving back the coordinator's lease."""

from hivekeeper.domain import events as e
from hivekeeper.store.ledger import ByKeeper, Transaction


def take_lease(tx: Transaction, *, holder: str, pid: int, start_ticks: int, boot_id: str, why: str) -> ByKeeper:
    """Raise the epoch: from here on every older keeper's write is refused."""
    epoch = tx.head.epoch + 1
    tx.record(e.LeaseTaken(holder, epoch, pid, start_ticks, boot_id, why), why=why)
    return ByKeeper(holder, epoch)


def release_lease(tx: Transaction, holder: str) -> None:
    """Give the lease back; only the holder's own row can be."""
    tx.record(e.LeaseReleased(holder))
