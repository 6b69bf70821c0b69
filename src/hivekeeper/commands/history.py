"""What makes the past quick to read: checkpoints, and how far readers of the log have come."""

from hivekeeper.domain.names import NAME_RULE, is_name
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction
from hivekeeper.store.replay import encode_state

EVENTS_A_CHECKPOINT = 10_000


def is_checkpoint_due(head: int, last: int) -> bool:
    """Decide whether so much has happened since the last checkpoint that another is due."""
    return head - last >= EVENTS_A_CHECKPOINT


def save_due_checkpoint(tx: Transaction) -> bool:
    """Save a checkpoint of this transaction's state; False when none is due."""
    if not is_checkpoint_due(tx.head.seq, queries.find_last_checkpoint(tx.connection)):
        return False
    tx.save_checkpoint(encode_state(tx.connection))
    return True


def check_cursor(name: str) -> None:
    """Refuse what cannot be a cursor's name."""
    if not is_name(name):
        raise InputError(f"'{name}' is not a name for a cursor.", advice=f"Names are {NAME_RULE}.")


def move_cursor(tx: Transaction, name: str, seq: int) -> None:
    """Note that a reader has everything up to an event; an earlier one than it had changes nothing."""
    check_cursor(name)
    tx.move_cursor(name, seq)
