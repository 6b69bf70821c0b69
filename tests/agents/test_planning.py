"""A goal becomes a plan becomes landed commits, with a real program that plans and works."""

import json
from collections.abc import Callable, Mapping

import pytest

from tests.agents.conftest import need
from tests.agents.stage import Desk, Step

MakeStage = Callable[..., Desk]
pytestmark = pytest.mark.timeout(900)


def answer(name: str, when: str, *tasks: Mapping[str, object]) -> Step:
    """Have the model look at the repository, then answer with a plan."""
    look: Step = {"shell": "ls app && git -C app log --oneline"}
    plan = json.dumps({"convoy": "greetings", "tasks": [{"repo": "app", **task} for task in tasks]})
    said: Step = {"say": f"This is my plan.\n\n{plan}", "usage": {"input": 4000, "output": 200}}
    return {"name": name, "when": {"prompt": when}, "steps": [look, said]}


def test_a_goal_becomes_a_plan_becomes_landed_commits_after_one_answer_that_was_none(set_stage: MakeStage) -> None:
    need("goose")
    a = {"id": "a", "title": "Add a greeting", "prompt": "Please create a.txt and commit it.", "paths": ["a.txt"]}
    b = {"id": "b", "prompt": "Please create b.txt and commit it.", "paths": ["b.txt"], "after": ["a"]}
    stage = set_stage(
        answer("again", "Your last answer did not fit", a, b),
        answer("cycle", "# Make a plan", {**a, "after": ["b"]}, b),
    )
    said = stage.say("plan", "Have greetings in a.txt and b.txt", "--repo", "../app", "--runner", "goose", "--run")
    assert "plan.yaml:16: tasks wait for each other: a -> b -> a; remove one 'after'" in said
    assert "  a  app, goose  Add a greeting\n" in said
    assert "                ← a\n" in said
    assert "tokens in, 444 out" in said, "what planning used is told"
    assert "greetings  COMPLETE  2/2 complete" in said
    assert {"a.txt", "b.txt"} <= set(stage.list_landed())
    assert stage.git("log", "--reverse", "--format=%s", "hive/main").splitlines()[-2] == "a: Add a greeting"
    rules = stage.model.stats()["rules"]
    assert (rules["cycle"], rules["again"]) == (2, 2)
    told = json.dumps([entry for entry in stage.model.log() if entry.get("rule") == "again"])
    assert "plan.yaml:16: tasks wait for each other" in told
