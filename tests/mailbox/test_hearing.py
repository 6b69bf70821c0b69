"""The router hears of every agent that starts, and so reads its mailbox at once, however many start together."""

import time
from pathlib import Path

from hivekeeper.commands.plans import submit_plan
from hivekeeper.domain import events as e
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from tests.mailbox.post import open_post, start_agent
from tests.stage import ME

SOON_S = 2.0  # well before all mailboxes are looked at again
NAMES = ("a", "b", "c", "d")


def test_mailboxes_of_agents_that_start_in_one_commit_are_all_read_at_once(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "first") as post:
        post.keeper.start()
        post.send("first", "0.json", receiver="person", text="0")
        post.wait(lambda: len(post.rows()) == 1)
        with post.ledger.write(ME) as tx:
            submit_plan(tx, PlanSpec("work", tuple(TaskSpec(name, "true", outputs=(name,)) for name in NAMES)))
        told = post.ledger.on_commit[:]
        post.ledger.on_commit.clear()  # as if all of it were one commit
        for name in NAMES:
            start_agent(post.keeper, f"work/{name}")
        for tell in told:
            tell([e.RunStarted(f"work/{name}.1.agent", 1, 1, "boot") for name in NAMES])
        post.ledger.on_commit[:] = told
        began = time.monotonic()
        for name in NAMES:
            post.send(name, "1.json", receiver="person", text=name)
        post.wait(lambda: len(post.rows()) == 1 + len(NAMES))
        assert time.monotonic() - began < SOON_S
