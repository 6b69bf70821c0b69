"""Entries of a merge queue: their rows, their commit messages, and their rejections."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, assert_never

from hivekeeper.clock import to_seconds
from hivekeeper.commands import merges as commands
from hivekeeper.commands.mail import send_mail
from hivekeeper.domain import merge as m
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.gate import Gate, could_not_run
from hivekeeper.domain.protocol import PRIORITY_MERGE, Role
from hivekeeper.domain.rows import AttemptRow, MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.states import AttemptState, MergeState
from hivekeeper.domain.wording import say_count
from hivekeeper.git.candidate import MAX_TEXT, Change, Empty, Strays, Unresolved, Unsound
from hivekeeper.git.clone import hash_file, read_base, read_head
from hivekeeper.git.mirror import Mirror
from hivekeeper.git.orders import integration_ref
from hivekeeper.places import Places
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry and everything that belongs to it."""

    row: MergeRow
    task: TaskRow
    attempt: AttemptRow
    repo: RepoRow
    runs: Sequence[RunRow]

    @property
    def gate(self) -> Gate:
        """The gate that its candidates must pass."""
        return Gate(self.repo, self.task.verify)

    @property
    def agent(self) -> str:
        """The agent that made it."""
        return self.task.author or f"worker {self.attempt.worker}"


def load_entries(connection: Connection) -> Iterator[Entry]:
    """Load the merge queues in order."""
    rows = queries.list_open_merges(connection)
    if not rows:
        return
    attempts = {(attempt.task, attempt.number): (attempt, task)
                for attempt, task in queries.list_open_attempts(connection, AttemptState.SUBMITTED)}  # fmt: skip
    runs = queries.list_runs_of_open_attempts(connection, AttemptState.SUBMITTED)
    repos = {repo.name: repo for repo in queries.list_repos(connection)}
    relanding = queries.list_repos_relanding(connection)
    for row in rows:
        attempt, task = attempts[row.task, row.attempt]
        if row.repo in relanding and not task.remakes and row.state is not MergeState.LANDING:
            row = replace(row, held="replaced changes land again first")  # noqa: PLW2901 - held for this pass
        yield Entry(row, task, attempt, repos[row.repo], runs.get((row.task, row.attempt), []))


def describe_change(mirror: Mirror, entry: Entry) -> Change:
    """Describe an entry's change: its commit, message, author and base."""
    row, task = entry.row, entry.task
    at = f"@{int(to_seconds(row.queued_at))} +0000"
    if remade := task.remakes:
        before = f"{row.commit_id}^"
        message = mirror.list_subjects(before, row.commit_id, ())
        named = re.findall(r"^Hive-Change: ([0-9a-f]{40})$", message, re.MULTILINE)
        author, landed_as = mirror.find_author(row.commit_id), named[-1] if named else None
        base = mirror.find_commit(before)
        return Change(row.commit_id, row.resolved, f"{message}\n", author, at, base, landed_as, remade)
    messages = mirror.list_messages(integration_ref(entry.repo.branch), row.commit_id)
    subject, body = m.describe_work(task.id, task.title or task.command.strip().partition("\n")[0], messages)
    verified = " && ".join(command.replace("\n", "; ") for command in entry.gate.commands) or "no gate"
    if task.branch is None:
        author = f"{entry.agent} <{entry.agent.replace(' ', '-')}@localhost>"
    else:
        author = mirror.find_author(row.commit_id)
    trailers = {
        "Hive-Task": task.id,
        "Hive-Convoy": task.convoy,
        "Hive-Agent": author.rpartition(" <")[0],
        "Hive-Attempt": str(entry.attempt.number),
        "Hive-Change": row.commit_id,
        "Hive-Verified": verified,
    }
    lines = "\n".join(f"{name}: {value}" for name, value in trailers.items())
    message = "\n\n".join(part for part in (subject, body, lines) if part)
    return Change(row.commit_id, row.resolved, f"{message}\n", author, at, task=task.key)


def reject_failed(tx: Transaction, entry: Entry, run: RunRow, output: str) -> None:
    """Reject a change that failed twice; its next worker gets the output, and how to reproduce it."""
    said = output[-m.MAX_OUTPUT :]
    commands_ = " && ".join(entry.gate.commands)
    body = {"output": said, "reproduce": f"git merge origin/{entry.repo.branch} && {commands_}", "run": run.id}
    what = "could not be run," if could_not_run(run) else "failed"
    _reject(tx, entry, f"verify {what} twice: {describe_ending(run)}", body, is_conflict=False)


def describe_unresolved(entry: Entry, mirror: Mirror, unresolved: Unresolved) -> dict[str, Any]:
    """Describe a conflict for the change's next worker. Reads git, so it runs before the transaction."""
    fork = mirror.find_merge_base(entry.row.commit_id, "HEAD") or entry.row.commit_id
    return {
        "hunks": unresolved.hunks,
        "diff": mirror.diff(fork, entry.row.commit_id)[:MAX_TEXT],
        "reproduce": f"git merge origin/{entry.repo.branch}",
    }


def reject_conflict(tx: Transaction, entry: Entry, unresolved: Unresolved, body: dict[str, Any], why: str) -> None:
    """Reject a change that conflicts with what has landed; its next worker gets the conflict and the change."""
    names = ", ".join(unresolved.paths[:MAX_NAMED]) + (" …" if len(unresolved.paths) > MAX_NAMED else "")
    because = f" ({why})" if why else ""
    _reject(tx, entry, f"it conflicts with what landed before it in {names}{because}", body, is_conflict=True)


def reject_unmergeable(tx: Transaction, entry: Entry, made: Empty | Strays | Unsound) -> None:
    """Reject a change that cannot land on any branch."""
    match made:
        case Empty():
            _reject(tx, entry, "the resolved change is empty", {}, is_conflict=True)
        case Strays(paths):
            why = f"merging it would change {paths[0]}, which is not part of the change"
            _reject(tx, entry, why, {}, is_conflict=True)
        case Unsound(path, words, can_be_mended):
            # Work that cannot be checked out cannot be continued.
            where = f"{path}: " if path else ""
            body = {"output": f"{where}{words}", "reproduce": "git fsck --strict"}
            why = f"a git server that checks pushed objects would refuse it ({where}{words})"
            _reject(tx, entry, why, body, is_conflict=not can_be_mended)
        case _:
            assert_never(made)


def reject_after_max_rounds(tx: Transaction, entry: Entry) -> None:
    """Reject a change that did not land in too many rounds."""
    why = f"it has not landed in {say_count(entry.row.round, 'try', 'tries')}: {entry.row.reason}"
    _reject(tx, entry, why, {}, is_conflict=False)


def _reject(tx: Transaction, entry: Entry, why: str, body: dict[str, Any], *, is_conflict: bool) -> None:
    earlier = [
        str(message.get_payload().get("mode"))
        for number in range(1, entry.attempt.number)
        for message in queries.list_mail(tx.connection, entry.task.key, number)
        if message.is_rejection
    ]
    if by_hand := entry.task.get_details().get("by_hand"):
        why = f"{why}; to apply it by hand, in a clone: {by_hand}"
    mode = m.choose_mode(entry.task, earlier, is_conflict=is_conflict)
    said = {name: as_text(value) for name, value in body.items()}
    commands.reject(tx, entry.row, entry.task, entry.attempt, why=as_text(why), body={"mode": mode, **said})


def as_text(said: str) -> str:
    """Escape bytes that are not UTF-8, so that the text can be stored."""
    return said.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


_NOTIFIED = (AttemptState.WORKING, AttemptState.PARKED)
HotfixNotices = list[tuple[TaskRow, AttemptRow, dict[str, Any]]]


def find_hotfix_notices(connection: Connection, places: Places, entry: Entry, changed: Sequence[str]) -> HotfixNotices:
    """Find the working attempts to notify of a hotfix; those that changed a file of it must rebase.

    Reads git and workers' files, so it runs before the transaction. A clone that contains the hotfix is left alone.
    """
    hotfix = _Hotfix(Mirror(places.mirror(entry.repo.name)), str(entry.row.base), str(entry.row.candidate), changed)
    notices = HotfixNotices()
    at_work = (pair for state in _NOTIFIED for pair in queries.list_open_attempts(connection, state))
    for attempt, task in at_work:
        if task.repo == entry.repo.name and task.branch is None:
            touched = hotfix.find_touched(places.sandbox(task.key, attempt.number))
            if touched is None:
                continue
            body = {
                "commit": entry.row.candidate,
                "paths": list(map(as_text, changed)),
                "touched": list(map(as_text, touched)),
                "must_rebase": bool(touched),
            }
            notices.append((task, attempt, body))
    return notices


class _Hotfix:
    """A hotfix, compared with workers' clones; what is found of a commit is kept, for many clones are at the same."""

    def __init__(self, mirror: Mirror, base: str, commit: str, changed: Sequence[str]) -> None:
        self._mirror, self._base, self._commit, self._changed = mirror, base, commit, changed
        self._forks: dict[str, str | None] = {}
        self._versions: dict[str, list[str | None]] = {}

    def find_touched(self, sandbox: Path) -> list[str] | None:
        """Find the files of it that a worker has changed itself; None if its clone contains the hotfix.

        A file is as somebody else left it if it is as it was where the clone began, or where the worker has rebased to,
        or where the hotfix was made.
        """
        found = (read_base(sandbox), read_head(sandbox / "work"))
        commits = [commit for commit in dict.fromkeys(found) if commit is not None]
        forks = [self._find_fork(commit) for commit in commits]
        if self._commit in forks:
            return None
        if not commits:  # its clone is being made
            return []
        known = [self._read_versions(fork) for fork in (*forks, self._base) if fork is not None]
        return [
            path
            for path, *versions in zip(self._changed, *known, strict=True)
            if hash_file(sandbox / "work", path) not in versions
        ]

    def _find_fork(self, commit: str) -> str | None:
        """Find where a clone's history parts from the hotfix's; None if the commit was never saved."""
        if commit not in self._forks:
            self._forks[commit] = self._mirror.find_merge_base(commit, self._commit)
        return self._forks[commit]

    def _read_versions(self, commit: str) -> list[str | None]:
        """Read what each file was called by its content, at a commit."""
        if commit not in self._versions:
            files = self._mirror.list_files(commit)
            self._versions[commit] = [files[path].split()[1] if path in files else None for path in self._changed]
        return self._versions[commit]


def send_hotfix_notices(tx: Transaction, notices: HotfixNotices) -> None:
    """Notify workers of a hotfix."""
    for task, attempt, body in notices:
        send_mail(tx, PRIORITY_MERGE, Role.QUEUE, task, attempt, body)


def write_conflict_prompt(entry: Entry, mirror: Mirror, paths: Sequence[str], prompt: str, ours: str) -> str:
    """Write the resolver's prompt for a conflict."""
    fork = mirror.find_merge_base(ours, entry.row.commit_id) or ours
    landed = mirror.list_subjects(fork, ours, paths)
    return "\n\n".join(
        (
            "# Resolve a merge conflict",
            f"These files contain conflict markers (ours, base, theirs): {', '.join(map(shlex.quote, paths))}.",
            "Edit only these files. Keep the intent of both sides. Remove every conflict marker.",
            f"## Ours: what has landed\n\n{landed}",
            f"## Theirs: what is to land\n\n{entry.task.title}\n\n{prompt or entry.task.command}",
            f"## The change\n\n```\n{mirror.diff(fork, entry.row.commit_id)[:MAX_TEXT]}\n```",
        )
    )
