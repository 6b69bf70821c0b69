"""One sentence: why a task is not done yet, and what to type where typing helps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.holds import describe_hold, find_command
from hivekeeper.domain.rows import AttemptRow, MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.states import AttemptState, MergeState, RepoState, TaskState
from hivekeeper.domain.wording import say_count


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the sentence may need."""

    task: TaskRow
    waits_for: Sequence[TaskRow] = ()
    attempt: AttemptRow | None = None
    runs: Sequence[RunRow] = ()
    merge: MergeRow | None = None
    ahead_in_queue: int = 0
    repo: RepoRow | None = None
    keeper_is_alive: bool = True
    hold: HoldRow | None = None


def explain(facts: Facts) -> str:
    """Say why a task is not done yet, or that it is."""
    task = facts.task
    match task.state:
        case TaskState.COMPLETE:
            where = f" as commit {task.commit_id[:10]}" if task.commit_id else ""
            return f"{task.id} is done: it was completed at {task.completed_at}{where}."
        case TaskState.CANCELLED:
            return f"{task.id} will not run: {task.reason}."
        case TaskState.CANCELLING:
            return f"{task.id} is being cancelled: its run is stopped first."
        case TaskState.FAILED:
            times = f"{task.attempts} of {say_count(task.attempts_allowed, 'attempt')}"
            return f"{task.id} failed in {times}; the last time {task.reason}. To retry: hive task retry {task.key}"
        case TaskState.UNKNOWN:
            twice = "and running it twice could do harm. If it may run again"
            return f"{task.id} may have run ({task.reason}), {twice}: hive task retry {task.key}"
        case TaskState.PENDING:
            return _explain_pending(facts)
        case TaskState.IN_PROGRESS:
            return _explain_in_progress(facts)
        case _:
            assert_never(task.state)


def _explain_pending(facts: Facts) -> str:
    task = facts.task
    failed = f" Its last attempt failed: {task.reason}." if task.attempts and task.reason else ""
    for other in facts.waits_for:
        match other.state:
            case TaskState.FAILED | TaskState.UNKNOWN:
                return f"{task.id} waits for {other.id}, which needs a person: hive task why {other.key}"
            case TaskState.CANCELLED:
                return f"{task.id} can never start: it waits for {other.id}, which was cancelled."
            case _:
                continue
    if facts.waits_for:
        names = ", ".join(f"{other.id} ({other.state.value})" for other in facts.waits_for)
        return f"{task.id} waits for {names}."
    if facts.repo is not None and facts.repo.state is RepoState.FAILED:
        return f"{task.id} waits for repository {facts.repo.name}, which could not be fetched: {facts.repo.problem}."
    if not facts.keeper_is_alive:
        return f"{task.id} is ready, and the keeper is not running. Type: hive up{failed}"
    if facts.repo is not None and facts.repo.state is RepoState.FETCHING:
        away = f" It cannot be read: {facts.repo.fetch_problem}. It is retried." if facts.repo.fetch_problem else ""
        return f"{task.id} waits until repository {facts.repo.name} is fetched.{away}{failed}"
    if facts.hold is not None:
        return f"{task.id} is ready and waits: {_say_hold(facts.hold)}{failed}"
    waits = "is about to be fetched" if task.branch else "is ready and waits for a free worker"
    return f"{task.id} {waits}.{failed}"


def _say_hold(hold: HoldRow) -> str:
    said = describe_hold(hold.scope, hold.name, hold.cause, hold.until, hold.why).rstrip(".")
    return f"{said}." if hold.until else f"{said}. Type: {find_command(hold)}"


def _explain_queue(entry: MergeRow, repo: RepoRow | None) -> str | None:
    """Say why an entry does not move at all; None when it does."""
    if entry.held:
        return f"waits for your approval: {entry.held}. Type: hive queue approve {entry.task}"
    if repo is not None and repo.stopped:
        return f"the merge queue of {repo.name} is stopped: {repo.stopped}. Type: hive queue resume {repo.name}"
    if repo is not None and repo.paused:
        return f"the merge queue of {repo.name} is paused. Type: hive queue resume {repo.name}"
    return None


def _explain_in_progress(facts: Facts) -> str:
    task, attempt = facts.task, facts.attempt
    nobody = "" if facts.keeper_is_alive else " The keeper is not running, so results are not processed. Type: hive up"
    if facts.merge is not None:
        if stands_still := _explain_queue(facts.merge, facts.repo):
            return f"{task.id} is finished by its worker, and {stands_still}{nobody}"
        match facts.merge.state:
            case MergeState.QUEUED if facts.merge.failures:
                return f"{task.id} failed its gate once ({facts.merge.reason}) and is verified alone once more.{nobody}"
            case MergeState.QUEUED:
                behind = f" behind {say_count(facts.ahead_in_queue, 'other')}" if facts.ahead_in_queue else ""
                return f"{task.id} is finished by its worker and waits in the merge queue{behind}.{nobody}"
            case MergeState.VERIFYING:
                return f"{task.id} is being verified on top of what landed before it.{nobody}"
            case _:
                return f"{task.id} passed its gate and is landing.{nobody}"
    if attempt is not None and attempt.state is AttemptState.PARKED:
        if facts.hold is None:
            return f"{task.id} is parked ({attempt.reason}) and about to continue.{nobody}"
        return f"{task.id} is parked, and its sandbox is kept: {_say_hold(facts.hold)}{nobody}"
    worker = f"worker {attempt.worker}, attempt {attempt.number}" if attempt else "a worker"
    doing = {
        "sandbox": "its sandbox is being made",
        "agent": "it is being worked on",
        "snapshot": "its work is being saved",
    }
    current = next((run for run in reversed(facts.runs) if run.is_open), None)
    if current is not None:
        if current.waiting_since:
            what = f"{current.runner} waits for its model since {current.waiting_since}"
            return f"{task.id} is in progress ({worker}): {what}.{nobody}"
        since = current.started_at or current.intended_at
        return f"{task.id} is in progress ({worker}): {doing.get(current.kind, current.kind)} since {since}.{nobody}"
    return f"{task.id} is in progress ({worker}): its last step has ended; checking the result.{nobody}"
