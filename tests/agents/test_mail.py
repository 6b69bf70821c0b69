"""Real programs write to each other while they work: by plain files, by the tools of the mail server, and over ACP."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from hivekeeper.domain.rows import RunRow
from hivekeeper.store import queries
from tests.agents.conftest import need
from tests.agents.stage import Desk, Step

MakeStage = Callable[..., Desk]
pytestmark = pytest.mark.timeout(300)

OTHERS = ("b", "c", "d")
UNTIL_LET_GO = "until test -e ../tmp/go; do sleep 0.1; done"
QUESTIONS = {name: json.dumps({"type": "query", "to": name, "text": f"{name}, which port?"}) for name in OTHERS}
ASK = "; ".join(f"echo '{said}' > $HIVE_MAILBOX/outbox/{name}.json" for name, said in QUESTIONS.items())
READ = "cd $HIVE_MAILBOX/inbox; until test $(ls *.json | wc -l) = {0}; do sleep 0.1; done; cat *.json > $OLDPWD/{1}"
ID = """sed 's/.*"id": "\\([^"]*\\)".*/\\1/' b.txt"""
ANSWER = """echo '{"type": "inform", "in_reply_to": "'$id'", "text": "port of b: 8081"}' > ../outbox/answer.json"""


def told(name: str, *steps: Step) -> Step:
    """Do this once the question to somebody is in the conversation; `{{mail}}` is its id."""
    question = rf"message (?P<mail>\S+)\. This is [^`]+```\n{name}, which port\?"
    return {"when": {"prompt": question}, "steps": [*steps, {"say": "Told."}]}


def test_four_programs_ask_and_answer_while_they_work_each_in_its_own_way(set_stage: MakeStage) -> None:
    """A and B by nothing but files; C is resumed with the question and has the tools; D is never interrupted."""
    need("goose")
    a = [{"shell": UNTIL_LET_GO}, {"shell": ASK}, {"shell": f"{READ.format(3, 'a.txt')}; mv *.json .done"}]
    b = [{"shell": f"{READ.format(1, 'b.txt')}; id=$(cd $OLDPWD; {ID}); {ANSWER}; mv *.json .done"}]
    reply: Step = {"mcp": "reply_mail", "server": "hive", "args": {"message_id": "{{mail}}", "text": "port of c: 8082"}}
    said = {"type": "inform", "in_reply_to": "{{mail}}", "text": "port of d: 8083"}
    stage = set_stage(
        told("c", reply, {"write": {"path": "c.txt", "content": "told\n"}}),
        told("d", {"shell": f"echo '{json.dumps(said)}' > $HIVE_MAILBOX/outbox/answer.json; echo told > d.txt"}),
        {"when": {"prompt": "ask as a"}, "steps": [*a, {"say": "Asked."}]},
        {"when": {"prompt": "answer as b"}, "steps": [*b, {"say": "Answered."}]},
        {"when": {"prompt": "answer as c"}, "steps": [{"shell": f"sleep 0.3; echo {turn}"} for turn in range(200)]},
        {"when": {"prompt": "answer as d"}, "steps": [{"shell": UNTIL_LET_GO}, {"say": "Nobody has asked."}]},
    )
    stage.set('\n[runners.linked]\nlike = "goose"\nvia = "acp"\n')
    stage.write_plan(
        {"id": "a", "agent": "a", "runner": "goose", "prompt": "Please ask as a."},
        *({"id": name, "agent": name, "runner": runner, "prompt": f"Please answer as {name}."}
          for name, runner in zip(OTHERS, ("goose", "goose", "linked"), strict=True)),
    )  # fmt: skip
    with stage.running("--workers", "4") as keeper:
        stage.wait("at work", lambda: {"a", *OTHERS} <= list_asked(stage), 60.0)
        let_go(stage, "a")
        stage.wait("given to d", lambda: bool(read_records(stage, "mail")), 60.0)
        let_go(stage, "d")
        assert keeper.wait(120) == 0
    answers = stage.git("show", "hive/main:a.txt")
    assert all(f"port of {name}: 808{number}" in answers for number, name in enumerate(OTHERS, 1)), answers
    mail = stage.ask("mail", "ls")
    asked = {row["receiver"]: row for row in mail if row["type"] == "query"}
    answered = {row["sender"]: row for row in mail if row["type"] == "inform"}
    assert {name: row["parent"] for name, row in answered.items()} == {name: row["id"] for name, row in asked.items()}
    assert {row["state"] for row in (*asked.values(), *answered.values())} == {"HANDLED"}
    assert [answered[name]["file"] for name in ("b", "d")] == ["answer.json"] * 2
    first, second = list_agents(stage, "c")
    assert (first.kill_cause, second.kill_cause, second.session) == ("message", None, first.session)
    (only,) = list_agents(stage, "d")
    assert [record["id"] for record in read_records(stage, "session")] == [only.session]
    assert [record["way"] for record in read_records(stage, "mail")] == ["turn"]


def list_asked(stage: Desk) -> set[str]:
    """List whose first request the model has answered."""
    return {name for entry in stage.model.log() for name in ("a", *OTHERS) if f" as {name}." in str(entry)}


def let_go(stage: Desk, name: str) -> None:
    """Let an agent's first command end."""
    (next((stage.hive / ".hive" / "sandboxes").glob(f"*/{name}.1/tmp")) / "go").touch()


def list_agents(stage: Desk, name: str) -> list[RunRow]:
    with stage.ledger() as ledger, ledger.read() as connection:
        return [run for run in queries.list_runs_of_attempt(connection, f"c/{name}", 1) if run.kind == "agent"]


def read_records(stage: Desk, kind: str) -> list[dict[str, Any]]:
    """Read what the process that talks to D has printed so far."""
    outputs = sorted((stage.hive / ".hive" / "runs").glob("*/d.1.agent*/output"))
    lines = [line for output in outputs for line in output.read_text().rpartition("\n")[0].splitlines()]
    return [record for record in map(json.loads, lines) if record["type"] == kind]
