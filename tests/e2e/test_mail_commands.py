"""Messages as a person reads, writes, answers and mends them."""

from collections.abc import Iterator

import pytest

from hivekeeper.domain import events as e
from hivekeeper.domain.plan import TaskSpec
from tests.e2e.conftest import Shell
from tests.store.ledger_situations import bring_task
from tests.store.ledger_world import World


@pytest.fixture
def world(shell: Shell) -> Iterator[World]:
    """The ledger of the hive, with a task at work."""
    world = World(shell.root / ".hive")
    world.submit("c", TaskSpec("a", "true", outputs=("a",)), TaskSpec("late", "true", outputs=("b",), agent="ann"))
    bring_task(world, "c/a", "working")
    yield world
    world.close()


def keep(world: World, *bodies: e.Body, why: str = "") -> None:
    with world.keep() as tx:
        for body in bodies:
            tx.record(body, why=why)


def arrive(mail: str, type_: str, text: str, to: str = "person", *, asks: bool = False, **more: object) -> e.Body:
    payload = {"text": text, **more}
    return e.MailAccepted(
        mail, type_, "c.worker-1", to, "c/a", 1, payload, thread=mail, origin="c/a.1", expects_reply=asks
    )


def quarantine(mail: str, raw: str) -> e.Body:
    return e.MailSettled(
        mail,
        "?",
        "c.worker-1",
        "person",
        "c/a",
        1,
        {"raw": raw},
        mail,
        origin="c/a.1",
        file="m.json",
        outcome="QUARANTINED",
    )


def test_mail_to_a_person_is_listed_read_and_then_done(shell: Shell, world: World) -> None:
    keep(world, arrive("c/a/mail-1", "inform", "The parser is done.\nAll of it."))
    assert "There is mail for you from c.worker-1." in shell.hive("status")
    assert "The parser is done." in shell.hive("mail", "inbox")
    assert "    All of it." in shell.hive("mail", "read", "c/a/mail-1")
    assert shell.hive("mail", "inbox") == "No messages.\n"
    (row,) = shell.json("mail", "ls", "--type", "inform")
    assert (row["state"], row["reason"]) == ("HANDLED", "read")
    assert " on " in row["ended_by"], "who read it"


def test_a_question_is_answered_once_and_the_answer_goes_to_whoever_asked(shell: Shell, world: World) -> None:
    keep(world, arrive("c/a/mail-1", "query", "Which port?", asks=True))
    assert "    → hive mail reply c/a/mail-1 '...'" in shell.hive("status")
    assert shell.hive("mail", "reply", "c/a/mail-1", "8080").startswith("Replied to c.worker-1.\n")
    question, answer = shell.json("mail", "thread", "c/a/mail-1")
    assert (question["state"], answer["parent"], answer["hops"]) == ("HANDLED", "c/a/mail-1", 1)
    assert (answer["receiver"], answer["payload"]) == ("c.worker-1", {"text": "8080"})
    assert "it does not expect a reply" in shell.hive("mail", "reply", answer["id"], "why?", code=2)


def test_who_waits_for_help_goes_on_when_it_is_answered_or_closed(shell: Shell, world: World) -> None:
    for number, deed in enumerate((("reply", "here you are"), ("done",))):
        mail = f"c/a/mail-{number}"
        keep(world, arrive(mail, "HELP_REQUEST", "stuck", "supervisor", asks=True, blocking=True))
        keep(world, e.HoldPlaced("task", "c/a", "help", None, 1), why="stuck")
        status = shell.json("status")["needs_me"]
        assert {"what": "c.worker-1 asks for help and waits: stuck", "type": f"hive mail reply {mail} '...'"} in status
        shell.hive("mail", deed[0], mail, *deed[1:])
        with world.ledger.read() as connection:
            assert connection.rows("SELECT lifted FROM hold WHERE cause = 'help'") == [(1,)]


def test_a_message_to_a_worker_says_when_it_is_read_and_one_to_nobody_is_refused(shell: Shell, world: World) -> None:
    said = shell.hive("mail", "send", "1", "hello")
    assert said.splitlines()[0] == "Sent to c.worker-1; it gets it when it works next."
    assert "The keeper is not running" in said
    assert shell.hive("mail", "send", "ann", "wait for a").startswith("Sent to ann;")
    (row,) = shell.json("mail", "ls", "--agent", "ann")
    assert (row["task"], row["state"]) == (None, "ACCEPTED"), "its next session gets it"
    assert "there is no receiver 'anm'; did you mean 'ann'?" in shell.hive("mail", "send", "anm", "x", code=2)
    assert "You cannot send a message of type TASK_COMPLETE" in shell.hive(
        "mail", "send", "ann", "x", "--type", "TASK_COMPLETE", code=2
    )
    assert "Did you mean 'inform'?" in shell.hive("mail", "send", "ann", "x", "--type", "infrom", code=2)
    assert "--payload is not a JSON object." in shell.hive("mail", "send", "ann", "--payload", "[1]", code=2)
    assert "There is nothing to send." in shell.hive("mail", "send", "ann", code=2)


def test_a_quarantined_message_is_shown_mended_and_requeued_or_dropped(shell: Shell, world: World) -> None:
    keep(world, quarantine("c/a/mail-1", '{"type": "inform", "to": "person", '), why="it is not JSON: ends early")
    keep(world, quarantine("c/a/mail-2", "\x1b[2Jnonsense"), why="it is not JSON")
    assert "hive mail quarantine ls" in shell.hive("status")
    assert "ends early" in shell.hive("mail", "quarantine", "ls")
    assert "\x1b" not in shell.hive("mail", "quarantine", "show", "c/a/mail-2")
    assert "It cannot be requeued: it is not JSON" in shell.hive("mail", "quarantine", "requeue", "c/a/mail-1", code=2)
    (shell.root / "m.json").write_text('{"type": "inform", "to": "person", "text": "mended"}')
    said = shell.hive("mail", "quarantine", "requeue", "c/a/mail-1", "--file", "m.json")
    assert said == "c/a/mail-1 is on its way to person.\n"
    assert shell.hive("mail", "quarantine", "drop", "c/a/mail-2") == "c/a/mail-2 is dropped.\n"
    assert shell.hive("mail", "quarantine", "drop", "c/a/mail-2") == "c/a/mail-2 is not quarantined.\n"
    assert shell.hive("mail", "quarantine", "ls") == "Nothing is quarantined.\n"
    assert "mended" in shell.hive("mail", "inbox")


def test_messages_are_found_by_word_type_agent_and_time(shell: Shell, world: World) -> None:
    keep(world, arrive("c/a/mail-1", "inform", "Use Postgres."), arrive("c/a/mail-2", "query", "postgres or SQLite?"))
    found = shell.json("mail", "search", "POSTGRES")
    assert [row["id"] for row in found] == ["c/a/mail-2", "c/a/mail-1"]
    assert [row["id"] for row in shell.json("mail", "search", "postgres", "--type", "query")] == ["c/a/mail-2"]
    keep(world, arrive("c/a/mail-3", "inform", 'Ärger mit "Port" 8080'))
    for words in ("ärger", 'MIT "port"'):
        assert [row["id"] for row in shell.json("mail", "search", words)] == ["c/a/mail-3"]
    assert shell.json("mail", "search", "postgres", "--agent", "nobody") == []
    assert shell.json("mail", "ls", "--until", "1h ago") == []
    assert len(shell.json("mail", "ls", "--since", "1h ago")) == 3
    assert "'soon' is not a moment" in shell.hive("mail", "ls", "--since", "soon", code=2)
    assert "There is no message 'c/x'." in shell.hive("mail", "read", "c/x", code=2)


def test_a_task_is_handed_to_an_agent_or_a_runner_that_there_is(shell: Shell, world: World) -> None:
    assert shell.hive("task", "handoff", "late", "--to", "bob") == "c/late is handed off to bob.\n"
    assert shell.hive("task", "handoff", "late", "--to", "bob") == "c/late is with bob already.\n"
    assert "is a command, which no runner takes" in shell.hive("task", "handoff", "late", "--runner", "codex", code=2)
    assert "did you mean" in shell.hive("task", "handoff", "late", "--runner", "codx", code=2).lower()
    assert "Who takes over?" in shell.hive("task", "handoff", "late", code=2)
    assert world.task("c/late").agent == "bob"
