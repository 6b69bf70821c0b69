"""One story: a runner whose program is not there waits for a person, costs no attempt, and goes on when it is."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.commands.sessions import lift_hold
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.report import Outcome
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.domain.states import AttemptState, ConvoyState, TaskState
from hivekeeper.store import queries
from hivekeeper.views.status import show_status
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository


def _name_runner(stage: Scene, command: Path) -> None:
    """Have the running keeper take up a runner of this command."""
    keeper = stage.keeper or stage.take()
    with (stage.root / "hive.toml").open("a") as file:
        file.write(f"[runners.mine]\ncommand = '{command}'\n")
    assert not keeper.reload_settings()  # it may still be written to
    stage.clock.let_pass(1)
    assert keeper.reload_settings()


def test_a_runner_that_cannot_be_started_is_held_with_what_to_write_and_no_attempt_fails(
    stage: Scene, tmp_path: Path
) -> None:
    program = tmp_path / "agent"
    _name_runner(stage, program)
    stage.submit(TaskSpec("A", prompt="Do it.", runner="mine", attempts=1))

    def is_held() -> bool:
        with stage.hive.ledger.read() as connection:
            return any(hold.is_active(stage.clock.now()) for hold in queries.list_holds(connection))

    stage.step_until(is_held)
    with stage.hive.ledger.read() as connection:
        [need] = show_status(connection, KeeperState.ACTIVE, now=stage.clock.now())["needs_me"]
    assert f"'{program}' of runner 'mine' is not there" in need["what"]
    assert need["type"].startswith("hive runner resume mine")
    assert stage.task("A").state is TaskState.IN_PROGRESS
    assert stage.runs("A") == []
    program.write_text('#!/bin/sh\ncat "$1" > heard\n')
    program.chmod(0o755)
    with stage.hive.ledger.write(ME) as tx:
        assert lift_hold(tx, "runner", "mine")
    assert stage.finish() is ConvoyState.COMPLETE
    assert len(stage.attempts("A")) == 1
    assert "# Your task\n\nDo it.\n" in (stage.root / "heard").read_text()


def _hire(stage: Scene, *runners: Runner) -> None:
    known = {runner.name: runner for runner in runners}
    stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, runners=known))


def _list_holds(stage: Scene) -> list[HoldRow]:
    with stage.hive.ledger.read() as connection:
        return [hold for hold in queries.list_holds(connection) if hold.is_active(stage.clock.now())]


def _end_as_missing(stage: Scene, code: int) -> str:
    """Write a command that ends as one that a shell does not find, until it is installed."""
    sign = f"test -e {stage.root.parent}/installed"
    return f"if {sign}; then cat > $HIVE_TASK.md; else echo sh: 1: agent: not found; exit {code}; fi"


@pytest.mark.parametrize("signs", [{}, {"quota": "no quota"}], ids=["without-signs", "with-signs"])
@pytest.mark.parametrize("code", [126, 127])
def test_a_runner_that_a_shell_did_not_find_is_held_for_all_tasks_and_no_attempt_fails(
    stage: Scene, repository: Repository, signs: dict[str, str], code: int
) -> None:
    _hire(stage, Runner("mine", _end_as_missing(stage, code), PromptBy.STDIN, signs=signs))
    tasks = [TaskSpec(name, repo="app", prompt="Do it.", runner="mine", attempts=1) for name in ("A", "B")]
    stage.submit(*tasks, repos=(repository.spec(),))
    stage.step_until(lambda: bool(_list_holds(stage)))
    with stage.hive.ledger.read() as connection:
        [need] = show_status(connection, KeeperState.ACTIVE, now=stage.clock.now())["needs_me"]
    assert "mine could not start: " in need["what"]
    assert "sh: 1: agent: not found" in need["what"]
    assert need["type"] == "hive runner resume mine  (once hive runner test mine works)"

    def are_parked() -> bool:
        return all(a.state is AttemptState.PARKED for name in "AB" for a in stage.attempts(name))

    stage.step_until(are_parked)
    for number in (1, 2):  # too early, and it is held once more
        with stage.hive.ledger.write(ME) as tx:
            assert lift_hold(tx, "runner", "mine")
        if number == 1:
            stage.step_until(lambda: bool(_list_holds(stage)) and are_parked())
            (stage.root.parent / "installed").touch()
    assert stage.finish() is ConvoyState.COMPLETE
    assert [len(stage.attempts(name)) for name in "AB"] == [1, 1]
    assert sum(run.kind == "agent" for run in stage.runs("A")) > 1
    assert "Do it." in repository.git("show", "hive/main:A.md")


def test_the_next_runner_takes_over_from_one_that_a_shell_did_not_find(stage: Scene, repository: Repository) -> None:
    missing = Runner("mine", _end_as_missing(stage, 127), PromptBy.STDIN)
    _hire(stage, missing, Runner("other", "echo x > made; : {prompt}"))
    task = TaskSpec("A", repo="app", prompt="Do it.", runner=("mine", "other"), attempts=1)
    stage.submit(task, repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert [(hold.name, hold.cause) for hold in _list_holds(stage)] == [("mine", Outcome.SETUP)]
    assert len(stage.attempts("A")) == 1


def test_a_runner_that_could_not_be_started_at_all_is_held_and_says_why(stage: Scene, repository: Repository) -> None:
    large = {f"LARGE_{number}": "x" * 100_000 for number in range(30)}
    _hire(stage, Runner("mine", "cat", PromptBy.STDIN, environment=large, signs={"quota": "no quota"}))
    stage.submit(TaskSpec("A", repo="app", prompt="Do it.", runner="mine"), repos=(repository.spec(),))
    stage.step_until(lambda: bool(_list_holds(stage)))
    assert [(hold.cause, hold.why) for hold in _list_holds(stage)] == [
        (Outcome.SETUP, "it is longer than this system allows")
    ]


def test_a_sandbox_that_is_gone_costs_an_attempt_and_holds_no_runner(stage: Scene, repository: Repository) -> None:
    go = stage.root.parent / "go"
    _hire(stage, Runner("mine", f"test -e {go} && echo x > made && exit; exit 127", PromptBy.STDIN))
    stage.submit(TaskSpec("A", repo="app", prompt="Do it.", runner="mine", attempts=2), repos=(repository.spec(),))
    stage.step_until(lambda: [attempt.state for attempt in stage.attempts("A")] == [AttemptState.PARKED])
    shutil.rmtree(stage.places.sandbox("work/A", 1))
    go.touch()
    with stage.hive.ledger.write(ME) as tx:
        assert lift_hold(tx, "runner", "mine")
    assert stage.finish() is ConvoyState.COMPLETE
    first, _ = stage.attempts("A")
    assert first.state is AttemptState.FAILED
    assert _list_holds(stage) == []


def test_a_command_that_ends_with_127_fails_as_with_any_other_code(stage: Scene) -> None:
    stage.submit(TaskSpec("A", command="no-such-command", attempts=2))
    assert stage.finish() is ConvoyState.FAILED
    assert [attempt.state for attempt in stage.attempts("A")] == [AttemptState.FAILED] * 2
    assert _list_holds(stage) == []


def test_settings_that_cannot_be_used_change_nothing_and_are_told(stage: Scene) -> None:
    keeper = stage.take()
    before = keeper.hive.settings
    (stage.root / "hive.toml").write_text("[hive]\nworkers = 'many'\n")
    keeper.reload_settings()
    stage.clock.let_pass(1)
    assert not keeper.reload_settings()
    assert "workers" in keeper.problems["hive.toml"]
    assert keeper.hive.settings is before
