"""One story: what an agent types inside its sandbox reaches the hive, and what it is answered reaches the agent."""

from hivekeeper.commands.mail import reply_as_person
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState, MailState, TaskState
from hivekeeper.store import queries
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository


def _mail(stage: Scene, type_: str) -> list[MailRow]:
    with stage.hive.ledger.read() as connection:
        return queries.list_mail_matching(connection, limit=-1, type_=type_)


def test_progress_is_shown_and_being_done_ends_the_work_and_is_refused_before_there_is_any(
    stage: Scene, repository: Repository
) -> None:
    early = "hive progress 'half way'; hive done 2>$HOME/early; echo $? >>$HOME/early; mv $HOME/early A"
    command = f"{early}; hive done 'made A' >>A; hive done 'twice' >>A; touch $HOME/told; exec sleep 300"
    stage.submit(TaskSpec("A", command, repo="app"), repos=(repository.spec(),))
    stage.step_until((stage.places.sandbox("work/A", 1) / "home" / "told").exists)
    (attempt,) = stage.attempts("A")
    assert attempt.progress == "half way"
    assert attempt.finished_at is not None
    (done,) = _mail(stage, "TASK_COMPLETE")
    assert (done.sender, done.receiver, done.given_id) == ("work.worker-1", "queue", "done")
    assert done.get_payload() == {"task_id": "A", "summary": "made A"}
    stage.clock.let_pass(11)
    assert stage.finish() is ConvoyState.COMPLETE, "it lingered, and its work is judged"
    assert repository.git("show", "hive/main:A").splitlines() == [
        "hive: You have changed nothing, so there is nothing to report.",
        "If nothing has to change: hive done --nothing-to-change 'why'",
        "2",
        "Reported as done. End your turn now; your work is checked next.",
        "It was reported as done before. End your turn now; your work is checked next.",
    ]


def test_a_worker_asks_for_help_reads_the_answer_and_acknowledges_it(stage: Scene, repository: Repository) -> None:
    find = """id=$(hive mail ls --json | sed -n 's/.*"id": "\\(.*\\)".*/\\1/p'); test "$id" || sleep 0.02"""
    wait = f"id=; until test $id; do {find}; done; hive progress 'heard of it' 2>>A"
    command = f"hive help-me 'which port?' >A; {wait}; hive mail read $id >>A; hive mail done $id"
    stage.submit(TaskSpec("A", command, repo="app"), repos=(repository.spec(),))
    stage.step_until(lambda: bool(_mail(stage, "HELP_REQUEST")))
    (asked,) = _mail(stage, "HELP_REQUEST")
    assert (asked.receiver, asked.state) == ("supervisor", MailState.DELIVERED)
    with stage.hive.ledger.write(ME) as tx:
        reply_as_person(tx, stage.hive.settings.protocol, asked, {"text": "8080"})
    assert stage.finish() is ConvoyState.COMPLETE
    (answer,) = _mail(stage, "inform")
    assert (answer.state, answer.reason) == (MailState.HANDLED, "acknowledged")
    assert answer.delivered_run is None
    said = repository.git("show", "hive/main:A").splitlines()
    assert said[0] == "Asked for help. The answer will be in your inbox: hive mail ls"
    assert said[1] == "You have 1 new message. Type: hive mail ls"
    assert said[2].startswith("inform from person, ")
    assert "8080" in said


def test_a_message_that_nobody_can_get_is_refused_to_its_sender_with_the_reason(
    stage: Scene, repository: Repository
) -> None:
    command = "hive mail send nobody 'hello' 2>A || echo $? >>A; hive mail send person 'hello' >>A"
    stage.submit(TaskSpec("A", command, repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    refused, _, code, sent = repository.git("show", "hive/main:A").splitlines()
    assert refused.startswith("hive: Refused: ")
    assert "nobody" in refused
    assert (code, sent) == ("2", "Sent to person.")


def test_a_task_in_which_nothing_has_to_change_is_complete_once_its_gate_says_so(
    stage: Scene, repository: Repository
) -> None:
    stage.submit(
        TaskSpec("A", "hive done --nothing-to-change 'it is there already'", repo="app", verify="test -e README"),
        TaskSpec("B", "hive done --nothing-to-change 'I think so'", repo="app", verify="test -e b", attempts=1),
        repos=(repository.spec(),),
    )
    assert stage.finish() is ConvoyState.FAILED
    assert stage.states() == {"A": TaskState.COMPLETE, "B": TaskState.FAILED}
