"""The row of a message."""

import json
from typing import Any

from hivekeeper.domain.protocol import PRIORITY_MERGE, REWORK_REQUEST, Role
from hivekeeper.domain.schema import table
from hivekeeper.domain.states import OPEN_MAIL, MailState, is_in


@table(
    "mail",
    key={"id": "mail"},
    references={"task": "task"},
    constraints=(
        "CHECK (state <> 'DELIVERED' OR delivered_at IS NOT NULL)",
        f"CHECK (({is_in(OPEN_MAIL)}) = (ended_at IS NULL))",
    ),
    indexes=(
        "mail_by_task ON mail (task, attempt)",
        "mail_by_seq ON mail (seq)",
        "mail_by_thread ON mail (thread)",
        "mail_by_parent ON mail (parent) WHERE parent IS NOT NULL",
        "mail_by_file ON mail (origin, digest) WHERE digest IS NOT NULL",
        "mail_set_aside ON mail (state, seq) WHERE state IN ('QUARANTINED', 'DROPPED')",
        "mail_refused ON mail (origin) WHERE state IN ('QUARANTINED', 'RETURNED', 'DROPPED')",
        "mail_by_given_id ON mail (origin, given_id) WHERE given_id IS NOT NULL",
        "mail_by_pair ON mail (sender, receiver, sent_at) WHERE parent IS NULL",
        f"mail_open ON mail (task) WHERE {is_in(OPEN_MAIL)}",
        "mail_accepted ON mail (seq) WHERE state = 'ACCEPTED'",
    ),
)
class MailRow:
    """A message.

    `task` and `attempt` are those of its receiver if that is a worker, or else of its sender; the next attempt gets
    what this one has not read. `origin` is the attempt that wrote it, `file` and `digest` the file in its outbox, and
    `given_id` the id that it chose. `delivered_run` is the session that was given it in its prompt.
    """

    id: str
    type: str
    sender: str
    receiver: str
    task: str | None
    attempt: int | None
    payload: str
    state: MailState
    sent_at: str
    seq: int = 0
    thread: str = ""
    parent: str | None = None
    hops: int = 0
    expects_reply: int = 0
    origin: str = ""
    file: str | None = None
    digest: str | None = None
    given_id: str | None = None
    delivered_at: str | None = None
    delivered_run: str | None = None
    ended_at: str | None = None
    ended_by: str = ""
    reason: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it waits for its receiver."""
        return self.state in OPEN_MAIL

    @property
    def must_rebase(self) -> bool:
        """Whether it is about a hotfix that its receiver has to rebase onto."""
        return self.type == PRIORITY_MERGE and bool(self.get_payload().get("must_rebase"))

    @property
    def is_rejection(self) -> bool:
        """Whether the merge queue says in it why a change did not land: only the next attempt is told."""
        return self.type == REWORK_REQUEST and self.sender == Role.QUEUE

    @property
    def origin_task(self) -> str:
        """The task whose worker wrote it; "" if no worker did."""
        return self.origin.rpartition(".")[0]

    @property
    def inbox_name(self) -> str:
        """The name of its file in an inbox; in the order of these names the messages were accepted."""
        return f"{self.seq:09d}-{self.type}.json"

    def get_payload(self) -> dict[str, Any]:
        """Read what it says."""
        return dict(json.loads(self.payload))
