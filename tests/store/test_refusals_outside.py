"""What the machine refuses: permissions, a full disk, a file that may not grow. Nothing half written, and then on."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.errors import HiveError, UnavailableError
from hivekeeper.store import queries
from hivekeeper.store.ledger import Ledger, create_ledger, open_ledger
from tests.needs import NOBODY, need_root, small_disk
from tests.store.ledger_children import child, drain, fill_a_limited_file, submit_big, write_as_nobody
from tests.store.ledger_kit import assert_whole, dump, fingerprint, head_of, new_ledger, opened, rebuild


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory anybody may reach; pytest's own are closed to other users."""
    directory = Path(tempfile.mkdtemp(prefix="hive-test-"))
    directory.chmod(0o755)
    yield directory
    directory.chmod(0o700)
    shutil.rmtree(directory)


def write_as_another(path: Path) -> tuple[str, int]:
    """Open and write as a user without rights; tell the error's name and exit code."""
    with child(write_as_nobody, path) as (_, pipe):
        name, code = pipe.recv()
    return str(name), int(code)


def give_away(directory: Path) -> None:
    for file in directory.iterdir():
        os.chown(file, NOBODY, NOBODY)


@pytest.fixture
def theirs(public: Path) -> Path:
    """A ledger that belongs to the user without rights, in a directory that does as well."""
    with new_ledger(public) as ledger:
        submit_big(ledger, "first")
    if os.geteuid() == 0:
        os.chown(public, NOBODY, NOBODY)
        give_away(public)
    return public / "ledger.db"


def test_the_owner_may_write(theirs: Path) -> None:
    assert write_as_another(theirs) == ("written", 0)


def test_a_file_without_permission_is_refused_and_left_alone(theirs: Path) -> None:
    before = fingerprint(theirs)
    theirs.chmod(0o000)
    assert write_as_another(theirs) == ("UnreadableLedgerError", 4)
    theirs.chmod(0o600)
    assert fingerprint(theirs) == before


def test_a_directory_without_permission_is_told_in_words(theirs: Path) -> None:
    before = fingerprint(theirs)
    theirs.parent.chmod(0o000)
    name, code = write_as_another(theirs)
    theirs.parent.chmod(0o755)
    assert code in (4, 5), f"a raw {name} reaches the person"
    assert fingerprint(theirs) == before


@pytest.mark.parametrize("own_files", [True, False], ids=["own files", "another's files"])
def test_a_read_only_directory_is_told_in_words_and_left_alone(theirs: Path, *, own_files: bool) -> None:
    if os.geteuid() == 0:
        os.chown(theirs.parent, 0, 0)
        for file in theirs.parent.iterdir():
            os.chown(file, *((NOBODY, NOBODY) if own_files else (0, 0)))
    theirs.parent.chmod(0o555)
    before, files = fingerprint(theirs), sorted(theirs.parent.iterdir())
    name, code = write_as_another(theirs)
    assert code in (4, 5), f"a raw {name} reaches the person"
    assert fingerprint(theirs) == before
    assert sorted(theirs.parent.iterdir()) == files


def test_lock_files_of_another_user_are_told_in_words(theirs: Path) -> None:
    need_root("there has to be a second user")
    for name in ("ledger.lock", "ledger.gate"):
        os.chown(theirs.with_name(name), 0, 0)
    before = fingerprint(theirs)
    name, code = write_as_another(theirs)
    assert code in (4, 5), f"a raw {name} reaches the person"
    assert fingerprint(theirs) == before


def fill_up(ballast: Path) -> None:
    """Take what is left of a disk, to the last page."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def fill(ledger: Ledger, prefix: str, size: int = 20_000) -> tuple[int, HiveError]:
    """Write until the disk says no; tell how many writes it took and what was said."""
    for number in range(10_000):
        try:
            submit_big(ledger, f"{prefix}-{number}", size)
        except HiveError as error:
            return number, error
    pytest.fail("the disk is not as small as it should be")


def test_a_full_disk_is_told_and_nothing_is_half_written_and_it_goes_on_when_there_is_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=4m") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(1_000_000))
        path = disk / "ledger.db"
        with new_ledger(disk) as ledger:
            written, error = fill(ledger, "big")
            assert isinstance(error, UnavailableError)
            assert error.exit_code == 5
            small, error = fill(ledger, "small", 10)  # the last few pages, too
            assert isinstance(error, UnavailableError)
            full = dump(ledger), head_of(ledger)
            assert full[1].seq == 2 * (written + small)
            for _ in range(3):
                with pytest.raises(UnavailableError):
                    submit_big(ledger, "still full")
            assert (dump(ledger), head_of(ledger)) == full, "what is there can still be read"
            ballast.unlink()
            submit_big(ledger, "again")
            assert head_of(ledger).seq == full[1].seq + 2
            assert rebuild(ledger) == dump(ledger)
        assert assert_whole(path) == 2 * (written + small) + 2


def test_a_ledger_opened_on_a_full_disk_is_unavailable_and_unharmed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=2m") as disk:
        with new_ledger(disk) as ledger:
            submit_big(ledger, "first")
        before = fingerprint(disk / "ledger.db")
        ballast = disk / "ballast"
        fill_up(ballast)
        with pytest.raises(UnavailableError):
            open_ledger(disk / "ledger.db").close()
        assert fingerprint(disk / "ledger.db") == before
        ballast.unlink()
        with opened(disk / "ledger.db") as ledger:
            submit_big(ledger, "second")


def test_a_ledger_made_on_a_full_disk_is_made_whole_once_there_is_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1m") as disk:
        ballast, outcomes = disk / "ballast", []
        for free in range(0, 900_000, 75_000):
            for file in disk.iterdir():
                file.unlink()
            ballast.write_bytes(bytes(1_048_576 - 4096 - free))
            try:
                create_ledger(disk / "ledger.db")
                outcomes.append("made")
            except UnavailableError:
                outcomes.append("full")
                ballast.unlink()
                create_ledger(disk / "ledger.db")
            ballast.unlink(missing_ok=True)
            with opened(disk / "ledger.db") as ledger:
                assert head_of(ledger).seq == 0
        assert set(outcomes) == {"made", "full"}, outcomes


@pytest.mark.parametrize("limit", [300_000, 1_000_000])
def test_a_file_that_may_not_grow_is_like_a_full_disk(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "ledger.db"
    with new_ledger(tmp_path):
        pass
    with child(fill_a_limited_file, path, limit) as (process, pipe):
        told = drain(pipe)
        process.join()
    *writes, refusal, again = told
    assert refusal == ("UnavailableError", 5)
    assert writes
    assert all(what == "written" for what, _ in writes)
    assert again == ("again", writes[-1][1] + 2)
    assert assert_whole(path) == again[1]
    with opened(path) as ledger, ledger.read() as connection:
        assert len(queries.list_convoys(connection)) == len(writes) + 1
