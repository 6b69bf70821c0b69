"""What messages bring about: help, progress, an early end, a handoff, and conversations that have to stop."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from hivekeeper.cli import render
from hivekeeper.commands.mail import close_mail, reply_as_person, send_as_person
from hivekeeper.commands.queue import submit_branch
from hivekeeper.commands.tasks import hand_off
from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.protocol import PROTOCOL, REWORK_REQUEST, MessageType, Role, make_routes
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.runner import PromptBy, Reach, Runner
from hivekeeper.domain.states import AttemptState, ConvoyState, MailState, RunState, TaskState
from hivekeeper.store import queries
from hivekeeper.store.ledger import read_events
from hivekeeper.views.convoys import show_convoy
from hivekeeper.views.events import show_event
from hivekeeper.views.mail import find_reader, say_when
from hivekeeper.views.status import show_status
from hivekeeper.views.workers import list_workers
from tests.scenarios.conftest import Scene
from tests.scenarios.letters import AGENT
from tests.stage import ME, Repository

DONE = json.dumps({"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}})
BEGIN = "cat <<'END'\n" + json.dumps({"type": "thread.started", "thread_id": "t-1"}) + "\n"
TURN = json.dumps({"type": "item.completed", "item": {"type": "command_execution"}})
BEGIN += TURN + "\nEND\n"
END = f"\necho '{DONE}'"


def hire(stage: Scene, **programs: tuple[str, ...]) -> None:
    """Give the hive runners, each of which does another thing in each of its sessions."""
    runners = {}
    for name, sessions in programs.items():
        cases = "\n".join(f"{number}) {script} ;;" for number, script in enumerate(sessions, 1))
        count = f'n=$(( $(cat "$HOME/{name}" 2>/dev/null || echo 0) + 1 )); echo $n > "$HOME/{name}"'
        script = f'{count}\ncat > "$HOME/{name}.$n"\n{BEGIN}case $n in\n{cases}\n*) true ;;\nesac{END}'
        runners[name] = Runner(name, script, PromptBy.STDIN, resume=script, output="codex", reach=Reach.INTERRUPT)
    stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, runners=runners))


def write(name: str, **message: object) -> str:
    """Write the command that puts a message into the outbox."""
    return f"""echo '{json.dumps(message)}' > "$HIVE_MAILBOX/outbox/{name}.json" """


def prompt(name: str, runner: str = "first", **more: object) -> TaskSpec:
    return TaskSpec(name, repo="app", prompt="Do it.", runner=runner, **more)  # type: ignore[arg-type]


def find(stage: Scene, **asked: object) -> list[MailRow]:
    with stage.hive.ledger.read() as connection:
        return queries.list_rows(connection, MailRow, "seq", **asked)  # type: ignore[arg-type]


def agents(stage: Scene, name: str) -> list[RunRow]:
    return [run for run in stage.runs(name) if run.kind == "agent"]


def is_running(stage: Scene, name: str) -> Callable[[], bool]:
    return lambda: bool(agents(stage, name)) and agents(stage, name)[-1].state is RunState.RUNNING


def needs(stage: Scene) -> list[tuple[str, str]]:
    with stage.hive.ledger.read() as connection:
        view = show_status(connection, KeeperState.ACTIVE, now=stage.clock.now())
    return [(need["what"], need["type"]) for need in view["needs_me"]]


def test_who_asks_for_help_and_waits_is_parked_and_continues_with_the_answer(
    stage: Scene, repository: Repository
) -> None:
    ask = write(
        "help",
        type="HELP_REQUEST",
        to="supervisor",
        text="which port?",
        payload={"text": "which port?", "blocking": True},
    )
    hire(stage, first=(ask, 'grep -A3 8080 "$HOME/first.2" > answer'))
    stage.submit(prompt("A"), TaskSpec("other", "true"), repos=(repository.spec(),))
    stage.take(workers=1)
    stage.step_until(lambda: stage.attempts("A")[-1:] != [] and stage.attempts("A")[-1].state is AttemptState.PARKED)
    stage.step_until(lambda: stage.task("other").state is TaskState.COMPLETE)
    (request,) = find(stage, type="HELP_REQUEST")
    assert (f"{request.sender} asks for help and waits: which port?", f"hive mail reply {request.id} '...'") in needs(
        stage
    )
    with stage.hive.ledger.write(ME) as tx:
        reply_as_person(tx, PROTOCOL, request, {"text": "8080"})
    assert stage.finish() is ConvoyState.COMPLETE
    assert len(agents(stage, "A")) == 2
    assert len(stage.attempts("A")) == 1
    assert "8080" in repository.git("show", "hive/main:answer")
    assert find(stage, type="HELP_REQUEST")[0].state is MailState.HANDLED
    assert needs(stage) == []


def test_who_asks_twice_and_waits_continues_with_both_answers(stage: Scene, repository: Repository) -> None:
    asks = (
        write(name, type="HELP_REQUEST", to="supervisor", payload={"text": name, "blocking": True}) for name in "12"
    )
    hire(stage, first=("; ".join(asks), 'grep -A1 8080 "$HOME/first.2" > answer; grep 9090 "$HOME/first.2" >> answer'))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(lambda: stage.attempts("A")[-1:] != [] and stage.attempts("A")[-1].state is AttemptState.PARKED)
    first, second = find(stage, type="HELP_REQUEST")
    with stage.hive.ledger.write(ME) as tx:
        reply_as_person(tx, PROTOCOL, first, {"text": "8080"})
        assert [hold.is_active(tx.now) for hold in queries.list_holds(tx.connection)] == [True], (
            "the second has no answer"
        )
    with stage.hive.ledger.write(ME) as tx:
        reply_as_person(tx, PROTOCOL, second, {"text": "9090"})
    assert stage.finish() is ConvoyState.COMPLETE
    assert len(agents(stage, "A")) == 2
    answer = repository.git("show", "hive/main:answer")
    assert "8080" in answer
    assert "9090" in answer


def test_a_request_for_help_that_a_person_closes_lets_the_session_go_on(stage: Scene, repository: Repository) -> None:
    ask = write("help", type="HELP_REQUEST", to="supervisor", payload={"text": "stuck", "blocking": True})
    hire(stage, first=(f"{ask}; sleep 300", "echo a > a"))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(lambda: bool(find(stage, type="HELP_REQUEST")))
    stage.clock.let_pass(11)
    stage.step_until(lambda: stage.attempts("A")[-1].state is AttemptState.PARKED)
    assert agents(stage, "A")[0].kill_cause == "help", "a program that lingers holds no worker"
    with stage.hive.ledger.write(ME) as tx:
        close_mail(tx, PROTOCOL, find(stage, type="HELP_REQUEST")[0], "do as you like")
    assert stage.finish() is ConvoyState.COMPLETE


def test_what_a_worker_says_of_its_progress_is_shown_with_its_task_and_wherever_workers_are(
    stage: Scene, repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    go = stage.root.parent / "go"
    say = write("status", type="STATUS_UPDATE", to="dashboard", text="3 of 5 files done")
    stage.submit(TaskSpec("A", f"{say}; until test -e {go}; do sleep 0.02; done; echo a > a", repo="app"),
                 repos=(repository.spec(),))  # fmt: skip
    stage.step_until(lambda: bool(stage.attempts("A")) and stage.attempts("A")[0].progress != "")
    with stage.hive.ledger.read() as connection:
        (task,) = show_convoy(connection, stage.convoy())["task_list"]
        assert stage.keeper is not None
        workers = list_workers(connection, stage.keeper.runs, now=stage.clock.now())
    assert [task["progress"], *(worker["progress"] for worker in workers)] == ["3 of 5 files done"] * 2
    render.print_workers(workers)
    assert "3 of 5 files done" in capsys.readouterr().out, "by hive worker ls"
    Console(width=100).print(render.draw_workers(workers, 5, 100))
    assert "3 of 5 files done" in capsys.readouterr().out, "in the picture of hive run"
    go.touch()
    assert stage.finish() is ConvoyState.COMPLETE


def test_a_branch_that_is_ready_is_taken_as_it_was_when_that_was_said(stage: Scene, repository: Repository) -> None:
    go = stage.root.parent / "go"
    ready = write("ready", type="MERGE_READY", to="merge-processor")
    command = f"echo a > a; git add -A; git commit -qm a; {ready}; until test -e {go}; do sleep 0.02; done; "
    again = write("again", type="MERGE_READY", to="queue", text="again")
    stage.submit(TaskSpec("A", f"{command}echo b > b; git add -A; git commit -qm b; {again}; exit 3", repo="app"),
                 repos=(repository.spec(),))  # fmt: skip
    stage.step_until(lambda: bool(stage.attempts("A")) and stage.attempts("A")[0].pinned is not None)
    go.touch()
    assert stage.finish() is ConvoyState.COMPLETE, "it said that it was ready, and what it left then is good"
    assert repository.git("ls-tree", "--name-only", "hive/main").split() == ["README", "a"]
    said = [(row.state, row.reason) for row in find(stage, type="MERGE_READY")]
    assert said == [
        (MailState.HANDLED, "the work is finished, and will be checked"),
        (MailState.HANDLED, "its work was reported as finished before"),
    ]


def test_the_same_file_again_is_the_same_message(stage: Scene, repository: Repository) -> None:
    send = write("m", type="inform", to="person", id="m-1", text="hello")
    other = write("n", type="inform", to="person", id="m-1", text="hello")
    wait = 'until ! test -e "$HIVE_MAILBOX/outbox/{0}.json"; do sleep 0.02; done'
    command = "; ".join((send, wait.format("m"), send, wait.format("m"), other, wait.format("n"), "echo a > a"))
    stage.submit(TaskSpec("A", command, repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert [row.given_id for row in find(stage, type="inform")] == ["m-1"]
    assert ("There is mail for you from work.worker-1.", "hive mail inbox") in needs(stage)


def test_two_that_answer_each_other_for_ever_are_stopped_and_the_person_is_shown(
    stage: Scene, repository: Repository
) -> None:
    reply = """
while True:
    got = receive()
    send(f"r{got['hops']}.json", type="query", to=got["sender"], in_reply_to=got["id"], text="and you?")
"""
    first = 'send("q.json", type="query", to="b", text="and you?")'
    stage.submit(
        TaskSpec("A", AGENT % f"{first}\n{reply}", repo="app", agent="a"),
        TaskSpec("B", AGENT % reply, repo="app", agent="b"),
        repos=(repository.spec(),),
    )
    stage.step_until(lambda: bool(find(stage, state="DROPPED")))
    (dropped,) = find(stage, state="DROPPED")
    assert (dropped.hops, dropped.reason) == (13, "hop-cap: the conversation has passed 12 hops")
    assert {row.thread for row in find(stage, type="query")} == {find(stage, type="query")[0].id}
    assert (
        f"A message from {dropped.sender} to {dropped.receiver} was dropped: {dropped.reason}.",
        f"hive mail thread {dropped.id}",
    ) in needs(stage)
    with stage.hive.ledger.read() as connection:
        (drop,) = (shown["drop"] for event in read_events(connection, 0, -1) if "drop" in (shown := show_event(event)))
    ends = {"from": dropped.sender, "to": dropped.receiver, "id": dropped.id, "thread": dropped.thread}
    assert drop == {"kind": "drop", "reason": "hop-cap", "hops": 13, **ends}


def test_mail_to_nobody_comes_back_and_mail_to_an_agent_without_a_worker_waits_for_its_session(
    stage: Scene, repository: Repository
) -> None:
    go = stage.root.parent / "go"
    lost = write("lost", type="inform", to="nobody", text="?")
    wrong = write("wrong", type="MERGE_READY", to="dashboard")
    later = write("later", type="inform", to="late", text="mind the gap")
    back = (
        'cd "$HIVE_MAILBOX/outbox/.sent"; until test -e later.json; do sleep 0.02; done; cat *.reason > "$OLDPWD/why"'
    )
    hire(stage, first=('cp "$HOME/first.1" told',))
    stage.submit(
        TaskSpec("A", f"{lost}; {wrong}; {later}; {back}", repo="app"),
        prompt("B", agent="late", after=("A",)),
        repos=(repository.spec(),),
    )
    assert stage.finish() is ConvoyState.COMPLETE
    assert {row.reason for row in find(stage, state="RETURNED")} == {
        "there is no receiver 'nobody'",
        "a worker sends no MERGE_READY to dashboard",
    }
    assert "there is no receiver 'nobody'" in repository.git("show", "hive/main:why"), "its sender can read why"
    assert "mind the gap" in repository.git("show", "hive/main:told")
    (mail,) = find(stage, receiver="late")
    assert (mail.state, mail.task) == (MailState.HANDLED, "work/B")
    assert not go.exists()


def test_an_unanswered_question_is_reported_and_a_type_of_ones_own_is_checked_like_the_rest(
    stage: Scene, repository: Repository
) -> None:
    routes = make_routes((Role.WORKER,), (Role.WORKER,))
    own = MessageType("REVIEW", routes, {"severity": "integer"}, expects_reply=True, base="request")
    protocol = {**PROTOCOL, "REVIEW": own}
    stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, protocol=protocol))
    good = write("good", type="REVIEW", to="b", payload={"severity": 3})
    bad = write("bad", type="REVIEW", to="b", payload={"severity": "high"})
    stage.submit(
        TaskSpec("A", f"{good}; {bad}; exec sleep 300", repo="app", agent="a"),
        TaskSpec("B", "exec sleep 300", repo="app", agent="b"),
        repos=(repository.spec(),),
    )
    stage.step_until(lambda: bool(find(stage, state="DELIVERED")) and bool(find(stage, state="QUARANTINED")))
    assert find(stage, state="QUARANTINED")[0].reason == "'severity' in its payload must be integer"
    assert ("A message from a could not be read.", "hive mail quarantine ls") in needs(stage)
    assert not any("no reply" in what for what, _ in needs(stage))
    stage.clock.advance(1801)
    assert any(what.startswith("a has had no reply from b since") for what, _ in needs(stage))


def test_a_task_at_work_is_handed_to_another_runner_and_keeps_everything(stage: Scene, repository: Repository) -> None:
    hire(
        stage,
        first=("echo half > half; sleep 300",),
        second=('grep -q "which runner" "$HOME/second.1" && test -e half && echo all > all',),
    )
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(is_running(stage, "A"))
    work = stage.hive.places.sandbox("work/A", 1) / "work"
    stage.step_until((work / "half").exists)
    with stage.hive.ledger.write(ME) as tx:
        assert hand_off(tx, PROTOCOL, stage.task("A"), agent="ann", runner="second", note="which runner: the second")
    with stage.hive.ledger.write(ME) as tx:
        assert not hand_off(tx, PROTOCOL, stage.task("A"), agent="ann", runner="second"), "it is theirs already"
    assert stage.finish() is ConvoyState.COMPLETE
    assert [(run.runner, run.kill_cause) for run in agents(stage, "A")] == [("first", "handed off"), ("second", None)]
    assert len(stage.attempts("A")) == 1
    assert repository.git("ls-tree", "--name-only", "hive/main").split() == ["README", "all", "half"]
    (mail,) = find(stage, type="HANDOFF")
    assert (mail.receiver, mail.state) == ("ann", MailState.HANDLED)


def test_what_a_person_wants_reworked_interrupts_the_session_that_is_at_work_on_it(
    stage: Scene, repository: Repository
) -> None:
    """Of what the queue wants reworked the next attempt is told."""
    turns = f"while sleep 0.1; do echo '{TURN}'; done"
    hire(stage, first=(turns, 'grep "mind the gap" "$HOME/first.2" > told'))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(is_running(stage, "A"))
    with stage.hive.ledger.write(ME) as tx:
        sent = send_as_person(tx, PROTOCOL, REWORK_REQUEST, "work/A", {"text": "mind the gap"})
        reader = find_reader(tx.connection, sent)
    assert say_when(reader, stage.hive.settings.runners) == "it gets it after its current turn"
    assert stage.finish() is ConvoyState.COMPLETE
    assert [run.kill_cause for run in agents(stage, "A")] == ["message", None]
    assert "mind the gap" in repository.git("show", "hive/main:told")


def test_an_agent_has_one_session_at_a_time(stage: Scene, repository: Repository) -> None:
    go = stage.root.parent / "go"
    wait = f"until test -e {go}; do sleep 0.02; done; echo $HIVE_TASK > $HIVE_TASK"
    tasks = [TaskSpec(name, wait, repo="app", agent="ann") for name in ("A", "B")]
    stage.submit(*tasks, TaskSpec("C", wait, repo="app"), repos=(repository.spec(),))
    stage.step_until(lambda: is_running(stage, "A")() and is_running(stage, "C")())
    assert stage.attempts("B") == []
    with stage.hive.ledger.write(ME) as tx:
        sent = send_as_person(tx, PROTOCOL, "inform", "ann", {"text": "hello"})
    assert (sent.task, sent.receiver) == ("work/A", "ann")
    go.touch()
    assert stage.finish() is ConvoyState.COMPLETE


def test_a_session_that_a_hotfix_touches_is_interrupted_and_its_next_turn_is_the_rebase(
    stage: Scene, repository: Repository
) -> None:
    repository.commit({"shared": "one\n\ntwo\n"}, "second")
    rebase = (
        'git add -A; git commit -qm work; $(grep -o "git fetch origin" "$HOME/first.2") -q && git rebase -q origin/main'
    )
    hire(stage, first=("sed -i s/two/TWO/ shared; sleep 300", f"{rebase} && git show HEAD:shared > seen"))
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(is_running(stage, "A"))
    shared = stage.hive.places.sandbox("work/A", 1) / "work" / "shared"
    stage.step_until(lambda: "TWO" in shared.read_text())
    repository.git("checkout", "--quiet", "-b", "fix")
    repository.commit({"shared": "ONE\n\ntwo\n"}, "fix it")
    repository.git("checkout", "--quiet", "main")
    with stage.hive.ledger.write(ME) as tx:
        submit_branch(tx, stage.repo(), "fix", repository.git("rev-parse", "fix"), is_hotfix=True)
    assert stage.finish() is ConvoyState.COMPLETE
    assert [run.kill_cause for run in agents(stage, "A")] == ["message", None]
    assert repository.git("show", "hive/main:seen") == "ONE\n\nTWO"
    assert len(stage.attempts("A")) == 1
