"""Asks the index: about a question by its words, without one by what is worth knowing first."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest

from hivekeeper.domain.events import Event
from hivekeeper.domain.excerpt import Cited, Role
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.seance import EACH, Answer, sort_excerpts
from hivekeeper.domain.states import AttemptState
from hivekeeper.seance.collecting import PAGE, find_known, find_touched
from hivekeeper.store import agent_queries, queries
from hivekeeper.store.database import Connection
from hivekeeper.store.excerpts import Document, ExcerptIndex
from hivekeeper.store.ledger import read_events
from hivekeeper.views.tasks import get_task

MAX_FOUND = 60
MAX_QUESTION = 1000  # characters
MAX_ATTEMPTS = 2000  # the newest


def find_subject(connection: Connection, name: str) -> tuple[str, list[AttemptRow]]:
    """Find the attempts of a task or the sessions of an agent, the newest first, and its full name."""
    agent = agent_queries.find_agent(connection, name)
    if agent is not None and not queries.list_tasks_by_id(connection, name):
        return agent.name, list_attempts(connection, agent=agent.name)
    key = get_task(connection, name).key
    return key, list_attempts(connection, key)


def find_pending(connection: Connection, after: int) -> Event | None:
    """Find the first event after one whose attempt left something to collect; None if all of that is collected."""
    while page := read_events(connection, after, PAGE):
        for event in page:
            if any(find_known(connection, *key) for key in find_touched(connection, [event])):
                return event
        after = page[-1].seq
    return None


def list_attempts(connection: Connection, task: str = "", agent: str | None = None) -> list[AttemptRow]:
    """List the attempts of a task and the sessions of an agent, the newest first."""
    found = queries.list_attempts_of_task(connection, task) if task else []
    found += agent_queries.list_sessions(connection, agent) if agent else []
    unique = {(attempt.task, attempt.number): attempt for attempt in found}
    return sorted(unique.values(), key=lambda attempt: attempt.started_at, reverse=True)[:MAX_ATTEMPTS]


def list_scope(connection: Connection, mail: MailRow) -> list[AttemptRow]:
    """List the attempts that a worker may ask about: those of its own task, and its own agent's sessions."""
    own = queries.find(connection, AttemptRow, task=str(mail.task), number=mail.attempt or 0)
    return list_attempts(connection, own.task, own.agent) if own is not None else []


def ask(index: ExcerptIndex, attempts: Sequence[AttemptRow], question: str = "") -> Answer:
    """Ask what was tried, what failed and what worked in some attempts, the newest first."""
    documents = index.list_documents((attempt.task, attempt.number) for attempt in attempts)
    landed = {(each.task, each.number) for each in attempts if each.state is AttemptState.SUCCEEDED}
    unread = index.list_last(Role.UNREAD, documents, EACH)
    if question:
        return sort_excerpts(index.search(question[:MAX_QUESTION], documents, MAX_FOUND), landed, unread)
    return sort_excerpts(_choose(index, documents), landed, unread)


def _choose(index: ExcerptIndex, documents: Sequence[Document]) -> Iterator[Cited]:
    """Choose what is worth knowing first: how attempts ended, errors, last words, repeated calls, changed paths."""
    verdicts = (index.list_last(role, documents, EACH) for role in (Role.REJECTED, Role.LANDED))
    yield from chain.from_iterable(verdicts)
    last = [index.list_last(role, documents, EACH) for role in (Role.SAID, Role.CHANGED)]
    yield from _take_turns((*last, index.list_repeated(documents, EACH), index.list_last(Role.ERROR, documents, EACH)))


def _take_turns(lists: Iterable[Sequence[Cited]]) -> Iterator[Cited]:
    return (cited for turn in zip_longest(*lists) for cited in turn if cited is not None)
