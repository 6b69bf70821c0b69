"""The repositories that a plan is about: those a person names, else those of the hive, else the one they are in."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hivekeeper.domain.issues import find_free, make_slug
from hivekeeper.domain.plan import DEFAULT_PUBLISH, RepoSpec, is_url
from hivekeeper.domain.rows import RepoRow
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.git.mirror import Mirror, find_source_problem
from hivekeeper.git.orders import NO_FSYNC_ENV, copy_source, integration_ref
from hivekeeper.git.remote import look
from hivekeeper.hive import Hive
from hivekeeper.runs.trial import try_out
from hivekeeper.store import queries

_MAIN = RepoSpec("", "").branch
_DETAILS = ("setup", "keep", "lock", "backup", "publish", "gate", "regenerate")


@dataclass(frozen=True, slots=True)
class Source:
    """A repository: its path or URL, and what the hive knows of it as a plan says it. It is read `at` a place."""

    name: str
    path: str
    branch: str
    at: str
    known: Mapping[str, Any]
    is_known: bool = False

    @property
    def verify(self) -> str | None:
        """Its verify command, if the hive knows it."""
        return self.known.get("verify")

    def describe(self, directory: Path) -> dict[str, Any]:
        """Write it as a plan in a directory has it."""
        where = {"url": self.path} if is_url(self.path) else {"path": _write_path(self.path, directory)}
        return {**where, **({"branch": self.branch} if self.branch != _MAIN else {}), **self.known}

    def copy(self, directory: Path, *, at_most_s: float) -> None:
        """Lay out what is committed."""
        tried = try_out(copy_source(self.at, self.branch, directory), "/", NO_FSYNC_ENV, at_most_s=at_most_s)
        if tried.ended_by != "exit":
            raise UnavailableError(
                f"Repository '{self.name}' could not be copied in time.", advice="Try: --timeout 30m"
            )
        if tried.status != 0:
            said = tried.output.decode("utf-8", "replace").strip().splitlines()
            raise UnavailableError(
                f"Repository '{self.name}' could not be copied: {said[-1] if said else tried.status}."
            )


def find_sources(hive: Hive, named: Sequence[str], here: Path) -> list[Source]:
    """Find the repositories that a plan is about; InputError for what is none."""
    with hive.ledger.read() as connection:
        rows = {row.name: row for row in queries.list_repos(connection)}
    if not named:
        found = look(str(here), "rev-parse", "--show-toplevel") if not rows else None
        named = [found] if found else list(rows)
    sources: dict[str, Source] = {}
    taken = set(rows)
    for word in named:
        source = _find_source(hive, rows, word, taken)
        sources.setdefault(source.path, source)
    return list(sources.values())


def _find_source(hive: Hive, rows: Mapping[str, RepoRow], word: str, taken: set[str]) -> Source:
    directory = Path(os.path.expanduser(word))  # noqa: PTH111 - that of Path raises when there is no such user
    if not directory.is_dir() and word in rows:
        return _from_row(hive, rows[word])
    path = os.path.realpath(look(str(directory), "rev-parse", "--show-toplevel") or directory)
    if row := next((row for row in rows.values() if row.path == path), None):
        return _from_row(hive, row)
    branch = _MAIN
    if find_source_problem(path, branch):
        branch = look(path, "symbolic-ref", "--quiet", "--short", "HEAD") or branch
    _refuse(path, branch)
    name = find_free(make_slug(Path(path).name.removesuffix(".git")) or "repo", taken)
    return Source(name, path, branch, path, {})


def _from_row(hive: Hive, row: RepoRow) -> Source:
    if not is_url(row.path):
        _refuse(row.path, row.branch)
    said: dict[str, Any] = {"verify": row.verify, **{key: getattr(row, key) for key in _DETAILS}}
    known = {key: list(value) if isinstance(value, tuple) else value for key, value in said.items() if value}
    if known.get("publish") == DEFAULT_PUBLISH:
        del known["publish"]
    return Source(row.name, row.path, row.branch, _choose_place(hive, row), known, is_known=True)


def _choose_place(hive: Hive, row: RepoRow) -> str:
    """Choose where a repository is read: what has landed, as for workers, unless the person has gone on without it."""
    public = hive.places.public(row.name)
    if not public.is_dir():
        return row.path
    tip = None if is_url(row.path) else look(row.path, "rev-parse", "--quiet", "--verify", f"refs/heads/{row.branch}")
    has_all = tip is None or Mirror(public).is_ancestor(tip, integration_ref(row.branch))
    return str(public) if has_all else row.path


def _refuse(path: str, branch: str) -> None:
    if problem := find_source_problem(path, branch):
        raise InputError(
            f"--repo: {problem}.", advice="Nothing was planned. --repo takes the directory of a repository."
        )


def _write_path(path: str, directory: Path) -> str:
    """Write a path as seen from a plan: short, and never to be taken for a URL or for somebody's home."""
    relative = os.path.relpath(path, os.path.realpath(directory))
    return relative if relative.startswith(".") else f"./{relative}"
