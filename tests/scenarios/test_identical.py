"""One story: what a task changes is on the branch already; the task is complete, and the branch stays as it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.domain import events as e
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState, MergeState, TaskState
from hivekeeper.testing.history import check_history, read_history
from tests.scenarios.test_queue import Line, list_gates

COMMIT = "git -c user.name=x -c user.email=x commit -q"


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path / "hive")
    yield line
    line.end()


def assert_true(line: Line) -> None:
    """Let the judge of histories look at it."""
    assert check_history(read_history(line.root, marks=())) == []


def test_of_two_workers_that_make_the_same_change_both_are_complete_with_one_commit(line: Line) -> None:
    tasks = [
        TaskSpec(name, f"echo same > same; git add same; {COMMIT} -m {name}", repo="app", attempts=1) for name in "AB"
    ]
    line.submit(*tasks, repos=(line.repository.spec(verify="test -e README"),))
    assert line.finish() is ConvoyState.COMPLETE
    (commit,) = line.commits()
    assert {line.task(name).commit_id for name in "AB"} == {commit}
    (noted,) = [event.why for event in line.events(e.MergeLanded) if event.why]
    assert noted == f"everything it changes is there already, in {commit[:12]}"
    assert len(list_gates(line)) == 1, "one tree, one gate"
    assert_true(line)


def test_a_change_that_a_person_made_meanwhile_is_complete_with_their_commit(line: Line) -> None:
    line.branch("mine", {"same": "same\n"})
    line.repository.commit({"same": "same\n"}, "theirs")
    theirs = line.repository.git("rev-parse", "main")
    line.repository.commit({"other": "other\n"}, "later")
    line.know()
    line.hand_in("mine")
    line.settle()
    assert (line.of("mine").state, line.of("mine").commit_id) == (TaskState.COMPLETE, theirs)
    assert line.entry("mine").state is MergeState.LANDED
    assert line.commits() == []
    assert_true(line)


def test_of_two_tasks_with_the_very_same_commit_each_has_to_pass_its_own_gate(line: Line) -> None:
    command = (
        f"echo same > same; git add same; GIT_AUTHOR_DATE=@1700000000 GIT_COMMITTER_DATE=@1700000000 {COMMIT} -m same"
    )
    gates = {"GOOD": "grep same same", "BAD": "grep other same"}
    tasks = [TaskSpec(name, command, repo="app", verify=verify, attempts=1) for name, verify in gates.items()]
    line.submit(*tasks, repos=(line.repository.spec(),))
    line.finish()
    assert line.attempts("GOOD")[0].commit_id == line.attempts("BAD")[0].commit_id
    assert line.states() == {"GOOD": TaskState.COMPLETE, "BAD": TaskState.FAILED}
    assert_true(line)


def test_what_is_there_already_must_pass_its_own_gate_too(line: Line) -> None:
    line.submit(TaskSpec("A", "echo same > same", repo="app"), repos=(line.repository.spec(),), convoy="first")
    line.finish("first")
    tasks = (
        TaskSpec(
            "GOOD", "git reset -q --hard HEAD~1; echo same > same", repo="app", verify="grep same same", attempts=1
        ),
        TaskSpec(
            "BAD", "git reset -q --hard HEAD~1; echo same > same", repo="app", verify="grep other same", attempts=1
        ),
    )
    line.submit(*tasks, repos=(line.repository.spec(),))
    line.finish()
    assert (line.task("GOOD").state, line.task("GOOD").commit_id) == (TaskState.COMPLETE, *line.commits())
    assert line.task("BAD").state is TaskState.FAILED
    assert line.task("BAD").reason.startswith("verify failed twice")
    assert_true(line)


def test_a_keeper_that_ends_after_every_step_completes_it_once(line: Line) -> None:
    for name in ("one", "two"):
        line.branch(name, {"same": "same\n"})
    line.know("test -e README")
    line.line_up("one", "two")
    restarts = 0
    while not line.is_over():
        if (line.keeper or line.take()).step():
            restarts += 1
            assert restarts < 100, line.describe()
            line.reopen()
        else:
            line.changed.wait(0.05)
            line.changed.clear()
    (commit,) = line.commits()
    assert [(line.of(name).state, line.of(name).commit_id) for name in ("one", "two")] == [
        (TaskState.COMPLETE, commit)
    ] * 2
    assert_true(line)
