"""Agent programs as they were seen to behave, played by scripts: what they spend, leave behind, and wait for."""

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.domain.states import AttemptState, ConvoyState, TaskState
from hivekeeper.runners import PRESETS
from hivekeeper.sandbox.session_log import LARGEST, keep_logs
from hivekeeper.store import queries
from hivekeeper.views.holds import list_hold_needs, list_waits
from hivekeeper.views.runners import show_costs
from hivekeeper.views.session_logs import read_session_logs
from hivekeeper.views.tasks import show_why
from tests.scenarios.conftest import Scene
from tests.stage import Repository

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
def hire(stage: Scene) -> Hire:
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


def agents(stage: Scene, name: str, attempt: int = 1) -> list[RunRow]:
    return [run for run in stage.runs(name, attempt) if run.kind == "agent"]


def is_parked(stage: Scene, name: str) -> Callable[[], bool]:
    return lambda: bool(stage.attempts(name)) and stage.attempts(name)[-1].state is AttemptState.PARKED


def holds(stage: Scene) -> list[HoldRow]:
    with stage.hive.ledger.read() as connection:
        return [hold for hold in queries.list_holds(connection) if hold.is_active(stage.clock.now())]


def test_a_budget_of_money_binds_while_claude_works_and_a_session_that_is_cut_off_costs_what_it_used(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    hire(agent=f"{said(*spend('m1', 10_000, 400), TOOL)}\nexec sleep 60")
    stage.submit(prompt("A", budget={"money": 0.03}), repos=(repository.spec(),))
    stage.step_until(is_parked(stage, "A"))
    assert [(hold.scope, hold.cause, hold.why) for hold in holds(stage)] == [
        ("task", "budget", "its budget of $0.03 is spent")
    ]
    with stage.hive.ledger.read() as connection:
        assert show_costs(connection)["money"] == pytest.approx((10_000 * 3 + 400 * 15) / 1e6)


def test_a_budget_that_is_not_spent_lets_claude_go_on(stage: Scene, repository: Repository, hire: Hire) -> None:
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
    stage: Scene, repository: Repository, hire: Hire, commit: str
) -> None:
    hire("aider", agent=f"{LEFT}; echo x > $HIVE_TASK.txt; {commit}{AIDER_DONE}")
    stage.submit(prompt("A", paths=("A.txt",)), prompt("B", paths=("B.txt",)), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.git("ls-tree", "-r", "--name-only", "hive/main").split() == ["A.txt", "B.txt", "README"]
    assert len(stage.attempts("A")) == 1


def test_what_a_program_leaves_in_the_repository_is_no_change(stage: Scene, repository: Repository, hire: Hire) -> None:
    hire("aider", agent=f"{LEFT}; {AIDER_DONE}")
    stage.submit(prompt("A", attempts=1), repos=(repository.spec(),))
    stage.finish()
    assert stage.task("A").state is TaskState.FAILED
    assert "changed nothing" in stage.task("A").reason


def test_a_landed_commit_has_the_tasks_title_and_the_agents_own_words_and_no_trailer_but_ours(
    stage: Scene, repository: Repository, hire: Hire
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


STARTED = {"type": "system", "subtype": "init", "model": "claude-sonnet-4-5"}
ASKING = {"type": "system", "subtype": "status", "status": "requesting"}


def step_after(stage: Scene, seconds: float) -> None:
    """Let time pass, and have everything look once."""
    stage.clock.let_pass(seconds)
    assert stage.keeper is not None
    for _ in range(3):
        stage.keeper.step()


def find_waits(stage: Scene) -> list[tuple[str, str]]:
    with stage.hive.ledger.read() as connection:
        return [(wait["name"], wait["cause"]) for wait in list_waits(connection, now=stage.clock.now())]


def test_who_waits_for_the_model_in_silence_is_told_and_then_its_runner_waits_and_the_next_one_goes_on(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    works = f"echo x > $HIVE_TASK.txt; {said(TOOL, TOLD, DONE)}"
    hire(silent=f"{said(STARTED, ASKING)}\nexec sleep 300", other=works)
    stage.submit(prompt("A", ("silent", "other")), repos=(repository.spec(),))
    stage.step_until(lambda: bool(agents(stage, "A")) and bool(agents(stage, "A")[0].started_at))
    has_spoken = stage.hive.places.runs / agents(stage, "A")[0].id / "output"
    stage.step_until(lambda: has_spoken.exists() and has_spoken.stat().st_size > 0)
    step_after(stage, 1.0)
    assert find_waits(stage) == []
    step_after(stage, 61.0)
    assert find_waits(stage) == [("work/A", "waiting for the model")]
    with stage.hive.ledger.read() as connection:
        assert "waits for its model since" in show_why(
            connection, stage.task("A"), keeper_is_alive=True, now=stage.clock.now()
        )
    step_after(stage, 600.0)
    assert stage.finish() is ConvoyState.COMPLETE
    assert [run.outcome for run in agents(stage, "A")] == ["no-answer", "done"]
    assert [(hold.name, hold.cause) for hold in holds(stage)] == [("silent", "no-answer")]
    assert len(stage.attempts("A")) == 1, "the attempt did not fail"


def test_who_waits_for_a_tool_in_silence_does_not_wait_for_the_model(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    hire(agent=f"{said(STARTED, TOOL)}\nexec sleep 300")
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(lambda: bool(agents(stage, "A")) and bool(agents(stage, "A")[0].started_at))
    spoken = stage.hive.places.runs / agents(stage, "A")[0].id / "output"
    stage.step_until(lambda: spoken.exists() and b"tool_use" in spoken.read_bytes())
    step_after(stage, 700.0)
    assert find_waits(stage) == []
    assert agents(stage, "A")[0].kill_requested_at is None


def test_claude_that_is_not_signed_in_is_told_within_seconds(stage: Scene, repository: Repository, hire: Hire) -> None:
    refused = [
        {"type": "system", "subtype": "api_retry", "attempt": n, "error_status": 401, "error": "authentication_failed"}
        for n in (1, 2)
    ]
    hire(agent=f"{said(STARTED, *refused)}\nexec sleep 300")
    stage.submit(prompt("A"), repos=(repository.spec(),))
    stage.step_until(is_parked(stage, "A"))
    assert [(hold.cause, hold.until) for hold in holds(stage)] == [("auth", None)]


def test_a_program_that_cannot_start_waits_for_a_person_with_its_last_lines(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    hire("mini", agent='test -e "$HOME/mended" || { echo "ModuleNotFoundError: No module named mcp"; exit 1; }')
    stage.submit(prompt("A"), prompt("B"), repos=(repository.spec(),))
    stage.take(workers=1)
    stage.step_until(is_parked(stage, "A"))
    with stage.hive.ledger.read() as connection:
        ((what, command),) = list_hold_needs(connection, now=stage.clock.now())
    assert "agent could not start" in what
    assert "No module named mcp" in what
    assert command.startswith("hive runner resume agent")
    assert stage.attempts("B") == [], "nobody else tries it meanwhile"


def test_the_log_of_a_session_is_kept_when_its_sandbox_is_gone_and_no_link_in_it_is_followed(
    stage: Scene, repository: Repository, hire: Hire, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_text("a key\n")
    logs = '"$HOME/.claude/projects/here"'
    write = f"mkdir -p {logs}; echo turn > {logs}/s-1.jsonl; mkfifo {logs}/s-2.jsonl; ln -s {secret} {logs}/s-3.jsonl"
    link = f"ln -s {tmp_path} $HOME/.claude/projects/there"
    named = {**DONE, "session_id": "s-1"}
    hire(agent=f"{write}; {link}; echo x > $HIVE_TASK.txt; {said(TOOL, TOLD, named)}")
    runner = stage.hive.settings.runners["agent"]
    stage.hive.settings.runners["agent"] = replace(runner, log="home/.claude/projects/*/s*.jsonl")
    stage.submit(prompt("A"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    stage.step_until(lambda: not stage.hive.places.sandbox("work/A", 1).exists())
    kept = read_session_logs(stage.hive.places, stage.attempts("A")[0], ())
    assert [(log.name, log.lines) for log in kept] == [("s-1.jsonl", ["turn"])]


def test_a_long_log_is_kept_from_its_end_on(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "log").write_bytes(b"a" * 100 + b"b" * LARGEST)
    keep_logs(str(tmp_path), str(tmp_path / "kept"), ["tmp/log"])
    packed = tmp_path / "kept" / "log.gz"
    assert packed.stat().st_size < LARGEST / 100
    assert gzip.decompress(packed.read_bytes()) == b"b" * LARGEST
