"""A person's wishes about one task."""

from collections.abc import Mapping

from hivekeeper.commands.agents import begin_session
from hivekeeper.commands.mail import close_help, send_handoff, write_to_next
from hivekeeper.commands.runs import request_kill
from hivekeeper.domain import events as e
from hivekeeper.domain.protocol import MessageType
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.domain.run import DOWN, HANDED_OFF
from hivekeeper.domain.states import AT_REST, OPEN_TASKS, AttemptState, ConvoyState, RunState, TaskState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction


def cancel_task(tx: Transaction, task: TaskRow, *, why: str = "") -> bool:
    """Cancel a task: at once when nothing of it runs, else when the keeper has ended it. False when it was already."""
    match task.state:
        case TaskState.CANCELLED | TaskState.CANCELLING:
            return False
        case TaskState.COMPLETE:
            raise InputError(f"Task '{task.id}' is already complete.", advice="To undo it, revert its commit.")
        case TaskState.IN_PROGRESS:
            tx.record(e.TaskCancelRequested(task.key), why=why or "cancelled by a person")
        case TaskState.PENDING | TaskState.FAILED | TaskState.UNKNOWN:
            tx.record(e.TaskCancelled(task.key), why=why or "cancelled by a person")
    return True


def retry_task(tx: Transaction, task: TaskRow, *, why: str = "", note: str = "") -> bool:
    """Try a task that failed, may have run or was cancelled once more, and tell its worker a note.

    False when it is already under way.
    """
    match task.state:
        case TaskState.PENDING | TaskState.IN_PROGRESS | TaskState.CANCELLING:
            if note:
                what = f"Task '{task.id}' is {task.state}: a note comes with another try."
                raise InputError(what, advice=f"{_advise_telling(task)}. See why it is: hive task why {task.key}")
            return False
        case TaskState.COMPLETE:
            what = f"Task '{task.id}' is {task.state}; what is done never runs again."
            advice = f"Add a new one: hive task add {task.convoy} NEW-ID --command '...'"
            raise InputError(what, advice=advice)
        case TaskState.FAILED | TaskState.UNKNOWN | TaskState.CANCELLED:
            convoy = queries.find_convoy(tx.connection, task.convoy)
            if convoy and convoy.state is ConvoyState.ARCHIVED:
                raise InputError(f"Convoy '{task.convoy}' is archived; its tasks never run again.")
            allowed = max(task.attempts + 1, task.attempts_allowed)
            tx.record(e.TaskRetryRequested(task.key, allowed), why=why or "a person asked for another try")
            if convoy and convoy.state is not ConvoyState.ACTIVE:
                tx.record(e.ConvoyExtended(task.convoy))
            if note:
                write_to_next(tx, task, note)
    return True


def hand_off(
    tx: Transaction,
    protocol: Mapping[str, MessageType],
    task: TaskRow,
    *,
    agent: str | None = None,
    runner: str | None = None,
    note: str = "",
) -> bool:
    """Give a task to another agent or runner with everything kept; False when it is theirs already.

    A session under way is stopped, and another continues in the same sandbox.
    """
    if task.state not in OPEN_TASKS + AT_REST:
        raise InputError(f"Task '{task.id}' is {task.state}; there is nothing to hand off.")
    if runner is not None and not task.runners:
        raise InputError(f"Task '{task.id}' is a command, which no runner takes.", advice="Leave out --runner.")
    details = {**task.get_details(), **({"agent": agent} if agent else {}), **({"runner": runner} if runner else {})}
    if details == task.get_details():
        return False
    attempt = next(iter(queries.list_attempts_of_task(tx.connection, task.key)[::-1]), None)
    is_in_session = attempt is not None and attempt.state in (AttemptState.WORKING, AttemptState.PARKED)
    if is_in_session and not task.runners:
        what = f"Task '{task.id}' is a running command and cannot be handed off."
        raise InputError(what, advice=f"Wait for its end, or stop it: hive worker kill {task.key}")
    if agent and is_in_session and (other := _find_session(tx, agent, task)) is not None:
        what = f"Agent {agent} is at work on {other.task}, and has one session at a time."
        raise InputError(what, advice="Name another agent, or type this again when it has ended.")
    before, owner = task.author or task.key, agent or task.agent
    runners = [runner] * len(task.runners) if runner else list(task.runners)
    attempt_number = attempt.number if attempt is not None and is_in_session and agent else 0
    session = begin_session(tx, agent, why=f"for {task.key}") if agent and attempt and attempt.session else 0
    tx.record(e.TaskHandedOff(task.key, owner, details, runners, attempt_number, session), why=note)
    send_handoff(tx, task, owner, {"text": note or f"You take over {task.key} from {before}."})
    close_help(tx, protocol, task, "the task was handed off")
    for run in queries.list_runs_of_attempt(tx.connection, task.key, task.attempts) if is_in_session else ():
        # One that has not started yet is stopped by the dispatcher: an end before the start would leave nobody sure.
        if run.kind == "agent" and run.runner and run.state is RunState.RUNNING:
            request_kill(tx, run, f"handed off to {agent or runner}", HANDED_OFF)
    return True


def _find_session(tx: Transaction, agent: str, but: TaskRow) -> AttemptRow | None:
    """Find the session of an agent on another task than one."""
    pairs = (pair for state in (AttemptState.WORKING, AttemptState.PARKED)
             for pair in queries.list_open_attempts(tx.connection, state))  # fmt: skip
    return next((attempt for attempt, task in pairs if attempt.agent == agent and task.key != but.key), None)


def rearm_stopped(tx: Transaction, *, why: str) -> None:
    """Have tasks tried again whose last attempt failed for nothing but that all workers were ended."""
    for task in queries.list_tasks_in_state(tx.connection, TaskState.FAILED):
        runs = queries.list_runs_of_attempt(tx.connection, task.key, task.attempts)
        agent = next((run for run in reversed(runs) if run.kind == "agent"), None)
        convoy = queries.find_convoy(tx.connection, task.convoy)
        is_open = convoy is not None and convoy.state is not ConvoyState.ARCHIVED
        if is_open and agent is not None and agent.ended_by == "killed" and agent.kill_cause == DOWN:
            retry_task(tx, task, why=why)


def _advise_telling(task: TaskRow) -> str:
    if task.state is TaskState.PENDING:
        return f"Say it in the task: hive task edit {task.key}"
    return f"Tell its worker: hive worker tell {task.key} '...'"


def edit_task(tx: Transaction, task: TaskRow, *, command: str = "", prompt: str = "", why: str = "") -> bool:
    """Change the command or the prompt of a task that nobody works on; False when it is that already."""
    if bool(command.strip()) == bool(prompt.strip()):
        raise InputError("No new command or prompt given.", advice="Give exactly one of --command and --prompt.")
    is_prompt = bool(task.runners)
    if task.branch is not None or is_prompt != bool(prompt):
        has = "is a branch" if task.branch is not None else f"has a {'prompt' if is_prompt else 'command'}"
        advice = f"Add a new one: hive task add {task.convoy} NEW-ID --{'prompt' if prompt else 'command'} '...'"
        raise InputError(f"Task '{task.id}' {has}, and cannot become anything else.", advice=advice)
    if task.state in (TaskState.IN_PROGRESS, TaskState.CANCELLING, TaskState.COMPLETE):
        advice = f"Type: hive task why {task.key}"
        raise InputError(f"Task '{task.id}' is {task.state}; only one that nobody works on is edited.", advice=advice)
    before = queries.find_prompt(tx.connection, task.key) if is_prompt else task.command
    if before == (prompt or command):
        return False
    tx.record(e.TaskEdited(task.key, command, prompt), why=why)
    return True
