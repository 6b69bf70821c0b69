"""Real programs over the Agent Client Protocol: what they make lands, and they act on mail while they work."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.agents.conftest import need
from tests.agents.stage import Desk, Step

MakeStage = Callable[..., Desk]
pytestmark = pytest.mark.timeout(300)


def drive_over_acp(stage: Desk, program: str) -> None:
    stage.set(f'\n[runners.{program}]\nvia = "acp"\n')


def read_records(stage: Desk, task: str) -> list[dict[str, Any]]:
    """Read what the process that talks to the program has printed."""
    [run] = [run for run in stage.list_runs(task) if run["kind"] == "agent"]
    lines = (stage.hive / ".hive" / "runs" / run["run"] / "output").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("program", ["goose", "gemini"])
def test_a_program_over_acp_works_and_acts_on_mail_in_the_same_session_and_process(
    set_stage: MakeStage, program: str
) -> None:
    need(program)
    slow: Step = {"when": {"prompt": "create a"}, "steps": [
        {"shell": "until test -e ../tmp/go; do sleep 0.1; done"}, {"say": "Created nothing so far."}]}  # fmt: skip
    told: Step = {"when": {"prompt": "use the name b.txt"}, "steps": [
        {"write": {"path": "b.txt", "content": "told\n"}}, {"say": "Made b.txt, as you said."}]}  # fmt: skip
    stage = set_stage(told, slow)
    drive_over_acp(stage, program)
    stage.write_plan({"id": "a", "runner": program, "prompt": "Please create a.txt."}, verify="test -e b.txt")
    with stage.running() as keeper:
        stage.wait("at work", lambda: stage.count_requests() > 0, 60.0)
        stage.say("mail", "send", "c/a", "--payload", json.dumps({"text": "Please use the name b.txt instead"}))
        stage.wait("delivered", lambda: "mail.delivered" in stage.count_kinds(), 30.0)
        (next((stage.hive / ".hive" / "sandboxes").glob("*/a.1/tmp")) / "go").touch()
        assert keeper.wait(120) == 0
    assert "b.txt" in stage.list_landed()
