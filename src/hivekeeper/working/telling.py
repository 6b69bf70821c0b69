"""What an agent is told, put where it can read it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hivekeeper.domain.agents import Record
from hivekeeper.domain.mail import describe_for_agent
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.merge import describe_rework
from hivekeeper.domain.predecessors import describe_predecessors
from hivekeeper.domain.prime import (
    MAX_SESSIONS,
    Acceptance,
    PrimeFacts,
    Who,
    describe_resumption,
    describe_so_far,
    prime,
)
from hivekeeper.domain.protocol import ADDRESSES, PRIORITY_MERGE
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.session import StartSession
from hivekeeper.domain.states import MailState
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror, list_refs
from hivekeeper.mailbox.boxes import has_unread
from hivekeeper.places import Places
from hivekeeper.runs.local import LocalOutputs
from hivekeeper.seance.predecessors import load_predecessors
from hivekeeper.settings import BUILT_IN_RUNNERS
from hivekeeper.specs.attempt import Told, Work
from hivekeeper.specs.session import write_prompt
from hivekeeper.store import agent_queries, queries
from hivekeeper.store.database import Connection
from hivekeeper.views.agents import describe_session, list_lessons


def tell(places: Places, connection: Connection, work: Work, session: StartSession | None) -> Told:
    """Write the prompt and the feedback of an attempt's next agent; without a session it is a command."""
    told, last = list_told(connection, work), work.agent
    rework = find_rework(connection, work.task.key, work.number - 1)
    feedback = describe_rework(rework) if rework else ""
    words = queries.find_prompt(connection, work.task.key) if work.needs_prompt else ""
    if session is None:  # a command, which may read in a file what a prompt would say
        feedback = prime(PrimeFacts(feedback, messages=[describe_for_agent(message) for message in told]))
    elif session.resume and last is not None:
        words = describe_resumption(last, [message for message in told if message.seq > last.intended_seq])
    else:
        words = prime(load_facts(places, connection, work, told, is_script=session.runner in BUILT_IN_RUNNERS))
    return Told(
        prompt=write_prompt(places, words) if words else None,
        feedback=write_prompt(places, feedback) if feedback.strip() else None,
    )


def load_facts(
    places: Places, connection: Connection, work: Work, told: Sequence[MailRow] = (), *, is_script: bool = False
) -> PrimeFacts:
    """Load what a fresh session of an attempt reads; a built-in runner's prompt is a script, and stays one."""
    task, last = work.task, work.agent
    facts = PrimeFacts(
        queries.find_prompt(connection, task.key),
        find_rework(connection, task.key, work.number - 1),
        before=[describe_so_far(last, _list_changed(places, work))] if last is not None else [],
        messages=[describe_for_agent(message) for message in told],
    )
    if is_script:
        return facts
    earlier = load_predecessors(connection, places, LocalOutputs(places.runs), task.key, work.number, work.runners)
    verify = (work.repo.verify if work.repo else None, task.verify)
    paths = task.get_details().get("paths", ())
    facts = replace(
        facts,
        acceptance=Acceptance([each for each in verify if each], paths, task.outputs),
        has_mailbox=work.has_mailbox,
        before=[*facts.before, *filter(None, [describe_predecessors(earlier)])],
    )
    return add_identity(connection, facts, *_find_session(work))


def add_identity(connection: Connection, facts: PrimeFacts, agent: str | None, session: int) -> PrimeFacts:
    """Add who an agent is, what it did and what it has learnt."""
    row = agent_queries.find_agent(connection, agent) if agent and session else None
    if agent is None or not session:
        return facts
    record = agent_queries.load_records(connection).get(agent, Record())
    who = Who(agent, session, row.role if row else "", row.list_strengths() if row else (), record)
    last = agent_queries.list_last_sessions(connection, agent, MAX_SESSIONS)
    sessions = [describe_session(connection, each) for each in last]
    return replace(facts, who=who, sessions=sessions, lessons=list_lessons(connection, agent))


def _find_session(work: Work) -> tuple[str | None, int]:
    """Find whose session an attempt is, and which."""
    if work.row is not None:
        return work.row.agent, work.row.session
    return (work.choice.agent, work.choice.session) if work.choice else (None, 0)


def list_told(connection: Connection, work: Work) -> list[MailRow]:
    """List the open messages to the worker of an attempt, and to its agent before it had one."""
    waiting = queries.list_mail_for_agent(connection, work.task.agent) if work.task.agent else []
    ours = [
        mail for mail in queries.list_open_mail_of_task(connection, work.task.key) if is_for_worker(mail, work.number)
    ]
    return sorted([*waiting, *(mail for mail in ours if not mail.is_rejection)], key=lambda mail: mail.seq)


def is_for_worker(mail: MailRow, attempt: int) -> bool:
    """Whether a message is for the worker of this attempt, and not from it to the hive."""
    return mail.receiver not in ADDRESSES and (mail.attempt or 0) <= attempt


def find_delivered(works: Sequence[Work], mail: Sequence[MailRow]) -> Iterator[tuple[MailRow, RunRow]]:
    """Find messages that an agent was given, with its run: it has started, so it can read them."""
    by_task = {work.task.key: work for work in works}
    for message in mail:
        work = by_task.get(message.task or "")
        if work is None or not is_for_worker(message, work.number):
            continue
        started = [run for run in work.agents if run.started_at is not None]
        if message.type == PRIORITY_MERGE and message.attempt != work.number:
            continue
        if message.origin and not work.needs_prompt:
            continue  # a command finds it in its inbox
        run = next((run for run in started if run.intended_seq > message.seq), None)
        if run is not None and message.delivered_run is None:
            yield message, run


def awaits_router(places: Places, connection: Connection, work: Work) -> bool:
    """Whether an agent that has ended left messages that are not recorded yet: they may decide what follows."""
    agent = work.agent
    if not work.has_mailbox or agent is None or agent.is_open or agent.started_at is None or work.count("snapshot"):
        return False
    mail = queries.list_open_mail_to_worker(connection, work.task.key)
    ours = [each for each in mail if each.delivered_run is None and not each.must_rebase]
    delivered, accepted = (
        [each.inbox_name for each in ours if each.state is state] for state in (MailState.DELIVERED, MailState.ACCEPTED)
    )
    return has_unread(places.mailbox(work.task.key, work.number), delivered, accepted)


def find_rework(connection: Connection, task: str, attempt: int) -> dict[str, Any] | None:
    """Find why an attempt did not land."""
    messages = queries.list_mail(connection, task, attempt)
    return next((message.get_payload() for message in reversed(messages) if message.is_rejection), None)


def _list_changed(places: Places, work: Work) -> Sequence[str]:
    """List what an attempt has changed, as it was last saved."""
    if work.repo is None:
        return ()
    mirror = Mirror(places.mirror(work.repo.name))
    saved = list(list_refs(mirror.path, orders.save_ref(work.task.key, work.number)).values())
    base = mirror.find_merge_base(saved[-1], orders.integration_ref(work.repo.branch)) if saved else None
    return mirror.list_changed(base, saved[-1]) if base else ()
