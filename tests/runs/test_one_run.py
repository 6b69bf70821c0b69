"""One run from its order to its ending on disk, and every way in which a command cannot even start."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hivekeeper.clock import to_seconds
from hivekeeper.domain.run import Alive, Ended, Unclaimed
from hivekeeper.runs.wrapper import read_start_ticks
from tests.runs.conftest import Bench, list_marks


def test_a_run_nobody_asked_for_is_unclaimed(bench: Bench) -> None:
    assert bench.runs.look("r") == Unclaimed()


def test_a_run_leaves_claim_output_and_ending_on_disk(bench: Bench) -> None:
    before = time.time()
    ended = bench.finish("r", "echo out; echo err >&2; exit 3")
    after = time.time()
    assert (ended.ending.status, ended.ending.ended_by, ended.ending.problem) == (3, "exit", "")
    assert (bench.root / "r" / "output").read_bytes() == b"out\nerr\n"
    assert ended.ending.output_bytes == 8
    assert before - 0.001 <= to_seconds(ended.claim.at) <= to_seconds(ended.ending.at) <= after + 0.001
    claim = json.loads((bench.root / "r" / "claim").read_text())
    assert (claim["pid"], claim["start_ticks"]) == (ended.claim.pid, read_start_ticks(ended.claim.pid))
    assert claim["boot_id"] == bench.runs.boot_id
    assert bench.read_exit("r")["survivors"] == 0


def test_a_run_directory_holds_nothing_but_its_three_files_and_only_the_owner_reads_them(bench: Bench) -> None:
    bench.finish("r", "echo out")
    files = {path.name: path.stat().st_mode & 0o777 for path in (bench.root / "r").iterdir()}
    assert files == {"claim": 0o600, "output": 0o600, "exit": 0o600}
    assert (bench.root / "r").stat().st_mode & 0o777 == 0o700


def test_a_living_run_is_alive_and_its_wrapper_is_named(bench: Bench) -> None:
    bench.shell("r", "echo $PPID >> wrapper; exec sleep 60")
    (wrapper,) = bench.wait_mark("wrapper")
    assert bench.wait_alive("r").pid == int(wrapper)


@pytest.mark.parametrize(("number", "status"), [("KILL", -9), ("TERM", -15), ("SEGV", -11)])
def test_a_command_ended_by_a_signal_has_its_negative_as_status(bench: Bench, number: str, status: int) -> None:
    ending = bench.finish("r", f"kill -{number} $$").ending
    assert (ending.status, ending.ended_by) == (status, "exit")


def _unexecutable(place: Path) -> str:
    path = place / "tool"
    path.write_text("#!/bin/sh\n")
    return str(path)


def _foreign(place: Path) -> str:
    path = place / "tool"
    path.write_bytes(b"\x7fELF not for this machine")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    "command",
    [
        lambda _: "no-such-command-anywhere",
        lambda place: str(place / "missing"),
        str,
        lambda _: "",
        _unexecutable,
        _foreign,
        lambda _: "with\0nul",
        lambda _: "lone\ud800surrogate",
    ],
    ids=["not-in-path", "missing-path", "a-directory", "empty", "not-executable", "not-a-program", "nul", "surrogate"],
)
def test_a_command_that_cannot_start_says_so(bench: Bench, command: Callable[[Path], str]) -> None:
    bench.runs.start(bench.order("r", [command(bench.place)]))
    ending = bench.wait_ended("r").ending
    assert (ending.status, ending.ended_by, ending.output_bytes) == (127, "could-not-start", 0)
    assert ending.problem


def test_an_order_without_any_command_could_not_start(bench: Bench) -> None:
    bench.runs.start(bench.order("r", []))
    assert bench.wait_ended("r", 3.0).ending.ended_by == "could-not-start"


def test_a_missing_directory_could_not_start_and_the_next_run_does(bench: Bench) -> None:
    bench.runs.start(bench.order("r", ["true"], {}, bench.place / "missing"))
    ending = bench.wait_ended("r").ending
    assert (ending.status, ending.ended_by) == (75, "could-not-start"), "which is no fault of the command's"
    assert "missing" in ending.problem
    assert bench.finish("next", "exit 4").ending.status == 4


def test_a_run_is_where_its_order_says_although_its_wrapper_was_elsewhere(bench: Bench) -> None:
    other = bench.place / "other"
    other.mkdir()
    bench.finish("first", "true")
    bench.runs.start(bench.order("second", ["pwd", "-P"], {}, other))
    bench.wait_ended("second")
    assert bench.runs.read_output("second") == f"{other.resolve()}\n"


ODD = ("", " ", "two words", "-", "--", "'\"$(exit 1)`\\", "new\nline", "tab\t", "naïve ☃ 🐝", "\udcff\udc80 not text")


def test_argv_arrives_byte_for_byte(bench: Bench) -> None:
    program = "import os, sys; os.write(1, b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
    bench.runs.start(bench.order("r", [sys.executable, "-ISc", program, *ODD]))
    assert bench.wait_ended("r").ending.status == 0
    assert (bench.root / "r" / "output").read_bytes().split(b"\0") == [os.fsencode(word) for word in ODD]


def test_odd_bytes_in_the_environment_and_the_directory_arrive(bench: Bench) -> None:
    directory = bench.place / "naïve \udcff"
    directory.mkdir()
    order = bench.order("r", ["sh", "-c", 'printf %s "$ODD"; pwd'], {"ODD": "☃\n\udcfe"}, directory)
    bench.runs.start(order)
    bench.wait_ended("r")
    assert (bench.root / "r" / "output").read_bytes() == os.fsencode(f"☃\n\udcfe{directory}\n")


def test_a_hive_whose_own_path_has_odd_bytes_runs(tmp_path: Path, clean_end: None) -> None:
    place = tmp_path / "naïve \udcff"
    place.mkdir()
    bench = Bench(place)
    try:
        bench.shell("r", "exit 5")
        assert bench.wait_ended("r", 3.0).ending.status == 5
    finally:
        bench.close()


def test_the_environment_is_the_allowed_one_and_what_was_ordered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_KEEPER", "1")
    monkeypatch.setenv("TZ", "Europe/Vaduz")
    bench.runs.start(bench.order("r", ["/usr/bin/env", "-0"], {"GIVEN": "yes", "HIVE_RUN": "forged"}))
    bench.wait_ended("r")
    said = dict(pair.split("=", 1) for pair in bench.runs.read_output("r", 1 << 20).split("\0") if pair)
    assert (said["GIVEN"], said["TZ"], said["HIVE_RUN"]) == ("yes", "Europe/Vaduz", f"{bench.hive}/r")
    assert "SECRET_OF_THE_KEEPER" not in said


@pytest.mark.parametrize("name", ["", "a=b", "nul\0"])
def test_an_impossible_name_in_the_environment_does_not_stall_the_run(bench: Bench, name: str) -> None:
    bench.runs.start(bench.order("r", ["true"], {name: "x"}))
    assert bench.wait_ended("r").ending.ended_by in ("could-not-start", "exit")


def test_a_command_is_searched_in_the_path_of_its_order(bench: Bench) -> None:
    tool = bench.place / "bin" / "my-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 6\n")
    tool.chmod(0o700)
    bench.runs.start(bench.order("r", ["my-tool"], {"PATH": f"{tool.parent}:{os.environ['PATH']}"}))
    ending = bench.wait_ended("r").ending
    assert (ending.status, ending.problem) == (6, "")


def test_a_big_environment_arrives_whole(bench: Bench) -> None:
    big = {f"BIG_{index}": chr(97 + index % 26) * 10_000 for index in range(100)}
    for run in ("new-wrapper", "free-wrapper"):
        bench.runs.start(bench.order(run, ["sh", "-c", "/usr/bin/env | grep -c '^BIG_'; echo ${#BIG_99}"], big))
        bench.wait_ended(run)
        assert bench.runs.read_output(run) == "100\n10000\n"


def test_an_environment_too_big_for_the_kernel_could_not_start(bench: Bench) -> None:
    bench.runs.start(bench.order("r", ["true"], {f"BIG_{index}": "x" * 100_000 for index in range(30)}))
    ending = bench.wait_ended("r").ending
    assert (ending.ended_by, ending.status) == ("could-not-start", 127)
    assert bench.finish("next", "exit 4").ending.status == 4


def test_five_megabytes_of_output_are_kept_whole_and_are_there_when_the_ending_is(bench: Bench) -> None:
    ended = bench.finish("r", "head -c 5000000 /dev/zero | tr '\\0' x; echo end")
    assert ended.ending.output_bytes == 5_000_004
    assert (bench.root / "r" / "output").read_bytes() == b"x" * 5_000_000 + b"end\n"
    assert bench.runs.read_output("r", 6) == "xxend\n"[-6:]


def test_a_silent_run_has_an_empty_output(bench: Bench) -> None:
    assert bench.finish("r", "exit 0").ending.output_bytes == 0
    assert bench.runs.read_output("r") == ""


def test_standard_input_is_empty(bench: Bench) -> None:
    assert bench.finish("r", "cat; exit 0").ending.status == 0


def test_a_program_that_closes_its_output_is_followed_to_its_end(bench: Bench) -> None:
    ended = bench.finish("r", "exec >&- 2>&-; sleep 0.1; exit 9", silence_s=5.0)
    assert (ended.ending.status, ended.ending.ended_by) == (9, "exit")


def test_a_run_inherits_no_descriptor_but_the_three(bench: Bench) -> None:
    bench.finish("first", "true")
    bench.finish("second", "ls /proc/self/fd")
    # The fourth is ls's own, on the directory it lists.
    assert bench.runs.read_output("second").split() == ["0", "1", "2", "3"]


def test_a_run_starts_with_no_signal_ignored_or_blocked(bench: Bench) -> None:
    bench.finish("r", "grep -E '^Sig(Blk|Ign)' /proc/self/status")
    said = {name: int(mask, 16) for name, mask in map(str.split, bench.runs.read_output("r").splitlines())}
    # Signals 32 and 33 are the C library's own, and no library call can set them.
    named = (1 << 31) - 1
    assert {name: mask & named for name, mask in said.items()} == {"SigBlk:": 0, "SigIgn:": 0}


def test_a_run_is_the_leader_of_its_own_group(bench: Bench) -> None:
    bench.finish("r", "cut -d' ' -f1,5 /proc/self/stat; echo $$")
    _, group, shell = bench.runs.read_output("r").split()
    assert group == shell


def test_a_hundred_runs_at_once_each_end_with_their_own_status(bench: Bench) -> None:
    for index in range(100):
        bench.runs.start(bench.order(f"r{index}", ["sh", "-c", f"exit {index}"]))
    statuses = [bench.wait_ended(f"r{index}", 30.0).ending.status for index in range(100)]
    assert statuses == list(range(100))


def test_a_look_at_an_ended_run_stays_the_same_when_everything_is_gone(bench: Bench) -> None:
    ended = bench.finish("r", "echo hello; exit 2")
    bench.reopen()
    look = bench.runs.look("r")
    assert isinstance(look, Ended)
    assert look == ended
    assert not isinstance(look, Alive)
    assert list_marks(bench.root / "r" / "output") == ["hello"]
