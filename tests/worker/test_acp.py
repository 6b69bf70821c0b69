"""The process that drives an agent program over the Agent Client Protocol, with a program that does as it is told."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.domain.report import Outcome, Usage
from hivekeeper.domain.runner import Runner
from hivekeeper.runners.acp import speak_acp
from tests.worker.conftest import DONE_BY, Step, WorkerDesk, call, ended, read_report, say, write_steps

MALFORMED: dict[str, tuple[Outcome, str]] = {
    "silent": (Outcome.CRASHED, "it did not answer initialize within 0.5 s"),
    "chatty": (Outcome.SETUP, "it does not speak the Agent Client Protocol: what it writes are no messages of it"),
    "flood": (Outcome.SETUP, "it wrote 1000 lines that are no messages of the protocol"),
    "other ids": (Outcome.CRASHED, "it did not answer initialize within 0.5 s"),
    "endless line": (Outcome.SETUP, "it wrote a line of more than 64 MiB"),
    "closed": (Outcome.SETUP, ""),
    "crash": (Outcome.SETUP, "Segmentation fault of sorts"),
    "newer": (Outcome.SETUP, "it speaks version 2 of the Agent Client Protocol, and the hive speaks 1"),
    "signed-out": (Outcome.AUTH, "session/new: Authentication required"),
}


def test_a_task_is_done_and_its_text_tools_and_usage_are_read(desk: WorkerDesk) -> None:
    answer = {"result": {"stopReason": "end_turn", "usage": {"inputTokens": 100, "outputTokens": 7}}}
    with ended(desk.start("", write_steps(*DONE_BY, {"answer": answer}))) as running:
        report = running.wait()
    assert (report.outcome, report.words, report.session) == (Outcome.DONE, "Made it.", "fake-1")
    assert (report.usage.tokens_in, report.usage.tokens_out) == (100, 7)
    [asked] = desk.list_sent("initialize")
    assert asked["params"]["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    }


@pytest.mark.parametrize("habit", MALFORMED)
def test_a_program_that_talks_nonsense_has_a_class_and_words_and_hangs_nobody(desk: WorkerDesk, habit: str) -> None:
    outcome, words = MALFORMED[habit]
    with ended(desk.start(habit, "Do nothing.", "--start", "0.5")) as running:
        report = running.wait(12.0)
    assert report.outcome is outcome
    assert words in report.words


def test_the_command_of_a_run_prints_records_and_tells_by_name_what_is_not_there(desk: WorkerDesk) -> None:
    made = speak_acp(Runner("mine", ""), "./missing --acp")
    prompt, said = desk.work / "prompt.md", desk.work / "said"
    prompt.write_text("Do nothing.")
    environment = {**desk.environment, "HIVE_PROMPT": str(prompt)}
    with said.open("wb") as output:
        done = subprocess.run(
            made.make_argv(), cwd=desk.work, env=environment, stdout=output, stderr=output, check=False
        )
    report = read_report(said, done.returncode)
    assert report.outcome is Outcome.SETUP
    assert "./missing" in report.words
    assert made.program == "./missing"


def test_what_it_may_not_have_is_refused_and_recorded_and_its_turn_goes_on(desk: WorkerDesk) -> None:
    asks: list[Step] = [
        {"ask": ["fs/write_text_file", {"path": "/etc/passwd", "content": "x"}]},
        {"ask": ["terminal/create", {"command": "sh"}]},
    ]
    with ended(desk.start("", write_steps(*asks, *DONE_BY))) as running:
        assert running.wait().outcome is Outcome.DONE
    told = [each["told"]["error"]["code"] for each in desk.list_sent() if "told" in each]
    assert told == [-32601, -32601]
    refused = [record["text"] for record in desk.read_records() if record["type"] == "refused"]
    assert refused == ["it asked for fs/write_text_file /etc/passwd", "it asked for terminal/create sh"]


def test_one_that_asks_for_it_without_end_is_stopped(desk: WorkerDesk) -> None:
    asks: list[Step] = [{"ask": ["fs/write_text_file", {"path": "/etc/passwd"}]}] * 150
    with ended(desk.start("", write_steps(*asks, {"wait_for": "/never"}))) as running:
        report = running.wait()
    assert report.outcome is Outcome.CRASHED
    assert "it asked 150 times for what it may not have" in report.words


@pytest.mark.parametrize(("total", "tokens_in"), [(None, 150), (157, 150), (107, 100)])
def test_what_was_read_from_a_cache_is_counted_once(desk: WorkerDesk, total: int | None, tokens_in: int) -> None:
    used = {"inputTokens": 100, "outputTokens": 7, "cachedReadTokens": 40, "cachedWriteTokens": 10}
    used |= {"totalTokens": total} if total else {}
    prompt = write_steps(*DONE_BY, {"answer": {"result": {"stopReason": "end_turn", "usage": used}}})
    with ended(desk.start("", prompt)) as running:
        assert running.wait().usage == Usage(tokens_in, 7, 0, 40, 10)


def test_an_error_that_follows_words_of_the_model_is_a_message_of_its_own(desk: WorkerDesk) -> None:
    steps = [say("Working on it, one mom"), say("ent please"), say("Network error: it was reset", message="m2")]
    with ended(desk.start("", write_steps(*steps))) as running:
        report = running.wait()
    assert (report.outcome, report.words) == (Outcome.SERVER_ERROR, "Network error: it was reset")
    texts = "".join(record["text"] for record in desk.read_records() if record["type"] == "text")
    assert texts == "Working on it, one moment please\n\nNetwork error: it was reset"


def test_permission_is_given_by_its_kind_whatever_it_is_called(desk: WorkerDesk) -> None:
    options = [
        {"optionId": "allow_once", "name": "Allow", "kind": "reject_once"},
        {"optionId": "forever", "kind": "allow_always"},
        {"optionId": "no", "name": "Reject", "kind": "allow_once"},
        {"optionId": "other", "kind": "allow_once"},
    ]
    ask: Step = {"ask": ["session/request_permission", {"options": options, "toolCall": {"toolCallId": "t"}}]}
    with ended(desk.start("", write_steps(ask, *DONE_BY))) as running:
        assert running.wait().outcome is Outcome.DONE
    [told] = [each["told"]["result"] for each in desk.list_sent() if "told" in each]
    assert told == {"outcome": {"outcome": "selected", "optionId": "no"}}


def test_full_permission_is_set_by_mode_where_the_program_has_one(desk: WorkerDesk) -> None:
    with ended(desk.start("", write_steps(*DONE_BY), name="goose")) as running:
        assert running.wait().outcome is Outcome.DONE
    [asked] = desk.list_sent("session/set_mode")
    assert asked["params"]["modeId"] == "auto"


def test_full_permission_is_set_again_in_a_session_that_is_loaded(desk: WorkerDesk) -> None:
    for session in ("", "fake-1"):
        with ended(desk.start("automatic", write_steps(*DONE_BY), session=session, name="goose")) as running:
            assert running.wait().outcome is Outcome.DONE
        assert len(desk.list_sent("session/set_mode")) == bool(session)


def test_a_program_without_the_mode_it_needs_is_not_worked_with(desk: WorkerDesk) -> None:
    with ended(desk.start("", write_steps(*DONE_BY), name="openhands")) as running:
        report = running.wait()
    assert report.outcome is Outcome.SETUP
    assert "it has no mode always-approve; it offers default, auto" in report.words
    assert desk.list_prompts() == []


def test_a_cut_answer_is_continued_once_and_an_empty_one_asked_for_once_more(desk: WorkerDesk) -> None:
    cut: Step = {"answer": {"result": {"stopReason": "max_tokens"}}}
    with ended(desk.start("", write_steps(say("I will now"), cut))) as running:
        report = running.wait()
    assert desk.list_prompts()[1:] == ["Continue your task exactly where you stopped.\n"]
    assert report.outcome is Outcome.EMPTY, "the second answer was empty"


def test_mcp_servers_of_the_worker_are_given_to_the_session(desk: WorkerDesk) -> None:
    servers = {"mcpServers": {"files": {"command": "npx", "args": ["-y", "server"]}}}
    (desk.home / ".hive-mcp.json").write_text(json.dumps(servers))
    with ended(desk.start("", write_steps(*DONE_BY))) as running:
        running.wait()
    [asked] = desk.list_sent("session/new")
    assert asked["params"]["mcpServers"] == [{"name": "files", "command": "npx", "args": ["-y", "server"], "env": []}]


@pytest.mark.parametrize(
    ("options", "steps", "outcome", "words"),
    [
        (["--silence", "0.5"], [], Outcome.NO_ANSWER, "nothing came back for 0.5 s"),
        (
            ["--silence", "0.2", "--tool", "0.7"],
            [call("t1")],
            Outcome.CRASHED,
            "nothing was heard for 0.7 s of its tool call: call t1",
        ),
        (["--turn", "0.6"], [say("I am on it.")], Outcome.CRASHED, "its turn took longer than 0.6 s"),
    ],
)
def test_each_wait_has_a_clock_and_the_turn_is_cancelled(
    desk: WorkerDesk, options: list[str], steps: list[Step], outcome: Outcome, words: str
) -> None:
    with ended(desk.start("", write_steps(*steps, {"wait_for": "/never"}), *options)) as running:
        report = running.wait()
    assert report.outcome is outcome
    assert words in report.words
    assert len(desk.list_sent("session/cancel")) == 1


def test_a_program_that_dies_in_a_turn_has_crashed(desk: WorkerDesk) -> None:
    with ended(desk.start("", write_steps(call("t1"), {"die": 9}))) as running:
        assert running.wait().outcome is Outcome.CRASHED


def test_a_known_session_is_loaded_and_its_old_words_are_not_its_answer(desk: WorkerDesk) -> None:
    with ended(desk.start("", write_steps(call("t1"), {"die": 9}))) as running:
        running.wait()
    with ended(desk.start("", write_steps(*DONE_BY), session="fake-1")) as running:
        report = running.wait()
    assert (report.outcome, report.words, report.session) == (Outcome.DONE, "Made it.", "fake-1")
    assert [sent["params"]["sessionId"] for sent in desk.list_sent("session/load")] == ["fake-1"]
    assert desk.list_prompts()[1].startswith("Your last turn was cut off. Look at the state of your work tree first")


@pytest.mark.parametrize(
    ("name", "spent"), [("copilot", (40, 4, 20)), ("opencode", (150, 14, 20)), ("fake", (150, 14, 20))]
)
def test_what_a_loaded_session_used_before_is_not_counted_again(
    desk: WorkerDesk, name: str, spent: tuple[int, int, int]
) -> None:
    """Copilot counts tokens from the beginning of a session; cost is told so by all."""
    used = Usage()
    for tokens, dollars, session in ((110, 0.00003, ""), (150, 0.00005, "fake-1")):
        cost = {"sessionUpdate": "usage_update", "used": 0, "size": 9, "cost": {"amount": dollars, "currency": "USD"}}
        answer = {"stopReason": "end_turn", "usage": {"inputTokens": tokens, "outputTokens": tokens // 10 - 1}}
        prompt = write_steps(*DONE_BY, {"update": cost}, {"answer": {"result": answer}})
        with ended(desk.start("", prompt, session=session, name=name)) as running:
            used = running.wait().usage
        desk.output.write_text("")
    assert (used.tokens_in, used.tokens_out, used.microusd) == spent


def test_a_session_that_is_lost_is_begun_anew_with_its_task(desk: WorkerDesk) -> None:
    with ended(desk.start("", f"The task.\n{write_steps(call('t1'), {'die': 9})}")) as running:
        running.wait()
    task = desk.home / ".hive-acp" / "state.json"
    task.write_text(json.dumps({**json.loads(task.read_text()), "task": "The task."}))
    with ended(desk.start("forgetful", write_steps(*DONE_BY), session="fake-1")) as running:
        assert running.wait().outcome is Outcome.DONE
    last = desk.list_prompts()[-1]
    assert last.startswith("The task.\n\n# What was done so far\n\nAn earlier session began this task")
    assert last.endswith(write_steps(*DONE_BY))


def test_a_program_that_repeats_what_it_was_killed_at_is_never_loaded_after_that(desk: WorkerDesk) -> None:
    go = desk.work / "go"
    task = f"The task.\n{write_steps({'wait_for': str(go)}, *DONE_BY)}"
    with ended(desk.start("approving", task, name="openhands-agent")) as running:
        desk.wait_for("at work", lambda: len(desk.list_prompts()) == 1)
        os.kill(desk.list_sent("initialize")[0]["pid"], signal.SIGKILL)
        assert running.wait().outcome is Outcome.CRASHED
    go.touch()
    with ended(desk.start("approving", "Continue.", session="fake-1", name="openhands-agent")) as running:
        assert running.wait().outcome is Outcome.DONE
    assert desk.list_sent("session/load") == []
    assert desk.list_prompts()[1].startswith("The task.")


def test_one_that_is_stopped_ends_its_agent_and_what_that_has_started(desk: WorkerDesk) -> None:
    pid = desk.work / "pid"
    with ended(desk.start("stays", write_steps({"run": f"echo $$ > {pid}; exec sleep 60"}))) as running:
        desk.wait_for("running", lambda: pid.exists() and pid.read_text().strip() != "")
        running.stop()
        assert running.wait().outcome is Outcome.KILLED
    assert not _is_alive(desk.list_sent("initialize")[0]["pid"])
    assert not _is_alive(int(pid.read_text()))


def _is_alive(pid: int) -> bool:
    try:
        stat: Any = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return bool(stat.rpartition(")")[2].split()[0] != "Z")
