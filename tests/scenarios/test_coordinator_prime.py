"""A coordinator that is a language model is shown what is open, and nothing that is done."""

from pathlib import Path

from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import TaskState
from hivekeeper.views.coordinator import BEGIN, prime_coordinator, write_section
from tests.scenarios.conftest import Scene


def read(stage: Scene, state: KeeperState = KeeperState.ACTIVE) -> str:
    with stage.hive.ledger.read() as connection:
        return prime_coordinator(connection, state, now=stage.clock.now())


def test_what_is_done_is_not_shown_and_what_is_open_is_with_its_reason(stage: Scene, tmp_path: Path) -> None:
    assert "Nothing is open." in read(stage)
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    failing = TaskSpec("failing", "exit 3", attempts=1)
    stage.submit(TaskSpec("done", "true"), failing, TaskSpec("open", wait), TaskSpec("later", "true", after=("open",)))
    stage.step_until(lambda: stage.states()["done"] is TaskState.COMPLETE)
    stage.step_until(lambda: stage.states()["failing"] is TaskState.FAILED)
    told = read(stage)
    assert "work/done" not in told
    assert "- work/open (IN_PROGRESS): " in told
    assert "- work/later (PENDING): later waits for open (IN_PROGRESS)." in told
    assert "- work/failing (FAILED): " in told
    assert "To retry: hive task retry work/failing" in told
    go.touch()
    stage.step_until(lambda: stage.states()["later"] is TaskState.COMPLETE)
    assert "work/open" not in read(stage)
    assert "The keeper is not running" in read(stage, KeeperState.NONE)


def test_the_section_replaces_itself_and_leaves_all_else() -> None:
    assert write_section("").startswith(BEGIN)
    mine = "# Mine\n\nKeep this.\n"
    once = write_section(mine)
    assert once.startswith(mine)
    assert write_section(once) == once
    changed = once.replace("You coordinate", "You used to coordinate") + "\nMore of mine.\n"
    assert write_section(changed) == f"{once}\nMore of mine.\n"
