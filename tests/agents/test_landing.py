"""What real programs make lands; limits park and resume; another runner goes on; messages arrive; budgets hold."""

import json
import time
from collections.abc import Callable

import pytest

from tests.agents.conftest import need
from tests.agents.stage import CREATE, DO_IT, PROGRAMS, ROTATING, Desk, Step, fail_first
from tests.budget import SOAK

MakeStage = Callable[..., Desk]
pytestmark = pytest.mark.timeout(900)


def task(name: str, runner: str | list[str], **more: object) -> dict[str, object]:
    return {"id": name, "runner": runner, "prompt": f"Please create {name}.txt and commit it.", **more}


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_edits_commits_and_lands_and_what_it_used_is_counted(set_stage: MakeStage, program: str) -> None:
    need(program)
    stage = set_stage()
    stage.write_plan(task("a", program), verify="test -e a.txt")
    said = stage.say("run", "plan.yaml")
    assert stage.list_states() == {"a": "COMPLETE"}, said
    assert "a.txt" in stage.list_landed()
    costs = stage.ask("costs")
    assert costs["sessions"] == 1
    assert costs["tokens_in"] > 1000
    assert costs["tokens_out"] > 50
    assert [row["runner"] for row in costs["by_runner"]] == [program]
    for way in ("task", "agent", "runner", "convoy"):
        assert sum(row["tokens_in"] for row in costs[f"by_{way}"]) == costs["tokens_in"], way
    found = stage.ask("seance", "a", "git commit create")
    logs = [each for each in found["tried"] if each["role"] == "called" and each["document"].startswith(f"{program} ")]
    assert any("git commit -qm 'create a.txt'" in each["text"] and each["position"] for each in logs), found
    assert any(each["text"] == "Created a.txt." for each in stage.ask("seance", "a")["worked"])


@pytest.mark.parametrize("program", ROTATING)
def test_a_rate_limit_parks_it_and_the_same_session_goes_on_in_the_same_place(
    set_stage: MakeStage, program: str
) -> None:
    """The first edit is made, then the service says 429 until the program gives up; a person says it may go on."""
    need(program)
    edit, _, say = DO_IT
    first = {"when": CREATE["when"], "times": 1, "steps": [edit]}
    stage = set_stage(first, {"when": {"prompt": "create"}, "times": 99, "steps": [{"fault": "429"}]})
    stage.write_plan(task("a", program), verify="test -e a.txt")
    with stage.running() as keeper:
        stage.wait("parked", lambda: "attempt.parked" in stage.count_kinds(), 150.0)
        status = stage.ask("status")
        assert [wait["name"] for wait in status["waits"] if wait["cause"] == "rate-limited"] == [program]
        assert not status["workers"], "its worker is free for others"
        stage.play(
            {"when": {"prompt": "Continue your task"}, "steps": [{"shell": "git add -A && git commit -qm it"}, say]}
        )
        stage.say("runner", "resume", program)
        assert keeper.wait(240) == 0
    runs = [run for run in stage.list_runs("a") if run["kind"] == "agent"]
    assert len(runs) == 2, "one attempt, two sessions' worth of it"
    assert len(stage.ask("task", "show", "a")["attempts"]) == 1
    assert "a.txt" in stage.list_landed(), "what it had made before the limit was still there"
    asked = [entry for entry in stage.model.log() if "Continue your task" in json.dumps(entry)]
    assert asked, "it was told to go on"


def test_a_limit_of_one_runner_moves_the_task_to_the_next(set_stage: MakeStage) -> None:
    need("goose", "codex")
    # Goose speaks the chat API, codex the responses API.
    stage = set_stage({"when": {"prompt": ".", "api": "chat"}, "loop": True, "steps": [{"fault": "429"}]})
    stage.write_plan(task("a", ["goose", "codex"]), task("b", ["goose", "codex"]), verify="true")
    stage.say("run", "plan.yaml", "--workers", "1")
    assert stage.list_states() == {"a": "COMPLETE", "b": "COMPLETE"}
    runners = {row["runner"] for row in stage.ask("costs")["by_runner"]}
    assert runners == {"goose", "codex"}
    assert len([run for run in stage.list_runs("b") if run["kind"] == "agent"]) == 1, "goose was held back for b"


def test_who_is_not_signed_in_is_told_first_and_stops_nobody_else(set_stage: MakeStage) -> None:
    need("goose", "pi")
    stage = set_stage(*[{"when": {"prompt": "create a", "api": "chat"}, "times": 60, "steps": [{"fault": "401"}]}])
    stage.write_plan(task("a", "goose"), task("b", "codex"), task("c", "goose"))
    with stage.running() as keeper:
        stage.wait("goose held up", lambda: bool(stage.ask("status")["needs_me"]))
        stage.wait("b done", lambda: stage.list_states().get("b") == "COMPLETE")
        first = stage.ask("status")["needs_me"][0]
        assert first["what"].startswith("goose is not signed in")
        assert first["type"].startswith("hive runner resume goose")
        stage.play(
            {"when": {"prompt": "Continue your task"}, "steps": [{"write": {"path": "a.txt", "content": "x\n"}}]}
        )
        stage.say("runner", "resume", "goose")
        assert keeper.wait(240) == 0
    assert set(stage.list_states().values()) == {"COMPLETE"}


def test_a_conversation_that_grew_too_long_is_followed_by_a_fresh_one_that_knows_what_was_done(
    set_stage: MakeStage,
) -> None:
    need("codex")
    edit, commit, say = DO_IT
    begun = {"name": "begun", "when": CREATE["when"], "times": 1, "steps": [edit]}
    full = {"name": "full", "when": CREATE["when"], "times": 1, "steps": [{"fault": "context"}]}
    rest = {"name": "rest", "when": {"prompt": "What was done so far"}, "steps": [commit, say]}
    stage = set_stage(begun, full, rest)
    stage.write_plan(task("a", "codex"), verify="test -e a.txt")
    stage.say("run", "plan.yaml")
    assert stage.list_states() == {"a": "COMPLETE"}
    assert len([run for run in stage.list_runs("a") if run["kind"] == "agent"]) == 2
    asked = json.dumps([entry for entry in stage.model.log() if "What was done so far" in json.dumps(entry)])
    assert "a.txt" in asked


@pytest.mark.parametrize("program", ROTATING)
def test_a_message_reaches_a_session_under_way(set_stage: MakeStage, program: str) -> None:
    need(program)
    # No call twice: gemini would stop by itself.
    slow: Step = {"when": {"prompt": "create a"}, "steps": [{"shell": f"sleep 1; echo {n}"} for n in range(90)]}
    told: Step = {"when": {"prompt": "use the name b.txt"}, "steps": [
        {"write": {"path": "b.txt", "content": "told\n"}}, {"say": "Made b.txt, as you said."}]}  # fmt: skip
    stage = set_stage(told, slow)
    stage.write_plan(task("a", program), verify="test -e b.txt")
    with stage.running() as keeper:
        stage.wait("at work", lambda: stage.count_requests() > 2, 120.0)
        assert "it gets it after its current turn" in stage.say(
            "worker", "tell", "a", "Please use the name b.txt instead"
        )
        assert keeper.wait(240) == 0
    assert "b.txt" in stage.list_landed()
    assert len(stage.ask("task", "show", "a")["attempts"]) == 1, "the same attempt went on"


def test_at_the_cap_of_its_budget_a_task_is_ended_kept_and_parked_until_that_is_raised(set_stage: MakeStage) -> None:
    need("pi")
    edit, commit, say = DO_IT
    spend = {**edit, "usage": {"input": 60_000, "output": 10}}
    stage = set_stage({"when": CREATE["when"], "steps": [spend, {"shell": "sleep 30"}, commit, say]},
                      {"when": {"prompt": "Continue your task"}, "steps": [commit, say]})  # fmt: skip
    stage.write_plan(task("a", "pi", budget={"tokens": 50_000}), verify="test -e a.txt")
    with stage.running() as keeper:
        stage.wait("parked", lambda: "attempt.parked" in stage.count_kinds())
        need_me = stage.ask("status")["needs_me"]
        assert "budget of 50,000 tokens is spent" in need_me[0]["what"]
        saved = [run["exit_status"] for run in stage.list_runs("a") if run["kind"] == "save"]
        assert saved == [0], "what it had made was kept before it was parked"
        stage.say("budget", "raise", "a", "--tokens", "1000000")
        assert keeper.wait(240) == 0
    assert stage.list_states() == {"a": "COMPLETE"}
    assert stage.ask("costs")["tokens_in"] >= 60_000


# claude refuses to run a bare `sleep`.
LONG_COMMAND = "python3 -c 'import time; time.sleep(60)'"


def test_a_budget_of_money_binds_while_claude_works(set_stage: MakeStage) -> None:
    need("claude")
    edit, commit, say = DO_IT
    spend = {**edit, "usage": {"input": 10_000, "output": 400}}
    stage = set_stage({"when": CREATE["when"], "steps": [spend, {"shell": LONG_COMMAND}, commit, say]})
    stage.write_plan(task("a", "claude", budget={"money": 0.03}))
    with stage.running():
        stage.wait("parked", lambda: "attempt.parked" in stage.count_kinds())
    assert any("budget of $0.03 is spent" in need_me["what"] for need_me in stage.ask("status")["needs_me"])
    assert stage.ask("costs")["money"] >= (10_000 * 3 + 400 * 15) / 1e6, "a session that was cut off costs what it used"


def test_nothing_begins_over_the_budget_of_its_convoy_or_of_the_day(set_stage: MakeStage) -> None:
    need("goose")
    stage = set_stage()
    stage.write_plan(task("a", "goose"), task("b", "goose", after=["a"]), budget={"tokens": 1000})
    with stage.running() as keeper:
        stage.wait(
            "a landed", lambda: stage.list_states().get("a") == "COMPLETE" or "hold.placed" in stage.count_kinds()
        )
        stage.wait("held", lambda: "hold.placed" in stage.count_kinds())
        asked = stage.count_requests()
        time.sleep(3)  # real time: nothing is asked of the model meanwhile
        assert stage.count_requests() == asked
        stage.say("budget", "raise", "c", "--tokens", "10000000")
        assert keeper.wait(240) == 0
    assert set(stage.list_states().values()) == {"COMPLETE"}


def test_what_is_installed_and_signed_in_is_shown_and_one_can_be_tried(set_stage: MakeStage) -> None:
    need("goose")
    stage = set_stage({"when": {"prompt": "single word"}, "steps": [{"say": "ready"}]})
    rows = {row["runner"]: row for row in stage.ask("runner", "ls")}
    assert rows["goose"]["version"]
    assert rows["goose"]["sign_in"] == "$OPENAI_API_KEY"
    assert rows["qwen"]["path"] is None
    tried = stage.ask("runner", "test", "goose")
    assert (tried["outcome"], tried["words"]) == ("done", "ready")
    said = stage.say("runner", "test", "qwen", check=False)
    assert "'qwen' is not on the PATH" in said


def test_a_storm_of_limits_and_a_silent_server_cost_nothing_but_time(set_stage: MakeStage) -> None:
    """As many workers as tasks, a storm of 429 in the middle and one answer that never comes."""
    need("goose")
    count = 20 if SOAK else 6
    hang: Step = {"name": "silent", "when": {"prompt": "create t5.txt"}, "times": 1, "steps": [{"fault": "hang"}]}
    storm = [fail_first(3 * count // 2, "429", retry_after=1), hang]
    stage = set_stage(*storm)
    stage.set("\n[runners.goose]\n")
    tasks = [task(f"t{number}", "goose", silence="25s") for number in range(count)]
    stage.write_plan(*tasks, verify="true")
    with stage.running("--workers", str(count)) as keeper:
        deadline = time.monotonic() + 600
        while keeper.poll() is None and time.monotonic() < deadline:
            if any(wait["cause"] == "rate-limited" for wait in stage.ask("status")["waits"]):
                stage.say("runner", "resume", "goose")
            time.sleep(2)  # real time: agents work
        assert keeper.poll() == 0
    assert set(stage.list_states().values()) == {"COMPLETE"}
    landed = stage.git("log", "--format=%(trailers:key=Hive-Task,valueonly)", "hive/main").split()
    assert sorted(landed) == sorted(f"t{number}" for number in range(count)), "each once"
