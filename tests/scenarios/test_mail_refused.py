"""Messages that reach nobody: a person throws them away, there are too many, or whoever they are for has ended."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.commands.attempts import dispatch_task, fail_attempt
from hivekeeper.commands.convoys import archive_convoy, end_convoy
from hivekeeper.commands.mail import drop_mail
from hivekeeper.commands.plans import submit_plan
from hivekeeper.commands.post import MAX_REFUSED, Outgoing, receive
from hivekeeper.commands.tasks import cancel_task, retry_task
from hivekeeper.domain.convoy import Outcome
from hivekeeper.domain.mail import Limits
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.domain.protocol import INFORM, PRIORITY_MERGE, PROTOCOL, Draft, MessageType, Role, make_routes
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.domain.states import MailState, TaskState
from hivekeeper.mailbox.boxes import SENT
from hivekeeper.store import queries
from hivekeeper.views.mail import list_mail_needs
from tests.mailbox.post import Post, open_post, start_agent
from tests.stage import ME


def needs(post: Post) -> list[tuple[str, str]]:
    with post.ledger.read() as connection:
        return list(list_mail_needs(connection, 1800.0, now=post.clock.now()))


def add(post: Post, convoy: str, *tasks: TaskSpec) -> None:
    with post.ledger.write(ME) as tx:
        submit_plan(tx, PlanSpec(convoy, tasks))


def work(name: str, agent: str | None = None) -> TaskSpec:
    return TaskSpec(name, "true", outputs=(name,), agent=agent)


def find_task(post: Post, key: str) -> TaskRow:
    with post.ledger.read() as connection:
        task = queries.find_task(connection, key)
    assert task is not None
    return task


def find_attempt(post: Post, key: str) -> AttemptRow:
    with post.ledger.read() as connection:
        return queries.list_attempts_of_task(connection, key)[-1]


def end_work(post: Post, key: str) -> None:
    """Let a task's attempt under way fail."""
    with post.ledger.write(post.keeper.authority) as tx:
        fail_attempt(tx, find_task(post, key), find_attempt(post, key), why="it failed", at=tx.now)


def try_again(post: Post, key: str) -> AttemptRow:
    """Begin another attempt at a task."""
    with post.ledger.write(post.keeper.authority) as tx:
        return dispatch_task(tx, find_task(post, key))


def count_states(rows: list[MailRow]) -> Counter[MailState]:
    return Counter(row.state for row in rows)


def test_what_a_person_drops_from_the_quarantine_needs_nobody_and_is_delivered_to_nobody(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "a", "b") as post:
        (post.outbox("a") / "half.json").write_text('{"type": "inform", "to": "b", ')
        post.carry()
        post.clock.let_pass(2.1)
        post.carry()
        (half,) = post.rows()
        assert half.state is MailState.QUARANTINED
        assert needs(post) == [("A message from a could not be read.", "hive mail quarantine ls")]
        for is_first in (True, False):
            with post.ledger.write(ME) as tx:
                assert drop_mail(tx, half, "noise") == is_first
        post.carry()
        (half,) = post.rows()
        assert (half.state, half.reason, half.ended_by) == (MailState.DROPPED, "noise", ME.who)
        assert needs(post) == []
        assert post.read("b") == []


def test_a_worker_with_many_addresses_is_one_of_a_pair(tmp_path: Path) -> None:
    addresses = ("two/L", "two.worker-1", "L")
    with open_post(tmp_path / "hive", "a", hourly=3) as post:
        add(post, "two", work("L"))
        start_agent(post.keeper, "two/L")
        for number in range(6):
            post.send("a", f"{number}.json", receiver=addresses[number % 3], text=f"{number}")
        post.carry()
        assert count_states(post.rows()) == {MailState.DELIVERED: 3, MailState.DROPPED: 3}
        assert {row.receiver for row in post.rows()} == {"two/L", "two.worker-1"}


def test_a_worker_that_is_tried_again_is_one_of_a_pair(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "b") as post:
        add(post, "two", replace(work("L"), attempts=3))
        rows = list[MailRow]()
        for number in range(3):
            attempt = try_again(post, "two/L")
            said = Draft(INFORM, "b", {"text": f"{number}"})
            file = Outgoing(find_task(post, "two/L"), attempt, "m.json", f"digest-{number}", said)
            with post.ledger.write(post.keeper.authority) as tx:
                rows += receive(tx, PROTOCOL, Limits(hourly=2), file)
            end_work(post, "two/L")
        assert [row.sender for row in rows] == ["two.worker-1", "two.worker-2", "two.worker-3"]
        assert [row.state for row in rows] == [MailState.ACCEPTED, MailState.ACCEPTED, MailState.DROPPED]


def test_two_that_open_conversations_for_ever_have_sixty_an_hour_each_way(tmp_path: Path) -> None:
    """The person is told of each way once."""
    with open_post(tmp_path / "hive", "a", "b") as post:
        for hour in range(2):
            for number in range(65):
                for sender, receiver in ("ab", "ba"):
                    post.send(sender, f"{hour}-{number}.json", receiver=receiver, text=f"{number}", type="query")
            post.carry(12)
            rows = post.rows()[-130:]
            assert count_states(rows) == {MailState.DELIVERED: 120, MailState.DROPPED: 10}
            post.clock.let_pass(3601)
        told = [what for what, _ in needs(post) if what.startswith("A message from")]
        assert sorted(told) == [
            f"A message from {one} to {other} was dropped: "
            f"hourly: {one} has started 60 conversations with {other} in the last hour."
            for one, other in ("ab", "ba")
        ]


def test_what_a_worker_sends_in_vain_again_and_again_is_not_kept_and_what_is_right_arrives(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "a", "b") as post:
        for number in range(MAX_REFUSED + 5):
            post.send("a", f"{number:03}.json", receiver="nobody", text="?")
        (post.outbox("a") / "half.json").write_text("{")
        post.send("a", "good.json", receiver="b", text="hello")
        post.carry(8)
        post.clock.let_pass(2.1)
        post.carry()
        assert count_states(post.rows()) == {MailState.RETURNED: MAX_REFUSED, MailState.DELIVERED: 1}
        assert [message["payload"]["text"] for message in post.read("b")] == ["hello"]
        sent = post.outbox("a") / SENT
        reasons = [(sent / f"bad-{name}.reason").read_text() for name in ("099.json", "100.json", "half.json")]
        assert reasons == [
            "there is no receiver 'nobody'\n",
            *["too many messages of this worker were refused\n"] * 2,
        ]
        assert [path.name for path in post.outbox("a").glob("*.json")] == []


NEWS = MessageType("NEWS", make_routes((Role.WORKER,), (Role.WORKER,)), may_broadcast=True)


def broadcast(post: Post, sender: str, name: str, type_: str = "NEWS") -> list[tuple[str, MailState, str]]:
    """Have a worker send to all by a file of this name; tell whom it reaches."""
    with post.ledger.write(post.keeper.authority) as tx:
        task, attempt = find_task(post, f"work/{sender}"), find_attempt(post, f"work/{sender}")
        said = Draft(type_, "all", {"text": "hello"}, given_id="n1" if type_ == "NEWS" else None)
        file = Outgoing(task, attempt, name, f"digest of {name}", said)
        rows = receive(tx, {**PROTOCOL, "NEWS": NEWS}, Limits(), file)
    return [(row.receiver, row.state, row.reason) for row in rows]


def test_what_is_sent_to_all_is_one_message_for_each_who_is_at_work_and_once(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "a", "b", "c", "late") as post:
        end_work(post, "work/late")
        reached = [("b", MailState.ACCEPTED, ""), ("c", MailState.ACCEPTED, "")]
        assert broadcast(post, "a", "m.json") == reached
        assert broadcast(post, "a", "m.json") == reached, "the same file"
        assert broadcast(post, "a", "n.json") == reached, "another with the same id"
        post.carry()
        assert [(row.receiver, row.state) for row in post.rows()] == [
            ("b", MailState.DELIVERED),
            ("c", MailState.DELIVERED),
        ]
        assert {row.thread for row in post.rows()} == {row.id for row in post.rows()}, "each may be answered by itself"


def test_nobody_is_reached_by_what_is_sent_to_all_where_nobody_is_or_the_type_does_not_allow_it(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "a") as post:
        assert broadcast(post, "a", "m.json") == [("all", MailState.RETURNED, "nobody else is at work")]
        why = "only types with broadcast = true may be sent to all, by workers"
        for type_ in (INFORM, PRIORITY_MERGE):
            assert broadcast(post, "a", f"{type_}.json", type_) == [("all", MailState.RETURNED, why)]


def test_mail_to_an_agent_waits_while_it_may_have_a_worker_and_is_returned_when_it_has_no_task_left(
    tmp_path: Path,
) -> None:
    with open_post(tmp_path / "hive", "a") as post:
        add(post, "two", work("L", "ann"), work("M", "ann"))
        post.send("a", "0.json", receiver="ann", text="for later")
        for name in ("L", "M"):
            post.carry()
            assert [(row.state, row.task) for row in post.rows()] == [(MailState.ACCEPTED, None)]
            with post.ledger.write(ME) as tx:
                cancel_task(tx, find_task(post, f"two/{name}"))
        post.carry()
        assert [(row.state, row.reason) for row in post.rows()] == [
            (MailState.RETURNED, "all tasks of ann have ended")
        ]  # fmt: skip


@pytest.mark.parametrize("agent", [None, "ann"])
def test_mail_to_a_task_that_failed_waits_for_a_person_to_try_it_again_until_its_convoy_is_archived(
    tmp_path: Path, agent: str | None
) -> None:
    with open_post(tmp_path / "hive", "a") as post:
        add(post, "two", replace(work("L", agent), attempts=1))
        post.send("a", "0.json", receiver=agent or "two/L", text="for later")
        post.carry()
        for number in range(2):
            if number:
                with post.ledger.write(ME) as tx:
                    retry_task(tx, find_task(post, "two/L"))
            with post.ledger.write(post.keeper.authority) as tx:
                task = find_task(post, "two/L")
                fail_attempt(tx, task, dispatch_task(tx, task), why="it failed", at=tx.now)
                end_convoy(tx, "two", Outcome.FAILED, at=tx.now)
            post.carry()
            assert find_task(post, "two/L").state is TaskState.FAILED
            assert [row.state for row in post.rows()] == [MailState.ACCEPTED]
        with post.ledger.write(ME) as tx:
            convoy = queries.find_convoy(tx.connection, "two")
            assert convoy is not None
            archive_convoy(tx, convoy)
        post.carry()
        assert [row.state for row in post.rows()] == [MailState.RETURNED]
