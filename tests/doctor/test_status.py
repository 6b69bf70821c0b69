"""What the status says needs a person: work that was not pushed, sandboxes that stay, isolation that is too weak."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.cli import render
from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.hive import open_hive
from hivekeeper.keeper.programs import find_hive_isolation
from hivekeeper.places import Places
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.sandbox.isolation import Level
from hivekeeper.store.sqlite import reading_only
from hivekeeper.views.status import find_tried_level, show_status
from tests.doctor.conftest import Patient
from tests.scenarios.conftest import Scene
from tests.stage import Repository


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Scene]:
    stage = Scene(tmp_path / "hive")
    yield stage
    stage.close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "app")


def _show(root: Path, isolation: Level | None = None, require: str | None = None) -> dict[str, Any]:
    with reading_only(root / ".hive" / "ledger.db") as connection:
        return show_status(connection, KeeperState.NONE, isolation=isolation, require=require, places=Places(root))


def _needs(root: Path, word: str) -> list[dict[str, str]]:
    return [need for need in _show(root)["needs_me"] if word in need["what"]]


def test_what_was_not_pushed_is_told_once_with_where_it_is_and_a_command_that_pushes_it(
    stage: Scene, repository: Repository, tmp_path: Path
) -> None:
    backup = tmp_path / "back up.git"
    tasks = [TaskSpec(name, f"echo {name} > {name}", repo="app") for name in ("A", "B")]
    stage.submit(*tasks, repos=(replace(repository.spec(), backup=str(backup)),))
    stage.finish()
    (need,) = _needs(stage.root, "was not pushed")
    assert need["what"].startswith(f"The work of 2 attempts was not pushed to {backup}: exit code ")
    assert f"It is saved in {stage.hive.places.mirror('app')}: work/A (attempt 1), work/B (attempt 1)." in need["what"]
    subprocess.run(("git", "init", "--quiet", "--bare", str(backup)), check=True)
    subprocess.run(("sh", "-c", need["type"]), check=True, capture_output=True)
    branches = subprocess.run(("git", "-C", str(backup), "branch"), check=True, capture_output=True, text=True).stdout
    assert branches.split() == ["hive/attempts/work/A/1", "hive/attempts/work/B/1"]


def test_one_attempt_that_was_not_pushed_is_one(stage: Scene, repository: Repository, tmp_path: Path) -> None:
    repos = (replace(repository.spec(), backup=str(tmp_path / "backup.git")),)
    stage.submit(TaskSpec("A", "echo a > a", repo="app"), repos=repos)
    stage.finish()
    (need,) = _needs(stage.root, "was not pushed")
    assert need["what"].startswith("The work of 1 attempt was not pushed to ")


def test_what_was_pushed_needs_nobody(stage: Scene, repository: Repository, tmp_path: Path) -> None:
    backup = tmp_path / "backup.git"
    subprocess.run(("git", "init", "--quiet", "--bare", str(backup)), check=True)
    stage.submit(TaskSpec("A", "echo a > a", repo="app"), repos=(replace(repository.spec(), backup=str(backup)),))
    stage.finish()
    assert _show(stage.root)["needs_me"] == []


def test_a_sandbox_that_could_not_be_removed_is_told_with_how_to_remove_it(patient: Patient) -> None:
    patient.sql("UPDATE attempt SET sandbox = 'PRESENT' WHERE task = 'work/B'")
    assert _needs(patient.root, "sandbox") == []
    patient.sql("UPDATE run SET exit_status = 1, reason = 'rm: busy' WHERE task = 'work/B' AND kind = 'remove'")
    (need,) = _needs(patient.root, "sandbox")
    assert need["what"] == (
        "The work of attempt 1 at work/B is saved, but its sandbox could not be removed: "
        "exit code 1; last output: rm: busy."
    )
    assert need["type"].startswith("sudo rm -rf /")
    assert need["type"].endswith("/.hive/sandboxes/work/B.1 " + need["type"].split()[-1])


@pytest.mark.parametrize(("status", "stays"), [(1, True), (3, False)])
def test_a_snapshot_that_failed_is_told_and_one_that_missed_a_promise_has_kept_what_there_is(
    patient: Patient, status: int, *, stays: bool
) -> None:
    patient.sql("UPDATE attempt SET sandbox = 'PRESENT' WHERE task = 'work/B'")
    patient.sql("DELETE FROM run WHERE task = 'work/B' AND kind = 'remove'")
    patient.sql("UPDATE run SET exit_status = ? WHERE task = 'work/B' AND kind = 'snapshot'", status)
    assert bool(_needs(patient.root, "could not be saved, so its sandbox stays")) == stays


def test_the_level_is_what_the_keeper_found_and_is_never_tried(patient: Patient) -> None:
    hive = open_hive(patient.root)
    found = find_hive_isolation(hive, read_boot_id()).level
    hive.close()
    if found is not Level.LIMITS:
        assert find_tried_level(patient.places.isolation, read_boot_id(), None) is found
    assert find_tried_level(patient.places.isolation, "another boot", None) is None
    patient.places.isolation.unlink()
    assert find_tried_level(patient.places.isolation, read_boot_id(), None) is None
    assert not patient.places.isolation.exists()


@pytest.mark.parametrize(
    "torn", ["", "[]", "{}", '{"key": [1], "held": ["namespaces"]}', '{"key": [1, "b"], "held": 1}']
)
def test_a_torn_or_foreign_cache_says_nothing(tmp_path: Path, torn: str) -> None:
    (tmp_path / "isolation.json").write_text(torn)
    assert find_tried_level(tmp_path / "isolation.json", "b", None) is None


def test_of_several_levels_that_held_the_strongest_is_told_and_none_above_the_wanted_one(tmp_path: Path) -> None:
    held = ["landlock", "namespaces", "limits", "unheard of"]
    (tmp_path / "isolation.json").write_text(json.dumps({"key": [1, "b", 0], "held": held}))
    told = [find_tried_level(tmp_path / "isolation.json", "b", wanted) for wanted in (None, *Level)]
    assert told == [Level.NAMESPACES, *Level]


@pytest.mark.parametrize(("isolation", "require"), [(Level.LANDLOCK, "namespaces"), (Level.LIMITS, "landlock")])
def test_isolation_weaker_than_required_is_the_first_thing_that_needs_a_person(
    patient: Patient, capsys: pytest.CaptureFixture[str], isolation: Level, require: str
) -> None:
    view = _show(patient.root, isolation=isolation, require=require)
    assert view["needs_me"][0]["what"].startswith(f"hive.toml requires {require}, and this machine isolates workers by")
    render.print_status(view)
    said = capsys.readouterr().out
    assert said.index(f"requires {require}") < said.index("work/B failed")
    assert f"Workers: {isolation}\n" in said


@pytest.mark.parametrize(
    ("isolation", "require"), [(Level.NAMESPACES, "landlock"), (Level.LIMITS, None), (None, "landlock")]
)
def test_isolation_as_strong_as_required_or_not_known_needs_nobody(
    patient: Patient, isolation: Level | None, require: str | None
) -> None:
    view = _show(patient.root, isolation=isolation, require=require)
    assert not [need for need in view["needs_me"] if "requires" in need["what"]]
    assert view["isolation"] == isolation
