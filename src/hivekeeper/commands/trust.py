"""The agent configuration that a repository ships: what is trusted, and that a change of it asks a person."""

import json

from hivekeeper.commands.sessions import lift_hold, place_hold
from hivekeeper.domain import events as e
from hivekeeper.domain.landed import Configuration
from hivekeeper.domain.rows import RepoRow
from hivekeeper.domain.session import Hold
from hivekeeper.store.ledger import Transaction

CAUSE = "configuration"
_MAX_SHOWN = 1000


def check_configuration(tx: Transaction, repo: RepoRow, found: Configuration) -> None:
    """Pin what a person's branch has when it is first seen; when it has something else later, prompts on it wait."""
    if repo.pinned is None:
        pin(tx, repo, found)
    elif repo.pinned == found.digest or found.has_landed:
        # As it was; or all of it has been here before, and what landed since was let through by a person.
        lift_hold(tx, "repo", repo.name, cause=CAUSE, why="its agent configuration is as it was")
    else:
        names = ", ".join(sorted({*found.files, *json.loads(repo.pinned_files)})[:5])
        why = f"the agent configuration it ships has changed ({names})"
        place_hold(tx, Hold("repo", repo.name, CAUSE, None, 1), why=why)


def trust_configuration(tx: Transaction, repo: RepoRow, found: Configuration, *, why: str = "") -> list[str]:
    """Pin what a repository ships now, and let its prompts go on; tell the files."""
    pin(tx, repo, found, why=why)
    lift_hold(tx, "repo", repo.name, cause=CAUSE, why=why or "a person trusts it")
    return sorted(found.files)


def pin(tx: Transaction, repo: RepoRow, found: Configuration, *, why: str = "") -> None:
    """Record that this configuration is trusted."""
    tx.record(e.RepoPinned(repo.name, found.digest, list(found.shown[:_MAX_SHOWN])), why=why)
