"""Agents: who there is, what each has done and learnt, and the sessions of one as its history tells them."""

from typing import Any

from hivekeeper.domain.agent_rows import AgentFileRow, AgentRow
from hivekeeper.domain.agents import TOPICS, Candidate, Record
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.protocol import TASK_COMPLETE
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.states import OPEN_ATTEMPTS, AttemptState
from hivekeeper.git.orders import attempt_ref
from hivekeeper.identity.history import write_session
from hivekeeper.store import agent_queries, queries
from hivekeeper.store.database import Connection

_STATUS = {
    AttemptState.SUCCEEDED: "Complete",
    AttemptState.FAILED: "Failed",
    AttemptState.UNKNOWN: "Unknown",
    AttemptState.CANCELLED: "Cancelled",
}


def list_agents(connection: Connection, *, retired: bool = False) -> list[dict[str, Any]]:
    """List agents with their records, the retired ones only when asked for."""
    problems = list_problems(connection)
    found = agent_queries.load_candidates(connection).values()
    return [_show(each, problems.get(each.row.name, [])) for each in found if retired or each.row.retired_at is None]


def show_agent(connection: Connection, agent: AgentRow, *, sessions: int = 5) -> dict[str, Any]:
    """Show an agent: its record, what it has learnt, and its last sessions."""
    candidate = agent_queries.load_candidates(connection)[agent.name]
    ended = [each for each in agent_queries.list_sessions(connection, agent.name) if each.state not in OPEN_ATTEMPTS]
    last = [describe_session(connection, each) for each in ended[-sessions:]] if sessions else []
    return {
        **_show(candidate, list_problems(connection).get(agent.name, [])),
        "former_names": list(agent.list_former()),
        "expertise": list_lessons(connection, agent.name),
        "last_sessions": last,
    }


def list_lessons(connection: Connection, agent: str) -> dict[str, list[str]]:
    """List what an agent has learnt, by topic."""
    kept = [row for row in agent_queries.list_lessons(connection, agent) if row.dropped_at is None]
    return {topic: [row.text for row in kept if row.topic == topic] for topic in TOPICS}


def list_problems(connection: Connection) -> dict[str, list[str]]:
    """List what is wrong with agents' files."""
    found: dict[str, list[str]] = {}
    for row in queries.list_rows(connection, AgentFileRow, "agent, file"):
        if row.problem:
            found.setdefault(row.agent, []).append(row.problem)
    return found


def describe_session(connection: Connection, attempt: AttemptRow) -> str:
    """Write a session of an agent for its history: what it was, what became of it, and its own last words."""
    task = queries.find_task(connection, attempt.task)
    assert task is not None
    status = _STATUS.get(attempt.state, "At work")
    if attempt.state is AttemptState.SUCCEEDED and task.commit_id:
        status = f"Complete, landed as {task.commit_id[:12]}"
    elif attempt.reason:
        status = f"{'Rejected' if attempt.commit_id else status}: {attempt.reason}"
    said = f"{task.id}: {task.title}" if task.title else task.key
    branch = f"{attempt_ref(task.key, attempt.number)} in {task.repo}" if task.repo else ""
    date = (attempt.ended_at or attempt.started_at)[:10]
    return write_session(attempt.session, date, said, status, branch, find_notes(connection, attempt))


def find_notes(connection: Connection, attempt: AttemptRow) -> str:
    """Find what a session said of its work: its report, or else its last words."""
    mail = queries.list_rows(connection, MailRow, "seq", origin=f"{attempt.task}.{attempt.number}", type=TASK_COMPLETE)
    summaries = [str(each.get_payload().get("summary") or "") for each in mail]
    runs = queries.list_runs_of_attempt(connection, attempt.task, attempt.number)
    words = [run.words or "" for run in runs if run.kind == "agent"]
    return next(filter(None, (*reversed(summaries), *reversed(words))), "")


def _show(candidate: Candidate, problems: list[str]) -> dict[str, Any]:
    row = candidate.row
    return {
        "agent": row.name,
        "role": row.role,
        "strengths": list(row.list_strengths()),
        "state": "RETIRED" if row.retired_at else "WORKING" if candidate.is_busy else "FREE",
        "sessions": row.sessions,
        **show_record(candidate.record),
        "created_at": row.created_at,
        "problems": problems,
    }


def show_record(record: Record) -> dict[str, Any]:
    """Show a record; the share is None until there are enough tasks to count."""
    share = round(record.score, 2) if record.counts else None
    names = ("landed", "rejected", "stalled", "failed", "reworked")
    return {**{name: getattr(record, name) for name in names}, "share": share, "repos": dict(record.repos)}
