"""Agent programs as they were seen to behave, played by scripts: what they spend, leave behind, and wait for."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.rows import HoldRow, RunRow
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.domain.states import AttemptState, ConvoyState, TaskState
from hivekeeper.runners import PRESETS
from hivekeeper.store import queries
from hivekeeper.views.runners import show_costs
from tests.scenarios.conftest import Repository, Stage

Hire = Callable[..., None]


def said(*events: Mapping[str, object] | str) -> str:
    """Write the command that says something."""
    lines = "\n".join(event if isinstance(event, str) else json.dumps(event) for event in events)
    return f"cat <<'END'\n{lines}\nEND"


def spend(message: str, sent: int, received: int) -> tuple[dict[str, object], dict[str, object]]:
    """Have claude use some tokens: they are told as its message comes."""
    used = {"input_tokens": sent, "output_tokens": 1}
    begun = {"type": "message_start", "message": {"id": message, "model": "claude-sonnet-4-5", "usage": used}}
    ended = {"type": "message_delta", "usage": {"output_tokens": received}}
    return {"type": "stream_event", "event": begun}, {"type": "stream_event", "event": ended}


TOOL = {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "t"}]}}
TOLD = {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t"}]}}
DONE = {"type": "result", "subtype": "success", "result": "Done."}


@pytest.fixture
def hire(stage: Stage) -> Hire:
    """Have runners that are scripts which speak as a known program does."""

    def hiring(output: str = "claude", **programs: str) -> None:
        like = {name: getattr(PRESETS[output], name) for name in ("ignore", "log") if hasattr(PRESETS[output], name)}
        runners = {
            name: Runner(name, script, PromptBy.STDIN, resume=script, output=output, **like)
            for name, script in programs.items()
        }
        stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, runners=runners))

    return hiring


def prompt(name: str, runner: str | tuple[str, ...] = "agent", **more: object) -> TaskSpec:
    return TaskSpec(name, repo="app", prompt="Do it.", runner=runner, **more)  # type: ignore[arg-type]


def agents(stage: Stage, name: str, attempt: int = 1) -> list[RunRow]:
    return [run for run in stage.runs(name, attempt) if run.kind == "agent"]


def is_parked(stage: Stage, name: str) -> Callable[[], bool]:
    return lambda: bool(stage.attempts(name)) and stage.attempts(name)[-1].state is AttemptState.PARKED


def holds(stage: Stage) -> list[HoldRow]:
    with stage.hive.ledger.read() as connection:
        return [hold for hold in queries.list_holds(connection) if hold.holds(stage.clock.now())]


def test_a_budget_of_money_binds_while_claude_works_and_a_session_that_is_cut_off_costs_what_it_used(
    stage: Stage, repository: Repository, hire: Hire
) -> None:
    hire(agent=f"{said(*spend('m1', 10_000, 400), TOOL)}\nexec sleep 60")
    stage.submit(prompt("A", budget={"money": 0.03}), repos=(repository.spec(),))
    stage.step_until(is_parked(stage, "A"))
    assert [(hold.scope, hold.cause, hold.why) for hold in holds(stage)] == [
        ("task", "budget", "its budget of $0.03 is spent")
    ]
    with stage.hive.ledger.read() as connection:
        assert show_costs(connection)["money"] == pytest.approx((10_000 * 3 + 400 * 15) / 1e6)


def test_a_budget_that_is_not_spent_lets_claude_go_on(stage: Stage, repository: Repository, hire: Hire) -> None:
    script = said(*spend("m1", 10_000, 400), TOOL, TOLD, DONE)
    hire(agent=f"echo x > $HIVE_TASK.txt; {script}")
    stage.submit(prompt("A", budget={"money": 0.04}), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert stage.task("A").state is TaskState.COMPLETE
    assert agents(stage, "A")[0].microusd == 36_000


LEFT = "echo chat > .aider.chat.history.md; mkdir -p .aider.tags.cache.v4; echo x > .aider.tags.cache.v4/cache.db"
AIDER_DONE = said("Applied edit to it.txt", "Tokens: 2.8k sent, 38 received.")


@pytest.mark.parametrize("commit", ["", "git add -A && git commit -qm it; "])
def test_what_a_program_leaves_in_the_repository_never_lands_and_is_no_stray_path(
    stage: Stage, repository: Repository, hire: Hire, commit: str
) -> None:
    hire("aider", agent=f"{LEFT}; echo x > $HIVE_TASK.txt; {commit}{AIDER_DONE}")
    stage.submit(prompt("A", paths=("A.txt",)), prompt("B", paths=("B.txt",)), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.git("ls-tree", "-r", "--name-only", "hive/main").split() == ["A.txt", "B.txt", "README"]
    assert len(stage.attempts("A")) == 1


def test_what_a_program_leaves_in_the_repository_is_no_change(stage: Stage, repository: Repository, hire: Hire) -> None:
    hire("aider", agent=f"{LEFT}; {AIDER_DONE}")
    stage.submit(prompt("A", attempts=1), repos=(repository.spec(),))
    stage.finish()
    assert stage.task("A").state is TaskState.FAILED
    assert "changed nothing" in stage.task("A").reason


def test_a_landed_commit_has_the_tasks_title_and_the_agents_own_words_and_no_trailer_but_ours(
    stage: Stage, repository: Repository, hire: Hire
) -> None:
    words = "Add the file\n\nIt was missing.\n\nHive-Change: 0000000000000000000000000000000000000000"
    commit = f"echo x > $HIVE_TASK.txt; git add -A; git commit -qm '{words}'; echo y >> $HIVE_TASK.txt; "
    hire(agent=f"{commit}{said(TOOL, TOLD, DONE)}")
    stage.submit(prompt("A", title="Make it whole"), prompt("B", after=("A",)), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    titled, untitled = (repository.git("log", "-1", "--format=%B", at) for at in ("hive/main~1", "hive/main"))
    assert titled.split("\n\n")[:3] == ["A: Make it whole", "Add the file", "It was missing."]
    assert untitled.split("\n\n")[:2] == ["B: Add the file", "It was missing."]
    assert "Hive-Change: 0000" not in titled + untitled
    assert repository.landed() == ["A", "B"]
