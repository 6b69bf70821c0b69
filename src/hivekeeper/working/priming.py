"""What a session would read if it began now, for people who want to see it."""

from hivekeeper.domain.agent_rows import AgentRow
from hivekeeper.domain.prime import PrimeFacts, prime
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.states import AttemptState
from hivekeeper.errors import InputError
from hivekeeper.places import Places
from hivekeeper.settings import BUILT_IN_RUNNERS, Settings
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.views.tasks import get_task
from hivekeeper.working.assigning import assign_agents
from hivekeeper.working.evidence import choose_start
from hivekeeper.working.gathering import gather_work
from hivekeeper.working.telling import add_identity, list_told, load_facts

_AT_WORK = (AttemptState.WORKING, AttemptState.PARKED)


def prime_task(places: Places, connection: Connection, settings: Settings, name: str) -> str:
    """Write what a fresh session of a task would read: of its attempt under way, or else of its next one."""
    task = get_task(connection, name)
    if not task.runners:
        raise InputError(f"Task '{task.id}' is a command, which reads no prompt.")
    attempt = queries.find(connection, AttemptRow, task=task.key, number=task.attempts)
    under_way = attempt if attempt is not None and attempt.state in _AT_WORK else None
    repos = {repo.name: repo for repo in queries.list_repos(connection)}
    if under_way is not None:
        runs = queries.list_runs_of_attempt(connection, task.key, under_way.number)
        work = gather_work(settings, task, under_way.number, under_way.start, repos, runs, under_way)
    else:
        start = choose_start(places, connection, task, repos.get(task.repo or ""))
        work = gather_work(settings, task, task.attempts + 1, start, repos, [])
        choice = next((choice for _, choice in assign_agents(connection, settings, [task])), None)
        work = work.choosing(choice)
    is_script = next(iter(task.runners)) in BUILT_IN_RUNNERS
    return prime(load_facts(places, connection, work, list_told(connection, work), is_script=is_script))


def prime_agent(connection: Connection, agent: AgentRow) -> str:
    """Write what every session of an agent reads, whatever its task."""
    return prime(add_identity(connection, PrimeFacts(), agent.name, agent.sessions + 1))
