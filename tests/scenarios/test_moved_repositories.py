"""One story: a repository or its branch is moved by a person; nothing is lost, and the doctor says what is wrong."""

import shutil
from dataclasses import replace
from pathlib import Path

from hivekeeper.doctor.examine import examine
from hivekeeper.doctor.findings import Check, Level
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState
from hivekeeper.domain.waits import has_passed, is_waiting
from tests.e2e.conftest import Shell
from tests.scenarios.conftest import Scene
from tests.stage import Repository


def _wrong(stage: Scene, check: Check) -> list[str]:
    found = [each for each in examine(stage.root, clock=stage.clock).findings if each.check is check]
    return [f"{each.what} {each.advice}" for each in found if each.level is not Level.OK]


def test_a_repository_that_moved_is_found_and_one_command_says_where_it_is_now(
    stage: Scene, repository: Repository, tmp_path: Path
) -> None:
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert _wrong(stage, Check.REPOS) == []
    repository.path = Path(shutil.move(repository.path, tmp_path / "it's elsewhere"))
    (found,) = _wrong(stage, Check.REPOS)
    assert found.endswith("hive repo set app --path NEW")
    shell = Shell(stage.root)
    other = Repository(tmp_path / "other")
    other.git("commit", "--quiet", "--amend", "-m", "another beginning")
    assert "is another repository" in shell.hive("repo", "set", "app", "--path", str(other.path), code=2)
    assert "there is no directory" in shell.hive("repo", "set", "app", "--path", "nowhere", code=2)
    assert "is now fetched from" in shell.hive("repo", "set", "app", "--path", str(repository.path))
    assert "already" in shell.hive("repo", "set", "app", "--path", str(repository.path))
    assert _wrong(stage, Check.REPOS) == []
    stage.submit(TaskSpec("B", "touch b", repo="app"))
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.landed() == ["A", "B"]


def test_a_wait_that_is_longer_than_its_rule_allows_is_found(stage: Scene, repository: Repository) -> None:
    (repository.path / "README").write_text("my own words\n")
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(replace(repository.spec(), publish="checkout"),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert _wrong(stage, Check.WAITS) == []
    stage.clock.advance(-10 * 365 * 86_400.0)
    (found,) = _wrong(stage, Check.WAITS)
    assert "Publishing app waits until" in found


def test_what_landed_before_the_person_moved_their_branch_is_not_lost(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(replace(repository.spec(), publish="checkout"),))
    assert stage.finish() is ConvoyState.COMPLETE
    first = repository.git("rev-list", "--max-parents=0", "HEAD")
    repository.git("reset", "--quiet", "--hard", first)
    repository.commit({"mine": "m\n"}, "mine, and not what landed")
    stage.submit(TaskSpec("B", "touch b", repo="app"), repos=(replace(repository.spec(), publish="checkout"),))
    stage.finish()
    assert _wrong(stage, Check.MIRRORS) == []


def test_waits_survive_a_clock_that_jumps_forward_and_back() -> None:
    assert is_waiting("2026-05", "2026-04", "2026-06")
    assert not is_waiting("2026-06", "2026-04", "2026-06")
    assert not is_waiting("2036-01", "2026-04", "2026-06")  # forward: over, early
    assert not is_waiting("2026-05", "2036-04", "2036-06")  # noted by a clock that was ahead
    assert is_waiting("2036-01", "2026-04", None)  # for a person
    assert has_passed(100.0, 0.0, 60.0)
    assert not has_passed(100.0, 90.0, 60.0)
    assert not has_passed(100.0, 102.0, 60.0)  # corrected by seconds
    assert has_passed(100.0, 1e9, 60.0)  # noted by a clock that was ahead
