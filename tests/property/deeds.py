"""Everything that a person or a keeper could do to a ledger at one moment, with what must come of it.

What must come of a deed is said here from the words of the states alone; the projection and its guards are not asked.
A deed that the ledger would take though no loop does it (completing what waits in the merge queue, say) is not listed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from hivekeeper.commands import attempts, convoys, merges, runs, sessions, tasks
from hivekeeper.domain.budget import Cap
from hivekeeper.domain.convoy import Outcome as ConvoyOutcome
from hivekeeper.domain.convoy import decide_outcome
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.report import Outcome, Report, Usage
from hivekeeper.domain.rows import AttemptRow, ConvoyRow, MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.run import Claim, Ending, RunSpec
from hivekeeper.domain.session import Hold
from hivekeeper.domain.states import AttemptState, ConvoyState, MergeState, RepoState, RunState, SwarmState, TaskState
from hivekeeper.domain.steps import Start
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction
from tests.store.ledger_kit import BOOT

REPORT = Report(Outcome.RATE_LIMITED, "429", "s-1", Usage(5, 7, 11), 60.0)
CLAIM = Claim(7, 8, BOOT, "2026-01-01T00:00:01.000000Z")
ENDED_AT = "2026-01-01T00:00:02.000000Z"
OPEN_ATTEMPT = (AttemptState.WORKING, AttemptState.PARKED, AttemptState.SUBMITTED)
OPEN_RUN = (RunState.INTENDED, RunState.RUNNING)
OPEN_MERGE = (MergeState.QUEUED, MergeState.VERIFYING, MergeState.LANDING)
ASKABLE = (
    "cancel",
    "retry",
    "archive",
    "cancel all",
    "fetch again",
    "kill",
    "lift a hold",
    "allow",
)  # what a person may do


class Comes(Enum):
    """What must come of a deed."""

    DONE = "written"
    NOTHING = "taken in without a word, because it is so already"
    REFUSED = "refused"


@dataclass(frozen=True)
class Deed:
    """A command, ready to be given."""

    verb: str
    act: Callable[[Transaction], object]
    comes: Comes


def list_deeds(connection: Connection, number: int) -> Iterator[Deed]:
    """List what could be done now; `number` makes commits and statuses differ."""
    for convoy in queries.list_convoys(connection, archived=True):
        yield from _of_convoy(connection, convoy)
        for task in queries.list_tasks_of_convoy(connection, convoy.name):
            yield from _of_task(connection, convoy, task)
            for attempt in queries.list_attempts_of_task(connection, task.key):
                yield from _of_attempt(attempt, task, commit(number))
                if entry := queries.find_merge(connection, task.key, attempt.number):
                    yield from _of_merge(entry, task, attempt, commit(number))
                for run in queries.list_runs_of_attempt(connection, task.key, attempt.number):
                    yield from _of_run(run, number)
    for repo in queries.list_repos(connection):
        yield from _of_repo(repo, commit(number))
    yield from _of_holds(connection)


def commit(number: int) -> str:
    """Name a commit."""
    return f"{number:040x}"


def _pick(*, done: bool, refused: bool) -> Comes | None:
    if done:
        return Comes.DONE
    return Comes.REFUSED if refused else None


def _deeds(*options: tuple[str, Callable[[Transaction], object], Comes | None]) -> Iterator[Deed]:
    return (Deed(verb, act, comes) for verb, act, comes in options if comes is not None)


def dispatch(tx: Transaction, task: TaskRow) -> None:
    """Give a task to a worker, as the dispatcher does."""
    owner = attempt_owner(task.key, attempts.dispatch_task(tx, task).number, task.repo)
    spec = RunSpec(("true",), "/", {}, {"wall_s": 1.5})
    assert runs.intend_run(tx, owner, Start("agent"), spec, boot_id=BOOT)
    assert not runs.intend_run(tx, owner, Start("agent"), spec, boot_id=BOOT)


def _of_task(connection: Connection, convoy: ConvoyRow, task: TaskRow) -> Iterator[Deed]:
    if task.state is TaskState.COMPLETE:
        cancel = Comes.REFUSED
    else:
        cancel = Comes.NOTHING if task.state in (TaskState.CANCELLING, TaskState.CANCELLED) else Comes.DONE
    retry = Comes.NOTHING
    if task.state in (TaskState.FAILED, TaskState.UNKNOWN, TaskState.CANCELLED):
        retry = Comes.REFUSED if convoy.state is ConvoyState.ARCHIVED else Comes.DONE
    elif task.state is TaskState.COMPLETE:
        retry = Comes.REFUSED
    ready = is_ready(connection, convoy, task)
    refused = task.state is not TaskState.PENDING or convoy.state is not ConvoyState.ACTIVE
    yield from _deeds(
        ("cancel", partial(tasks.cancel_task, task=task, why="off"), cancel),
        ("retry", partial(tasks.retry_task, task=task), retry),
        ("dispatch", partial(dispatch, task=task), _pick(done=ready, refused=refused)),
    )


def is_ready(connection: Connection, convoy: ConvoyRow, task: TaskRow) -> bool:
    """Tell by hand whether a task may be dispatched."""
    if task.state is not TaskState.PENDING or convoy.state is not ConvoyState.ACTIVE:
        return False
    repo = queries.find_repo(connection, task.repo) if task.repo else None
    before = [queries.find_task(connection, key) for key in queries.list_predecessors(connection, task.key)]
    return (not task.repo or (repo is not None and repo.state is RepoState.READY)) and all(
        other is not None and other.state is TaskState.COMPLETE for other in before
    )


def _of_attempt(row: AttemptRow, task: TaskRow, made: str) -> Iterator[Deed]:
    working, settled = row.state is AttemptState.WORKING, row.state not in OPEN_ATTEMPT
    parked = row.state is AttemptState.PARKED
    wanted = task.state is TaskState.IN_PROGRESS and not settled
    stopping = task.state is TaskState.CANCELLING and not settled

    def complete(tx: Transaction) -> None:
        attempts.complete_task(tx, task, row.number, at=tx.now, output="out.md")

    def submit(tx: Transaction) -> None:
        attempts.submit_attempt(tx, task, row, made, at=tx.now)

    def fail(tx: Transaction) -> None:
        attempts.fail_attempt(tx, task, row, why="broke", at=tx.now)

    present = row.sandbox == "PRESENT"
    can_submit = _pick(done=working and wanted, refused=not working) if task.repo else None
    unknown = _pick(done=working and wanted, refused=not working or stopping)
    yield from _deeds(
        ("complete", complete, _pick(done=working and wanted and not task.repo, refused=settled)),
        ("submit", submit, can_submit),
        ("fail", fail, _pick(done=working and wanted, refused=settled or stopping)),
        ("unknown", partial(attempts.leave_unknown, task=task, attempt=row, why="who knows"), unknown),
        ("stop", partial(attempts.cancel_attempt, task=task, attempt=row),
         _pick(done=working and stopping, refused=settled or wanted)),
        ("park", partial(sessions.park_attempt, attempt=row, why="429"), _pick(done=working, refused=not working)),
        ("resume", partial(sessions.resume_attempt, attempt=row), _pick(done=parked, refused=not parked)),
        ("sweep", partial(attempts.sweep_attempt, attempt=row),
         _pick(done=settled and present, refused=not settled or not present)),
    )  # fmt: skip


def _of_run(run: RunRow, number: int) -> Iterator[Deed]:
    still_open = run.state in OPEN_RUN
    ending = Ending(number % 3 - 1, "exit", number, ENDED_AT, "said so" * (number % 2))
    fresh = still_open and run.kill_requested_at is None
    unread = not still_open and run.outcome is None
    either = _pick(done=still_open, refused=not still_open)
    started = Comes.DONE if run.state is RunState.INTENDED else Comes.REFUSED
    yield from _deeds(
        ("start", partial(runs.note_started, run=run, claim=CLAIM), started),
        ("end", partial(runs.note_ended, run=run, claim=CLAIM, ending=ending), either),
        ("lose", partial(runs.note_lost, run=run, why="gone"), either),
        ("kill", partial(runs.request_kill, run=run, why="off"), Comes.DONE if fresh else Comes.NOTHING),
        ("report", partial(runs.note_report, run=run, report=REPORT), _pick(done=unread, refused=not unread)),
    )


def _of_merge(entry: MergeRow, task: TaskRow, attempt: AttemptRow, made: str) -> Iterator[Deed]:
    queued, verifying, landing = (entry.state is state for state in OPEN_MERGE)
    wanted, stopping = task.state is TaskState.IN_PROGRESS, task.state is TaskState.CANCELLING

    def withdraw(tx: Transaction) -> None:
        merges.withdraw(tx, entry, why=task.reason)
        attempts.cancel_attempt(tx, task, attempt)

    def step(command: Callable[..., object]) -> Callable[[Transaction], object]:
        return lambda tx: command(tx, entry, at=tx.now)

    def reject(tx: Transaction) -> None:
        merges.reject(tx, entry, task, attempt, why="conflict", body={"mode": "anew"})

    made_one = entry.candidate is not None
    candidate = replace(entry, round=entry.round + 1, base=commit(1), candidate=made, tree=commit(2))
    yield from _deeds(
        ("verify", partial(merges.begin_verifying, entry=candidate),
         _pick(done=(queued or verifying) and wanted, refused=not (queued or verifying))),
        ("begin landing", step(merges.begin_landing), _pick(done=verifying and wanted, refused=not verifying)),
        ("land", step(partial(merges.note_landed, task=task)),
         _pick(done=landing, refused=made_one and not landing)),
        ("requeue", partial(merges.requeue, entry=entry, why="moved"),
         _pick(done=verifying or landing, refused=not (verifying or landing))),
        ("hold", partial(merges.hold, entry=entry, why="the gate"),
         _pick(done=(queued or verifying) and not entry.held, refused=not (queued or verifying) or bool(entry.held))),
        ("resolve", partial(merges.note_resolved, entry=entry, commit=made, tier="ai", lost=["a line"]),
         _pick(done=queued or verifying, refused=not (queued or verifying))),
        ("reject", reject, _pick(done=(queued or verifying) and wanted, refused=not (queued or verifying) or stopping)),
        ("withdraw", withdraw, _pick(done=(queued or verifying) and stopping, refused=True)),
    )  # fmt: skip


def _of_holds(connection: Connection) -> Iterator[Deed]:
    """List what can be done about what is held up; placing it again replaces it."""
    hold, held = Hold("runner", "claude", "rate-limited", 60.0, 1), queries.list_holds(connection)
    lift = Comes.DONE if any(not row.lifted for row in held) else Comes.NOTHING
    yield from _deeds(
        ("place a hold", partial(sessions.place_hold, hold=hold, why="429"), Comes.DONE),
        ("lift a hold", partial(sessions.lift_hold, scope="runner", name="claude"), lift),
        ("allow", partial(sessions.raise_budget, scope="convoy", name="c", cap=Cap(10, None)), Comes.DONE),
    )


def _of_repo(repo: RepoRow, made: str) -> Iterator[Deed]:
    fetching, ready, busy = repo.state is RepoState.FETCHING, repo.state is RepoState.READY, repo.publishing is not None

    def publish_failed(tx: Transaction) -> None:
        merges.note_publish_failed(tx, repo, "protected", retry_at=tx.now)

    def published(tx: Transaction) -> None:
        merges.note_published(tx, repo, str(repo.publishing), at=tx.now)

    either, ending = _pick(done=fetching, refused=not fetching), _pick(done=busy, refused=not busy)
    yield from _deeds(
        ("stop", partial(merges.stop_queue, repo=repo, why="red"),
         _pick(done=not repo.stopped, refused=bool(repo.stopped))),
        ("fetched", partial(merges.note_fetched, repo=repo, integration=made, source=made), either),
        ("fetch failed", partial(merges.note_fetch_failed, repo=repo, problem="no such place"), either),
        ("fetch again", partial(merges.fetch_again, repo=repo, why="lost"), Comes.DONE if fetching else None),
        ("publish", partial(merges.begin_publishing, repo=repo, commit=made),
         _pick(done=ready and not busy, refused=busy)),
        ("published", published, ending),
        ("publish failed", publish_failed, ending),
    )  # fmt: skip


def _of_convoy(connection: Connection, convoy: ConvoyRow) -> Iterator[Deed]:
    active = convoy.state is ConvoyState.ACTIVE
    counts = queries.count_tasks_by_state(connection, convoy.name)
    outcome = decide_outcome(counts, queries.count_startable(connection, convoy.name))
    archive = Comes.NOTHING if convoy.state is ConvoyState.ARCHIVED else _pick(done=not active, refused=active)
    settle = Comes.NOTHING if outcome is ConvoyOutcome.ACTIVE else Comes.DONE
    left = any(state not in (TaskState.COMPLETE, TaskState.CANCELLED, TaskState.CANCELLING) for state in counts)
    closable = {s.number for s in queries.list_closable_swarms(connection) if s.convoy == convoy.name}

    def settle_now(tx: Transaction) -> None:
        convoys.end_convoy(tx, convoy.name, outcome if active else ConvoyOutcome.COMPLETE, at=tx.now)

    yield from _deeds(
        ("settle", settle_now, settle if active else Comes.REFUSED),
        ("archive", partial(convoys.archive_convoy, convoy=convoy, why="done with"), archive),
        ("cancel all", partial(convoys.cancel_convoy, convoy=convoy), Comes.DONE if left else Comes.NOTHING),
    )
    for tally in queries.list_swarms(connection, convoy.name):
        swarm, closed = tally.swarm, tally.swarm.state is SwarmState.CLOSED
        comes = _pick(done=swarm.number in closable and not tally.working, refused=closed)
        yield from _deeds(("close", partial(convoys.close_swarm, swarm=swarm), comes))
