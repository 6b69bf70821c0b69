"""Assigns agents to the tasks that are about to be dispatched."""

from collections.abc import Sequence
from dataclasses import replace

from hivekeeper.commands.agents import REJECTED
from hivekeeper.domain.agent_rows import AgentRow
from hivekeeper.domain.agents import Candidate, Choice, Wanted, choose_agent
from hivekeeper.domain.rows import TaskRow
from hivekeeper.settings import Settings
from hivekeeper.store import agent_queries, queries
from hivekeeper.store.database import Connection


def assign_agents(
    connection: Connection, settings: Settings, tasks: Sequence[TaskRow]
) -> list[tuple[TaskRow, Choice | None]]:
    """Choose an agent for each task that gets one; a task whose only agent is busy is left out.

    A command that names no agent gets none: it has no memory.
    """
    if not settings.identity or not any(map(_needs_agent, tasks)):
        return [(task, None) for task in tasks]
    candidates, chosen = agent_queries.load_candidates(connection), list[tuple[TaskRow, Choice | None]]()
    for task in tasks:
        choice = choose_agent(_find_wanted(connection, task), candidates) if _needs_agent(task) else None
        if choice is None and _needs_agent(task):
            continue
        if choice is not None:
            known = candidates.get(choice.agent) or Candidate(AgentRow(choice.agent, ""))
            candidates[choice.agent] = replace(known, is_busy=True)
        chosen.append((task, choice))
    return chosen


def _needs_agent(task: TaskRow) -> bool:
    return task.branch is None and (bool(task.agent) or bool(task.runners))


def _find_wanted(connection: Connection, task: TaskRow) -> Wanted:
    last = queries.list_attempts_of_task(connection, task.key)[-1:] if task.attempts else []
    author = next((attempt.agent for attempt in last if attempt.verdict == REJECTED), None)
    return Wanted(task.agent, task.recommended, author, task.strengths, task.repo)
