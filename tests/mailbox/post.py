"""A hive whose agents are at work for good, as rows without processes, and its router between real mailboxes."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hivekeeper.commands.attempts import dispatch_task
from hivekeeper.commands.plans import submit_plan
from hivekeeper.commands.runs import intend_run, note_started
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.domain.run import Claim, RunSpec
from hivekeeper.domain.steps import Start
from hivekeeper.hive import Hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.loops.router import Router
from hivekeeper.mailbox.boxes import ACKNOWLEDGED, INBOX, OUTBOX, SENT, Mailbox
from hivekeeper.places import Places
from hivekeeper.settings import Settings
from hivekeeper.store import queries
from hivekeeper.store.ledger import create_ledger, open_ledger
from tests.budget import SOAK
from tests.scenarios.conftest import ShiftedClock
from tests.stage import ME

LONGEST_S = 600.0 if SOAK else 30.0


def start_agent(keeper: Keeper, key: str) -> None:
    """Record that a task has an agent at work, and make its mailbox."""
    boot_id = keeper.runs.boot_id
    with keeper.hive.ledger.write(keeper.authority) as tx:
        task = queries.find_task(tx.connection, key)
        assert task is not None
        owner, start = attempt_owner(key, dispatch_task(tx, task).number, None), Start("agent")
        intend_run(tx, owner, start, RunSpec(("true",), ".", {}, {}), boot_id=boot_id)
        run = queries.find_run(tx.connection, owner.name_run(start))
        assert run is not None
        note_started(tx, run, Claim(1, 1, boot_id, tx.now))
    mailbox = keeper.hive.places.mailbox(key, 1)
    mailbox.parent.mkdir(parents=True)
    with Mailbox(mailbox) as box:
        box.open(SENT)
        box.open(ACKNOWLEDGED)


class Post:
    """Workers with these names, and the router between them."""

    def __init__(self, root: Path, workers: Sequence[str], hourly: int = 60) -> None:
        self.places, self.clock = Places(root), ShiftedClock()
        self.places.hive.mkdir(parents=True, exist_ok=True)
        create_ledger(self.places.ledger)
        self.ledger = open_ledger(self.places.ledger, self.clock)
        self.keeper = Keeper(Hive(self.places, Settings(workers=len(workers), hourly=hourly), self.ledger))
        (self.router,) = (loop for loop in self.keeper.loops if isinstance(loop, Router))
        self.keeper.loops = [self.router]
        with self.ledger.write(ME) as tx:
            submit_plan(
                tx, PlanSpec("work", tuple(TaskSpec(name, "true", outputs=(name,), agent=name) for name in workers))
            )
        for name in workers:
            start_agent(self.keeper, f"work/{name}")

    def mail(self, name: str) -> Path:
        return self.places.mailbox(f"work/{name}", 1)

    def outbox(self, name: str) -> Path:
        return self.mail(name) / OUTBOX

    def inbox(self, name: str) -> Path:
        return self.mail(name) / INBOX

    def send(self, name: str, file: str, **message: Any) -> None:  # noqa: ANN401 - JSON
        """Write a message into a worker's outbox, whole."""
        draft = self.outbox(name) / f".{file}"
        draft.write_text(json.dumps({"type": "inform", **message}))
        draft.rename(self.outbox(name) / file)

    def read(self, name: str) -> list[dict[str, Any]]:
        """Read what lies in a worker's inbox."""
        return [json.loads(path.read_text()) for path in sorted(self.inbox(name).glob("*.json"))]

    def rows(self, **what: Any) -> list[MailRow]:  # noqa: ANN401 - as the query has them
        """List messages, oldest first."""
        with self.ledger.read() as connection:
            return queries.list_mail_matching(connection, limit=-1, **what)[::-1]

    def carry(self, passes: int = 4) -> None:
        """Have the router make passes, one after another."""
        for _ in range(passes):
            self.router.run_once()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a started keeper."""
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            assert time.monotonic() < deadline, f"it did not come to that in time: {self.keeper.problems}"
            self.keeper.wait_for_commit(0.02)

    def close(self) -> None:
        self.keeper.close()
        self.ledger.close()


@contextmanager
def open_post(root: Path, *workers: str, hourly: int = 60) -> Iterator[Post]:
    post = Post(root, workers, hourly)
    try:
        yield post
    finally:
        post.close()
