"""The life of an entry in the merge queue, and of a repository's mirror, as the keeper records it."""

import json
from collections.abc import Sequence
from typing import Any

from hivekeeper.commands.agents import REJECTED
from hivekeeper.commands.attempts import complete_task, fail_attempt
from hivekeeper.commands.mail import send_mail
from hivekeeper.domain import events as e
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.protocol import REWORK_REQUEST, Role
from hivekeeper.domain.rows import AttemptRow, MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction


def begin_verifying(tx: Transaction, entry: MergeRow) -> None:
    """Record the candidate that is to be verified."""
    assert entry.base is not None
    assert entry.candidate is not None
    assert entry.tree is not None
    made = (entry.base, entry.candidate, entry.tree, entry.tier)
    tx.record(e.MergeVerifying(entry.task, entry.attempt, entry.round, *made))


def begin_landing(tx: Transaction, entry: MergeRow, *, at: str) -> None:
    """Record that the candidate passed and is to land."""
    tx.record(e.MergeLanding(entry.task, entry.attempt), occurred_at=at)


def requeue(tx: Transaction, entry: MergeRow, *, why: str) -> None:
    """Record that another candidate must be made."""
    tx.record(e.MergeRequeued(entry.task, entry.attempt), why=why)


def suspect(tx: Transaction, entry: MergeRow, run: RunRow) -> None:
    """Record that the candidate failed where nobody else can be to blame; it is tried once more."""
    tx.record(e.MergeFailed(entry.task, entry.attempt, run.id), why=describe_ending(run))


def clear(tx: Transaction, entry: MergeRow, run: RunRow) -> None:
    """Record that what had failed passed when it was tried again."""
    tx.record(e.MergeFlaked(entry.task, entry.attempt, run.id), why=f"{entry.failed_run} had failed")


def hold(tx: Transaction, entry: MergeRow, *, why: str) -> None:
    """Record that an entry waits for a person."""
    tx.record(e.MergeHeld(entry.task, entry.attempt), why=why)


def note_conflict(tx: Transaction, entry: MergeRow, *, ours: str, tree: str, paths: Sequence[str]) -> None:
    """Record which conflict of an entry is about to be settled: with what has landed, and where."""
    tx.record(e.MergeConflicted(entry.task, entry.attempt, ours, tree, list(paths)))


def note_resolved(tx: Transaction, entry: MergeRow, commit: str, tier: str, lost: Sequence[str]) -> None:
    """Record that a run has settled an entry's conflict, and which lines of either side that lacks."""
    tx.record(e.MergeResolved(entry.task, entry.attempt, commit, tier, list(lost)))


def note_landed(
    tx: Transaction,
    entry: MergeRow,
    task: TaskRow,
    *,
    at: str,
    head: str | None = None,
    holder: str | None = None,
) -> None:
    """Record that the candidate is on the integration branch, whose head is `head`: the task is complete.

    `holder` is the commit that had brought everything it changes before it, where there is one.
    """
    assert entry.candidate is not None
    landed = e.MergeLanded(entry.task, entry.attempt, entry.repo, entry.candidate, head or entry.candidate)
    why = f"everything it changes is there already, in {holder[:12]}" if holder else ""
    tx.record(landed, occurred_at=at, why=why)
    complete_task(tx, task, entry.attempt, at=at, commit=holder or entry.candidate)


def reject(
    tx: Transaction, entry: MergeRow, task: TaskRow, attempt: AttemptRow, *, why: str, body: dict[str, Any]
) -> None:
    """Record that the change does not land; the task is tried again, knowing why, or waits for a person."""
    tx.record(e.MergeRejected(entry.task, entry.attempt), why=why)
    send_mail(tx, REWORK_REQUEST, Role.QUEUE, task, attempt, {**body, "why": why})
    fail_attempt(tx, task, attempt, why=why, at=tx.now, verdict="" if body.get("hunks") else REJECTED)


def stop_queue(tx: Transaction, repo: RepoRow, *, why: str) -> None:
    """Record that a queue stands still."""
    tx.record(e.RepoStopped(repo.name), why=why)


def recover_queue(tx: Transaction, repo: RepoRow) -> None:
    """Record that what stopped a queue is over."""
    tx.record(e.RepoRecovered(repo.name))


def withdraw(tx: Transaction, entry: MergeRow, *, why: str) -> None:
    """Record that a cancelled task's change leaves the queue."""
    tx.record(e.MergeWithdrawn(entry.task, entry.attempt), why=why)


def note_fetched(tx: Transaction, repo: RepoRow, *, integration: str, source: str) -> None:
    """Record that a mirror is ready."""
    tx.record(e.RepoFetched(repo.name, integration, source))
    if repo.publish_problem:  # it was about a branch that may have moved since, or a repository that was away
        tx.record(e.RepoPublishDue(repo.name))


def fetch_again(tx: Transaction, repo: RepoRow, *, why: str) -> None:
    """Record that a repository is to be fetched once more, unless it is being fetched."""
    now = queries.find_repo(tx.connection, repo.name)
    if now is None or now.fetches != repo.fetches:
        return
    details = json.loads(repo.details)
    again = e.RepoWanted(repo.name, repo.path, repo.branch, repo.verify, repo.fetches + 1, details)
    tx.record(again, why=why)


def delay_fetch(tx: Transaction, repo: RepoRow, run: str, problem: str, *, retry_at: str) -> None:
    """Record that a repository could not be read just now, and when it is tried again; once for each run."""
    now = queries.find_repo(tx.connection, repo.name)
    if now is not None and now.fetch_failed_run != run:
        tx.record(e.RepoFetchDelayed(repo.name, problem, now.fetch_failures + 1, retry_at, run))


def note_fetch_failed(tx: Transaction, repo: RepoRow, problem: str) -> None:
    """Record that a mirror could not be fetched."""
    tx.record(e.RepoFetchFailed(repo.name, problem))


def begin_publishing(tx: Transaction, repo: RepoRow, commit: str) -> None:
    """Record that what landed is being published."""
    tx.record(e.RepoPublishing(repo.name, commit))


def note_published(tx: Transaction, repo: RepoRow, commit: str, *, at: str) -> None:
    """Record that the person's repository has it."""
    tx.record(e.RepoPublished(repo.name, commit), occurred_at=at)


def note_publish_failed(tx: Transaction, repo: RepoRow, problem: str, *, retry_at: str) -> None:
    """Record that the person's repository did not take it."""
    tx.record(e.RepoPublishFailed(repo.name, str(repo.publishing), problem, retry_at))
