"""Killed just before a call that touches the disk: a ledger is made whole or made again, a write is whole."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hivekeeper.errors import HiveError
from hivekeeper.store import queries
from hivekeeper.store.ledger import create_ledger
from tests.budget import sample
from tests.needs import need_strace
from tests.store.ledger_children import submit_whole
from tests.store.ledger_kit import assert_whole, head_of, new_ledger, opened

ROOT = Path(__file__).parents[2]
# Only SQLite makes these calls; Python's own start makes none of them. `when=k` counts each name for itself.
CALLS = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink")
CREATE = "from hivekeeper.store.ledger import *; from pathlib import Path; import sys; create_ledger(Path(sys.argv[1]))"
WRITE = """
import os, sys
from pathlib import Path
from hivekeeper.store.ledger import open_ledger
from tests.store.ledger_children import submit_whole
ledger = open_ledger(Path(sys.argv[1]))
for name in ("one", "two"):
    submit_whole(ledger, name)
    os.write(1, f"{name}\\n".encode())
ledger.close()
"""


@pytest.fixture(autouse=True)
def _strace() -> None:
    need_strace()


def trace(path: Path, script: str, *inject: str) -> tuple[int, list[str], Counter[str]]:
    """Run a script under strace; tell how it ended, what it said, and how often it made each call."""
    log = path.with_suffix(".strace")
    argv = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={','.join(CALLS)}", *inject]
    argv += [sys.executable, "-c", script, str(path)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60, cwd=ROOT)
    lines = log.read_text().splitlines()
    return done.returncode, done.stdout.split(), Counter(line.split()[1].partition("(")[0] for line in lines)


def list_points(path: Path, script: str) -> list[tuple[str, int]]:
    """List moments just before a call, after a run that nobody disturbs, as many as the seed chooses."""
    code, _, counts = trace(path, script)
    assert code == 0
    points = [
        (call, number)
        for call in CALLS
        for number in range(1, counts[call] + 1)
        if call != "pwrite64" or number <= 4 or number % 30 == 0 or number == counts[call]
    ]
    assert len(points) >= 10, points
    return sample(points, 12)


def die_at(path: Path, script: str, call: str, number: int) -> list[str]:
    """Run a script that is killed just before its n-th call of a name; tell what it had said by then."""
    code, said, _ = trace(path, script, "-e", f"inject={call}:signal=KILL:when={number}")
    assert code == -9, f"the fault did not fire at {call} {number}"
    return said


def place(directory: Path, name: str) -> Path:
    made = directory / name
    made.mkdir()
    return made / "ledger.db"


def test_a_creation_killed_anywhere_is_refused_with_the_right_advice_and_mended_by_the_next(tmp_path: Path) -> None:
    wrong = []
    for call, number in list_points(place(tmp_path, "reference"), CREATE):
        path = place(tmp_path, f"{call}-{number}")
        die_at(path, CREATE, call, number)
        try:
            with opened(path) as ledger:
                assert head_of(ledger).seq == 0
        except HiveError as error:
            if "hive init" not in error.advice:
                wrong.append(f"killed before {call} {number}: {type(error).__name__}: {error}")
        create_ledger(path)
        with opened(path) as ledger:
            submit_whole(ledger, "first")
        assert assert_whole(path) == 3, f"killed before {call} {number}"
    assert wrong == []


def test_a_writer_killed_anywhere_leaves_whole_writes_and_every_one_it_told_of(tmp_path: Path) -> None:
    reference = place(tmp_path, "reference")
    with new_ledger(reference.parent) as ledger:
        submit_whole(ledger, "before")
    for call, number in list_points(reference, WRITE):
        path = place(tmp_path, f"{call}-{number}")
        with new_ledger(path.parent) as ledger:
            submit_whole(ledger, "before")
        said = die_at(path, WRITE, call, number)
        with opened(path) as ledger, ledger.read() as connection:
            names = [convoy.name for convoy in queries.list_convoys(connection)]
            assert [len(queries.list_tasks_of_convoy(connection, name)) for name in names] == [2] * len(names)
        assert names == ["before", "one", "two"][: len(names)]
        assert len(names) - 1 in (len(said), len(said) + 1), "a write it told of is lost"
        assert assert_whole(path) == 3 * len(names), f"killed before {call} {number}"
