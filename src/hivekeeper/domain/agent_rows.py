"""Rows about agents: who each is, what it has learnt, and what its files held when they were last written."""

import json

from hivekeeper.domain.schema import table


@table("agent", key={"name": "agent"}, of_convoy=False)
class AgentRow:
    """An agent; its sessions are attempts, and end, but it stays. `former` are the names it had before."""

    name: str
    created_at: str
    role: str = ""
    strengths: str = "[]"
    sessions: int = 0
    retired_at: str | None = None
    former: str = "[]"

    def list_strengths(self) -> tuple[str, ...]:
        """List what it is good at."""
        return tuple(json.loads(self.strengths))

    def list_former(self) -> tuple[str, ...]:
        """List the names it had before."""
        return tuple(json.loads(self.former))


@table(
    "lesson",
    key={"agent": "agent", "number": "number"},
    of_convoy=False,
    indexes=("lesson_kept ON lesson (agent, number) WHERE dropped_at IS NULL",),
)
class LessonRow:
    """Something that an agent has learnt; `source` is the attempt that told it, or "person"."""

    agent: str
    number: int
    topic: str
    text: str
    source: str
    added_at: str
    dropped_at: str | None = None


@table("agent_file", key={"agent": "agent", "file": "file"}, of_convoy=False, is_projected=False)
class AgentFileRow:
    """The text of an agent's file as it was last written or read: what differs from it, a person has edited.

    `problem` says why what they wrote cannot be used.
    """

    agent: str
    file: str
    text: str
    problem: str = ""
