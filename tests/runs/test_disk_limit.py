"""The limit on what a run's own directory takes of the disk: many small files, one large one, and what does not count.

A file that is deleted while open is found by no walk; a limit on the size of each file, inherited by everything the run
starts, bounds it, and any file that would outgrow the limit between two looks.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from hivekeeper.domain.run import Ended
from tests.runs.conftest import Bench
from tests.runs.test_limits import duration_s

LIMIT = 4 << 20
SOME_LOOKS = "sleep 1.4"  # the first look is due after a second


@pytest.fixture
def sandbox(bench: Bench) -> Path:
    """A directory that is the worker's own."""
    made = bench.place / "sandbox"
    made.mkdir()
    return made


def finish(bench: Bench, sandbox: Path, script: str, **limits: float | None) -> Ended:
    """Run a shell script in its sandbox under the limit to its end."""
    bench.runs.start(bench.order("r", ("sh", "-c", script), None, sandbox, disk_bytes=LIMIT, **limits))
    return bench.wait_ended("r")


@pytest.mark.alone
def test_many_small_files_end_the_run_and_it_is_not_asked_politely(bench: Bench, sandbox: Path) -> None:
    script = (
        "trap '' TERM; mkdir -p a/b; cd a/b; yes | head -c 6000000 | split -b 4096 -a 4 - x; while :; do sleep 1; done"
    )
    ended = finish(bench, sandbox, script, grace_s=60.0)
    assert (ended.ending.status, ended.ending.ended_by) == (-9, "disk")
    assert duration_s(ended) < 5.0


def test_what_takes_no_space_of_its_own_is_not_counted(bench: Bench, sandbox: Path) -> None:
    """Sparse files count by what they take, one file counts once however many names it has, no link is followed."""
    (bench.place / "elsewhere").mkdir()
    (bench.place / "elsewhere" / "large").write_bytes(bytes(2 * LIMIT))
    script = f"""
        truncate -s {LIMIT} sparse1 sparse2 sparse3
        ln -s ../elsewhere ../elsewhere/large .
        head -c {LIMIT // 2} /dev/urandom > name; ln name name2; ln name name3; ln name name4
        {SOME_LOOKS}; exit 3"""
    ended = finish(bench, sandbox, script)
    assert (ended.ending.status, ended.ending.ended_by) == (3, "exit")


@pytest.mark.parametrize("large", [f"truncate -s {100 * LIMIT} file", f"head -c {100 * LIMIT} /dev/zero > file"])
def test_one_large_file_sparse_or_real_never_outgrows_the_limit(bench: Bench, sandbox: Path, large: str) -> None:
    ended = finish(bench, sandbox, f"{large}; exit $?")
    assert (ended.ending.status, ended.ending.ended_by) == (128 + 25, "disk"), "as a shell says it was SIGXFSZ"
    assert (sandbox / "file").stat().st_size <= LIMIT


def test_a_program_killed_by_the_size_of_its_file_says_disk(bench: Bench, sandbox: Path) -> None:
    bench.runs.start(bench.order("r", ("truncate", "-s", str(2 * LIMIT), "file"), None, sandbox, disk_bytes=LIMIT))
    ended = bench.wait_ended("r")
    assert (ended.ending.status, ended.ending.ended_by) == (-25, "disk")


def test_a_file_deleted_while_open_is_bounded_by_its_size(bench: Bench, sandbox: Path) -> None:
    ended = finish(bench, sandbox, f"exec 5> file; rm file; exec head -c {100 * LIMIT} /dev/zero >&5")
    assert (ended.ending.status, ended.ending.ended_by) == (-25, "disk")


def test_a_program_cannot_allow_itself_larger_files(bench: Bench, sandbox: Path) -> None:
    ended = finish(bench, sandbox, "while [ $(ulimit -Hf) = unlimited ]; do :; done; ulimit -Hf", wall_s=5.0)
    assert (ended.ending.status, bench.runs.read_output("r")) == (0, f"{LIMIT // 512}\n")


def test_the_size_of_files_is_limited_for_that_run_only(bench: Bench, sandbox: Path) -> None:
    first = bench.finish_and_rest("first", "true", disk_bytes=LIMIT)
    second = bench.finish("second", f"head -c {2 * LIMIT} /dev/zero > file; ulimit -f; ulimit -Hf")
    assert second.claim.pid == first.claim.pid
    assert (second.ending.status, bench.runs.read_output("second")) == (0, "unlimited\nunlimited\n")
    assert (bench.place / "file").stat().st_size == 2 * LIMIT


def test_a_directory_that_disappears_takes_nothing(bench: Bench, sandbox: Path) -> None:
    ended = finish(bench, sandbox, f"head -c {LIMIT // 2} /dev/zero > file; rm -r ../sandbox; {SOME_LOOKS}; exit 3")
    assert (ended.ending.status, ended.ending.ended_by) == (3, "exit")


def test_files_that_come_and_go_while_they_are_looked_at_harm_nobody(bench: Bench, sandbox: Path) -> None:
    churn = "while :; do mkdir -p $n/a/b; : > $n/a/b/f; ln -s b $n/a/l; rm -r $n; done"
    script = f"for n in 1 2 3; do ({churn}) & done; {SOME_LOOKS}; exit 3"
    ended = finish(bench, sandbox, script)
    assert (ended.ending.status, ended.ending.ended_by) == (3, "exit")


def test_nothing_is_hidden_by_lying_deep(bench: Bench, sandbox: Path) -> None:
    script = """
import itertools, os
for _ in range(2500):
    os.mkdir("d")
    os.chdir("d")
for number in itertools.count():
    with open(str(number), "wb") as file:
        file.write(bytes(1 << 20))
"""
    # Twice of what the directories take themselves, and less than the files do soon.
    order = bench.order("r", (sys.executable, "-c", script), None, sandbox, disk_bytes=20 << 20, wall_s=30.0)
    bench.runs.start(order)
    assert bench.wait_ended("r").ending.ended_by == "disk"
    subprocess.run(("rm", "-rf", str(sandbox)), check=True)  # Python cannot remove what is so deep
