"""A ledger that must not be used is refused in words, with exit code 4, and not one byte of it is written."""
# ruff: noqa: S608 - statements made of our own numbers, to do damage with

import contextlib
import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hivekeeper.errors import (
    DamagedLedgerError,
    ForeignLedgerError,
    HiveError,
    LedgerRefusedError,
    NewerLedgerError,
    OlderLedgerError,
    UnreadableLedgerError,
)
from hivekeeper.store.ledger import CHECKED_AT_START, create_ledger, open_ledger
from hivekeeper.store.schema import SCHEMA, make_ddl
from hivekeeper.store.sqlite import APPLICATION_ID
from tests.store.ledger_children import submit_whole
from tests.store.ledger_kit import assert_whole, count_descriptors, fingerprint, head_of, new_ledger, opened, seize

CONVOYS = 400  # of three events each, so that the check at the start does not reach the first ones
EVENTS = 1 + 3 * CONVOYS


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed ledger with more events than the start looks at."""
    directory = tmp_path_factory.mktemp("template")
    with new_ledger(directory) as ledger:
        seize(ledger)
        for number in range(CONVOYS):
            submit_whole(ledger, f"convoy-{number:04}")
    assert assert_whole(directory / "ledger.db") == EVENTS
    return directory / "ledger.db"


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(template, tmp_path / "ledger.db"))


def refuse(path: Path, error: type[HiveError] = LedgerRefusedError) -> HiveError:
    """Try to open a ledger, twice, and see that it is refused as it should be and stays as it is."""
    before, descriptors = fingerprint(path), count_descriptors()
    with pytest.raises(error):
        open_ledger(path).close()
    with pytest.raises(error) as caught:
        open_ledger(path).close()
    assert caught.value.exit_code == 4
    assert caught.value.what
    assert caught.value.advice, "a person is told what to do"
    assert fingerprint(path) == before, "it was written to"
    assert count_descriptors() == descriptors, "files were left open"
    return caught.value


def tamper(path: Path, *statements: str) -> None:
    """Change a ledger behind the hive's back, and leave nothing beside it."""
    raw = apsw.Connection(str(path))
    try:
        for statement in statements:
            raw.execute(statement)
    finally:
        raw.close()


def replace_bytes(path: Path, old: bytes, new: bytes) -> None:
    """Change bytes on the disk itself."""
    content = path.read_bytes()
    assert len(old) == len(new)
    assert old in content
    path.write_bytes(content.replace(old, new))


def test_the_ledger_these_tests_damage_is_whole(path: Path) -> None:
    with opened(path) as ledger:
        assert head_of(ledger).seq == EVENTS


@pytest.mark.parametrize(
    "text", ["These are not the bytes you are looking for.\n" * 400, "x", "SQLite format 3\0" + "x" * 9000]
)
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ledger.db"
    path.write_text(text)
    refuse(path, LedgerRefusedError)


def test_a_text_file_is_called_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("Dear diary, " * 100)
    refuse(path, UnreadableLedgerError)


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("application", [0, 0x12345678])
def test_somebody_elses_database_is_refused(tmp_path: Path, mode: str, application: int) -> None:
    path = tmp_path / "ledger.db"
    setup = (f"PRAGMA journal_mode = {mode}", f"PRAGMA application_id = {application}")
    tamper(path, *setup, "CREATE TABLE bookmarks (url)", "INSERT INTO bookmarks VALUES ('about:blank')")
    refuse(path, ForeignLedgerError)


@pytest.mark.parametrize("mode", ["delete", "persist", "wal"])  # `persist` leaves a journal beside the file
def test_making_a_hive_leaves_somebody_elses_database_alone(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "ledger.db"
    tamper(path, f"PRAGMA journal_mode = {mode}", "CREATE TABLE bookmarks (url)", "PRAGMA user_version = 0")
    before = fingerprint(path)
    with pytest.raises(LedgerRefusedError):
        create_ledger(path)
    assert fingerprint(path) == before


def test_making_a_hive_leaves_a_newer_ledger_alone(path: Path) -> None:
    tamper(path, "PRAGMA user_version = 999")
    before = fingerprint(path)
    with contextlib.suppress(LedgerRefusedError):
        create_ledger(path)
    assert fingerprint(path) == before


@pytest.mark.parametrize("version", [SCHEMA + 1, 999])
def test_a_newer_ledger_is_refused(path: Path, version: int) -> None:
    tamper(path, f"PRAGMA user_version = {version}")
    assert str(version) in refuse(path, NewerLedgerError).what


def test_a_ledger_of_before_is_refused_with_how_to_start_again(path: Path) -> None:
    tamper(path, "PRAGMA user_version = 1")
    refused = refuse(path, OlderLedgerError)
    assert "schema 1, now" in refused.what
    assert "hive init" in refused.advice


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.touch()
    assert "hive init" in refuse(path, DamagedLedgerError).advice
    assert path.stat().st_size == 0


def test_a_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.mkdir()
    refuse(path, UnreadableLedgerError)
    assert list(path.iterdir()) == []


def test_a_missing_ledger_is_refused_and_not_made(tmp_path: Path) -> None:
    refuse(tmp_path / "ledger.db", UnreadableLedgerError)
    refuse(tmp_path / "nowhere" / "ledger.db", UnreadableLedgerError)
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_nowhere_is_refused_and_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.symlink_to(tmp_path / "elsewhere.db")
    refuse(path, UnreadableLedgerError)
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.db"]


# A creation interrupted by a kill: SQLite's first page is there and nothing else, or the tables without a head row.
@pytest.mark.parametrize("stage", ["first page", "no head row"])
def test_an_interrupted_creation_is_refused_and_mended_by_making_it_again(tmp_path: Path, stage: str) -> None:
    path = tmp_path / "ledger.db"
    if stage == "first page":
        tamper(path, "PRAGMA journal_mode = wal")
    else:
        create_ledger(path)
        tamper(path, "DELETE FROM head")
    assert path.stat().st_size > 0
    assert "hive init" in refuse(path, DamagedLedgerError).advice
    create_ledger(path)
    with opened(path) as ledger:
        assert head_of(ledger).seq == 0


EDITS = {
    "kind": "UPDATE event SET kind = 'convoy.extended' WHERE seq = 900",
    "subject": "UPDATE event SET subject = 'another' WHERE seq = 900",
    "data": "UPDATE event SET data = replace(data, 'convoy', 'c0nvoy') WHERE seq = 900",
    "who": "UPDATE event SET who = 'eve' WHERE seq = 900",
    "why": "UPDATE event SET why = why || ' ' WHERE seq = 900",
    "occurred_at": "UPDATE event SET occurred_at = recorded_at || '0' WHERE seq = 900",
    "recorded_at": "UPDATE event SET recorded_at = '1999-01-01T00:00:00.000000Z' WHERE seq = 900",
    "epoch": "UPDATE event SET epoch = epoch + 1 WHERE seq = 900",
    "hash": "UPDATE event SET hash = upper(hash) WHERE seq = 900",
    "first of those looked at": f"UPDATE event SET who = 'eve' WHERE seq = {EVENTS - CHECKED_AT_START + 1}",
    "hash before those looked at": f"UPDATE event SET hash = 'x' WHERE seq = {EVENTS - CHECKED_AT_START}",
    "last": f"UPDATE event SET why = 'no' WHERE seq = {EVENTS}",
    "a row moved to the end": "UPDATE event SET seq = 5000 WHERE seq = 900",
    "a row deleted": "DELETE FROM event WHERE seq = 900",
    "the last row deleted": f"DELETE FROM event WHERE seq = {EVENTS}",
    "the row before those looked at deleted": f"DELETE FROM event WHERE seq = {EVENTS - CHECKED_AT_START}",
    "all rows deleted": "DELETE FROM event",
    "a row appended": f"""INSERT INTO event
        SELECT {EVENTS + 1}, kind, subject, data, who, why, occurred_at, recorded_at, epoch, hash
        FROM event WHERE seq = {EVENTS}""",
    "the head's number raised": "UPDATE head SET seq = seq + 1",
    "the head's number lowered": "UPDATE head SET seq = seq - 1",
    "the head's number far away": "UPDATE head SET seq = 1000000",
    "the head's number zero": "UPDATE head SET seq = 0",
    "the head's hash": f"UPDATE head SET hash = '{'0' * 64}'",
    "the head's epoch raised": "UPDATE head SET epoch = epoch + 1",
    "the head's epoch lowered": "UPDATE head SET epoch = epoch - 1",
    "the head deleted": "DELETE FROM head",
    "the log dropped": "DROP TABLE event",
    "the head dropped": "DROP TABLE head",
}


@pytest.mark.parametrize("statement", EDITS.values(), ids=EDITS.keys())
def test_a_ledger_changed_behind_the_hives_back_is_refused(path: Path, statement: str) -> None:
    tamper(path, statement)
    refuse(path, DamagedLedgerError)


def test_a_hive_with_our_number_and_none_of_our_tables_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    tamper(path, f"PRAGMA application_id = {APPLICATION_ID}", "PRAGMA user_version = 1", "CREATE TABLE bookmarks (url)")
    refuse(path)


LATE = b'"convoy":"convoy-0399"'
DAMAGE: dict[str, Callable[[Path], object]] = {
    "a letter of an event": lambda path: replace_bytes(path, LATE, LATE.replace(b"99", b"98")),
    "bytes that are no text": lambda path: replace_bytes(path, LATE, LATE.replace(b"99", b"\xff\xfe")),
    "a page of zeros": lambda path: _overwrite_page_of(path, LATE, bytes(4096)),
    "a page of noise": lambda path: _overwrite_page_of(path, LATE, b"\xa5" * 4096),
    "half the file gone": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 8192 * 4096]),
    "the end gone, in the middle of a page": lambda path: path.write_bytes(path.read_bytes().partition(LATE)[0]),
    "only the first page left": lambda path: path.write_bytes(path.read_bytes()[:4096]),
    "the schema's words": lambda path: replace_bytes(path, b"CREATE TABLE head (", b"CREATE TABLE hxad ("),
}


def _overwrite_page_of(path: Path, mark: bytes, page: bytes) -> None:
    content = bytearray(path.read_bytes())
    start = content.index(mark) // 4096 * 4096
    content[start : start + 4096] = page
    path.write_bytes(content)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_ledger_damaged_on_the_disk_is_refused(path: Path, damage: Callable[[Path], object]) -> None:
    damage(path)
    refuse(path, DamagedLedgerError)


@pytest.mark.parametrize("version", [-1, 0])
def test_a_ledger_that_says_it_has_no_schema_of_ours_is_damaged_and_left_alone(tmp_path: Path, version: int) -> None:
    with new_ledger(tmp_path) as ledger:
        submit_whole(ledger, "convoy")
    path = tmp_path / "ledger.db"
    tamper(path, f"PRAGMA user_version = {version}")
    refuse(path, DamagedLedgerError)


def test_whatever_bytes_flip_the_ledger_opens_whole_or_is_refused_in_words(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        for number in range(40):
            submit_whole(ledger, f"convoy-{number}")
    path, chance = tmp_path / "ledger.db", random.Random(4)  # noqa: S311 - places, not secrets
    good, outcomes, wrong = path.read_bytes(), {"opened": 0, "refused": 0}, []
    used = [at for at in range(len(good)) if good[at]]  # free space may say what it likes
    for number in range(400):
        content = bytearray(good)
        at = chance.choice(used if number % 4 else range(100))
        content[at] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        before = fingerprint(path)
        try:
            open_ledger(path).close()
            outcomes["opened"] += 1
        except LedgerRefusedError:
            outcomes["refused"] += 1
            assert fingerprint(path) == before, f"byte {at}: refused and written to"
        except Exception as error:  # noqa: BLE001 - all of them are told at the end
            wrong.append(f"byte {at}: {type(error).__name__}: {error}")
    assert wrong == [], f"{len(wrong)} of 400 flips end in something else: {wrong[:5]}"
    assert min(outcomes.values()) > 20, outcomes


def crash_with_a_log(path: Path, statement: str) -> None:
    """Leave a ledger as a kill leaves it: changes in SQLite's log beside it that were not written back."""
    aside = path.with_name("aside")
    aside.mkdir()
    raw = apsw.Connection(str(path))
    raw.execute("PRAGMA wal_autocheckpoint = 0")
    raw.execute(statement)
    for name in (path.name, f"{path.name}-wal"):
        shutil.copy(path.with_name(name), aside / name)
    raw.close()
    for name in (path.name, f"{path.name}-wal"):
        shutil.copy(aside / name, path.with_name(name))
    assert path.with_name(f"{path.name}-wal").stat().st_size > 0


@pytest.mark.parametrize(
    ("statement", "error"),
    [("PRAGMA user_version = 999", NewerLedgerError), ("DELETE FROM event WHERE seq = 900", DamagedLedgerError)],
)
def test_a_refused_ledger_is_not_written_to_even_when_a_crash_left_a_log_beside_it(
    path: Path, statement: str, error: type[HiveError]
) -> None:
    crash_with_a_log(path, statement)
    refuse(path, error)


@pytest.mark.parametrize("statement", ["PRAGMA user_version = 999", "DELETE FROM event WHERE seq = 900"])
def test_making_a_hive_where_one_is_refused_writes_nothing_even_when_a_crash_left_a_log_beside_it(
    path: Path, statement: str
) -> None:
    crash_with_a_log(path, statement)
    before = fingerprint(path)
    with contextlib.suppress(LedgerRefusedError):
        create_ledger(path)
    assert fingerprint(path) == before


def test_a_stray_journal_beside_a_whole_ledger_costs_at_most_what_the_advice_says(path: Path) -> None:
    """Whoever is told to type `hive init` is helped by it."""
    path.with_name("ledger.db-journal").touch()
    try:
        open_ledger(path).close()
    except LedgerRefusedError as error:
        if "hive init" in error.advice:
            create_ledger(path)
    with opened(path) as ledger:
        assert head_of(ledger).seq == EVENTS


def test_a_crash_that_left_a_log_beside_a_whole_ledger_costs_nothing(path: Path) -> None:
    crash_with_a_log(path, "INSERT INTO heartbeat VALUES (1, 1, 'now', 'boot', 5, '{}')")
    with opened(path) as ledger, ledger.read() as connection:
        assert connection.rows("SELECT monotonic_ms FROM heartbeat") == [(5,)]
    assert assert_whole(path) == EVENTS


def test_opening_and_making_ledgers_leaves_no_file_open(tmp_path: Path, path: Path) -> None:
    open_ledger(path).close()
    before = count_descriptors()
    for _ in range(3):
        open_ledger(path).close()
    assert count_descriptors() == before, "opening"
    for number in range(3):
        create_ledger(tmp_path / f"new-{number}.db")
        create_ledger(tmp_path / f"new-{number}.db")
    assert count_descriptors() == before, "making"


def test_the_number_of_the_schema_changes_with_its_statements() -> None:
    """A hive made by another version must be refused as such, not fail at a column that it lacks."""
    found = hashlib.sha256(make_ddl().encode()).hexdigest()[:12]
    assert (SCHEMA, found) == (3, "6277cfb0101e"), "raise SCHEMA, then put the new pair here"
