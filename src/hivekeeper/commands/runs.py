"""The life of a run, as the keeper records it, and the one thing a person may ask of it: to end."""

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.domain import events as e
from hivekeeper.domain.owners import Owner
from hivekeeper.domain.report import Report
from hivekeeper.domain.rows import AttemptRow, RunRow
from hivekeeper.domain.run import PERSON, Claim, Ending, RunSpec
from hivekeeper.domain.states import RunState
from hivekeeper.domain.steps import Start
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction

MAX_RETRY_S = 8 * 86_400.0


def intend_run(
    tx: Transaction, owner: Owner, start: Start, spec: RunSpec, *, boot_id: str, slot: int | None = None
) -> bool:
    """Write an intent; False when this very run was intended before."""
    run = owner.name_run(start, slot)
    if queries.find_run(tx.connection, run) is not None:
        return False
    body = e.RunIntended(
        run=run,
        run_kind=start.kind,
        task=owner.task,
        attempt=owner.attempt,
        repo=owner.repo,
        argv=list(spec.argv),
        directory=spec.directory,
        environment=spec.environment,
        limits=spec.limits,
        boot_id=boot_id,
        mounts=spec.mounts,
        runner=spec.runner,
        session=spec.session,
        owner_kind=owner.kind,
        owner=owner.name,
        round=owner.round,
        number=start.number,
        try_number=start.try_number,
        slot=slot,
    )
    tx.record(body)
    return True


def note_started(tx: Transaction, run: RunRow, claim: Claim) -> None:
    """Record that a run began, when it really did."""
    tx.record(e.RunStarted(run.id, claim.pid, claim.start_ticks, claim.boot_id), occurred_at=claim.at)


def note_ended(tx: Transaction, run: RunRow, claim: Claim, ending: Ending, *, last_words: str = "") -> None:
    """Record how a run ended, at its true end; that it began too, if no keeper saw that."""
    if run.state is RunState.INTENDED:
        note_started(tx, run, claim)
    body = e.RunExited(run.id, run.kind, ending.status, ending.ended_by, ending.output_bytes)
    tx.record(body, occurred_at=ending.at, why=ending.problem or run.reason or last_words)


def note_lost(tx: Transaction, run: RunRow, why: str) -> None:
    """Record that nobody can say how a run ended."""
    tx.record(e.RunLost(run.id, run.kind), why=why)


def note_report(tx: Transaction, run: RunRow, report: Report) -> str | None:
    """Record what an agent program said of its session, once; tell when to try again, if it said that."""
    used = report.usage
    in_s = report.retry_s
    if report.retry_epoch is not None:
        in_s = max(0.0, report.retry_epoch - to_seconds(tx.now))
    # No word of a program's holds anybody up for months.
    retry_at = None if in_s is None else to_text(to_seconds(tx.now) + min(in_s, MAX_RETRY_S))
    session = report.session or run.session or ""
    counted = (used.tokens_in, used.tokens_out, used.microusd)
    tx.record(e.RunReported(run.id, report.outcome.value, session, *counted, retry_at), why=report.words)
    return retry_at


def note_waiting(tx: Transaction, run: RunRow, since: str | None) -> None:
    """Record since when an agent program has waited for its model, or that it goes on; nothing once it has ended."""
    now = queries.find_run(tx.connection, run.id)
    if now is not None and now.state is RunState.RUNNING and (now.waiting_since is None) != (since is None):
        tx.record(e.RunWaiting(run.id, since))


def request_kill(tx: Transaction, run: RunRow, why: str, cause: str = PERSON) -> bool:
    """Ask for a run's end; False when that was asked before or it has ended, whatever the row in hand says."""
    now = queries.find_run(tx.connection, run.id)
    if now is None or not now.is_open or now.kill_requested_at is not None:
        return False
    tx.record(e.RunKillRequested(run.id, cause), why=why)
    return True


def kill_worker(tx: Transaction, attempt: AttemptRow, *, why: str = "") -> bool:
    """Ask for the end of a worker's agent, and so of its attempt; False when that was asked before.

    Only of one that runs: an end before the start would leave nobody sure whether it ran.
    """
    runs = queries.list_runs_of_attempt(tx.connection, attempt.task, attempt.number)
    for run in runs:
        if run.kind == "agent" and run.state is RunState.RUNNING:
            return request_kill(tx, run, why or "a person asked for it")
    what = f"Worker {attempt.worker} has no agent running for {attempt.task} just now."
    raise InputError(
        what, advice=f"See what it does: hive worker ls. To give the task up: hive task cancel {attempt.task}"
    )
