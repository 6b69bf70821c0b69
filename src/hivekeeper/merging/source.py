"""What a fetch found on the user's branch: its agent configuration, and landed changes that it no longer has."""

import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from hivekeeper.domain.landed import Configuration, Replaced
from hivekeeper.domain.rows import RepoRow
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror, list_refs
from hivekeeper.runners import CONFIGURATION

_LINK = "120000"


def list_configuration(mirror: Mirror, commit: str) -> dict[str, str]:
    """List the agent configuration of a commit, each file with its mode and blob.

    The target of a link counts like the link. A directory as target is listed too, by its path and a slash.
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
    """List the targets of a link: a file, a directory and everything below, or a path that does not exist yet."""
    said = mirror.read_blob(files[path].split()[1]) if files.get(path, "").startswith(_LINK) else "/"
    if said.startswith("/"):
        return
    target = posixpath.normpath(f"{posixpath.dirname(path) or '.'}/{said}")
    parts = target.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    if links := [part for part in above if files.get(part, "").startswith(_LINK)]:
        yield from links  # their targets contain it
    elif target in files:
        yield target
    elif parts[0] != "..":
        below = [file for file in files if file.startswith(f"{target}/")]
        yield from (f"{target}/", *below) if below else (target, f"{target}/")


def list_changed_configuration(repo: RepoRow, changed: Iterable[str]) -> list[str]:
    """List changed files that are agent configuration: by name, or because pinned links lead to them."""
    pinned = set(json.loads(repo.pinned_files))
    below = tuple(path for path in pinned if path.endswith("/"))
    return [
        path for path in changed if is_configuration(path) or _show(path) in pinned or _show(path).startswith(below)
    ]


def is_configuration(path: str) -> bool:
    """Whether a file is agent configuration, at any depth."""
    # At any depth: a program started in a subdirectory reads the files there.
    # The directory itself too: it may be replaced by a link.
    patterns = (form for pattern in CONFIGURATION for form in (pattern, pattern.removesuffix("/*")))
    return any(fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}") for pattern in patterns)


def read_configuration(mirror: Mirror, repo: RepoRow, commit: str | None) -> Configuration:
    """Read the agent configuration of a commit. Reads git, so it runs before the transaction."""
    if commit is None:
        return Configuration({})
    has_landed = mirror.is_ancestor(commit, orders.integration_ref(repo.branch))
    files = list_configuration(mirror, commit)
    # First the files that only links lead to: the rest is recognized by name.
    shown = tuple(_show(path) for path in sorted(files, key=lambda path: (is_configuration(path), path)))
    return Configuration(files, has_landed, shown)


def find_replaced(mirror: Mirror, repo: RepoRow, integration: str) -> Replaced:
    """Find what had landed and is no longer on the integration branch.

    The ledger's integration branch is compared: it is only updated when the fetch is recorded. Commits removed by force
    from the user's branch land again too: to undo a landed change, revert its commit.
    """
    if repo.integration is None or mirror.is_ancestor(repo.integration, integration):
        return Replaced()
    kept = list_refs(mirror.path, orders.REPLACED).values()
    heads = [head for head in kept if mirror.is_ancestor(repo.integration, head)] or [repo.integration]
    landed = {change.commit: change for head in heads for change in mirror.list_landed(integration, head)}
    taken = {change.change for head in heads for change in mirror.list_landed(head, integration)}  # by another id
    return Replaced(tuple(landed.values()), frozenset(taken - {""}))


def _show(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
