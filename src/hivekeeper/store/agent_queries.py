"""Reads about agents, by name."""

from hivekeeper.domain.agent_rows import AgentFileRow, AgentRow, LessonRow
from hivekeeper.domain.agents import Candidate, Record
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.states import AttemptState
from hivekeeper.store.asking import ask, read_sql
from hivekeeper.store.database import Connection
from hivekeeper.store.queries import find, list_open_attempts, list_rows


def find_agent(connection: Connection, name: str) -> AgentRow | None:
    """Find an agent by its name, or by one that it had before."""
    agents = list_agents(connection)
    own = next((agent for agent in agents if agent.name == name), None)
    return own or next((agent for agent in agents if name in agent.list_former()), None)


def list_agents(connection: Connection) -> list[AgentRow]:
    """List every agent, also the retired ones."""
    return list_rows(connection, AgentRow, "name")


def list_lessons(connection: Connection, agent: str) -> list[LessonRow]:
    """List what an agent has learnt, and what was taken back."""
    return list_rows(connection, LessonRow, "number", agent=agent)


def list_sessions(connection: Connection, agent: str) -> list[AttemptRow]:
    """List an agent's sessions, oldest first."""
    return list_rows(connection, AttemptRow, "session, task, number", agent=agent)


def list_last_sessions(connection: Connection, agent: str, limit: int) -> list[AttemptRow]:
    """List the last sessions of an agent that have ended, newest first."""
    return ask(connection, "list_last_sessions", AttemptRow, {"agent": agent, "limit": limit})


def count_verdicts(connection: Connection) -> list[tuple[str, str, str, int, int]]:
    """Count what became of agents' attempts, by agent, repository and verdict, and how many of them were reworked."""
    return [(str(a), str(r), str(v), int(n), int(w)) for a, r, v, n, w in connection.rows(read_sql("count_verdicts"))]


def find_note(connection: Connection, agent: str, file: str) -> AgentFileRow | None:
    """Find what was noted of one of an agent's files."""
    return find(connection, AgentFileRow, agent=agent, file=file)


def find_file(connection: Connection, agent: str, file: str) -> str:
    """Find what one of an agent's files held when it was last written or read; "" if it never was."""
    found = find_note(connection, agent, file)
    return found.text if found else ""


def count_what_files_say(connection: Connection) -> dict[str, tuple[int, int]]:
    """Count the ended sessions of each agent, and its lessons: as long as they stay, its files do."""
    sessions = connection.rows("SELECT agent, count(ended_at) FROM attempt WHERE agent IS NOT NULL GROUP BY agent")
    lessons = connection.rows("SELECT agent, count(*) + count(dropped_at) FROM lesson GROUP BY agent")
    known = {str(agent): int(count) for agent, count in lessons}
    counted = {str(agent): int(count) for agent, count in sessions}
    return {agent: (counted.get(agent, 0), known.get(agent, 0)) for agent in {*known, *counted}}


def load_candidates(connection: Connection) -> dict[str, Candidate]:
    """Load every agent with its record, and whether it is at work."""
    busy = {attempt.agent for state in (AttemptState.WORKING, AttemptState.PARKED)
            for attempt, _ in list_open_attempts(connection, state)}  # fmt: skip
    records = load_records(connection)
    return {
        row.name: Candidate(row, records.get(row.name, Record()), is_busy=row.name in busy)
        for row in list_agents(connection)
    }


def load_records(connection: Connection) -> dict[str, Record]:
    """Load the record of each agent that has one."""
    counts: dict[str, dict[str, int]] = {}
    repos: dict[str, dict[str, int]] = {}
    for agent, repo, verdict, count, reworked in count_verdicts(connection):
        mine = counts.setdefault(agent, {})
        mine[verdict] = mine.get(verdict, 0) + count
        mine["reworked"] = mine.get("reworked", 0) + reworked
        if verdict == "landed" and repo:
            repos.setdefault(agent, {})[repo] = count
    return {agent: Record(**mine, repos=repos.get(agent, {})) for agent, mine in counts.items()}
