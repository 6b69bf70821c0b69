"""One story: a command without a repository is killed by somebody else, and is not repeated unasked."""

import os
import signal
from pathlib import Path

import pytest

from hivekeeper.commands.runs import kill_worker
from hivekeeper.commands.tasks import cancel_task
from hivekeeper.domain.plan import Limits, TaskSpec
from hivekeeper.domain.states import RunState, TaskState
from tests.scenarios.conftest import Scene
from tests.stage import ME

TWICE = "test $(wc -l < {id}) -gt 1 ||"  # it goes well when it is tried again
ENDS = {
    "by-a-signal": ("kill -9 $$", TaskState.UNKNOWN, "it may have run: the command was killed by SIGKILL"),
    "below-a-shell": (
        "sh -c 'kill -9 $$'; exit $?",
        TaskState.UNKNOWN,
        "it may have run: the command was killed by SIGKILL",
    ),
    "by-itself": (f"{TWICE} exit 3", TaskState.COMPLETE, ""),
    "by-its-limit": (f"{TWICE} sleep 60", TaskState.COMPLETE, ""),
}


@pytest.mark.parametrize("idempotent", [False, True])
def test_what_somebody_else_killed_is_unknown_and_what_ended_otherwise_is_tried_again(
    stage: Scene, *, idempotent: bool
) -> None:
    limits = Limits(wall_s=0.5, grace_s=0.1)
    tasks = [
        TaskSpec(
            name,
            f"echo x >> {name}; {(f'{TWICE} ' if idempotent else '') + command}".replace("{id}", name),
            attempts=2,
            idempotent=idempotent,
            limits=limits if name == "by-its-limit" else Limits(),
        )
        for name, (command, _, _) in ENDS.items()
    ]
    stage.submit(*tasks)
    stage.finish()
    for name, (_, state, words) in ENDS.items():
        assert stage.task(name).state is (TaskState.COMPLETE if idempotent else state), stage.task(name).reason
        assert (stage.root / name).read_text().count("x") == (1 if words and not idempotent else 2)
        if not idempotent:
            assert stage.task(name).reason.removesuffix("; last output: Killed") == words


def begin(stage: Scene) -> int:
    """Have a command run for long; tell its process, whatever its number is inside the sandbox."""
    stage.submit(TaskSpec("A", "echo x >> effect; exec sleep 60", attempts=2))
    stage.step_until(lambda: bool(find_sleeper(stage)) and stage.runs("A")[0].state is RunState.RUNNING)
    return find_sleeper(stage)[0]


def find_sleeper(stage: Scene) -> list[int]:
    pids = stage.list_processes("work/A.1.agent")
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]


def test_a_command_that_the_kernel_killed_waits_for_a_person(stage: Scene) -> None:
    pid = begin(stage)
    os.kill(pid, signal.SIGKILL)
    stage.step_until(lambda: stage.task("A").state is not TaskState.IN_PROGRESS)
    assert stage.task("A").state is TaskState.UNKNOWN
    assert (stage.root / "effect").read_text() == "x\n"


def test_a_command_that_a_person_killed_waits_for_them_and_one_they_cancelled_is_cancelled(stage: Scene) -> None:
    begin(stage)
    with stage.hive.ledger.write(ME) as tx:
        assert kill_worker(tx, stage.attempts("A")[0])
    stage.step_until(lambda: stage.task("A").state is TaskState.UNKNOWN)
    assert stage.task("A").reason == "it may have run: it was stopped: a person asked for it"
    with stage.hive.ledger.write(ME) as tx:
        assert cancel_task(tx, stage.task("A"))
    stage.step_until(lambda: stage.task("A").state is TaskState.CANCELLED)


def test_a_command_that_is_cancelled_while_it_runs_is_cancelled_and_not_unknown(stage: Scene) -> None:
    begin(stage)
    with stage.hive.ledger.write(ME) as tx:
        assert cancel_task(tx, stage.task("A"))
    stage.step_until(lambda: stage.task("A").state not in (TaskState.IN_PROGRESS, TaskState.CANCELLING))
    assert stage.task("A").state is TaskState.CANCELLED
