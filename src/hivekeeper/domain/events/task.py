"""What happens to tasks and to the attempts at them, and what their workers are told."""

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from hivekeeper.domain.agent_rows import AgentRow
from hivekeeper.domain.rows import (
    AttemptRow,
    ConvoyRow,
    MergeRow,
    TaskAfterRow,
    TaskPromptRow,
    TaskRow,
    TaskRunnerRow,
)
from hivekeeper.domain.schema import (
    AT,
    PERSON,
    SEQ,
    WHY,
    Body,
    Row,
    event,
    field_of,
    inserts,
    inserts_each,
    made,
    moves,
    updates,
    upserts_each,
)
from hivekeeper.domain.states import (
    AT_REST,
    OPEN_TASKS,
    SETTLED_ATTEMPTS,
    AttemptState,
    ConvoyState,
    MergeState,
    TaskState,
)


def _detail(name: str) -> Any:  # noqa: ANN401 - see made
    return made(lambda body: body.details.get(name))


def _list_runners(body: Any) -> Iterator[Row]:  # noqa: ANN401 - a TaskAdded, which is declared below
    said = body.details.get("runner") or []
    runners = [said] if isinstance(said, str) else said
    return ({"task": body.task, "rank": rank, "runner": name} for rank, name in enumerate(runners))


@event(
    "task.added",
    "task",
    inserts(
        TaskRow,
        attempts_planned=field_of("attempts_allowed"),
        state=TaskState.PENDING,
        position=SEQ,
        added_at=AT,
        branch=_detail("branch"),
        remakes=_detail("remakes"),
        agent=_detail("agent"),
    ),
    # Apart from the task, which is read often: a prompt may be megabytes, and only a worker reads it.
    inserts_each(TaskPromptRow, lambda body: [{"task": body.task, "text": body.prompt}] if body.prompt else []),
    inserts_each(TaskRunnerRow, _list_runners),
    inserts_each(TaskAfterRow, lambda body: ({"task": body.task, "after": other} for other in body.after)),
    by=PERSON,
)
class TaskAdded(Body):
    """A person asked for a task."""

    task: str
    convoy: str
    id: str
    title: str
    command: str
    repo: str | None
    after: list[str]
    verify: str | None
    priority: int
    attempts_allowed: int
    output: str | None
    idempotent: bool
    limits: dict[str, Any]
    prompt: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@event("task.cancelled", "task", moves(TaskRow, TaskState.CANCELLED, reason=WHY), by=PERSON)
class TaskCancelled(Body):
    """The task will not run, unless a person revives it; a person may cancel only while nothing of it runs."""

    task: str


@event("task.cancel_requested", "task", moves(TaskRow, TaskState.CANCELLING, reason=WHY), by=PERSON)
class TaskCancelRequested(Body):
    """A person wants a running task stopped; the keeper ends what runs first."""

    task: str


@event(
    "task.retry_requested",
    "task",
    updates(TaskRow, "attempts_allowed", states=AT_REST, state=TaskState.PENDING, reason=WHY, recommended=None),
    by=PERSON,
)
class TaskRetryRequested(Body):
    """A person wants a FAILED, UNKNOWN or CANCELLED task tried again."""

    task: str
    attempts_allowed: int


@event(
    "task.edited",
    "task",
    updates(TaskRow, "command", states=(TaskState.PENDING, *AT_REST)),
    updates(TaskPromptRow, when=lambda body: body.prompt, text=field_of("prompt")),
    by=PERSON,
)
class TaskEdited(Body):
    """A person changed what a task nobody works on is told; this is all of it, `command` or `prompt`."""

    task: str
    command: str
    prompt: str


@event(
    "task.handed_off",
    "task",
    updates(TaskRow, "agent", "details", states=(*OPEN_TASKS, *AT_REST), recommended=None),
    upserts_each(
        TaskRunnerRow,
        lambda body: ({"task": body.task, "rank": rank, "runner": name} for rank, name in enumerate(body.runners)),
    ),
    # Whoever continues an attempt under way answers for it.
    updates(
        AttemptRow,
        "agent",
        when=lambda body: body.attempt,
        session=field_of("session"),
        chosen="handed off by a person",
    ),
    updates(AgentRow, when=lambda body: body.session, sessions=field_of("session")),
    by=PERSON,
)
class TaskHandedOff(Body):
    """A person gave a task to another agent or runner; `runners` replace those it had, one for one.

    `attempt` is the one under way, if the agent is another one for it.
    """

    task: str
    agent: str | None
    details: dict[str, Any]
    runners: list[str]
    attempt: int = 0
    session: int = 0


@event(
    "task.dispatched",
    "task",
    moves(TaskRow, TaskState.IN_PROGRESS, attempts=field_of("attempt"), dispatched_at=AT, reason=""),
    inserts(
        AttemptRow,
        sandbox=made(lambda body: "PRESENT" if body.sandbox else "NONE"),
        state=AttemptState.WORKING,
        started_at=AT,
    ),
    updates(ConvoyRow, states=(ConvoyState.ACTIVE,), workers=field_of("worker")),
    updates(AgentRow, when=lambda body: body.session, sessions=field_of("session")),
)
class TaskDispatched(Body):
    """A worker was given the task; everything it will do is intended by runs of this attempt.

    `start` is the commit of a predecessor that it goes on from; None is the integration branch. The worker is the
    `session`th session of `agent`, and `chosen` says why of that one.
    """

    task: str
    convoy: str
    attempt: int
    swarm: int
    worker: int
    sandbox: bool
    start: str | None = None
    agent: str | None = None
    session: int = 0
    chosen: str = ""


@event(
    "task.completed",
    "task",
    moves(
        TaskRow,
        TaskState.COMPLETE,
        completed_at=AT,
        commit_id=field_of("commit"),
        output_path=field_of("output"),
        reason="",
    ),
    moves(AttemptRow, AttemptState.SUCCEEDED, ended_at=AT),
)
class TaskCompleted(Body):
    """The task is done and proven."""

    task: str
    attempt: int
    commit: str | None
    output: str | None


@event(
    "attempt.submitted",
    "task",
    moves(AttemptRow, AttemptState.SUBMITTED, commit_id=field_of("commit")),
    inserts(MergeRow, commit_id=field_of("commit"), position=SEQ, state=MergeState.QUEUED, queued_at=AT),
)
class AttemptSubmitted(Body):
    """The worker's change is kept in the mirror and waits in the merge queue."""

    task: str
    attempt: int
    repo: str
    commit: str
    priority: int


@event(
    "attempt.failed",
    "task",
    updates(
        TaskRow,
        states=(TaskState.IN_PROGRESS,),
        state=made(lambda body: TaskState.FAILED if body.final else TaskState.PENDING),
        reason=WHY,
    ),
    moves(AttemptRow, AttemptState.FAILED, "verdict", ended_at=AT, reason=WHY),
)
class AttemptFailed(Body):
    """The attempt came to nothing; the task goes into the next swarm or, at its limit, to a person.

    `verdict` is what that says about its agent.
    """

    task: str
    attempt: int
    final: bool
    verdict: str = ""


@event(
    "attempt.unknown",
    "task",
    moves(TaskRow, TaskState.UNKNOWN, reason=WHY),
    moves(AttemptRow, AttemptState.UNKNOWN, ended_at=AT, reason=WHY),
)
class AttemptUnknown(Body):
    """The attempt may have run and must not be repeated unasked."""

    task: str
    attempt: int


@event("attempt.cancelled", "task", moves(AttemptRow, AttemptState.CANCELLED, ended_at=AT, reason=WHY))
class AttemptCancelled(Body):
    """The attempt was ended because a person cancelled its task."""

    task: str
    attempt: int


@event("attempt.parked", "task", moves(AttemptRow, AttemptState.PARKED, parked_at=AT, parked_seq=SEQ, reason=WHY))
class AttemptParked(Body):
    """The attempt waits, its sandbox as it is and its worker free, until nothing holds it up any more."""

    task: str
    attempt: int


@event("attempt.resumed", "task", moves(AttemptRow, AttemptState.WORKING, reason=""))
class AttemptResumed(Body):
    """A parked attempt goes on where it was."""

    task: str
    attempt: int


@event(
    "attempt.swept",
    "task",
    updates(AttemptRow, states=SETTLED_ATTEMPTS, where={"sandbox": "PRESENT"}, sandbox="REMOVED"),
)
class AttemptSwept(Body):
    """The attempt's sandbox is removed; what was in it is kept elsewhere or there was nothing."""

    task: str
    attempt: int
