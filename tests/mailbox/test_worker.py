"""The worker's side of a mailbox: written whole, sent once, read and acknowledged by moving files."""

import json
import threading
from pathlib import Path

import pytest

from hivekeeper.domain.mail import Unreadable
from hivekeeper.domain.protocol import PROTOCOL, Draft, read_draft
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.git.own_clone import has_changes
from hivekeeper.mailbox.boxes import Delivery, Mailbox
from hivekeeper.mailbox.boxes import deliver as deliver_all
from hivekeeper.mailbox.worker import Refused, Sent, Waiting, WorkerMailbox, find_mailbox
from hivekeeper.worker.reporting import Reporter
from tests.git import git

SENT_AT = "2026-02-11T14:30:00.000000Z"


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    for name in ("inbox/.done", "outbox/.sent"):
        (tmp_path / "mail" / name).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def box(sandbox: Path) -> WorkerMailbox:
    return find_mailbox({"HIVE_MAILBOX": str(sandbox / "mail")})


def deliver(
    sandbox: Path, number: int = 1, *, sender: str = "b", type_: str = "query", text: str = "which port?"
) -> str:
    """Put a message into the inbox as the hive does; give its id."""
    id_ = f"work/A/mail-{number}"
    message = {"id": id_, "type": type_, "sender": sender, "receiver": "a", "timestamp": SENT_AT, "hops": 0}
    whole = {**message, "in_reply_to": None, "expects_reply": type_ == "query", "payload": {"text": text}}
    with Mailbox(sandbox / "mail") as hive:
        deliver_all([delivery := Delivery(hive, f"{number:09d}-{type_}.json", whole)])
    assert delivery.problem is None
    return id_


def take(sandbox: Path, reason: str = "") -> list[Draft | str | Unreadable | None]:
    """Take what lies in the outbox as the hive does, and accept or refuse all of it."""
    taken: list[Draft | str | Unreadable | None] = []
    with Mailbox(sandbox / "mail") as hive:
        for listed in hive.list_outbox() or ():
            read = hive.read(listed)
            assert read is not None
            taken.append(read.problem or read_draft(read.said, PROTOCOL))
            hive.finish(listed, reason)
    return taken


def list_outbox(sandbox: Path) -> list[str]:
    return sorted(path.name for path in (sandbox / "mail" / "outbox").iterdir())


def test_a_message_is_one_whole_file_that_the_hive_can_read(sandbox: Path, box: WorkerMailbox) -> None:
    posted = box.send("query", "b", {"text": "which pörts? \ud800"}, in_reply_to="work/A/mail-3")
    assert list_outbox(sandbox) == [".sent", f"{posted.id}.json"]
    assert box.send("query", "b", {"text": "which?"}).id != posted.id, "another message, another file"
    first = take(sandbox)[0]
    assert isinstance(first, Draft)
    assert (first.type, first.receiver, first.given_id, first.in_reply_to) == ("query", "b", posted.id, "work/A/mail-3")
    assert first.payload == {"text": "which pörts? ?"}


def test_sending_again_under_the_same_id_changes_nothing_wherever_the_first_is(
    sandbox: Path, box: WorkerMailbox
) -> None:
    assert box.send("inform", "b", {"text": "one"}, given_id="m").is_new
    assert not box.send("inform", "b", {"text": "one"}, given_id="m").is_new
    with pytest.raises(InputError, match="Another message was sent as 'm'"):
        box.send("inform", "b", {"text": "two"}, given_id="m")
    assert len(take(sandbox)) == 1
    assert not box.send("inform", "b", {"text": "one"}, given_id="m").is_new
    box.send("inform", "c", {"text": "one"}, given_id="n")
    take(sandbox, "there is no worker c")
    assert not box.send("inform", "c", {"text": "one"}, given_id="n").is_new
    assert take(sandbox) == []


@pytest.mark.parametrize("id_", ["../x", ".x", "a/b", "bad-x", "x" * 101, "a\nb"])
def test_an_id_that_is_no_name_of_a_file_is_refused(sandbox: Path, box: WorkerMailbox, id_: str) -> None:
    with pytest.raises(InputError, match="cannot be the id"):
        box.send("inform", "b", {"text": "one"}, given_id=id_)
    assert list_outbox(sandbox) == [".sent"]


def test_what_became_of_a_message_is_where_its_file_is(sandbox: Path, box: WorkerMailbox) -> None:
    good = box.send("inform", "b", {"text": "one"})
    assert box.wait_for_fate(good.id, within_s=0.0) == Waiting()
    take(sandbox)
    bad = box.send("inform", "nobody", {"text": "one"})
    taking = threading.Timer(0.05, take, (sandbox, "there is no worker nobody"))
    taking.start()
    assert box.wait_for_fate(bad.id, within_s=20.0) == Refused("there is no worker nobody")
    taking.join()
    assert box.find_fate(good.id) == Sent()


def test_what_is_sent_once_may_be_sent_again_only_after_it_was_refused(sandbox: Path, box: WorkerMailbox) -> None:
    assert box.send_once("TASK_COMPLETE", "queue", {"summary": "one"}, "done").is_new
    assert not box.send_once("TASK_COMPLETE", "queue", {"summary": "two"}, "done").is_new
    take(sandbox, "too many")
    again = box.send_once("TASK_COMPLETE", "queue", {"summary": "three"}, "done")
    assert (again.id, again.is_new) == ("done-2", True)
    take(sandbox)
    assert not box.send_once("TASK_COMPLETE", "queue", {"summary": "four"}, "done").is_new


def test_messages_are_listed_in_order_and_are_new_until_they_are_read(sandbox: Path, box: WorkerMailbox) -> None:
    second, first = deliver(sandbox, 12), deliver(sandbox, 3, sender="person", type_="inform", text="hurry\nup")
    (sandbox / "mail" / "inbox" / "torn.json").write_text('{"id": ')
    (sandbox / "mail" / "inbox" / "list.json").write_text("[]")
    (sandbox / "mail" / "inbox" / "directory").mkdir()
    assert [message.id for message in box.list_inbox()] == [first, second]
    assert box.list_inbox()[0].text == "hurry up"
    assert box.count_new() == 2
    message = box.get("mail-3")
    assert (message.id, message.sender, message.sent_at) == (first, "person", SENT_AT)
    assert box.get(first) == box.get("000000003-inform.json") == message
    box.mark_read(message)
    box.mark_read(message)
    assert [message.is_new for message in box.list_inbox()] == [False, True]
    with pytest.raises(InputError, match="There is no message 'mail-4'"):
        box.get("mail-4")


def test_an_acknowledged_message_lies_where_the_hive_looks_and_twice_is_once(sandbox: Path, box: WorkerMailbox) -> None:
    message = box.get(deliver(sandbox))
    assert box.acknowledge(message)
    assert not box.acknowledge(message)
    with Mailbox(sandbox / "mail") as hive:
        assert hive.find_place(message.name) == ".done"
    assert box.list_inbox() == []
    assert box.get(message.id).is_done, "it can still be read"


def test_a_reply_names_what_it_answers_and_the_same_reply_is_sent_once(sandbox: Path, box: WorkerMailbox) -> None:
    reporter, asked = Reporter(box, {}), deliver(sandbox)
    posted = threading.Timer(0.05, take, (sandbox,))
    posted.start()
    told = reporter.reply("mail-1", {"text": "8080"})
    posted.join()
    assert (told.state, told.sentence) == ("sent", "Replied to b.")
    said = json.loads((sandbox / "mail" / "outbox" / ".sent" / f"{told.id}.json").read_text())
    assert (said["in_reply_to"], said["receiver"], said["type"]) == (asked, "b", "inform")
    assert box.list_inbox() == [], "it is dealt with"
    assert reporter.reply("mail-1", {"text": "8080"}).id == told.id
    assert take(sandbox) == []


def test_a_refused_reply_leaves_its_message_in_the_inbox_and_says_why(sandbox: Path, box: WorkerMailbox) -> None:
    deliver(sandbox, type_="inform")
    refusing = threading.Timer(0.05, take, (sandbox, "inform has no reply"))
    refusing.start()
    with pytest.raises(InputError, match="Refused: inform has no reply"):
        Reporter(box, {}).reply("mail-1", {"text": "thanks"})
    refusing.join()
    assert len(box.list_inbox()) == 1


def test_a_message_of_the_prompt_is_replied_to_by_naming_its_sender(sandbox: Path, box: WorkerMailbox) -> None:
    reporter = Reporter(box, {})
    with pytest.raises(InputError, match="--to SENDER"):
        reporter.reply("work/A/mail-9", {"text": "8080"})
    taking = threading.Timer(0.05, take, (sandbox,))
    taking.start()
    assert reporter.reply("work/A/mail-9", {"text": "8080"}, to="b").state == "sent"
    taking.join()


def test_what_is_too_large_is_refused_before_it_is_sent(sandbox: Path, box: WorkerMailbox) -> None:
    with pytest.raises(InputError, match="larger than 1 MiB"):
        box.send("inform", "b", {"text": "x" * (1 << 20)})
    assert list_outbox(sandbox) == [".sent"]


def test_a_mailbox_that_is_not_there_is_said_to_be_missing(sandbox: Path) -> None:
    with pytest.raises(InputError, match="HIVE_MAILBOX is not set"):
        find_mailbox({})
    with pytest.raises(UnavailableError, match="There is no mailbox in"):
        find_mailbox({"HIVE_MAILBOX": str(sandbox)})


def test_being_done_is_refused_while_nothing_is_changed_or_declared(sandbox: Path, box: WorkerMailbox) -> None:
    public, clone = sandbox / "public", sandbox / "work"
    git(sandbox, "init", "-q", "-b", "main", "public")
    git(public, "commit", "-q", "--allow-empty", "-m", "first")
    git(sandbox, "clone", "-q", str(public), "work")
    base = git(clone, "rev-parse", "HEAD").strip()
    reporter = Reporter(box, {"HIVE_MAILBOX": str(sandbox / "mail"), "HIVE_TASK": "A"})
    refused = pytest.raises(InputError, match="You have changed nothing")
    with refused:
        reporter.report_done("all good")
    (clone / "new").write_text("new\n")
    assert has_changes(clone)
    git(clone, "add", "new")
    git(clone, "commit", "-q", "-m", "new")
    assert has_changes(clone)
    assert has_changes(clone, git(clone, "rev-parse", "HEAD").strip()) is False, "an earlier attempt made that"
    git(clone, "reset", "-q", "--hard", base)
    git(public, "commit", "-q", "--allow-empty", "-m", "second")
    git(clone, "pull", "-q")
    with refused:
        reporter.report_done()
    taking = threading.Timer(0.05, take, (sandbox,))
    taking.start()
    assert "Reported as done" in reporter.report_done(nothing_to_change="it was fixed already").sentence
    taking.join()
    assert "reported as done before" in reporter.report_done(nothing_to_change="it was fixed already").sentence
    (clone / ".git" / "HEAD").unlink()
    assert has_changes(clone) is None, "what git cannot tell is left to the hive"
