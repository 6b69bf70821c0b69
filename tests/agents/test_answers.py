"""Conflicts settled by real programs, work done anew by them, and what they obey: each asked for in the same way."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.conftest import need
from tests.agents.stage import Desk, Step
from tests.budget import sample

MakeStage = Callable[..., Desk]
pytestmark = pytest.mark.timeout(900)
TWO = ("goose", "codex")


def change_readme(task: str) -> Step:
    """Have whoever does a task write its own line to README."""
    steps: list[Step] = [
        {"shell": f"echo 'line of {task}' > README && git commit -qam {task}"},
        {"say": f"README is as {task} wants it."},
    ]
    return {"name": task, "when": {"prompt": f"README for {task}"}, "steps": steps}


def plan_clash(stage: Desk, program: str) -> None:
    """Two tasks that write the same line, at work at the same time."""
    tasks = [{"id": name, "runner": program, "prompt": f"Write README for {name}", "attempts": 2} for name in "ab"]
    stage.write_plan(*tasks, verify="! grep -q '<<<<<<<' README")


@pytest.mark.parametrize("program", sample(TWO, 1))
def test_a_conflict_is_settled_by_a_program_that_answers(set_stage: MakeStage, program: str) -> None:
    need(program)
    settle: Step = {
        "name": "settle",
        "when": {"prompt": "Resolve a merge conflict"},
        "steps": [{"shell": "printf 'line of a\\nline of b\\n' > README"}, {"say": '{"settled": true, "why": "both"}'}],
    }
    stage = set_stage(settle, change_readme("a"), change_readme("b"))
    stage.replace_setting('resolver = "none"', f'resolver = "{program}"')
    plan_clash(stage, program)
    stage.say("run", "plan.yaml")
    assert stage.git("show", "hive/main:README").splitlines() == ["line of a", "line of b"]
    tiers = {row["tier"]: row["landed"] for row in stage.ask("queue", "ls", "--all")["tiers"]}
    assert tiers["ai"] == 1
    by_task = {row["task"]: row for row in stage.ask("costs")["by_task"]}
    assert stage.ask("costs")["sessions"] == 3, "what settling cost is counted"
    assert all(row["tokens_in"] for row in by_task.values())


def test_an_answer_that_does_not_fit_is_asked_for_once_more_and_then_the_work_is_done_anew(
    set_stage: MakeStage,
) -> None:
    need("codex")
    silent: Step = {"when": {"prompt": "Resolve a merge conflict"}, "steps": [{"say": "I have settled it, I think."}]}
    anew: Step = {
        "name": "anew",
        "when": {"prompt": "Your last try did not land"},
        "steps": [{"shell": "echo 'line anew' >> README && git commit -qam anew"}, {"say": "Done anew."}],
    }
    stage = set_stage(silent, anew, change_readme("a"), change_readme("b"))
    stage.replace_setting('resolver = "none"', 'resolver = "codex"')
    plan_clash(stage, "codex")
    stage.say("run", "plan.yaml")
    asked = [str(entry) for entry in stage.model.log() if "Resolve a merge conflict" in str(entry)]
    assert any("Your last answer did not fit: there is no JSON object in it" in entry for entry in asked)
    assert "line anew" in stage.git("show", "hive/main:README")


@pytest.mark.parametrize("program", sample(TWO, 1))
def test_work_that_cannot_be_merged_is_done_anew_from_its_intent_and_its_old_change(
    set_stage: MakeStage, program: str
) -> None:
    need(program)
    anew: Step = {
        "name": "anew",
        "when": {"prompt": "Your last try did not land"},
        "steps": [{"shell": "echo 'line anew' >> README && git commit -qam anew"}, {"say": "Done anew."}],
    }
    stage = set_stage(anew, change_readme("a"), change_readme("b"))
    plan_clash(stage, program)
    stage.say("run", "plan.yaml")
    assert set(stage.list_states().values()) == {"COMPLETE"}
    assert stage.git("show", "hive/main:README").splitlines()[-1] == "line anew"
    told = [str(entry) for entry in stage.model.log() if "Your last try did not land" in str(entry)]
    assert any("Conflicting hunks" in entry and "Your change" in entry for entry in told)


def test_configuration_that_a_repository_ships_is_pinned_and_a_change_asks_a_person(set_stage: MakeStage) -> None:
    need("goose")
    stage = set_stage()
    (stage.app / ".mcp.json").write_text("{}\n")
    stage.git("add", "-A")
    stage.git("commit", "-q", "-m", "servers")
    stage.write_plan({"id": "a", "runner": "goose", "prompt": "Please create a.txt and commit it."})
    stage.say("run", "plan.yaml")
    assert stage.count_kinds()["repo.pinned"] == 1
    assert "app: agents follow its .mcp.json" in stage.say("status")
    (stage.app / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "curl"}}}\n')
    stage.git("commit", "-q", "-a", "-m", "more servers")
    stage.write_plan({"id": "a", "runner": "goose", "prompt": "Please create a.txt and commit it."},
                     {"id": "b", "runner": "goose", "prompt": "Please create b.txt and commit it."})  # fmt: skip
    asked = stage.count_requests()
    with stage.running() as keeper:
        stage.wait("asked", lambda: bool(stage.ask("status")["needs_me"]))
        need_me = stage.ask("status")["needs_me"][0]
        assert ".mcp.json" in need_me["what"]
        assert stage.count_requests() == asked, "nobody was started on it"
        assert "waits (configuration" in stage.say("task", "why", "b")
        assert ".mcp.json" in stage.say(*need_me["type"].split()[1:])
        assert keeper.wait(240) == 0
    assert "b.txt" in stage.list_landed()


def test_a_worker_that_changes_what_programs_obey_waits_for_a_person(set_stage: MakeStage) -> None:
    need("goose")
    steps: list[Step] = [
        {"shell": "mkdir .claude && echo '{}' > .claude/settings.json && git add -A && git commit -qm x"}
    ]
    stage = set_stage({"when": {"prompt": "make it easier"}, "steps": steps})
    stage.write_plan({"id": "a", "runner": "goose", "prompt": "Please make it easier."})
    with stage.running() as keeper:
        stage.wait("held", lambda: bool(stage.ask("status")["needs_me"]))
        need_me = stage.ask("status")["needs_me"][0]
        assert "it changes the agent configuration .claude/settings.json" in need_me["what"]
        stage.say("queue", "approve", "a")
        assert keeper.wait(240) == 0
    assert ".claude/settings.json" in stage.list_landed()
    assert stage.count_kinds()["repo.pinned"] == 2, "and is trusted from then on"


def test_an_idle_hive_asks_nothing_of_the_model(set_stage: MakeStage) -> None:
    need("goose")
    stage = set_stage()
    stage.write_plan({"id": "a", "runner": "goose", "prompt": "Please create a.txt and commit it."})
    stage.say("run", "plan.yaml")
    asked = stage.count_requests()
    stage.say("up", "--detach")
    stage.rest(15.0)
    assert stage.count_requests() == asked
    assert "Nothing needs you" in stage.say("status")
    stage.say("down")


@pytest.mark.parametrize("program", sample(["goose", "codex", "gemini", "claude"], 2))
def test_an_mcp_server_of_hive_toml_is_there_for_every_worker(set_stage: MakeStage, program: str) -> None:
    need(program)
    call: Step = {"mcp": "report_status", "server": "status", "args": {"text": "it's well"}}
    write: Step = {"write": {"path": "a.txt", "content": "x\n"}}
    stage = set_stage({"when": {"prompt": "tell how it stands"}, "steps": [call, write, {"say": "Told."}]})
    stub = Path(__file__).parents[1] / "fakemodel" / "mcp_stub.py"
    name = "calls.jsonl" if program == "goose" else "calls 'so far'.jsonl"  # goose parts words at every blank
    argv = [sys.executable, str(stub), name]  # where the worker is
    slow = [*("sh", "-c", 'sleep 2; exec "$@"', "sh"), *argv]
    argv = argv if program == "goose" else slow
    stage.set(f"\n[runners.{program}]\nmcp = {{status = {json.dumps(argv)}}}\n")
    stage.write_plan({"id": "a", "runner": program, "prompt": "Please tell how it stands."})
    stage.say("run", "plan.yaml")
    assert "it's well" in stage.git("show", f"hive/main:{name}")


# A worker that is a command, and answers the first question it is asked.
PORT = """until hive mail read --json >q 2>/dev/null; do sleep 0.05; done
hive mail reply "$(sed -n 's/.*"id": "\\(.*\\)".*/\\1/p' q)" 8080 && hive done 'told the port'"""


@pytest.mark.parametrize("program", sample(["goose", "codex", "gemini", "claude"], 1))
def test_every_worker_has_its_mailbox_as_tools(set_stage: MakeStage, program: str) -> None:
    need(program)
    ask: Step = {
        "mcp": "send_mail",
        "server": "hive",
        "args": {"to": "b", "text": "which port?", "message_type": "query"},
    }
    wait: Step = {"shell": 'until ls "$HIVE_MAILBOX"/inbox/*.json; do sleep 0.05; done; hive mail ls > listed'}
    read: Step = {"mcp": "read_mail", "server": "hive", "args": {}}
    done: Step = {"mcp": "done", "server": "hive", "args": {"summary": "asked for the port"}}
    # What arrives also interrupts the session, which may lose a step of its script: so each is there twice.
    steps = [ask, wait, read, read, done, done, {"say": "Asked."}]
    stage = set_stage({"when": {"prompt": "ask for the port"}, "steps": steps})
    stage.write_plan(
        {"id": "a", "runner": program, "prompt": "Please ask for the port.", "agent": "a"},
        {"id": "b", "command": PORT, "agent": "b"},
    )
    stage.say("run", "plan.yaml")
    rows = stage.ask("mail", "ls")
    mail = {row["type"]: row for row in rows}
    assert (mail["query"]["sender"], mail["query"]["receiver"], mail["query"]["state"]) == ("a", "b", "HANDLED")
    assert (mail["inform"]["receiver"], mail["inform"]["parent"]) == ("a", mail["query"]["id"])
    assert "inform from b: 8080" in stage.git("show", "hive/main:listed")
    assert any("# Your mailbox" in str(entry) for entry in stage.model.log()), "its prompt says that it has one"
    assert any("inform from b, 20" in str(entry) for entry in stage.model.log()), "it has read the answer"
    reported = {row["sender"]: row["payload"].get("summary") for row in rows if row["type"] == "TASK_COMPLETE"}
    assert reported == {"a": "asked for the port", "b": "told the port"}
