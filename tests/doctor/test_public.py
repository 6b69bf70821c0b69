"""What workers can read is whole and up to date, and nothing in it that has not landed; the advice works as typed."""

import shutil
import subprocess

import pytest

from hivekeeper.doctor.findings import Check, Finding, Level
from hivekeeper.git.mirror import find_damage
from tests.doctor.conftest import Patient


def _only(patient: Patient, level: Level) -> Finding:
    (found,) = patient.find_wrong()
    assert (found.check, found.level, found.fix) == (Check.PUBLIC, level, None)
    return found


def _type(command: str) -> None:
    subprocess.run(("sh", "-c", command), check=True, capture_output=True)


def test_a_public_repository_that_is_gone_is_one_finding_though_its_mirror_borrows_from_it(patient: Patient) -> None:
    shutil.rmtree(patient.places.public("app"))
    found = _only(patient, Level.FAIL)
    assert "no worker can begin on app" in found.what
    _type(found.advice.partition("type: ")[2])
    assert patient.find_wrong() == []


def test_a_damaged_public_repository_is_whole_after_what_is_to_be_typed(patient: Patient) -> None:
    landed = patient.git("rev-parse", "refs/heads/main")
    (patient.places.public("app") / "objects" / landed[:2] / landed[2:]).unlink()
    found = _only(patient, Level.FAIL)  # the mirror has what landed itself
    assert "is damaged" in found.what
    _type(found.advice.partition("type: ")[2])
    assert patient.find_wrong() == []


def test_a_public_repository_that_is_behind_is_found_and_brought_there_by_what_is_to_be_typed(patient: Patient) -> None:
    patient.git("update-ref", "refs/heads/main", patient.commit())
    found = _only(patient, Level.WARN)
    assert "is behind what has landed" in found.what
    _type(found.advice.partition("type: ")[2])
    assert patient.find_wrong() == []


def test_a_public_repository_without_its_branch_is_behind(patient: Patient) -> None:
    patient.git("update-ref", "-d", "refs/heads/main", public=True)
    assert "is behind what has landed: it is at None" in _only(patient, Level.WARN).what


@pytest.mark.parametrize("ref", ["refs/heads/work", "refs/hive/attempts/work/B/1", "refs/tags/v1"])
def test_a_ref_that_has_not_landed_is_found_and_gone_after_what_is_to_be_typed(patient: Patient, ref: str) -> None:
    patient.git("fetch", str(patient.places.mirror("app")), f"refs/hive/attempts/work/B/1:{ref}", public=True)
    found = _only(patient, Level.WARN)
    assert f"{ref} of " in found.what
    assert "every worker can read it" in found.what
    _type(found.advice.removeprefix("Type: ").partition(";")[0])
    assert "1 commit of " in _only(patient, Level.WARN).what


def test_a_ref_to_something_that_is_no_commit_is_found(patient: Patient) -> None:
    blob = patient.git("rev-parse", "refs/heads/main:README")
    patient.git("update-ref", "refs/hive/rest/work/B/1", blob, public=True)
    assert "refs/hive/rest/work/B/1" in _only(patient, Level.WARN).what


def test_a_ref_to_what_has_landed_tells_workers_nothing_new(patient: Patient) -> None:
    patient.git("update-ref", "refs/heads/first", "refs/heads/main~1", public=True)
    assert patient.find_wrong() == []


def test_a_commit_no_ref_holds_is_found_and_gone_after_what_is_to_be_typed_while_the_mirror_stays_whole(
    patient: Patient,
) -> None:
    borrowed, lost = patient.commit(public=True), patient.commit(parent="refs/heads/main~1", public=True)
    patient.git("update-ref", "refs/hive/saves/work/B/1/000001", borrowed)
    found = _only(patient, Level.WARN)
    assert found.what.startswith("2 commits of ")
    assert all(commit[:12] in found.what for commit in (borrowed, lost))
    _type(found.advice.partition("while no keeper runs: ")[2])
    assert patient.find_wrong() == []
    assert find_damage(patient.places.mirror("app")) is None
    assert patient.git("cat-file", "-t", borrowed) == "commit"


def test_the_persons_branch_that_has_gone_another_way_is_no_finding(patient: Patient) -> None:
    commit = patient.commit(parent="refs/heads/main~1", public=True)
    patient.git("update-ref", "refs/hive/source/main", commit)
    assert patient.find_wrong() == []


@pytest.mark.parametrize("kind", ["fetch", "land"])
def test_while_a_run_moves_branches_nothing_is_said_of_what_it_is_about_to_do(patient: Patient, kind: str) -> None:
    patient.git("update-ref", "refs/heads/main", patient.commit())
    patient.commit(parent="refs/heads/main~1", public=True)
    assert Check.PUBLIC in {finding.check for finding in patient.find_wrong()}
    patient.sql(
        "INSERT INTO run (id, kind, repo, state, reason, argv, directory, environment, limits, boot_id, intended_at) "
        "VALUES ('_repos/app.9', ?, 'app', 'INTENDED', '', '[]', '', '{}', '{}', 'a boot', '')",
        kind,
    )
    assert Check.PUBLIC not in {finding.check for finding in patient.find_wrong()}
