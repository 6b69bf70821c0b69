"""One story: what is said to a worker is one message with one state, from when it was written to what became of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hivekeeper.commands.mail import write_to_worker
from hivekeeper.commands.tasks import retry_task
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.rows import MailRow
from hivekeeper.domain.states import ConvoyState, MailState, RunState, TaskState
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.views.mail import show_thread
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository


def _mail(stage: Scene, task: str) -> list[MailRow]:
    with stage.hive.ledger.read() as connection:
        return queries.list_mail_matching(connection, limit=-1, task=f"work/{task}")[::-1]


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


def test_a_message_to_a_command_is_refused_with_what_to_do_instead(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "sleep 300", repo="app"), repos=(repository.spec(),))
    stage.step_until(_is_running(stage, "A"))
    with pytest.raises(InputError, match="cannot be told anything while it works"), stage.hive.ledger.write(ME) as tx:
        write_to_worker(tx, stage.task("A"), stage.attempts("A")[0], None, "hello")
    assert _mail(stage, "A") == []


def test_everything_said_about_a_task_is_read_back_in_order(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "false", repo="app", attempts=1), repos=(repository.spec(),))
    for words in ("first", "second"):
        stage.step_until(lambda: stage.task("A").state is TaskState.FAILED)
        with stage.hive.ledger.write(ME) as tx:
            retry_task(tx, stage.task("A"), note=words)
    with stage.hive.ledger.read() as connection:
        thread = show_thread(connection, stage.task("A"))
        found = queries.list_mail_matching(connection, limit=9, words="SECOND")
    assert [row["gist"] for row in thread] == ["first", "second"]
    assert [row.get_payload()["text"] for row in found] == ["second"]
