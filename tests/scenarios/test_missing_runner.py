"""One story: a runner whose program is not there waits for a person, costs no attempt, and goes on when it is."""

from pathlib import Path

from hivekeeper.commands.sessions import lift_hold
from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.store import queries
from hivekeeper.views.status import show_status
from tests.scenarios.conftest import Scene
from tests.stage import ME


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


def test_settings_that_cannot_be_used_change_nothing_and_are_told(stage: Scene) -> None:
    keeper = stage.take()
    before = keeper.hive.settings
    (stage.root / "hive.toml").write_text("[hive]\nworkers = 'many'\n")
    keeper.reload_settings()
    stage.clock.let_pass(1)
    assert not keeper.reload_settings()
    assert "workers" in keeper.problems["hive.toml"]
    assert keeper.hive.settings is before
