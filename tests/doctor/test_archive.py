"""The archive: what is wrong with it is found, and `--fix` writes it again."""

import shutil
from pathlib import Path

import pytest

from hivekeeper.commands.plans import add_task
from hivekeeper.doctor.examine import examine, repair
from hivekeeper.doctor.findings import Check, Finding
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.store.ledger import open_ledger
from tests.archives import get_tip, list_archive_problems
from tests.doctor.conftest import Patient, list_wrong
from tests.git import git
from tests.scenarios.conftest import ShiftedClock
from tests.stage import ME


@pytest.fixture
def archived(patient: Patient) -> Patient:
    """A hive with an archive of everything it has done."""
    with (patient.root / "hive.toml").open("a") as settings:
        settings.write("[patterns]\nrepository = true\n")
    patient.keep_until((patient.places.archive / "log.jsonl").exists)
    return patient


def _find(patient: Patient) -> Finding:
    (found,) = patient.find_wrong()
    assert found.check is Check.ARCHIVE
    return found


def _repairs(patient: Patient, why: str) -> None:
    """It is found, and repaired once."""
    found = _find(patient)
    assert why in found.what
    assert found.fix is not None
    report = patient.repair()
    assert report.done == (f"Wrote every file of {patient.places.archive} again.",)
    assert list_wrong(report) == []
    assert patient.repair().done == ()
    ledger = open_ledger(patient.places.ledger)
    assert list_archive_problems(ledger, patient.places) == []
    ledger.close()


def test_an_archive_that_is_up_to_date_is_well_long_after_its_keeper_has_stopped(archived: Patient) -> None:
    clock = ShiftedClock()
    clock.advance(86_400)
    assert [
        found.what for found in list_wrong(examine(archived.root, clock=clock)) if found.check is Check.ARCHIVE
    ] == []
    assert archived.find_wrong() == []


def test_an_archive_that_is_missing_is_written(archived: Patient) -> None:
    shutil.rmtree(archived.places.archive)
    _repairs_later(archived, "is missing")


def test_an_archive_that_is_behind_is_brought_up_to_date(archived: Patient) -> None:
    ledger = open_ledger(archived.places.ledger)
    with ledger.write(ME) as tx:
        add_task(tx, "more", TaskSpec("x", "true"))
    ledger.close()
    assert archived.find_wrong() == []
    _repairs_later(archived, "goes up to event")


def _repairs_later(patient: Patient, why: str) -> None:
    """It is found once the keeper has had a minute for it."""
    clock = ShiftedClock()
    clock.advance(61)
    found = [each for each in list_wrong(examine(patient.root, clock=clock)) if each.check is Check.ARCHIVE]
    assert [why in each.what and each.fix is not None for each in found] == [True]
    done = repair(patient.root, clock=clock).done
    assert done == (f"Wrote every file of {patient.places.archive} again.",)
    assert [each for each in list_wrong(examine(patient.root, clock=clock)) if each.check is Check.ARCHIVE] == []


def test_an_archive_with_another_word_in_a_file_is_written_again_on_top(archived: Patient) -> None:
    """The commit looks like one of ours."""
    archive = archived.places.archive
    _spoil(archive / "log.jsonl")
    git(archive, "commit", "--quiet", "--all", "--message", git(archive, "log", "-1", "--format=%B"))
    theirs = git(archive, "rev-parse", "HEAD")
    _repairs(archived, "differs from the ledger at event")
    git(archive, "merge-base", "--is-ancestor", theirs, "main")


def test_an_archive_with_a_commit_of_somebody_else_is_written_again_on_top(archived: Patient) -> None:
    git(archived.places.archive, "commit", "--quiet", "--allow-empty", "--message", "mine")
    _repairs(archived, "has a last commit that is not of this ledger")


def test_a_file_of_an_archive_that_was_changed_is_laid_out_again(archived: Patient) -> None:
    _spoil(archived.places.archive / "log.jsonl")
    _repairs(archived, "log.jsonl")


def test_a_damaged_archive_is_made_anew(archived: Patient) -> None:
    tree = get_tip(archived.places).tree
    (archived.places.archive / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    _repairs(archived, "is damaged")


def test_a_ledger_that_cannot_be_trusted_is_not_compared_with_its_archive(archived: Patient) -> None:
    archived.sql("UPDATE event SET kind = 'bee.flown' WHERE seq = 4")
    assert archived.exit_code() == 4
    assert Check.ARCHIVE not in {finding.check for finding in archived.examine().findings}


def test_without_the_setting_nobody_misses_an_archive(patient: Patient) -> None:
    (found,) = (each for each in patient.examine().findings if each.check is Check.ARCHIVE)
    assert (found.level, found.what) == ("OK", "none is kept ([patterns] repository in hive.toml)")


def _spoil(path: Path) -> None:
    path.write_text(path.read_text().replace("work", "w0rk", 1))
