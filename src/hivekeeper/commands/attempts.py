"""The life of an attempt, from dispatch to verdict, as the keeper records it."""

from hivekeeper.commands.agents import begin_session, judge_agent, recommend_senior, reward
from hivekeeper.commands.mail import name_origin, return_mail
from hivekeeper.domain import events as e
from hivekeeper.domain.agents import Choice
from hivekeeper.domain.convoy import decide_swarm
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.protocol import LESSON
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.domain.states import AttemptState
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction


def dispatch_task(
    tx: Transaction, task: TaskRow, *, start: str | None = None, choice: Choice | None = None
) -> AttemptRow:
    """Give a task to a new worker in the convoy's current batch, to go on from a commit or from what has landed.

    The worker is a session of the chosen agent; without a choice only its name counts, if the plan gives one.
    """
    convoy = queries.find_convoy(tx.connection, task.convoy)
    assert convoy is not None
    last_swarm = queries.find_last_swarm_of_task(tx.connection, task.key) if task.attempts else None
    swarm = decide_swarm(convoy.swarms, last_swarm)
    if swarm > convoy.swarms:
        tx.record(e.SwarmOpened(task.convoy, swarm))
    number, worker = task.attempts + 1, convoy.workers + 1
    agent, session, why = task.agent, 0, ""
    if choice is not None:
        agent, why = choice.agent, choice.why
        session = begin_session(
            tx, agent, strengths=task.strengths if choice.is_new else (), why=f"for {task.key}: {why}"
        )
    body = e.TaskDispatched(task.key, task.convoy, number, swarm, worker, task.has_sandbox, start, agent, session, why)
    event = tx.record(body)
    return AttemptRow(
        task=task.key,
        number=number,
        convoy=task.convoy,
        swarm=swarm,
        worker=worker,
        sandbox="PRESENT" if task.has_sandbox else "NONE",
        state=AttemptState.WORKING,
        started_at=event.occurred_at,
        start=start,
        agent=agent,
        session=session,
        chosen=why,
    )


def complete_task(
    tx: Transaction, task: TaskRow, attempt: int, *, at: str, commit: str | None = None, output: str | None = None
) -> None:
    """Record that a task is done, at its true end."""
    tx.record(e.TaskCompleted(task.key, attempt, commit, output), occurred_at=at)
    origin = name_origin(task.key, attempt)
    reward(tx, task, attempt, queries.list_rows(tx.connection, MailRow, "seq", origin=origin, type=LESSON))
    return_mail(tx, task.key, "its task is complete")


def fail_attempt(
    tx: Transaction, task: TaskRow, attempt: AttemptRow, *, why: str, at: str, verdict: str | None = None
) -> None:
    """Record that an attempt came to nothing: the task is tried again or, at its limit, waits for a person.

    So does a branch made by hand that the queue refused: the same commit would be refused again. At its limit, the
    agent with the best record may try it once more. `verdict` is what the failure says about the attempt's agent, if
    its runs do not show that.
    """
    final = attempt.number >= task.attempts_allowed or (task.branch is not None and attempt.commit_id is not None)
    if verdict is None:
        verdict = judge_agent(queries.list_runs_of_attempt(tx.connection, task.key, attempt.number))
    if final and task.branch is None and recommend_senior(tx, task, attempt):
        final = False
    tx.record(e.AttemptFailed(task.key, attempt.number, final, verdict), why=why, occurred_at=at)


def leave_unknown(tx: Transaction, task: TaskRow, attempt: AttemptRow, *, why: str) -> None:
    """Record that an attempt may have run."""
    tx.record(e.AttemptUnknown(task.key, attempt.number), why=why)


def submit_attempt(tx: Transaction, task: TaskRow, attempt: AttemptRow, commit: str, *, at: str) -> None:
    """Put what an attempt made into the merge queue."""
    assert task.repo is not None
    tx.record(e.AttemptSubmitted(task.key, attempt.number, task.repo, commit, task.priority), occurred_at=at)


def cancel_attempt(tx: Transaction, task: TaskRow, attempt: AttemptRow) -> None:
    """Record that a cancelled task's attempt has ended, and with it the task."""
    tx.record(e.AttemptCancelled(task.key, attempt.number), why=task.reason)
    tx.record(e.TaskCancelled(task.key), why=task.reason)
    return_mail(tx, task.key, "its task was cancelled")


def sweep_attempt(tx: Transaction, attempt: AttemptRow) -> None:
    """Record that an attempt's sandbox is gone."""
    tx.record(e.AttemptSwept(attempt.task, attempt.number))
