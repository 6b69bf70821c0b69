"""Agent configuration that a repository ships: what it is, and that a change of it asks a person."""

import hashlib
import json
from fnmatch import fnmatchcase

from hivekeeper.commands.sessions import lift_hold, place_hold
from hivekeeper.domain import events as e
from hivekeeper.domain.rows import RepoRow
from hivekeeper.domain.session import Hold
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror
from hivekeeper.places import Places
from hivekeeper.runners import CONFIGURATION
from hivekeeper.store.ledger import Transaction

CAUSE = "configuration"


def list_configuration(mirror: Mirror, commit: str) -> dict[str, str]:
    """List the files of a commit that agent programs obey, each with the name of its content."""
    return {path: blob for path, blob in mirror.list_files(commit).items() if is_configuration(path)}


def is_configuration(path: str) -> bool:
    """Tell whether an agent program would obey a file, wherever in the repository it lies."""
    # As deep as it may be: a program started below obeys what it finds there.
    # The directory's own name too: a link in its place leads wherever it likes.
    patterns = (form for pattern in CONFIGURATION for form in (pattern, pattern.removesuffix("/*")))
    return any(fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}") for pattern in patterns)


def _digest(files: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(files.items())).encode("utf-8", "surrogateescape")).hexdigest()


def check_configuration(tx: Transaction, mirror: Mirror, repo: RepoRow, source: str) -> None:
    """Pin what a person's branch has when it is first seen; when it has something else later, prompts on it wait."""
    files = list_configuration(mirror, source)
    digest = _digest(files)
    if repo.pinned is None:
        _pin(tx, repo, digest, files)
    elif repo.pinned == digest or mirror.is_ancestor(source, orders.integration_ref(repo.branch)):
        # As it was; or all of it has been here before, and what landed since was let through by a person.
        lift_hold(tx, "repo", repo.name, why="its agent configuration is as it was")
    else:
        names = ", ".join(sorted({*files, *json.loads(repo.pinned_files)})[:5])
        why = f"the agent configuration it ships has changed ({names})"
        place_hold(tx, Hold("repo", repo.name, CAUSE, None, 1), why=why)


def trust_configuration(tx: Transaction, places: Places, repo: RepoRow, *, why: str = "") -> list[str]:
    """Pin what a repository ships now, and let its prompts go on; tell the files."""
    mirror = Mirror(places.mirror(repo.name))
    commit = mirror.find_commit(orders.source_ref(repo.branch))
    files = list_configuration(mirror, commit) if commit else {}
    _pin(tx, repo, _digest(files), files, why=why)
    lift_hold(tx, "repo", repo.name, why=why or "a person trusts it")
    return sorted(files)


def pin_landed(tx: Transaction, mirror: Mirror, repo: RepoRow, commit: str) -> None:
    """Pin what landed because a person let it through."""
    files = list_configuration(mirror, commit)
    _pin(tx, repo, _digest(files), files, why="a person let it land")


def _pin(tx: Transaction, repo: RepoRow, digest: str, files: dict[str, str], *, why: str = "") -> None:
    shown = [path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") for path in sorted(files)]
    tx.record(e.RepoPinned(repo.name, digest, shown[:100]), why=why)
