"""One story: a repository that cannot be read for a while is waited for, and nothing fails because of it."""

import os
import shutil
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from hivekeeper.clock import to_seconds
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState, RepoState, TaskState
from hivekeeper.domain.waits import MAX_FETCH_FAILURES, MAX_FETCH_WAIT_S, back_off_s
from hivekeeper.store import queries
from hivekeeper.views.status import list_needs
from tests.scenarios.conftest import Scene
from tests.stage import Repository


def _needs(stage: Scene) -> list[str]:
    with stage.hive.ledger.read() as connection:
        return [need["type"] for need in list_needs(connection, keeper_is_alive=True)]


def _fail(stage: Scene, times: int) -> None:
    """Have the repository be looked for so often, each time when it is due."""
    for _ in range(times):
        failures = stage.repo().fetch_failures
        stage.clock.advance(MAX_FETCH_WAIT_S + 1)
        stage.step_until(lambda: stage.repo().fetch_failures == failures + 1)  # noqa: B023


@pytest.fixture
def away(stage: Scene, repository: Repository, tmp_path: Path) -> Path:
    """Take the repository away just after a plan for it was submitted; tell where it is."""
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(repository.spec(),))
    return Path(shutil.move(repository.path, tmp_path / "elsewhere"))


def test_a_repository_that_is_away_for_a_moment_ends_no_convoy(
    stage: Scene, repository: Repository, away: Path
) -> None:
    stage.step_until(lambda: stage.repo().fetch_failures == 1)
    assert not stage.keeper or not stage.keeper.step()  # it is not tried again at once
    shutil.move(away, repository.path)
    stage.clock.advance(MAX_FETCH_WAIT_S)
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.landed() == ["A"]
    assert stage.repo().fetch_problem is None


def test_a_repository_that_stays_away_needs_a_person_and_goes_on_by_itself_when_it_is_back(
    stage: Scene, repository: Repository, away: Path
) -> None:
    stage.step_until(lambda: stage.repo().fetch_failures == 1)
    assert _needs(stage) == []
    _fail(stage, MAX_FETCH_FAILURES)
    assert (stage.repo().state, stage.convoy().state) == (RepoState.FETCHING, ConvoyState.ACTIVE)
    assert stage.states() == {"A": TaskState.PENDING}
    assert _needs(stage) == ["hive repo set app --path NEW"]
    now = to_seconds(stage.clock.now())
    assert to_seconds(stage.repo().fetch_retry_at or "") <= now + MAX_FETCH_WAIT_S
    shutil.move(away, repository.path)
    stage.clock.advance(MAX_FETCH_WAIT_S)
    assert stage.finish() is ConvoyState.COMPLETE
    assert _needs(stage) == []


def test_whoever_submits_again_does_not_wait_for_the_next_try(stage: Scene, repository: Repository, away: Path) -> None:
    stage.step_until(lambda: stage.repo().fetch_failures == 1)
    _fail(stage, 4)
    shutil.move(away, repository.path)
    stage.submit(TaskSpec("B", "touch b", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert sorted(repository.landed()) == ["A", "B"]


def test_a_try_that_was_noted_by_a_clock_ten_years_ahead_is_made_when_that_is_set_right(
    stage: Scene, repository: Repository, away: Path
) -> None:
    stage.clock.advance(10 * 365 * 86_400.0)
    stage.step_until(lambda: stage.repo().fetch_failures == 1)
    stage.clock.advance(-10 * 365 * 86_400.0)
    shutil.move(away, repository.path)
    assert stage.finish() is ConvoyState.COMPLETE


def test_a_repository_that_can_never_be_used_is_refused_at_once(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(repository.spec(),))
    repository.git("branch", "-m", "main", "other")
    stage.step_until(lambda: stage.repo().state is RepoState.FAILED)
    with stage.hive.ledger.read() as connection:
        fetches = [queries.find_run(connection, f"_repos/app.1.fetch{again}") for again in ("", "-2", "-3", "-4")]
    assert [run is not None for run in fetches] == [True, True, True, False]


def test_waits_grow_from_a_second_to_minutes_and_differ_from_one_another() -> None:
    waits = [back_off_s(n, first_wait_s=1.0, max_wait_s=300.0, seed=f"run {n}") for n in range(1, 20)]
    assert 0.75 <= waits[0] <= 1.25
    assert all(later > earlier for earlier, later in pairwise(waits[:8]))
    assert waits[-1] == 300.0
    assert 120 < sum(waits[:MAX_FETCH_FAILURES]) < 600
    assert len({back_off_s(3, first_wait_s=1.0, max_wait_s=300.0, seed=str(n)) for n in range(9)}) == 9


def _begin_pack(mirror: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Have a git receive a pack that does not end; tell which file it has begun."""
    before = set((mirror / "objects" / "pack").glob("tmp_pack_*"))
    argv = ("git", f"--git-dir={mirror}", "index-pack", "--stdin")
    git = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert git.stdin is not None
    git.stdin.write(b"PACK" + (2).to_bytes(4) + (1).to_bytes(4))
    git.stdin.flush()
    while not (begun := set((mirror / "objects" / "pack").glob("tmp_pack_*")) - before):
        assert git.poll() is None
    (left,) = begun
    return git, left


def _make_old(path: Path) -> None:
    hours_ago = time.time() - 3 * 3600
    os.utime(path, (hours_ago, hours_ago))


def test_what_a_killed_git_had_begun_to_write_is_removed_and_what_a_living_one_writes_stays(
    stage: Scene, repository: Repository
) -> None:
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    mirror = stage.hive.places.mirror("app")
    (killed, left), (living, written) = _begin_pack(mirror), _begin_pack(mirror)
    young = mirror / "objects" / "tmp_obj_young"
    young.touch()
    killed.kill()
    killed.communicate()
    _make_old(left)
    while Path(f"/proc/{living.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        pass  # it writes what it has, and then waits for more
    _make_old(written)
    stage.submit(TaskSpec("B", "touch b", repo="app"), repos=(repository.spec(),))
    try:
        assert stage.finish() is ConvoyState.COMPLETE
        assert [path.exists() for path in (left, written, young)] == [False, True, True]
    finally:
        living.kill()
        living.communicate()
