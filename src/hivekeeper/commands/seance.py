"""Answers what workers ask of the records."""

from hivekeeper.commands.mail import handle_mail, make_id
from hivekeeper.domain import events as e
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.protocol import INFORM, Role
from hivekeeper.domain.seance import ASKED
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction


def answer_seance(tx: Transaction, mail: MailRow, text: str) -> bool:
    """Record the answer as a message to whoever asked; False when that was answered before, or its attempt has ended.

    The answer names the question by the id that its sender chose, the only one that it knows.
    """
    now = queries.find_mail(tx.connection, mail.id)
    if now is None or not now.is_open:
        return False
    answer, payload = make_id(tx, mail.task), {"text": text, ASKED: mail.given_id or mail.id}
    sender, hops = Role.SUPERVISOR.value, mail.hops + 1
    tx.record(
        e.MailAccepted(
            answer, INFORM, sender, mail.sender, mail.task, mail.attempt, payload, mail.thread, mail.id, hops
        )
    )
    handle_mail(tx, mail, f"answered by {answer}")
    return True
