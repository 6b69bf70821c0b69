"""Where a repository is: a person says that it has moved."""

import json

from hivekeeper.domain import events as e
from hivekeeper.domain.rows import RepoRow
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction


def move_repo(tx: Transaction, repo: RepoRow, path: str, *, why: str = "") -> bool:
    """Record where a repository is now, and have it fetched from there; False when that is known."""
    now = queries.find_repo(tx.connection, repo.name)
    if now is None or now.path == path:
        return False
    details = json.loads(now.details)
    tx.record(
        e.RepoWanted(now.name, path, now.branch, now.verify, now.fetches + 1, details),
        why=why or f"it was {now.path}",
    )
    if now.publish_problem:
        tx.record(e.RepoPublishDue(now.name))
    return True
