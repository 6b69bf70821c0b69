"""One pure function from an event to row changes, used by the live tables and by every replay alike.

A change says which row, which values, and from which states the row may come; the store applies it and refuses a
change that meets no row. So an illegal transition cannot be written, whoever forgot to check.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hivekeeper.domain import events as e
from hivekeeper.domain.states import (
    AttemptState,
    ConvoyState,
    MergeState,
    RepoState,
    RunState,
    SwarmState,
    TaskState,
    sources_of,
)

Value = str | int | None
Row = Mapping[str, Value]

SETTLED = (AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.UNKNOWN, AttemptState.CANCELLED)

AT_REST = (TaskState.FAILED, TaskState.UNKNOWN, TaskState.CANCELLED)

# Every table the projection writes, in the order a replay may compare them.
PROJECTED_TABLES = (
    "lease", "repo", "convoy", "swarm", "task", "task_after", "task_prompt", "attempt", "merge_entry", "run",
    "message", "resolution", "task_runner", "hold", "budget",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    table: str
    row: Row


@dataclass(frozen=True, slots=True)
class Update:
    """New values for the row with this key, if it is in one of these states (any, when there are none).

    A key may name more than identifies the row: what must be so for the change to be allowed.
    """

    table: str
    key: Row
    values: Row
    states: tuple[StrEnum, ...] = ()


@dataclass(frozen=True, slots=True)
class Upsert:
    """A row that may already be there."""

    table: str
    key: Row
    values: Row


Change = Insert | Update | Upsert


def _move(table: str, key: Row, state: StrEnum, **values: Value) -> Update:
    return Update(table, key, {"state": state.value, **values}, sources_of(state))


def project(event: e.Event) -> tuple[Change, ...]:
    """Tell what an event changes in the tables."""
    room = _ROOMS.get(event.body.kind.partition(".")[0], _project_rest)
    changes = room(event)
    if changes is None:
        message = f"no projection for {event.body.kind}"
        raise AssertionError(message)
    return changes


def _project_run(event: e.Event) -> tuple[Change, ...] | None:
    at = event.occurred_at
    match event.body:
        case e.RunIntended() as b:
            row: dict[str, Value] = {
                "id": b.run,
                "kind": b.run_kind,
                "task": b.task,
                "attempt": b.attempt,
                "repo": b.repo,
                "argv": e.encode_json(b.argv),
                "directory": b.directory,
                "environment": e.encode_json(b.environment),
                "limits": e.encode_json(b.limits),
                "boot_id": b.boot_id,
                "state": RunState.INTENDED.value,
                "intended_at": at,
                "intended_seq": event.seq,
                "rooms": None if b.rooms is None else e.encode_json(b.rooms),
                "runner": b.runner,
                "session": b.session,
            }
            return (Insert("run", row),)
        case e.RunStarted() as b:
            place: dict[str, Value] = {"pid": b.pid, "start_ticks": b.start_ticks, "boot_id": b.boot_id}
            return (_move("run", {"id": b.run}, RunState.RUNNING, started_at=at, **place),)
        case e.RunKillRequested() as b:
            open_states = (RunState.INTENDED, RunState.RUNNING)
            once: Row = {"id": b.run, "kill_requested_at": None}
            asked: Row = {"kill_requested_at": at, "kill_cause": b.cause, "reason": event.why}
            return (Update("run", once, asked, open_states),)
        case e.RunExited() as b:
            ending: dict[str, Value] = {"exit_status": b.status, "ended_by": b.ended_by, "output_bytes": b.output_bytes}
            return (_move("run", {"id": b.run}, RunState.EXITED, ended_at=at, reason=event.why, **ending),)
        case e.RunLost() as b:
            return (_move("run", {"id": b.run}, RunState.LOST, ended_at=at, reason=event.why),)
        case e.RunWaiting() as b:
            return (Update("run", {"id": b.run}, {"waiting_since": b.since}, (RunState.RUNNING,)),)
        case e.RunReported() as b:
            unread: Row = {"id": b.run, "outcome": None}
            used: dict[str, Value] = {"tokens_in": b.tokens_in, "tokens_out": b.tokens_out, "microusd": b.microusd}
            said: dict[str, Value] = {"outcome": b.outcome, "session": b.session or None, "retry_at": b.retry_at}
            said |= {"reported_at": at, "reported_seq": event.seq}
            return (Update("run", unread, {**said, **used, "words": event.why}, (RunState.EXITED, RunState.LOST)),)
        case _:
            return None


def _project_task(event: e.Event) -> tuple[Change, ...] | None:
    at, why = event.occurred_at, event.why
    match event.body:
        case e.TaskAdded() as b:
            return _add_task(event, b)
        case e.TaskDispatched() as b:
            attempt: dict[str, Value] = {
                "task": b.task,
                "number": b.attempt,
                "convoy": b.convoy,
                "swarm": b.swarm,
                "worker": b.worker,
                "sandbox": "PRESENT" if b.sandbox else "NONE",
                "state": AttemptState.WORKING.value,
                "started_at": at,
                "start": b.start,
            }
            return (
                _move("task", {"key": b.task}, TaskState.IN_PROGRESS, attempts=b.attempt, dispatched_at=at, reason=""),
                Insert("attempt", attempt),
                Update("convoy", {"name": b.convoy}, {"workers": b.worker}, (ConvoyState.ACTIVE,)),
            )
        case e.TaskCompleted() as b:
            done = {"completed_at": at, "commit_id": b.commit, "output_path": b.output, "reason": ""}
            return (
                _move("task", {"key": b.task}, TaskState.COMPLETE, **done),
                _move("attempt", _attempt(b), AttemptState.SUCCEEDED, ended_at=at),
            )
        case e.TaskCancelled() as b:
            return (_move("task", {"key": b.task}, TaskState.CANCELLED, reason=why),)
        case e.TaskCancelRequested() as b:
            return (_move("task", {"key": b.task}, TaskState.CANCELLING, reason=why),)
        case e.TaskRetryRequested() as b:
            values: Row = {"state": TaskState.PENDING.value, "attempts_allowed": b.attempts_allowed, "reason": why}
            return (Update("task", {"key": b.task}, values, AT_REST),)
        case e.TaskEdited() as b:
            prompt = (Update("task_prompt", {"task": b.task}, {"text": b.prompt}),) if b.prompt else ()
            return (Update("task", {"key": b.task}, {"command": b.command}, (TaskState.PENDING, *AT_REST)), *prompt)
        case _:
            return None


def _project_attempt(event: e.Event) -> tuple[Change, ...] | None:
    at, why = event.occurred_at, event.why
    match event.body:
        case e.AttemptSubmitted() as b:
            entry: dict[str, Value] = {
                "task": b.task,
                "attempt": b.attempt,
                "repo": b.repo,
                "commit_id": b.commit,
                "priority": b.priority,
                "position": event.seq,
                "state": MergeState.QUEUED.value,
                "queued_at": event.occurred_at,
            }
            return (
                _move("attempt", _attempt(b), AttemptState.SUBMITTED, commit_id=b.commit),
                Insert("merge_entry", entry),
            )
        case e.AttemptFailed() as b:
            state = TaskState.FAILED if b.final else TaskState.PENDING
            return (
                Update("task", {"key": b.task}, {"state": state.value, "reason": why}, (TaskState.IN_PROGRESS,)),
                _move("attempt", _attempt(b), AttemptState.FAILED, ended_at=at, reason=why),
            )
        case e.AttemptUnknown() as b:
            return (
                _move("task", {"key": b.task}, TaskState.UNKNOWN, reason=why),
                _move("attempt", _attempt(b), AttemptState.UNKNOWN, ended_at=at, reason=why),
            )
        case e.AttemptCancelled() as b:
            return (_move("attempt", _attempt(b), AttemptState.CANCELLED, ended_at=at, reason=why),)
        case e.AttemptParked() as b:
            return (_move("attempt", _attempt(b), AttemptState.PARKED, parked_at=at, parked_seq=event.seq, reason=why),)
        case e.AttemptResumed() as b:
            key: Row = {**_attempt(b), "state": AttemptState.PARKED.value}
            return (_move("attempt", key, AttemptState.WORKING, reason=""),)
        case e.AttemptSwept() as b:
            present: Row = {**_attempt(b), "sandbox": "PRESENT"}
            return (Update("attempt", present, {"sandbox": "REMOVED"}, SETTLED),)
        case _:
            return None


def _add_task(event: e.Event, b: e.TaskAdded) -> tuple[Change, ...]:
    row: dict[str, Value] = {
        "key": b.task,
        "convoy": b.convoy,
        "id": b.id,
        "title": b.title,
        "command": b.command,
        "repo": b.repo,
        "verify": b.verify,
        "priority": b.priority,
        "attempts_planned": b.attempts_allowed,
        "attempts_allowed": b.attempts_allowed,
        "output": b.output,
        "idempotent": int(b.idempotent),
        "limits": e.encode_json(b.limits),
        "state": TaskState.PENDING.value,
        "position": event.seq,
        "added_at": event.occurred_at,
        "details": e.encode_json(b.details),
    }
    prompt = (Insert("task_prompt", {"task": b.task, "text": b.prompt}),) if b.prompt else ()
    said = b.details.get("runner") or []
    runners = [said] if isinstance(said, str) else said
    return (
        Insert("task", row),
        *prompt,
        *(Insert("task_runner", {"task": b.task, "rank": n, "runner": name}) for n, name in enumerate(runners)),
        *(Insert("task_after", {"task": b.task, "after": other}) for other in b.after),
    )


def _project_merge(event: e.Event) -> tuple[Change, ...] | None:
    match event.body:
        case e.MergeVerifying() as b:
            made: dict[str, Value] = {"round": b.round, "base": b.base, "candidate": b.candidate, "tree": b.tree}
            before: Row = {**_entry(b), "round": b.round - 1}  # once for each round
            return (_move("merge_entry", before, MergeState.VERIFYING, tier=b.tier, **made),)
        case e.MergeLanding() as b:
            return (_move("merge_entry", _entry(b), MergeState.LANDING),)
        case e.MergeRequeued() as b:
            return (_move("merge_entry", _entry(b), MergeState.QUEUED, reason=event.why),)
        case e.MergeLanded() as b:
            return (
                _move("merge_entry", _entry(b), MergeState.LANDED, ended_at=event.occurred_at, reason=""),
                Update("repo", {"name": b.repo}, {"integration": b.head or b.commit}),
                *(
                    Upsert("resolution", {"hunk": hunk}, {"text": text, "task": b.task})
                    for hunk, text in b.learned.items()
                ),
            )
        case e.MergeFailed() as b:
            failed: dict[str, Value] = {"failures": 1, "failed_run": b.run}
            return (_move("merge_entry", _entry(b), MergeState.QUEUED, reason=event.why, **failed),)
        case e.MergeRejected() as b:
            return (_move("merge_entry", _entry(b), MergeState.REJECTED, ended_at=event.occurred_at, reason=event.why),)
        case e.MergeWithdrawn() as b:
            ended = {"ended_at": event.occurred_at, "reason": event.why}
            return (_move("merge_entry", _entry(b), MergeState.WITHDRAWN, **ended),)
        case _:
            return _project_entry(event)


def _project_entry(event: e.Event) -> tuple[Change, ...] | None:
    """Tell what changes about an entry without moving it."""
    waiting = (MergeState.QUEUED, MergeState.VERIFYING)
    match event.body:
        case e.MergeFlaked() as b:
            return (Update("merge_entry", _entry(b), {"failures": 0, "failed_run": None, "flakes": 1}, waiting),)
        case e.MergeHeld() as b:
            return (Update("merge_entry", {**_entry(b), "held": None}, {"held": event.why}, waiting),)
        case e.MergeApproved() as b:
            return (Update("merge_entry", _entry(b), {"held": None, "approved": 1}, waiting),)
        case e.MergePrioritized() as b:
            return (Update("merge_entry", _entry(b), {"priority": b.priority}, waiting),)
        case e.MergeResolved() as b:
            settled: Row = {"resolved": b.commit, "tier": b.tier, "reason": event.why}
            return (Update("merge_entry", _entry(b), settled, waiting),)
        case _:
            return None


def _project_rest(event: e.Event) -> tuple[Change, ...] | None:
    at = event.occurred_at
    match event.body:
        case e.LeaseTaken() as b:
            holder: dict[str, Value] = {
                "pid": b.pid,
                "start_ticks": b.start_ticks,
                "boot_id": b.boot_id,
                "holder": b.holder,
            }
            values: Row = {"epoch": b.epoch, "taken_at": at, "released_at": None, **holder}
            return (Upsert("lease", {"id": 1}, values),)
        case e.LeaseReleased() as b:
            return (Update("lease", {"id": 1, "holder": b.holder, "released_at": None}, {"released_at": at}),)
        case e.SwarmOpened() as b:
            swarm: Row = {"convoy": b.convoy, "number": b.number, "state": SwarmState.OPEN.value, "opened_at": at}
            return (Insert("swarm", swarm), Update("convoy", {"name": b.convoy}, {"swarms": b.number}))
        case e.MessageSent() as b:
            sent: dict[str, Value] = {"id": b.message, "kind": b.type, "task": b.task, "attempt": b.attempt}
            return (Insert("message", {**sent, "body": e.encode_json(b.body), "sent_at": at, "seq": event.seq}),)
        case e.SwarmClosed() as b:
            return (_move("swarm", {"convoy": b.convoy, "number": b.number}, SwarmState.CLOSED, closed_at=at),)
        case e.WorkerTold() as b:
            told: dict[str, Value] = {"id": b.message, "kind": "TOLD", "task": b.task, "attempt": b.attempt}
            told |= {"body": e.encode_json({"text": b.text}), "sent_at": at, "seq": event.seq}
            return (Insert("message", told),)
        case _:
            return _project_hold(event)


def _project_convoy(event: e.Event) -> tuple[Change, ...] | None:
    at = event.occurred_at
    match event.body:
        case e.ConvoySubmitted() as b:
            row: dict[str, Value] = {"name": b.convoy, "pipeline": b.pipeline, "accept": b.accept, "submitted_at": at}
            begun: Row = {
                "opened_at": at,
                "opened_seq": event.seq,
                "state": ConvoyState.ACTIVE.value,
                "budget": e.encode_json(b.budget),
            }
            return (Insert("convoy", {**row, **begun}),)
        case e.ConvoyExtended() as b:
            return (
                _move(
                    "convoy", {"name": b.convoy}, ConvoyState.ACTIVE, ended_at=None, opened_at=at, opened_seq=event.seq
                ),
            )
        case e.ConvoyCompleted() as b:
            return (_move("convoy", {"name": b.convoy}, ConvoyState.COMPLETE, ended_at=at),)
        case e.ConvoyFailed() as b:
            return (_move("convoy", {"name": b.convoy}, ConvoyState.FAILED, ended_at=at),)
        case e.ConvoyArchived() as b:
            return (_move("convoy", {"name": b.convoy}, ConvoyState.ARCHIVED, archived_at=at),)
        case e.ConvoyDefaultsSet() as b:
            return (Update("convoy", {"name": b.convoy}, {"defaults": e.encode_json(b.defaults)}),)
        case _:
            return None


def _project_hold(event: e.Event) -> tuple[Change, ...] | None:
    match event.body:
        case e.HoldPlaced() as b:
            held: dict[str, Value] = {"cause": b.cause, "until": b.until, "strikes": b.strikes, "lifted": 0}
            placed: Row = {**held, "why": event.why, "placed_at": event.occurred_at, "placed_seq": event.seq}
            return (Upsert("hold", {"scope": b.scope, "name": b.name}, placed),)
        case e.HoldLifted() as b:
            return (Update("hold", {"scope": b.scope, "name": b.name}, {"lifted": 1, "strikes": 0}),)
        case e.BudgetRaised() as b:
            key: Row = {"scope": b.scope, "name": b.name}
            return (Upsert("budget", key, {"tokens": b.tokens, "microusd": b.microusd}),)
        case _:
            return None


_READABLE: dict[str, Value] = {
    "fetch_problem": None, "fetch_failures": 0, "fetch_failed_at": None, "fetch_retry_at": None
}  # fmt: skip


def _project_repo(event: e.Event) -> tuple[Change, ...] | None:
    match event.body:
        case e.RepoWanted() as b:
            values: Row = {"path": b.path, "branch": b.branch, "verify": b.verify, "fetches": b.fetch, "problem": None}
            details = e.encode_json(b.details)
            said: Row = {"state": RepoState.FETCHING.value, "details": details, "fetch_retry_at": None}
            return (Upsert("repo", {"name": b.repo}, {**said, **values}),)
        case e.RepoFetched() as b:
            # Where both heads are one, the person has everything: nothing is left to publish.
            heads: dict[str, Value] = {"integration": b.integration}
            heads |= {"published": b.integration} if b.integration == b.source else {}
            return (_move("repo", {"name": b.repo}, RepoState.READY, **heads, **_READABLE),)
        case e.RepoFetchFailed() as b:
            return (_move("repo", {"name": b.repo}, RepoState.FAILED, problem=b.problem, **_READABLE),)
        case e.RepoFetchDelayed() as b:
            tried: Row = {"name": b.repo, "fetch_retry_at": None}
            waits: dict[str, Value] = {"fetch_problem": b.problem, "fetch_failures": b.failures}
            waits |= {"fetch_failed_at": event.occurred_at, "fetch_retry_at": b.retry_at}
            return (Update("repo", tried, waits, (RepoState.FETCHING,)),)
        case e.RepoPaused() as b:
            return (Update("repo", {"name": b.repo}, {"paused": 1}),)
        case e.RepoResumed() as b:
            return (Update("repo", {"name": b.repo}, {"paused": 0, "stopped": None, "resumptions": event.seq}),)
        case e.RepoStopped() as b:
            return (Update("repo", {"name": b.repo, "stopped": None}, {"stopped": event.why}),)
        case e.RepoPinned() as b:
            pinned: Row = {"pinned": b.digest, "pinned_files": e.encode_json(b.files)}
            return (Update("repo", {"name": b.repo}, pinned),)
        case e.RepoRecovered() as b:
            return (Update("repo", {"name": b.repo}, {"stopped": None}),)
        case _:
            return _project_publishing(event)


def _project_publishing(event: e.Event) -> tuple[Change, ...] | None:
    match event.body:
        case e.RepoPublishing() as b:
            idle: Row = {"name": b.repo, "publishing": None, "publications": b.number - 1}
            return (Update("repo", idle, {"publishing": b.commit, "publications": b.number}),)
        case e.RepoPublished() as b:
            done: Row = {"published": b.commit, "publishing": None, "publish_problem": None}
            return (Update("repo", {"name": b.repo, "publishing": b.commit}, done),)
        case e.RepoPublishFailed() as b:
            failed: dict[str, Value] = {"publishing": None, "publish_problem": b.problem}
            failed |= {"publish_failed_at": event.occurred_at, "publish_retry_at": b.retry_at}
            return (Update("repo", {"name": b.repo, "publishing": b.commit}, failed),)
        case e.RepoPublishDue() as b:
            return (Update("repo", {"name": b.repo}, {"publish_problem": None}),)
        case _:
            return None


_OfAttempt = (
    e.TaskCompleted
    | e.AttemptFailed
    | e.AttemptUnknown
    | e.AttemptCancelled
    | e.AttemptSubmitted
    | e.AttemptSwept
    | e.AttemptParked
    | e.AttemptResumed
)
_OfEntry = (
    e.MergeVerifying
    | e.MergeLanding
    | e.MergeRequeued
    | e.MergeFailed
    | e.MergeFlaked
    | e.MergeHeld
    | e.MergeApproved
    | e.MergePrioritized
    | e.MergeResolved
    | e.MergeLanded
    | e.MergeRejected
    | e.MergeWithdrawn
)


def _attempt(body: _OfAttempt) -> Row:
    return {"task": body.task, "number": body.attempt}


def _entry(body: _OfEntry) -> Row:
    return {"task": body.task, "attempt": body.attempt}


_ROOMS = {
    "run": _project_run,
    "task": _project_task,
    "attempt": _project_attempt,
    "merge": _project_merge,
    "repo": _project_repo,
    "convoy": _project_convoy,
}
