"""Reads about agents, by name."""

from hivekeeper.domain.agent_rows import AgentFileRow, AgentRow, LessonRow
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.store.asking import read_sql
from hivekeeper.store.database import Connection
from hivekeeper.store.queries import find, list_rows


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


def count_verdicts(connection: Connection) -> list[tuple[str, str, str, int, int]]:
    """Count what became of agents' attempts, by agent, repository and verdict, and how many of them were reworked."""
    return [(str(a), str(r), str(v), int(n), int(w)) for a, r, v, n, w in connection.rows(read_sql("count_verdicts"))]


def find_file(connection: Connection, agent: str, file: str) -> str:
    """Find what one of an agent's files held when it was last written or read; "" if it never was."""
    found = find(connection, AgentFileRow, agent=agent, file=file)
    return found.text if found else ""
