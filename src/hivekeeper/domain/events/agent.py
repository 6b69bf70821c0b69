"""What happens to agents: they come to be, learn, change, retire and come back."""

from dataclasses import field

from hivekeeper.domain.agent_rows import AgentRow, LessonRow
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.domain.schema import (
    AT,
    PERSON,
    Body,
    event,
    field_of,
    inserts,
    updates,
    updates_all,
)
from hivekeeper.domain.states import MailState


@event("agent.created", "agent", inserts(AgentRow, name=field_of("agent"), created_at=AT), by=PERSON)
class AgentCreated(Body):
    """An agent exists, with files of its own: a plan or a person named it, or the dispatcher needed one."""

    agent: str
    role: str = ""
    strengths: list[str] = field(default_factory=list)


@event("agent.described", "agent", updates(AgentRow, "role", "strengths"), by=PERSON)
class AgentDescribed(Body):
    """What an agent is and is good at has changed: a person edited it, or it landed a task that needed a strength."""

    agent: str
    role: str
    strengths: list[str]


@event("agent.learnt", "agent", inserts(LessonRow, added_at=AT), by=PERSON)
class AgentLearnt(Body):
    """An agent has learnt something: a worker said so after its task had landed, or a person wrote it down."""

    agent: str
    number: int
    topic: str
    text: str
    source: str


@event("agent.unlearnt", "agent", updates(LessonRow, where={"dropped_at": None}, dropped_at=AT), by=PERSON)
class AgentUnlearnt(Body):
    """A person took back something that an agent had learnt."""

    agent: str
    number: int


@event("agent.retired", "agent", updates(AgentRow, where={"retired_at": None}, retired_at=AT), by=PERSON)
class AgentRetired(Body):
    """A person gives an agent no more work; what it is, knows and did stays."""

    agent: str


@event("agent.restored", "agent", updates(AgentRow, retired_at=None), by=PERSON)
class AgentRestored(Body):
    """A person gives a retired agent work again."""

    agent: str


@event(
    "agent.renamed",
    "agent",
    updates(AgentRow, "former", name=field_of("name")),
    updates_all(LessonRow, {"agent": "agent"}, agent=field_of("name")),
    updates_all(AttemptRow, {"agent": "agent"}, agent=field_of("name")),
    updates_all(TaskRow, {"agent": "agent"}, agent=field_of("name")),
    updates_all(TaskRow, {"recommended": "agent"}, recommended=field_of("name")),
    updates_all(MailRow, {"receiver": "agent"}, {"state": MailState.ACCEPTED}, receiver=field_of("name")),
    by=PERSON,
)
class AgentRenamed(Body):
    """A person gave an agent another name; it is the same agent, with everything it has done."""

    agent: str
    name: str
    former: list[str]


@event("task.recommended", "task", updates(TaskRow, "attempts_allowed", recommended=field_of("agent")))
class TaskRecommended(Body):
    """Another attempt at a task is allowed, for an agent that is recommended; the dispatcher assigns it."""

    task: str
    agent: str
    attempts_allowed: int
