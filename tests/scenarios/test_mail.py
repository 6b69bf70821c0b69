"""One story: what is said to a worker is one message with one state, from when it was written to what became of it."""

from collections.abc import Callable
from pathlib import Path

from hivekeeper.commands.mail import send_as_person
from hivekeeper.commands.tasks import retry_task
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState, MailState, RunState, TaskState
from hivekeeper.store import queries
from hivekeeper.views.mail import show_thread
from tests.scenarios.conftest import Scene
from tests.scenarios.letters import AGENT
from tests.stage import ME, Repository


def _mail(stage: Scene, task: str) -> list[MailRow]:
    with stage.hive.ledger.read() as connection:
        rows = queries.list_mail_matching(connection, limit=-1, task=f"work/{task}")[::-1]
    return [row for row in rows if row.type != "TASK_COMPLETE"]


def _is_running(stage: Scene, task: str) -> Callable[[], bool]:
    return lambda: any(run.kind == "agent" and run.state is RunState.RUNNING for run in stage.runs(task))


def test_a_rework_request_is_delivered_with_the_next_attempt_and_handled_when_that_ends(
    stage: Scene, repository: Repository
) -> None:
    command = 'if [ -z "$HIVE_FEEDBACK" ]; then echo bad > A; else grep -q "land" "$HIVE_FEEDBACK" && echo good > A; fi'
    stage.submit(TaskSpec("A", command, repo="app", verify="grep -q good A"), repos=(repository.spec(),))
    stage.step_until(lambda: stage.task("A").state is TaskState.COMPLETE)
    (request,) = _mail(stage, "A")
    assert (request.type, request.sender, request.receiver) == ("REWORK_REQUEST", "queue", "work.worker-1")
    assert request.state is MailState.HANDLED
    assert request.delivered_run == "work/A.2.agent"
    assert request.sent_at <= str(request.delivered_at) <= str(request.ended_at)


def test_a_note_waits_for_the_next_attempt_and_is_not_delivered_before_that_has_started(
    stage: Scene, repository: Repository
) -> None:
    stage.submit(TaskSpec("A", 'test -s "$HIVE_FEEDBACK" && cp "$HIVE_FEEDBACK" said', repo="app", attempts=1),
                 repos=(repository.spec(),))  # fmt: skip
    stage.step_until(lambda: stage.task("A").state is TaskState.FAILED)
    with stage.hive.ledger.write(ME) as tx:
        retry_task(tx, stage.task("A"), note="try harder")
    (note,) = _mail(stage, "A")
    assert note.state is MailState.ACCEPTED
    assert stage.finish() is ConvoyState.COMPLETE
    (note,) = _mail(stage, "A")
    assert (note.type, note.sender, note.state, note.delivered_run) == (
        "inform", "person", MailState.HANDLED, "work/A.2.agent",
    )  # fmt: skip
    assert "try harder" in repository.git("show", "hive/main:said")


def test_what_can_reach_nobody_any_more_is_returned_and_says_why(
    stage: Scene, repository: Repository, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    wait = f"until test -e '{go}'; do sleep 0.02; done; echo a > A"
    stage.submit(TaskSpec("A", wait, repo="app"), TaskSpec("B", "echo b > B", repo="app", priority=10_000),
                 repos=(repository.spec(),))  # fmt: skip
    stage.take(workers=1 + 1)
    stage.step_until(lambda: stage.task("B").state is TaskState.COMPLETE)
    stage.step_until(_is_running(stage, "A"))
    go.touch()
    stage.step_until(lambda: stage.task("A").state is TaskState.COMPLETE)
    (told,) = (row for row in _mail(stage, "A") if row.type == "PRIORITY_MERGE")
    assert (told.state, told.reason) == (MailState.RETURNED, "its worker had ended")


def test_a_message_to_a_command_lies_in_its_inbox_and_is_handled_when_it_is_moved(
    stage: Scene, repository: Repository
) -> None:
    wait = 'cd "$HIVE_MAILBOX/inbox"; until ls *.json 2>/dev/null; do sleep 0.02; done'
    read = f'{wait}; cp *.json "$OLDPWD"; mv *.json .done'
    stage.submit(TaskSpec("A", read, repo="app"), repos=(repository.spec(),))
    stage.step_until(_is_running(stage, "A"))
    with stage.hive.ledger.write(ME) as tx:
        send_as_person(tx, stage.hive.settings.protocol, "inform", "worker-1", {"text": "hello"})
    assert stage.finish() is ConvoyState.COMPLETE
    mail = next(row for row in _mail(stage, "A") if row.type == "inform")
    assert (mail.state, mail.receiver, mail.delivered_run) == (MailState.HANDLED, "work.worker-1", None)
    assert "hello" in repository.git("show", f"hive/main:{mail.inbox_name}")


def test_everything_said_about_a_task_is_read_back_in_order(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "false", repo="app", attempts=1), repos=(repository.spec(),))
    for words in ("first", "second"):
        stage.step_until(lambda: stage.task("A").state is TaskState.FAILED)
        with stage.hive.ledger.write(ME) as tx:
            retry_task(tx, stage.task("A"), note=words)
    with stage.hive.ledger.read() as connection:
        thread = [row for row in show_thread(connection, "work/A") if row["type"] == "inform"]
        found = queries.list_mail_matching(connection, limit=9, words="SECOND")
    assert [row["gist"] for row in thread] == ["first", "second"]
    assert [row.get_payload()["text"] for row in found] == ["second"]


SAMPLE = """{
  "type": "TASK_COMPLETE",
  "sender": "worker-12",
  "receiver": "supervisor",
  "timestamp": "2026-02-11T14:30:00Z",
  "payload": {
    "task_id": "42",
    "branch": "agent/12/fix-42",
    "files_changed": 3,
    "summary": "Added mutex to token refresh path"
  }
}"""


def test_two_workers_ask_and_answer_by_plain_files(stage: Scene, repository: Repository) -> None:
    ask = (
        """send("q.json", type="query", to="b", id="q1", text="which port?")\n"""
        """pathlib.Path("answer").write_text(receive()["payload"]["text"])"""
    )
    answer = (
        """send("r.json", type="inform", to="a", in_reply_to=receive()["id"], text="8080")\n"""
        """pathlib.Path("b").write_text("done")"""
    )
    stage.submit(
        TaskSpec("A", AGENT % ask, repo="app", agent="a"),
        TaskSpec("B", AGENT % answer, repo="app", agent="b"),
        repos=(repository.spec(),),
    )
    assert stage.finish() is ConvoyState.COMPLETE
    with stage.hive.ledger.read() as connection:
        rows = {row.type: row for row in queries.list_mail_matching(connection, limit=-1)}
    query, reply = rows["query"], rows["inform"]
    assert (query.sender, query.receiver, query.state) == ("a", "b", MailState.HANDLED)
    assert (query.given_id, query.hops) == ("q1", 0)
    assert (reply.sender, reply.receiver, reply.state, reply.hops) == ("b", "a", MailState.HANDLED, 1)
    assert (reply.parent, reply.thread) == (query.id, query.id)
    assert "8080" in repository.git("show", "hive/main:answer")


def test_the_message_of_the_books_is_accepted_as_it_stands(stage: Scene, repository: Repository) -> None:
    """It claims to be somebody else; who sent it is known from where it was found."""
    command = f"cat > \"$HIVE_MAILBOX/outbox/m.json\" <<'EOF'\n{SAMPLE}\nEOF\necho a > a; exec sleep 300"
    stage.submit(TaskSpec("A", command, repo="app"), repos=(repository.spec(),))
    stage.step_until(lambda: bool(stage.attempts("A")) and stage.attempts("A")[0].finished_at is not None)
    with stage.hive.ledger.read() as connection:
        (mail,) = queries.list_mail_matching(connection, limit=-1)
    assert (mail.sender, mail.receiver, mail.state) == ("work.worker-1", "supervisor", MailState.HANDLED)
    assert mail.get_payload()["summary"] == "Added mutex to token refresh path"
    stage.clock.let_pass(11)
    assert stage.finish() is ConvoyState.COMPLETE, "a program that lingers is ended, and its work judged"
    (run,) = [run for run in stage.runs("A") if run.kind == "agent"]
    assert (run.ended_by, run.kill_cause) == ("killed", "finished")
    assert repository.git("show", "hive/main:a") == "a"
