"""Real programs over the Agent Client Protocol: they take their mail while they work, and are resumed by loading."""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.domain.report import Outcome
from hivekeeper.runners import PRESETS
from hivekeeper.runners.acp import COMMANDS, speak_acp
from tests.agents.conftest import need
from tests.agents.stage import CREATE, DO_IT, Desk, Step, fail_with
from tests.agents.test_outcomes import Case, try_case

MakeStage = Callable[..., Desk]
pytestmark = pytest.mark.timeout(300)
UNTIL_LET_GO: Step = {"shell": "until test -e ../tmp/go; do sleep 0.1; done"}
SLOW: Step = {"when": {"prompt": "create a"}, "steps": [UNTIL_LET_GO, {"say": "Nothing was made so far."}]}
WRITE: Step = {"write": {"path": "b.txt", "content": "told\n"}}
TOLD: Step = {"when": {"prompt": "use the name b.txt"}, "steps": [WRITE, {"say": "Made b.txt, as you said."}]}


def drive_over_acp(stage: Desk, program: str) -> None:
    stage.set(f'\n[runners.{program}]\nvia = "acp"\n')


def list_outputs(stage: Desk) -> list[Path]:
    return sorted((stage.hive / ".hive" / "runs").glob("*/a.1.agent*/output"))


def read_records(stage: Desk, kind: str) -> list[dict[str, Any]]:
    """Read what the processes that talk to the program have printed so far."""
    texts = (output.read_text().rpartition("\n")[0] for output in list_outputs(stage))
    records = [json.loads(line) for text in texts for line in text.splitlines()]
    return [record for record in records if record["type"] == kind]


def send(stage: Desk, text: str) -> None:
    stage.say("mail", "send", "c/a", "--payload", json.dumps({"text": text}))


def let_go(stage: Desk) -> None:
    """Let the agent's first command end."""
    (next((stage.hive / ".hive" / "sandboxes").glob("*/a.1/tmp")) / "go").touch()


@pytest.mark.parametrize("program", ["goose", "gemini"])
def test_mail_in_mid_run_is_acted_on_by_the_same_process_in_the_same_session(
    set_stage: MakeStage, program: str
) -> None:
    """Goose takes it into its running turn, gemini as its next prompt."""
    need(program)
    stage = set_stage(TOLD, SLOW)
    drive_over_acp(stage, program)
    stage.write_plan({"id": "a", "runner": program, "prompt": "Please create a.txt."}, verify="test -e b.txt")
    with stage.running() as keeper:
        stage.wait("at work", lambda: bool(list_outputs(stage) and read_records(stage, "tool")), 60.0)
        send(stage, "Please use the name b.txt instead")
        stage.wait("delivered", lambda: "mail.delivered" in stage.count_kinds(), 30.0)
        if program == "goose":
            stage.wait("given", lambda: bool(read_records(stage, "mail")), 30.0)
        let_go(stage)
        assert keeper.wait(120) == 0
    assert "b.txt" in stage.list_landed()
    assert len(list_outputs(stage)) == 1, "one process, and it was not interrupted"
    [session] = read_records(stage, "session")
    assert session["program"].startswith(program)
    assert [record["way"] for record in read_records(stage, "mail")] == ["turn" if program == "goose" else "prompt"]
    assert stage.count_kinds()["mail.handled"] == 1
    costs = stage.ask("costs")
    assert costs["sessions"] == 1
    assert costs["tokens_in"] > 1000


def test_a_session_outlives_the_keeper_and_takes_mail_from_the_next_one(set_stage: MakeStage) -> None:
    need("goose")
    stage = set_stage(TOLD, SLOW)
    drive_over_acp(stage, "goose")
    stage.write_plan({"id": "a", "runner": "goose", "prompt": "Please create a.txt."}, verify="test -e b.txt")
    with stage.running() as keeper:
        stage.wait("at work", lambda: bool(list_outputs(stage) and read_records(stage, "tool")), 60.0)
        keeper.kill()
    with stage.running() as keeper:
        send(stage, "Please use the name b.txt instead")
        stage.wait("given", lambda: bool(read_records(stage, "mail")), 30.0)
        let_go(stage)
        assert keeper.wait(120) == 0
    assert "b.txt" in stage.list_landed()
    assert len(list_outputs(stage)) == 1
    assert len(read_records(stage, "session")) == 1


def test_a_session_that_was_cut_off_is_loaded_and_goes_on(set_stage: MakeStage) -> None:
    need("goose")
    write, _, say = DO_IT
    commit: Step = {"shell": "git add -A && git commit -qm it"}
    first: Step = {"when": CREATE["when"], "times": 1, "steps": [write]}
    stage = set_stage(first, {"when": {"prompt": "create"}, "times": 99, "steps": [{"fault": "401"}]})
    drive_over_acp(stage, "goose")
    stage.write_plan({"id": "a", "runner": "goose", "prompt": "Please create a.txt."}, verify="test -e a.txt")
    with stage.running() as keeper:
        stage.wait("parked", lambda: "attempt.parked" in stage.count_kinds(), 60.0)
        assert "goose is not signed in" in stage.ask("status")["needs_me"][0]["what"]
        stage.play({"when": {"prompt": "Continue your task"}, "steps": [commit, say]})
        stage.say("runner", "resume", "goose")
        assert keeper.wait(120) == 0
    assert "a.txt" in stage.list_landed()
    first_session, second = read_records(stage, "session")
    assert (second["id"], second["loaded"]) == (first_session["id"], True)
    asked = [json.dumps(entry) for entry in stage.model.log() if "Continue your task" in json.dumps(entry)]
    assert any("Please create a.txt." in entry for entry in asked), "it remembers what it was asked"


def test_an_mcp_server_of_hive_toml_is_there_over_acp_too(set_stage: MakeStage) -> None:
    need("goose")
    call: Step = {"mcp": "report_status", "server": "status", "args": {"text": "it's well"}}
    stage = set_stage({"when": {"prompt": "tell how it stands"}, "steps": [call, WRITE, {"say": "Told."}]})
    stub = Path(__file__).parents[1] / "fakemodel" / "mcp_stub.py"
    argv = [sys.executable, str(stub), "calls 'so far'.jsonl"]  # where the worker is; its blanks are kept
    stage.set(f'\n[runners.goose]\nvia = "acp"\nmcp = {{status = {json.dumps(argv)}}}\n')
    stage.write_plan({"id": "a", "runner": "goose", "prompt": "Please tell how it stands."})
    stage.say("run", "plan.yaml")
    assert "it's well" in stage.git("show", "hive/main:calls 'so far'.jsonl")


FAULTS = {"401": Outcome.AUTH, "429": Outcome.RATE_LIMITED, "500": Outcome.SERVER_ERROR, "quota": Outcome.QUOTA}


def test_a_fault_of_the_service_is_told_right_though_the_turn_ends_well() -> None:
    need("goose")
    runner = speak_acp(PRESETS["goose"], COMMANDS["goose"])
    with ThreadPoolExecutor(len(FAULTS)) as several:
        tried = {
            fault: several.submit(try_case, runner, Case(fail_with(fault), outcome, 60.0))
            for fault, outcome in FAULTS.items()
        }
    reports = {fault: future.result()[0] for fault, future in tried.items()}
    assert {fault: report.outcome for fault, report in reports.items()} == FAULTS, reports
    assert not any(future.result()[2] for future in tried.values()), "and nothing was committed"
