"""Agent configuration that a repository ships: what it is, and that a change of it asks a person."""

import hashlib
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hivekeeper.commands.sessions import lift_hold, place_hold
from hivekeeper.domain import events as e
from hivekeeper.domain.rows import RepoRow
from hivekeeper.domain.session import Hold
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror
from hivekeeper.runners import CONFIGURATION
from hivekeeper.store.ledger import Transaction

CAUSE = "configuration"
_LINK = "120000"
_MOST_SHOWN = 1000


def list_configuration(mirror: Mirror, commit: str) -> dict[str, str]:
    """List the files of a commit that agent programs obey, each with the name of its content.

    What a link leads to is obeyed like the link. A directory at the end of one is listed too, by its path and a slash.
    """
    files = mirror.list_files(commit)
    listed = {path: blob for path, blob in files.items() if is_configuration(path)}
    todo = list(listed)
    while todo:
        for path in _list_led_to(files, todo.pop(), mirror):
            if path not in listed:
                listed[path] = files.get(path, "")
                todo.append(path)
    return listed


def _list_led_to(files: Mapping[str, str], path: str, mirror: Mirror) -> Iterator[str]:
    """List where a link leads to: a file, a directory and all that is below, or what may yet come to be either."""
    said = mirror.read_blob(files[path].split()[1]) if files.get(path, "").startswith(_LINK) else "/"
    if said.startswith("/"):
        return
    target = posixpath.normpath(f"{posixpath.dirname(path) or '.'}/{said}")
    parts = target.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    if links := [part for part in above if files.get(part, "").startswith(_LINK)]:
        yield from links  # and what they lead to holds it
    elif target in files:
        yield target
    elif parts[0] != "..":
        below = [file for file in files if file.startswith(f"{target}/")]
        yield from (f"{target}/", *below) if below else (target, f"{target}/")


def list_obeyed(repo: RepoRow, changed: Iterable[str]) -> list[str]:
    """List changed files that agent programs obey: by their names, or because links that are pinned lead to them."""
    pinned = set(json.loads(repo.pinned_files))
    below = tuple(path for path in pinned if path.endswith("/"))
    return [
        path for path in changed if is_configuration(path) or _show(path) in pinned or _show(path).startswith(below)
    ]


def is_configuration(path: str) -> bool:
    """Tell whether an agent program would obey a file, wherever in the repository it lies."""
    # As deep as it may be: a program started below obeys what it finds there.
    # The directory's own name too: a link in its place leads wherever it likes.
    patterns = (form for pattern in CONFIGURATION for form in (pattern, pattern.removesuffix("/*")))
    return any(fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}") for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The agent configuration of a commit, and whether all of that commit has landed here before."""

    files: dict[str, str]
    has_landed: bool = False

    @property
    def digest(self) -> str:
        """Tell it from any other."""
        text = json.dumps(sorted(self.files.items()))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def read_configuration(mirror: Mirror, repo: RepoRow, commit: str | None) -> Configuration:
    """Read what a commit has; git is asked, so this comes before whatever is written."""
    if commit is None:
        return Configuration({})
    has_landed = mirror.is_ancestor(commit, orders.integration_ref(repo.branch))
    return Configuration(list_configuration(mirror, commit), has_landed)


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
    # First what only links tell of: the rest is known by its names, however many there are.
    shown = [_show(path) for path in sorted(found.files, key=lambda path: (is_configuration(path), path))]
    tx.record(e.RepoPinned(repo.name, found.digest, shown[:_MOST_SHOWN]), why=why)


def _show(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
