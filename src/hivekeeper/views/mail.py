"""Messages as people and programs are shown them."""

from dataclasses import asdict
from typing import Any

from hivekeeper.domain.merge import PRIORITY_MERGE
from hivekeeper.domain.rows import MailRow, TaskRow
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection


def show_mail(row: MailRow) -> dict[str, Any]:
    """Show a message, and its gist in one line."""
    payload = row.get_payload()
    if row.type == PRIORITY_MERGE:
        touched = ", ".join(payload.get("touched", ()))
        gist = f"rebase: the hotfix changes {touched}" if touched else "a hotfix has landed"
    else:
        gist = str(payload.get("text") or payload.get("why") or "").partition("\n")[0]
    return {**asdict(row), "payload": payload, "gist": gist}


def get_mail(connection: Connection, mail: str) -> dict[str, Any]:
    """Show the message with this id."""
    row = queries.find_mail(connection, mail)
    if row is None:
        raise InputError(f"There is no message '{mail}'.", advice="Type: hive mail ls")
    return show_mail(row)


def show_thread(connection: Connection, task: TaskRow) -> list[dict[str, Any]]:
    """Show everything that was said about a task, oldest first."""
    return [show_mail(row) for row in reversed(queries.list_mail_matching(connection, limit=-1, task=task.key))]
