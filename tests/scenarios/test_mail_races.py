"""Messages at the wrong moment, and workers that leave their mailbox in disorder: nothing is lost, nobody is stuck."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.commands.attempts import fail_attempt
from hivekeeper.commands.mail import requeue_mail, send_as_person, send_mail
from hivekeeper.commands.queue import submit_branch
from hivekeeper.commands.tasks import cancel_task, hand_off
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.protocol import HELP_REQUEST, PROTOCOL, REWORK_REQUEST, Draft, Role
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.states import AttemptState, ConvoyState, MailState, RunState, TaskState
from hivekeeper.git.clone import hash_file, read_head
from hivekeeper.loops import dispatcher
from hivekeeper.loops.rebaser import Rebaser
from hivekeeper.loops.router import Router
from hivekeeper.store import queries
from hivekeeper.working import telling
from hivekeeper.working.telling import find_rework
from tests.mailbox.post import open_post
from tests.scenarios.conftest import Scene
from tests.scenarios.letters import AGENT
from tests.scenarios.test_mail_handling import agents, find, hire, is_running, needs, prompt, write
from tests.stage import ME, Repository


def send(stage: Scene, to: str, text: str) -> MailRow:
    with stage.hive.ledger.write(ME) as tx:
        return send_as_person(tx, PROTOCOL, "inform", to, {"text": text})


def once(deed: Callable[[], object]) -> Callable[[], object]:
    """Do something the first time only."""
    left = [deed]
    return lambda: left.pop()() if left else None


def test_a_message_that_comes_while_a_prompt_is_written_is_in_that_prompt(
    stage: Scene, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    hire(stage, first=('cp "$HOME/first.1" told',))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    tell, arrive = telling.tell, once(lambda: send(stage, "work/A", "mind the gap"))

    def tell_late(*arguments: object) -> object:
        told = tell(*arguments)  # type: ignore[arg-type]
        arrive()
        return told

    monkeypatch.setattr(dispatcher, "tell", tell_late)
    assert stage.finish() is ConvoyState.COMPLETE
    assert "mind the gap" in repository.git("show", "hive/main:told")
    assert find(stage, type="inform")[0].delivered_run == "work/A.1.agent"


def test_help_that_is_asked_for_at_the_last_moment_parks_the_attempt(
    stage: Scene, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = write("help", type="HELP_REQUEST", to="supervisor", payload={"text": "stuck", "blocking": True})
    hire(stage, first=(ask, "echo a > a"))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    keeper = stage.take()
    router = next(loop for loop in keeper.loops if loop.name == "router")
    keeper.loops = [loop for loop in keeper.loops if loop is not router]
    awaits = telling.awaits_router

    def await_late(*arguments: object) -> bool:
        router.run_once()  # it is faster than the look at the outbox
        return awaits(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(dispatcher, "awaits_router", await_late)
    stage.step_until(lambda: bool(stage.attempts("A")) and stage.attempts("A")[-1].state is AttemptState.PARKED)
    assert [attempt.number for attempt in stage.attempts("A")] == [1]


def test_what_a_person_adds_to_a_rejection_does_not_stand_in_for_it(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "a") as post:
        with post.ledger.write(post.keeper.authority) as tx:
            task, attempt = queries.find_task(tx.connection, "work/a"), queries.find(tx.connection, AttemptRow)
            assert task is not None
            assert attempt is not None
            send_mail(tx, REWORK_REQUEST, Role.QUEUE, task, attempt, {"mode": "rework", "why": "verify failed"})
            fail_attempt(tx, task, attempt, why="verify failed", at=tx.now)
        with post.ledger.write(ME) as tx:
            send_as_person(tx, PROTOCOL, REWORK_REQUEST, "work/a", {"text": "mind the gap"})
            rework = find_rework(tx.connection, "work/a", 1)
        assert rework == {"mode": "rework", "why": "verify failed"}


def test_a_requeued_message_reaches_a_session_that_began_before(stage: Scene, repository: Repository) -> None:
    go = stage.root.parent / "go"
    bad = """echo '{"type": "inform", "to": "b", ' > "$HIVE_MAILBOX/outbox/m.json" """
    read = (
        f'until ls "$HIVE_MAILBOX/inbox/"*.json; do sleep 0.02; done; cat "$HIVE_MAILBOX/inbox/"*.json > b; touch {go}'
    )
    stage.submit(
        TaskSpec("A", f"{bad}; until test -e {go}; do sleep 0.02; done; echo a > a", repo="app"),
        TaskSpec("B", read, repo="app", agent="b"),
        repos=(repository.spec(),),
    )
    stage.step_until(lambda: bool(find(stage, state="QUARANTINED")) and is_running(stage, "B")())
    (row,) = find(stage, state="QUARANTINED")
    with stage.hive.ledger.write(ME) as tx:
        requeue_mail(tx, PROTOCOL, row, Draft("query", "b", {"text": "mended"}))
    assert stage.finish() is ConvoyState.COMPLETE
    assert "mended" in repository.git("show", "hive/main:b")
    assert find(stage, id=row.id)[0].expects_reply


def test_what_an_agent_wrote_while_no_keeper_ran_counts_however_long_that_was(
    stage: Scene, repository: Repository
) -> None:
    go = stage.root.parent / "go"
    ask = write("help", type="HELP_REQUEST", to="supervisor", payload={"text": "stuck", "blocking": True})
    hire(stage, first=(f"until test -e {go}; do sleep 0.02; done; {ask}", "echo a > a"))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(is_running(stage, "A"))
    assert stage.keeper is not None
    stage.keeper.close()
    go.touch()
    while stage.list_processes("work/A.1.agent"):
        stage.changed.wait(0.02)
    stage.clock.let_pass(3600)
    stage.take()
    stage.step_until(lambda: stage.attempts("A")[-1].state is AttemptState.PARKED)
    assert len(stage.attempts("A")) == 1


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_what_was_read_while_no_keeper_ran_is_handled_though_its_delivery_was_not_recorded(
    stage: Scene, repository: Repository, ends: str
) -> None:
    read = 'cd "$HIVE_MAILBOX/inbox"; until ls *.json; do sleep 0.02; done; cat *.json; mv *.json .done; cd "$OLDPWD"'
    again = 'if [ "$HIVE_ATTEMPT" = 2 ]; then cat "${HIVE_FEEDBACK:-/dev/null}" > told; exit; fi'
    command = f"{again}; {read}; echo a > a" + ("" if ends == "well" else "; false")
    stage.submit(TaskSpec("A", command, repo="app"), repos=(repository.spec(),))
    stage.step_until(is_running(stage, "A"))
    assert stage.keeper is not None
    send(stage, "work/A", "hello")
    router = next(loop for loop in stage.keeper.loops if isinstance(loop, Router))
    while router.run_once().keys() != {"placed"}:
        pass
    stage.keeper.close()
    executor = next(loop for loop in stage.take().loops if loop.name == "executor")
    while is_running(stage, "A")():
        executor.run_once()
        stage.changed.wait(0.02)
    assert find(stage, type="inform")[0].state is MailState.ACCEPTED
    assert stage.finish() is ConvoyState.COMPLETE
    (mail,) = find(stage, type="inform")
    assert (mail.state, mail.reason) == (MailState.HANDLED, "acknowledged")
    assert len(stage.attempts("A")) == (1 if ends == "well" else 2), "whose successor is not told again"


DISORDER = {
    "done is a file": 'rm -rf "$HIVE_MAILBOX/inbox/.done"; echo > "$HIVE_MAILBOX/inbox/.done"',
    "a long name": f"""cp "$HIVE_MAILBOX/outbox/m.json" "$HIVE_MAILBOX/outbox/{"é" * 120}.json" """,
    "a directory that nobody may change": 'mkdir "$HIVE_MAILBOX/outbox/d"; chmod 500 "$HIVE_MAILBOX/outbox/d"',
    "no mailbox": 'rm -rf "$HIVE_MAILBOX/inbox" "$HIVE_MAILBOX/outbox"',
}


@pytest.mark.parametrize("what", DISORDER)
def test_a_mailbox_in_disorder_holds_nobody_up(stage: Scene, repository: Repository, what: str) -> None:
    mail = write("m", type="inform", to="person", text="hello")
    stage.submit(TaskSpec("A", f"{mail}; {DISORDER[what]}; echo a > a", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert what == "no mailbox" or find(stage, type="inform")[0].get_payload() == {"text": "hello"}


def test_who_acknowledges_a_hotfix_and_does_not_rebase_is_judged_all_the_same(
    stage: Scene, repository: Repository
) -> None:
    repository.commit({"shared": "one\n\ntwo\n"}, "second")
    ignore = 'cd "$HIVE_MAILBOX/inbox"; until ls *.json; do sleep 0.02; done; mv *.json .done'
    stage.submit(TaskSpec("A", f"sed -i s/two/TWO/ shared; {ignore}", repo="app"), repos=(repository.spec(),))
    stage.step_until(is_running(stage, "A"))
    work = stage.hive.places.sandbox("work/A", 1) / "work" / "shared"
    stage.step_until(lambda: "TWO" in work.read_text())
    repository.git("checkout", "--quiet", "-b", "fix")
    repository.commit({"shared": "ONE\n\ntwo\n"}, "fix it")
    repository.git("checkout", "--quiet", "main")
    with stage.hive.ledger.write(ME) as tx:
        submit_branch(tx, stage.repo(), "fix", repository.git("rev-parse", "fix"), is_hotfix=True)
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.git("show", "hive/main:shared") == "ONE\n\nTWO"


def test_a_head_that_no_save_brings_is_saved_for_once(stage: Scene, repository: Repository) -> None:
    go = stage.root.parent / "go"
    repository.commit({"shared": "one\n\ntwo\n"}, "second")
    lie = f"sed -i s/two/TWO/ shared; echo {'1' * 40} > .git/HEAD; until test -e {go}; do sleep 0.02; done"
    stage.submit(TaskSpec("A", lie, repo="app", attempts=1), repos=(repository.spec(),))
    stage.step_until(is_running(stage, "A"))
    work = stage.hive.places.sandbox("work/A", 1) / "work"
    stage.step_until(lambda: "1111" in (work / ".git" / "HEAD").read_text())
    repository.git("checkout", "--quiet", "-b", "fix")
    repository.commit({"shared": "ONE\n\ntwo\n"}, "fix it")
    repository.git("checkout", "--quiet", "main")
    with stage.hive.ledger.write(ME) as tx:
        submit_branch(tx, stage.repo(), "fix", repository.git("rev-parse", "fix"), is_hotfix=True)
    stage.step_until(lambda: any(run.kind == "save" and not run.is_open for run in stage.runs("A")))
    assert stage.keeper is not None
    rebaser = next(loop for loop in stage.keeper.loops if isinstance(loop, Rebaser))
    for _ in range(5):
        assert rebaser.run_once() == {}
    go.touch()
    stage.finish()


@pytest.mark.parametrize("type_", ["HELP_REQUEST", "STUCK"])
def test_a_task_that_waits_for_help_and_is_handed_off_continues(
    stage: Scene, repository: Repository, type_: str
) -> None:
    """Also if it asked by a type of the person's own that is like a request for help."""
    protocol = {**PROTOCOL, "STUCK": replace(PROTOCOL[HELP_REQUEST], name="STUCK", base=HELP_REQUEST)}
    ask = write("help", type=type_, to="supervisor", payload={"text": "stuck", "blocking": True})
    hire(stage, first=(ask,), second=("echo a > a",))
    stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, protocol=protocol))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(lambda: bool(stage.attempts("A")) and stage.attempts("A")[-1].state is AttemptState.PARKED)
    with stage.hive.ledger.write(ME) as tx:
        hand_off(tx, protocol, stage.task("A"), runner="second")
    assert needs(stage) == []
    assert stage.finish() is ConvoyState.COMPLETE
    assert [run.runner for run in agents(stage, "A")] == ["first", "second"]


def test_a_handoff_before_the_session_has_started_costs_no_attempt(stage: Scene, repository: Repository) -> None:
    hire(stage, first=("echo a > a",), second=("echo b > b",))
    stage.submit(prompt("A", attempts=1), repos=(repository.spec(),))
    keeper = stage.take()
    others = [loop for loop in keeper.loops if loop.name != "executor"]
    stage.step_until(lambda: any(run.kind == "sandbox" and run.succeeded for run in stage.runs("A")))
    while not agents(stage, "A"):
        for loop in others:
            loop.run_once()
    assert agents(stage, "A")[0].state is RunState.INTENDED
    with stage.hive.ledger.write(ME) as tx:
        hand_off(tx, PROTOCOL, stage.task("A"), runner="second")
    assert stage.finish() is ConvoyState.COMPLETE


def test_what_a_cancelled_task_asked_or_was_to_be_told_is_settled(stage: Scene, repository: Repository) -> None:
    ask = write("help", type="HELP_REQUEST", to="supervisor", payload={"text": "stuck", "blocking": True})
    hire(stage, first=(ask,))
    stage.submit(prompt("A"), TaskSpec("B", "true", repo="app", after=("A",)), repos=(repository.spec(),))
    send(stage, "work/B", "for later")
    stage.step_until(lambda: bool(stage.attempts("A")) and stage.attempts("A")[-1].state is AttemptState.PARKED)
    for name in ("A", "B"):
        with stage.hive.ledger.write(ME) as tx:
            cancel_task(tx, stage.task(name))
    stage.step_until(lambda: stage.task("A").state is TaskState.CANCELLED)
    stage.step_until(lambda: find(stage, type="inform")[0].state is MailState.RETURNED)
    assert needs(stage) == []


def test_a_question_to_a_task_is_answered_by_whoever_works_on_it(stage: Scene, repository: Repository) -> None:
    ask = """send("q.json", type="query", to="work/B", text="?")
pathlib.Path("a").write_text(receive()["payload"]["text"])"""
    answer = 'send("r.json", type="inform", in_reply_to=receive()["id"], text="!")\npathlib.Path("b").write_text("b")'
    stage.submit(TaskSpec("A", AGENT % ask, repo="app"), TaskSpec("B", AGENT % answer, repo="app"),
                 repos=(repository.spec(),))  # fmt: skip
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.git("show", "hive/main:a") == "!"


def test_a_mailbox_that_is_in_use_is_carried_on_when_mail_is_turned_off(stage: Scene, repository: Repository) -> None:
    go = stage.root.parent / "go"
    late = write("m", type="inform", to="person", text="hello")
    stage.submit(TaskSpec("A", f"until test -e {go}; do sleep 0.02; done; {late}; echo a > a", repo="app"),
                 TaskSpec("B", 'test -z "$HIVE_MAILBOX" && echo b > b', repo="app", after=("A",)),
                 repos=(repository.spec(),))  # fmt: skip
    stage.step_until(is_running(stage, "A"))
    assert stage.keeper is not None
    stage.keeper.close()
    stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, mail=False))
    stage.take()
    go.touch()
    assert stage.finish() is ConvoyState.COMPLETE
    assert find(stage, type="inform")[0].get_payload() == {"text": "hello"}


def test_reading_a_clone_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / ".git" / "HEAD").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted
    for _ in range(50):
        assert read_head(tmp_path) is None
        assert hash_file(tmp_path, ".git/HEAD") is None
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - counted
