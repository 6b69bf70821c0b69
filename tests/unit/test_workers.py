"""What a worker is doing, told from facts, and how long the rest will take."""

from dataclasses import replace

import pytest

from hivekeeper.cli.render import clean, say_duration
from hivekeeper.domain.rows import MergeRow, RunRow, TaskRow
from hivekeeper.domain.run import Alive, Claim, Ended, Ending, Gone, Look, Unclaimed
from hivekeeper.domain.states import MergeState, RunState, TaskState
from hivekeeper.domain.workers import WorkerState, count_startable, decide_worker, estimate_left_s

AT = "2026-11-15T21:25:35.123456Z"
CLAIM = Claim(7, 7, "boot", AT)
RUN = RunRow(
    id="c/a.1.agent", kind="agent", task="c/a", attempt=1, repo=None, argv="[]", directory="/", environment="{}",
    limits='{"silence_s":60.0}', boot_id="boot", state=RunState.RUNNING, pid=7, start_ticks=7, exit_status=None,
    ended_by=None, output_bytes=None, reason="", intended_at=AT, started_at=AT, ended_at=None, kill_requested_at=None,
)  # fmt: skip
MERGE = MergeRow(
    task="c/a", attempt=1, repo="r", commit_id="c", priority=0, position=1, state=MergeState.QUEUED, round=0, base=None,
    candidate=None, tree=None, reason="", queued_at=AT, ended_at=None,
)  # fmt: skip
TASK = TaskRow(
    key="c/a", convoy="c", id="a", title="", command="true", repo=None, verify=None, priority=0, attempts=0,
    attempts_planned=3, attempts_allowed=3, output=None, idempotent=0, limits="{}", state=TaskState.PENDING, position=1,
    reason="", added_at=AT, dispatched_at=None, completed_at=None, commit_id=None, output_path=None,
)  # fmt: skip
GATE = replace(RUN, id="c/a.1.gate", kind="gate")
INTENDED = replace(RUN, state=RunState.INTENDED, pid=None, started_at=None)


@pytest.mark.parametrize(
    ("run", "look", "word"),
    [
        (replace(RUN, kind="sandbox"), Alive(CLAIM), "making its sandbox"),
        (INTENDED, Unclaimed(), "starting"),
        (RUN, Alive(CLAIM), "working"),
        (replace(RUN, kill_requested_at=AT), Alive(CLAIM), "stopping"),
        (replace(RUN, kind="snapshot"), Alive(CLAIM), "saving work"),
        (RUN, Ended(CLAIM, Ending(0, "exit", 0, AT)), "checking the result"),
        (None, None, "checking the result"),
        (RUN, Gone(CLAIM), "zombie"),
        (replace(RUN, kind="sandbox"), Gone(CLAIM), "zombie"),
    ],
)
def test_a_workers_state_is_what_its_open_run_is_for(run: RunRow | None, look: Look | None, word: str) -> None:
    assert decide_worker(run, look, None, 0.0) == word


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (MergeState.QUEUED, "in the merge queue"),
        (MergeState.VERIFYING, "in the merge queue: verifying"),
        (MergeState.LANDING, "in the merge queue: landing"),
    ],
)
def test_what_a_worker_made_is_followed_through_the_merge_queue(state: MergeState, word: str) -> None:
    entry = replace(MERGE, state=state)
    assert decide_worker(None, None, entry, None) == word
    assert decide_worker(GATE, Alive(CLAIM), entry, 1000.0) == word
    assert decide_worker(GATE, Gone(CLAIM), entry, 1.0) is WorkerState.ZOMBIE


def test_a_worker_is_stalled_after_half_of_its_silence_and_never_without_a_limit() -> None:
    assert decide_worker(RUN, Alive(CLAIM), None, 30.0) is WorkerState.WORKING
    assert decide_worker(RUN, Alive(CLAIM), None, 30.1) is WorkerState.STALLED
    assert decide_worker(replace(RUN, limits='{"silence_s":null}'), Alive(CLAIM), None, 1e9) is WorkerState.WORKING
    assert decide_worker(replace(RUN, limits="{}"), Alive(CLAIM), None, 1e9) is WorkerState.WORKING
    assert decide_worker(replace(RUN, kind="sandbox"), Alive(CLAIM), None, 1e9) is WorkerState.SANDBOX


def test_a_run_that_never_started_is_no_zombie() -> None:
    assert decide_worker(INTENDED, Gone(None), None, None) is not WorkerState.ZOMBIE


def test_what_is_left_is_shared_by_those_at_work() -> None:
    assert estimate_left_s([50, 60, 70], [0.0, 0.0], 4) == 60 * 6 / 2
    assert estimate_left_s([60] * 3, [30.0], 0) == 30.0


def test_the_last_tasks_take_as_long_as_a_task_however_many_workers_there_are() -> None:
    assert estimate_left_s([60] * 3, [50.0] * 10, 1) == 60.0
    assert estimate_left_s([60] * 3, [0.0, 60.0, 60.0], 0) == 60.0


@pytest.mark.parametrize(
    ("finished_s", "at_work_s", "waiting"),
    [([60.0, 60.0], [1.0], 5), ([60.0] * 3, [], 5), ([60.0] * 3, [61.0, 99.0], 0), ([], [], 0)],
)
def test_nothing_is_said_where_there_is_too_little_to_tell(
    finished_s: list[float], at_work_s: list[float], waiting: int
) -> None:
    assert estimate_left_s(finished_s, at_work_s, waiting) is None


def test_what_waits_for_a_task_that_will_not_be_done_is_not_waited_for() -> None:
    def task(name: str, state: TaskState) -> TaskRow:
        return replace(TASK, key=f"c/{name}", state=state)

    going, failed = task("going", TaskState.IN_PROGRESS), task("failed", TaskState.FAILED)
    chain = {f"c/{n}": [task(str(n - 1), TaskState.PENDING)] for n in range(20_000, 1, -1)}
    assert count_startable({"c/x": [], "c/y": [going]}) == 2
    assert count_startable({"c/x": [], "c/y": [going, failed], "c/z": [task("y", TaskState.PENDING)]}) == 1
    assert count_startable({**chain, "c/1": [going]}) == 20_000
    assert count_startable({**chain, "c/1": [failed]}) == 0


def test_durations_are_said_in_two_units_at_most() -> None:
    said = [say_duration(seconds) for seconds in (-1, 0.4, 59.6, 61, 3599, 3660, 86_399, 90_000, 86_430)]
    assert said == ["0 s", "0 s", "1 min", "1 min 1 s", "59 min 59 s", "1 h 1 min", "23 h 59 min", "1 d 1 h", "1 d"]


def test_text_from_outside_is_made_harmless() -> None:
    assert clean("a\x1b]0;owned\x07b") == "a ]0;owned b"
    assert clean(None) == ""
