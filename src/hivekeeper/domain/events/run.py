"""What happens to a run, and what an agent program says of its session."""

from typing import Any

from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.schema import AT, PERSON, SEQ, WHY, Body, event, field_of, inserts, made, moves, updates
from hivekeeper.domain.states import RunState


@event(
    "run.intended",
    "run",
    inserts(RunRow, kind=field_of("run_kind"), state=RunState.INTENDED, intended_at=AT, intended_seq=SEQ),
)
class RunIntended(Body):
    """An effect is about to be made, exactly this one, by a process of this boot.

    `mounts` is what it may touch when it is a worker's; None is a command of the hive's own. `runner` is the agent
    program that is started, and `session` its conversation, where that is known beforehand. Whose run it is, and where
    in its sequence it stands (`domain/steps.py`), is said by `owner` and what follows it.
    """

    run: str
    run_kind: str
    task: str | None
    attempt: int | None
    repo: str | None
    argv: list[str]
    directory: str
    environment: dict[str, str]
    limits: dict[str, Any]
    boot_id: str
    mounts: dict[str, list[str]] | None = None
    runner: str | None = None
    session: str | None = None
    owner_kind: str = ""
    owner: str = ""
    round: int = 0
    number: int = 1
    try_number: int = 1
    slot: int | None = None


@event("run.started", "run", moves(RunRow, RunState.RUNNING, "pid", "start_ticks", "boot_id", started_at=AT))
class RunStarted(Body):
    """The run's wrapper holds the claim."""

    run: str
    pid: int
    start_ticks: int
    boot_id: str


@event(
    "run.kill_requested",
    "run",
    updates(
        RunRow,
        states=(RunState.INTENDED, RunState.RUNNING),
        where={"kill_requested_at": None},
        kill_requested_at=AT,
        kill_cause=field_of("cause"),
        reason=WHY,
    ),
    by=PERSON,
)
class RunKillRequested(Body):
    """The run's whole process tree is to end; the keeper ends it, whoever asked, and `cause` is for what."""

    run: str
    cause: str = "person"


@event(
    "run.exited",
    "run",
    moves(
        RunRow,
        RunState.EXITED,
        "ended_by",
        "output_bytes",
        exit_status=field_of("status"),
        ended_at=AT,
        reason=WHY,
    ),
)
class RunExited(Body):
    """The run ended and its wrapper wrote down how."""

    run: str
    run_kind: str
    status: int
    ended_by: str
    output_bytes: int


@event("run.lost", "run", moves(RunRow, RunState.LOST, ended_at=AT, reason=WHY))
class RunLost(Body):
    """The run may have run and nobody can say how it ended; nothing of it is alive."""

    run: str
    run_kind: str


@event(
    "run.reported",
    "run",
    updates(
        RunRow,
        "outcome",
        "retry_at",
        "tokens_in",
        "tokens_out",
        "microusd",
        states=(RunState.EXITED, RunState.LOST),
        where={"outcome": None},
        session=made(lambda body: body.session or None),
        words=WHY,
        reported_at=AT,
        reported_seq=SEQ,
    ),
)
class RunReported(Body):
    """What an agent program itself said of its session was read: how that ended and what it used."""

    run: str
    outcome: str
    session: str
    tokens_in: int
    tokens_out: int
    microusd: int
    retry_at: str | None


@event("run.waiting", "run", updates(RunRow, states=(RunState.RUNNING,), waiting_since=field_of("since")))
class RunWaiting(Body):
    """An agent program has waited for its model for longer than usual, since this moment; None: it goes on."""

    run: str
    since: str | None
