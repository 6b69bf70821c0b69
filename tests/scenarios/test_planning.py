"""A plan for a repository that the hive has worked on: what has landed, what it cost, and what keeps a runner."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.commands.agents import create_agent
from hivekeeper.commands.sessions import place_hold
from hivekeeper.domain.issues import Issue
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.runner import Runner
from hivekeeper.domain.session import Hold
from hivekeeper.domain.states import ConvoyState
from hivekeeper.errors import UnavailableError
from hivekeeper.planning.asking import Wish, ask_for_plan
from hivekeeper.planning.drafting import Desk
from hivekeeper.planning.sources import find_sources
from hivekeeper.views.plans import draw_plan, show_plan
from tests.scenarios.conftest import Scene
from tests.scenarios.test_programs import DONE, TOLD, TOOL, Hire, hire, said, spend
from tests.stage import ME, Repository

__all__ = ["hire"]
TASKS = [{"id": name, "repo": "app", "prompt": "x", "verify": "true"} for name in "ab"]
PLAN = json.dumps({"convoy": "work", "repos": {"app": {"verify": "false", "setup": "make deps"}}, "tasks": TASKS})
PLANS = said(*spend("m2", 1000, 10), {**DONE, "result": f"Here it is: {PLAN}"})
SCRIPT = f"""if grep -q "Make a plan"; then
test -e app/A.txt && grep -q 'verify command is .test -e A.txt' "$HIVE_PROMPT" || exit 9
{PLANS}
exit
fi
echo x > $HIVE_TASK.txt
{said(*spend("m1", 10_000, 400), TOOL, TOLD, DONE)}"""


def test_a_plan_knows_what_has_landed_and_what_it_cost_and_nobody_on_hold_is_asked(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    hire(agent=SCRIPT)
    task = TaskSpec("A", repo="app", prompt="Do it.", runner="agent")
    stage.submit(task, repos=(repository.spec(verify="test -e A.txt"),))
    assert stage.finish() is ConvoyState.COMPLETE
    [source] = find_sources(stage.hive, [], Path("/"))
    assert (source.name, source.is_known, source.at) == ("app", True, str(stage.places.public("app")))
    desk = Desk(stage.hive, stage.root / "plan.yaml", "agent", [source])
    runner = stage.hive.settings.runners["agent"]
    draft, used = ask_for_plan(desk, runner, Wish("More", (), 30.0), str)
    assert (used.tokens_in, used.tokens_out) == (1000, 10)
    assert (draft.plan.convoy, draft.plan.repos[0].verify) == ("work-2", "test -e A.txt"), "what is given stays"
    assert [(each.part, each.key) for each in draft.written] == [
        ("repo app", "setup"), ("task a", "verify"), ("task b", "verify")
    ]  # fmt: skip
    with stage.hive.ledger.read() as connection:
        view = show_plan(connection, draft.plan, author=draft.author, written=draft.written)
    assert view["expected"]["by_repo_and_runner"] == [
        {"repo": "app", "runner": "agent", "tasks": 2, "landed": 1, "money": 0.036, "tokens": 10_400, "attempts": 1.0}
    ]
    assert "Expected for 2 tasks: $0.07, 20,800 tokens in 2 attempts, as before:" in draw_plan(view)
    with stage.hive.ledger.write(ME) as tx:
        create_agent(tx, "ann", strengths=("sql", "Free text"))
    [made] = desk.draft_issues([Issue("x", labels=("SQL", "free text", "bug"))], "todo").plan.tasks
    assert made.strengths == ("sql",), "what an agent is good at, if a task can ask for it"
    repository.commit({"own.txt": "x\n"}, "the person goes on")
    assert find_sources(stage.hive, ["app"], Path("/"))[0].at == str(repository.path)
    assert stage.keeper is not None
    with stage.hive.ledger.write(stage.keeper.authority) as tx:
        place_hold(tx, Hold("runner", "agent", "rate-limited", 60.0, 1), why="429")
    with pytest.raises(UnavailableError, match="hive runner resume agent"):
        ask_for_plan(desk, runner, Wish("More", (), 30.0), str)
    frugal = replace(stage.hive, settings=replace(stage.hive.settings, tokens=10_000))
    with pytest.raises(UnavailableError, match="The day's budget of 10,000 tokens is spent"):
        ask_for_plan(replace(desk, hive=frugal), Runner("other", "true"), Wish("More", (), 30.0), str)
