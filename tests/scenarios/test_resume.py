"""The coordinator dies with one task done, one half way, one not begun; its successor does nothing twice."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hivekeeper.clock import to_seconds
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState, RunState, TaskState
from hivekeeper.hive import open_hive
from hivekeeper.places import Places
from hivekeeper.store import queries
from tests.scenarios.conftest import Scene

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "coordinator.py"


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.02)  # real time: another process must get there


def _start(directory: Path, seconds: str) -> "subprocess.Popen[str]":
    argv = (sys.executable, str(EXAMPLE), str(directory), seconds)
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_the_page_of_python_in_the_docs_survives_kill_9_of_its_coordinator(tmp_path: Path) -> None:
    first = _start(tmp_path, "3")
    _wait((Places(tmp_path).sandbox("orders/order_2", 1) / "work" / "outputs" / "order_2.md").exists)
    _wait((tmp_path / "outputs" / "order_1.md").exists)
    second = _start(tmp_path, "3")
    assert second.wait(30) == 0
    assert second.stdout is not None
    assert "Another keeper is active" in second.stdout.read()
    first.kill()
    first.wait()
    assert not (tmp_path / "outputs" / "order_2.md").exists(), "the order is over, and the kill came too late"
    successor = _start(tmp_path, "3")
    assert successor.stdout is not None
    said = successor.stdout.read()
    assert successor.wait(60) == 0
    for name in ("order_1", "order_2", "order_3"):
        assert (tmp_path / "outputs" / f"{name}.md").read_text() == f"{name} began\n{name} done\n"
    tasks = {task["task_id"]: task for task in json.loads(said)["tasks"]}
    assert {task["status"] for task in tasks.values()} == {"COMPLETE"}
    assert tasks["order_3"]["dispatched_at"] >= tasks["order_2"]["completed_at"]
    hive = open_hive(tmp_path)
    with hive.ledger.read() as connection:
        attempts = [len(queries.list_attempts_of_task(connection, f"orders/{name}")) for name in tasks]
    hive.close()
    assert attempts == [1, 1, 1]
    for process in (first, second, successor):
        assert process.stdout is not None
        process.stdout.close()


def test_a_run_that_ended_while_no_keeper_lived_is_found_with_its_true_end(stage: Scene) -> None:
    stage.submit(TaskSpec("A", "echo began >> marks; while ! test -f go; do sleep 0.02; done; date +%s.%N > ended"))
    stage.step_until((stage.root / "marks").exists)
    assert stage.keeper is not None
    stage.keeper.close()
    (stage.root / "go").touch()
    _wait((stage.hive.places.runs / "work" / "A.1.agent" / "exit").exists)
    time.sleep(1.1)  # real time: so that the end and its discovery cannot be mistaken for each other
    stage.take()
    assert stage.finish() is ConvoyState.COMPLETE
    assert (stage.root / "marks").read_text() == "began\n"
    task = stage.task("A")
    assert task.completed_at is not None
    assert abs(to_seconds(task.completed_at) - float((stage.root / "ended").read_text())) < 0.5
    assert time.time() - to_seconds(task.completed_at) > 1.0


def test_a_living_run_is_adopted_and_not_started_again(stage: Scene) -> None:
    stage.submit(TaskSpec("A", "echo $$ >> marks; while ! test -f go; do sleep 0.02; done"))
    stage.step_until((stage.root / "marks").exists)
    stage.step_until(lambda: stage.runs("A")[0].state is RunState.RUNNING)
    assert stage.keeper is not None
    stage.keeper.close()
    stage.take()
    for _ in range(5):
        stage.keeper.step()
    (stage.root / "go").touch()
    assert stage.finish() is ConvoyState.COMPLETE
    assert len((stage.root / "marks").read_text().split()) == 1
    assert len(stage.attempts("A")) == 1


def test_a_run_that_was_lost_is_unknown_and_waits_for_a_person(stage: Scene) -> None:
    stage.submit(TaskSpec("A", "echo x >> marks; sleep 300"), TaskSpec("B", "true", after=("A",)))
    stage.step_until(lambda: stage.task("A").state is TaskState.IN_PROGRESS and (stage.root / "marks").exists())
    stage.step_until(lambda: stage.runs("A")[0].state is RunState.RUNNING)
    pid = stage.runs("A")[0].pid
    assert pid is not None
    os.kill(pid, 9)
    assert stage.finish() is ConvoyState.FAILED
    assert stage.task("A").state is TaskState.UNKNOWN
    assert stage.task("B").state is TaskState.PENDING
    assert (stage.root / "marks").read_text() == "x\n"


def test_a_lost_run_of_an_idempotent_task_is_repeated(stage: Scene) -> None:
    stage.submit(TaskSpec("A", "echo x >> marks; test $(wc -l < marks) -gt 1 || sleep 300", idempotent=True))
    stage.step_until(lambda: bool(stage.runs("A")) and stage.runs("A")[0].state is RunState.RUNNING)
    stage.step_until((stage.root / "marks").exists)
    pid = stage.runs("A")[0].pid
    assert pid is not None
    os.kill(pid, 9)
    assert stage.finish() is ConvoyState.COMPLETE
    assert (stage.root / "marks").read_text() == "x\nx\n"


def test_an_intent_of_an_earlier_boot_is_never_started(stage: Scene) -> None:
    stage.submit(TaskSpec("A", "echo x >> marks"))
    keeper = stage.take()
    runs = keeper.runs
    keeper.runs.boot_id, boot = "before-the-power-cut", keeper.runs.boot_id
    for loop in keeper.loops:
        if loop.name == "dispatcher":
            loop._boot_id = "before-the-power-cut"  # noqa: SLF001 - as the ledger of then has it
            loop.run_once()
    runs.boot_id = boot
    assert stage.finish() is ConvoyState.FAILED
    assert stage.task("A").state is TaskState.UNKNOWN
    assert not (stage.root / "marks").exists()


def test_a_promised_output_of_an_earlier_day_does_not_count(stage: Scene) -> None:
    (stage.root / "result.md").write_text("old\n")
    os.utime(stage.root / "result.md", (1, 1))
    stage.submit(
        TaskSpec("A", "true", outputs=("result.md",), attempts=1), TaskSpec("B", "true", outputs=("none",), attempts=1)
    )
    assert stage.finish() is ConvoyState.FAILED
    assert stage.task("A").reason == "it ended with exit code 0 but there is no result.md"
    assert stage.task("B").reason == "it ended with exit code 0 but there is no none"
