"""The life of an agent: it comes to be, learns, changes, retires, comes back, and may get another name."""

from collections.abc import Collection, Sequence

from hivekeeper.domain import events as e
from hivekeeper.domain.agent_rows import AgentRow, LessonRow
from hivekeeper.domain.agents import (
    FAILURES_BEFORE_SENIOR,
    MAX_LESSON,
    MAX_LESSONS,
    MAX_ROLE,
    MAX_STRENGTHS,
    TOPICS,
    find_senior,
)
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.names import NAME_RULE, advise, is_name
from hivekeeper.domain.protocol import FREE_ADDRESS_RULE, is_free_address
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.run import DOWN, PERSON
from hivekeeper.domain.states import AttemptState, RunState
from hivekeeper.errors import InputError
from hivekeeper.store import agent_queries, queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

REJECTED, STALLED, FAILED = "rejected", "stalled", "failed"


def get_agent(connection: Connection, name: str) -> AgentRow:
    """Get an agent by its name, or by one that it had before."""
    if (found := agent_queries.find_agent(connection, name)) is None:
        names = [agent.name for agent in agent_queries.list_agents(connection)]
        raise InputError(f"There is no agent '{name}'.", advice=advise(name, names, "Type: hive agent ls"))
    return found


def create_agent(
    tx: Transaction, name: str, *, role: str = "", strengths: Sequence[str] = (), why: str = ""
) -> AgentRow:
    """Make an agent."""
    check_name(tx.connection, name)
    check_description(role, strengths)
    tx.record(e.AgentCreated(name, role, list(dict.fromkeys(strengths))), why=why)
    return get_agent(tx.connection, name)


def check_name(connection: Connection, name: str) -> None:
    """Refuse a name that no agent can have, or that one has or had."""
    if not is_name(name):
        raise InputError(f"'{name}' cannot be an agent's name.", advice=f"It must be {NAME_RULE}.")
    if not is_free_address(name):
        raise InputError(f"'{name}' cannot be an agent's name: it {FREE_ADDRESS_RULE}.", advice="Choose another name.")
    for agent in agent_queries.list_agents(connection):
        if name in (agent.name, *agent.list_former()):
            was = "is" if name == agent.name else f"was, before it was renamed to {agent.name},"
            raise InputError(f"There {was} an agent '{name}' already.", advice=f"Type: hive agent show {agent.name}")


def check_description(role: str, strengths: Sequence[str]) -> None:
    """Refuse a description that is too long, or strengths that are no names."""
    if len(role) > MAX_ROLE:
        raise InputError(f"A role has at most {MAX_ROLE} characters.")
    if len(strengths) > MAX_STRENGTHS:
        raise InputError(f"An agent has at most {MAX_STRENGTHS} strengths.")
    if wrong := next(
        (each for each in strengths if not each.strip() or len(each) > MAX_ROLE or not each.isprintable()), None
    ):
        raise InputError(f"{wrong!r} cannot be a strength: it must be a line of text.")


def describe_agent(tx: Transaction, agent: AgentRow, role: str, strengths: Sequence[str], *, why: str) -> bool:
    """Change what an agent is and is good at; False when nothing changed."""
    check_description(role, strengths)
    wanted = list(dict.fromkeys(strengths))
    if (role, wanted) == (agent.role, list(agent.list_strengths())):
        return False
    tx.record(e.AgentDescribed(agent.name, role, wanted), why=why)
    return True


def retire_agent(tx: Transaction, agent: AgentRow, *, why: str = "") -> bool:
    """Give an agent no more work; False when it had retired before. What it is at work on, it ends."""
    if agent.retired_at is not None:
        return False
    tx.record(e.AgentRetired(agent.name), why=why)
    return True


def restore_agent(tx: Transaction, agent: AgentRow, *, why: str = "") -> bool:
    """Give a retired agent work again; False when it has not retired."""
    if agent.retired_at is None:
        return False
    tx.record(e.AgentRestored(agent.name), why=why)
    return True


def rename_agent(tx: Transaction, agent: AgentRow, name: str, *, why: str = "") -> bool:
    """Give an agent another name; False when it has it."""
    if name == agent.name:
        return False
    if name not in agent.list_former():
        check_name(tx.connection, name)
    former = [each for each in (*agent.list_former(), agent.name) if each != name]
    tx.record(e.AgentRenamed(agent.name, name, former), why=why)
    return True


def teach(tx: Transaction, agent: str, topic: str, text: str, source: str, *, why: str = "") -> str:
    """Record something that an agent has learnt; "" or a sentence why it is not kept."""
    known = agent_queries.list_lessons(tx.connection, agent)
    text = text.strip()
    if topic not in TOPICS:
        return f"'{topic}' is none of {', '.join(TOPICS)}"
    if not text or len(text) > MAX_LESSON:
        return f"it must have 1 to {MAX_LESSON} characters"
    if any((row.topic, row.text) == (topic, text) for row in known if row.dropped_at is None):
        return "it is known"
    if sum(row.dropped_at is None for row in known) >= MAX_LESSONS:
        return f"{agent} knows {MAX_LESSONS} things already; drop some of its expertise.yaml"
    tx.record(e.AgentLearnt(agent, len(known) + 1, topic, text, source), why=why)
    return ""


def unteach(tx: Transaction, lesson: LessonRow, *, why: str = "") -> None:
    """Take back something that an agent has learnt."""
    tx.record(e.AgentUnlearnt(lesson.agent, lesson.number), why=why)


def reward(tx: Transaction, task: TaskRow, number: int, said: Sequence[MailRow]) -> None:
    """Record what an agent gains by a task that it has landed: the strengths that were asked for, and its lessons."""
    attempt = queries.find(tx.connection, AttemptRow, task=task.key, number=number)
    agent = agent_queries.find_agent(tx.connection, attempt.agent) if attempt and attempt.agent else None
    if attempt is None or agent is None or not attempt.session:
        return
    known = agent.list_strengths()
    gained = [each for each in task.strengths if each not in known][: MAX_STRENGTHS - len(known)]
    if gained:
        tx.record(e.AgentDescribed(agent.name, agent.role, [*known, *gained]), why=f"{task.key} landed")
    for mail in said:
        lesson = mail.get_payload()
        topic, text = str(lesson.get("topic") or TOPICS[0]), str(lesson.get("text"))
        teach(tx, agent.name, topic, text, mail.origin, why=f"{task.key} landed")


def begin_session(tx: Transaction, agent: str | None, *, strengths: Sequence[str] = (), why: str = "") -> int:
    """Make an agent if there is none, and number the session that it begins."""
    if agent is None:
        return 0
    row = queries.find(tx.connection, AgentRow, name=agent)
    if row is None:
        tx.record(e.AgentCreated(agent, "", list(strengths)), why=why)
        return 1
    return row.sessions + 1


def judge_agent(runs: Sequence[RunRow]) -> str:
    """Say what the end of a failed attempt's runs says about its agent; "" if it is not to blame."""
    agents = [run for run in runs if run.kind == "agent"]
    if not agents or agents[-1].state is RunState.LOST:
        return ""
    last = agents[-1]
    if last.ended_by in ("silence", "wall"):
        return STALLED
    if last.ended_by == "could-not-start" or (last.ended_by == "killed" and last.kill_cause in (None, PERSON, DOWN)):
        return ""
    return FAILED


def recommend_senior(tx: Transaction, task: TaskRow, attempt: AttemptRow) -> str | None:
    """After the last allowed failure of a task, allow one more attempt by the agent with the best record."""
    attempts = queries.list_attempts_of_task(tx.connection, task.key)
    failed: Collection[str] = {
        str(each.agent) for each in attempts if each.state is AttemptState.FAILED or each.number == attempt.number
    }
    failures = sum(each.state is AttemptState.FAILED for each in attempts) + 1
    if attempt.agent is None or task.recommended is not None or failures < FAILURES_BEFORE_SENIOR:
        return None
    senior = find_senior(agent_queries.load_candidates(tx.connection).values(), failed)
    if senior is not None:
        tx.record(e.TaskRecommended(task.key, senior, attempt.number + 1), why=f"it failed {failures} times")
    return senior
