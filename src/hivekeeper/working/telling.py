"""What an agent is told, put where it can read it."""

from collections.abc import Iterator, Sequence
from typing import Any

from hivekeeper.domain.merge import REWORK_REQUEST
from hivekeeper.domain.rows import MailRow, RunRow
from hivekeeper.domain.session import INFORM, StartSession
from hivekeeper.domain.states import MailState
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror, list_refs
from hivekeeper.places import Places
from hivekeeper.specs.attempt import Told, Work
from hivekeeper.specs.prompt import describe_task
from hivekeeper.specs.session import write_prompt
from hivekeeper.store import queries
from hivekeeper.store.database import Connection


def tell(places: Places, connection: Connection, work: Work, session: StartSession | None) -> Told:
    """Write the prompt and the feedback of an attempt's next agent; without a session it is a command."""
    key, number = work.task.key, work.number
    told = [message for each in (number - 1, number) for message in list_told(connection, key, each)]
    prompt = queries.find_prompt(connection, key) if work.needs_prompt else ""
    changed = _list_changed(places, work) if session is not None and work.agent is not None else ()
    rework = find_rework(connection, key, number - 1)
    words, feedback = describe_task(prompt, rework, told, session=session, last=work.agent, changed=changed)
    return Told(
        prompt=write_prompt(places, words) if words else None,
        feedback=write_prompt(places, feedback) if feedback else None,
    )


def list_told(connection: Connection, task: str, attempt: int) -> list[MailRow]:
    """List what a person has told an attempt."""
    return [message for message in queries.list_mail(connection, task, attempt) if message.type == INFORM]


def find_delivered(work: Work, mail: Sequence[MailRow]) -> Iterator[tuple[MailRow, RunRow]]:
    """Find messages that an agent of this attempt was given, with its run: it has started, so it can read them."""
    started = [run for run in work.agents if run.started_at is not None]
    for message in mail:
        is_given = message.attempt == work.number - 1 or (message.type == INFORM and message.attempt == work.number)
        if message.task != work.task.key or message.state is not MailState.ACCEPTED or not is_given:
            continue
        run = next((run for run in started if run.intended_seq > message.seq), None)
        if run is not None and message.type in (INFORM, REWORK_REQUEST):
            yield message, run


def find_rework(connection: Connection, task: str, attempt: int) -> dict[str, Any] | None:
    """Find why an attempt did not land."""
    messages = queries.list_mail(connection, task, attempt)
    return next((message.get_payload() for message in reversed(messages) if message.type == REWORK_REQUEST), None)


def _list_changed(places: Places, work: Work) -> Sequence[str]:
    """List what an attempt has changed, as it was last saved."""
    if work.repo is None:
        return ()
    mirror = Mirror(places.mirror(work.repo.name))
    saved = list(list_refs(mirror.path, orders.save_ref(work.task.key, work.number)).values())
    base = mirror.find_merge_base(saved[-1], orders.integration_ref(work.repo.branch)) if saved else None
    return mirror.list_changed(base, saved[-1]) if base else ()
