"""The index of what agents did: what is wrong with it is found, and `--fix` collects it again."""

import pytest

from hivekeeper.doctor.examine import examine, repair
from hivekeeper.doctor.findings import Check
from hivekeeper.domain.seance import Answer
from hivekeeper.seance.asking import ask, find_subject
from hivekeeper.store.excerpts import ExcerptIndex
from hivekeeper.store.sqlite import reading_only
from tests.doctor.conftest import Patient, list_wrong
from tests.scenarios.conftest import ShiftedClock


def hold(patient: Patient) -> Answer:
    with reading_only(patient.places.ledger) as connection:
        _, attempts = find_subject(connection, "B")
    with ExcerptIndex(patient.places.seance, read_only=True) as index:
        return ask(index, attempts)


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "is missing"), (b"nonsense" * 2000, "is damaged"), (b"SQLite format 3\0" + b"x" * 9000, "is damaged")],
)
def test_an_index_that_is_missing_or_damaged_is_collected_again(
    patient: Patient, content: bytes | None, why: str
) -> None:
    whole = hold(patient)
    assert not whole.is_empty
    patient.places.seance.unlink()
    if content is not None:
        patient.places.seance.write_bytes(content)
    clock = ShiftedClock()
    clock.advance(61)
    (found,) = [each for each in list_wrong(examine(patient.root, clock=clock)) if each.check is Check.SEANCE]
    assert why in found.what
    assert repair(patient.root, clock=clock).done == (
        f"Collected what agents did in 1 attempt in {patient.places.seance}.",
    )
    assert [each for each in list_wrong(examine(patient.root, clock=clock)) if each.check is Check.SEANCE] == []
    assert hold(patient) == whole


def test_switched_off_no_index_is_missed(patient: Patient) -> None:
    patient.places.seance.unlink()
    with (patient.root / "hive.toml").open("a") as settings:
        settings.write("[patterns]\nidentity = false\n")
    clock = ShiftedClock()
    clock.advance(61)
    found = [each.what for each in examine(patient.root, clock=clock).findings if each.check is Check.SEANCE]
    assert found == ["nothing is collected ([patterns] identity in hive.toml)"]
