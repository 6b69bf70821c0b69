"""Whatever lies in a run's directory, a look answers or says what is wrong; it never hangs and never lies in types."""

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hivekeeper.domain.run import Alive, Claim, Ended, Ending, Gone, Look, NoteLost, Unclaimed, decide_run
from hivekeeper.domain.states import RunState
from hivekeeper.errors import HiveError
from hivekeeper.runs.wrapper import read_boot_id, read_start_ticks
from tests.runs.conftest import Bench, find_nursery, is_running, poll_until, read_cpu_s, stays

NOT_JSON = [b"", b"\n", b'{"pid": 12', b"\xff\xfe\x00", b"\0" * 4096, b"null", b"[]", b"5", b'"text"', b"NaN", b"{}"]
DEEP = [b"[" * 100_000, b'{"a":' * 50_000, b"1" * 60_000, b'{"pid": ' + b"9" * 5000 + b"}"]
ODD_VALUES: list[object] = [
    None,
    True,
    "",
    "x",
    -1,
    0,
    1.5,
    2**31,
    2**70,
    1e300,
    float("nan"),
    float("inf"),
    [],
    {},
    "\ud800",
]


def good_claim() -> dict[str, object]:
    """Write a claim of a process that surely lives."""
    pid = os.getpid()
    return {"pid": pid, "start_ticks": read_start_ticks(pid), "boot_id": read_boot_id(), "at": time.time()}


def good_exit() -> dict[str, object]:
    """Write an exit record as a wrapper does."""
    return {"status": 0, "ended_by": "exit", "output_bytes": 0, "survivors": 0, "at": time.time()}


def spoil(good: Callable[[], dict[str, object]]) -> list[bytes]:
    """Make every wrong file of a right one: torn, with a key missing, with an odd value."""
    value = good()
    text = json.dumps(value).encode()
    lacking = [{name: value[name] for name in value if name != key} for key in value]
    odd = [value | {key: strange} for key in value for strange in ODD_VALUES]
    odd += [value | {"problem": strange} for strange in ODD_VALUES]
    return [*NOT_JSON, *DEEP, text[:-1], text + b"x", text + text, *(json.dumps(one).encode() for one in lacking + odd)]


def is_well_formed(look: Look) -> bool:
    """Tell whether everything in a look has the type it is said to have, as the ledger will take it on trust."""
    fields: list[tuple[object, type]] = []
    if isinstance(look, Ended):
        ending = look.ending
        fields += [(ending.status, int), (ending.output_bytes, int), (ending.ended_by, str)]
        fields += [(ending.at, str), (ending.problem, str)]
    if not isinstance(look, Unclaimed) and (claim := look.claim) is not None:
        fields += [(claim.pid, int), (claim.start_ticks, int), (claim.boot_id, str), (claim.at, str)]
    return all(isinstance(value, kind) for value, kind in fields)


def look_badly(bench: Bench, run: str) -> str:
    """Look at a run; tell what went wrong, if anything did."""
    try:
        look = bench.runs.look(run)
    except HiveError:
        return ""
    except Exception as error:  # noqa: BLE001 - which one it is, is the finding
        return f"{type(error).__name__}: {error}"[:80]
    return "" if is_well_formed(look) else f"wrong types: {look}"


@pytest.mark.parametrize("name", ["claim", "exit"])
def test_a_spoiled_file_is_never_more_than_a_hive_error(bench: Bench, name: str) -> None:
    problems: dict[str, list[str]] = {}
    for index, content in enumerate(spoil(good_claim if name == "claim" else good_exit)):
        run = f"{name}{index}"
        bench.write(run, "claim", good_claim())
        bench.write(run, name, content)
        if problem := look_badly(bench, run):
            problems.setdefault(problem, []).append(content[:90].decode("utf-8", "replace"))
    assert problems == {}


def test_a_spoiled_exit_of_a_living_run_does_not_end_it(bench: Bench) -> None:
    bench.shell("r", "while [ ! -e go ]; do sleep 0.02; done; exit 7")
    claim = bench.wait_alive("r")
    for content in (b"", b"{", b"[]", b"null", b"\xff"):
        bench.write("r", "exit", content)
        assert bench.runs.look("r") == Alive(claim)
    (bench.place / "go").touch()
    assert bench.wait_ended("r").ending.status == 7


def _make_directory(path: Path) -> None:
    path.mkdir()


def _make_full_directory(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def _make_pipe(path: Path) -> None:
    os.mkfifo(path)


def _make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def _make_dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _make_socket(path: Path) -> None:
    parent = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{parent}/{path.name}")  # a socket's path is short by law
    os.close(parent)


KINDS = [_make_directory, _make_pipe, _make_loop, _make_dangling, _make_endless, _make_socket]


def answer_within(path: Path, ask: Callable[[], object], seconds: float) -> str:
    """Ask something that must not wait for a pipe; tell what went wrong, if anything did."""
    outcome: list[str] = []

    def run() -> None:
        try:
            ask()
            outcome.append("")
        except HiveError:
            outcome.append("")
        except Exception as error:  # noqa: BLE001 - which one it is, is the finding
            outcome.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        if path.is_fifo():
            os.close(os.open(path, os.O_RDWR))  # lets the waiting one go
        thread.join(5)
        return "it hung"
    return outcome[0]


@pytest.mark.alone
@pytest.mark.parametrize("name", ["claim", "exit"])
@pytest.mark.parametrize("make", KINDS)
def test_a_look_at_something_that_is_no_file_neither_hangs_nor_breaks(
    bench: Bench, name: str, make: Callable[[Path], None]
) -> None:
    path = bench.root / "r" / name
    path.parent.mkdir(parents=True)
    if name == "exit":
        bench.write("r", "claim", good_claim())
    make(path)
    assert answer_within(path, lambda: bench.runs.look("r"), 1.0) == ""


@pytest.mark.alone
@pytest.mark.parametrize("make", KINDS)
def test_reading_output_that_is_no_file_neither_hangs_nor_breaks(bench: Bench, make: Callable[[Path], None]) -> None:
    path = bench.root / "r" / "output"
    path.parent.mkdir(parents=True)
    make(path)
    assert answer_within(path, lambda: bench.runs.read_output("r"), 1.0) == ""


@pytest.mark.alone
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("make", KINDS)
def test_nothing_in_the_way_of_the_kill_file_keeps_a_run_alive(
    bench: Bench, make: Callable[[Path], None], *, hard: bool
) -> None:
    bench.shell("r", "exec sleep 60")
    claim = bench.wait_alive("r")
    path = bench.root / "r" / "kill"
    make(path)
    assert answer_within(path, lambda: bench.runs.stop("r", hard=hard), 1.0) == ""
    poll_until(lambda: bench.runs.look("r") != Alive(claim), "its end", 3.0)


@pytest.mark.parametrize("make", [_make_full_directory, _make_loop, _make_dangling, _make_endless])
def test_nothing_in_the_way_of_the_exit_record_keeps_a_run_open(bench: Bench, make: Callable[[Path], None]) -> None:
    bench.shell("r", "while [ ! -e go ]; do sleep 0.02; done; exit 7")
    claim = bench.wait_alive("r")
    for name in ("exit", "exit.draft", f"exit.{claim.pid}", f"exit.{claim.pid}.0"):
        make(bench.root / "r" / name)
    (bench.place / "go").touch()
    poll_until(lambda: bench.runs.look("r") != Alive(claim), "a settled run", 3.0)
    look = bench.runs.look("r")
    assert isinstance(look, Ended | Gone)
    assert not isinstance(look, Ended) or look.ending.status == 7


def test_a_link_in_the_way_of_a_file_is_not_followed_out_of_the_directory(bench: Bench) -> None:
    victim = bench.place / "victim"
    victim.write_text("precious")
    names = "output exit exit.draft exit.$PPID exit.$PPID.0 kill"
    bench.shell("r", f"for name in {names}; do ln -s {victim} runs/r/$name; done; echo word; echo >> said; sleep 60")
    bench.wait_mark("said")
    bench.runs.stop("r")
    poll_until(lambda: not isinstance(bench.runs.look("r"), Unclaimed | Alive), "a settled run", 3.0)
    assert victim.read_text() == "precious"


def test_output_that_is_a_directory_costs_the_words_and_not_the_run(bench: Bench) -> None:
    ended = bench.finish("r", "mkdir runs/r/output; echo word; exit 7")
    assert (ended.ending.status, ended.ending.ended_by) == (7, "exit")


def test_a_claim_that_is_a_directory_never_starts_the_run(bench: Bench) -> None:
    (bench.root / "r" / "claim").mkdir(parents=True)
    bench.shell("r", "echo >> marks")
    bench.finish("after", "true")
    assert not (bench.place / "marks").exists()
    assert sorted(path.name for path in (bench.root / "r").iterdir()) == ["claim"]


def test_a_run_directory_that_is_a_file_starts_nothing_and_hurts_nobody(bench: Bench) -> None:
    bench.root.mkdir()
    (bench.root / "r").write_text("not a directory")
    assert look_badly(bench, "r") == ""
    bench.shell("r", "echo >> marks")
    assert bench.finish("after", "exit 3").ending.status == 3
    assert not (bench.place / "marks").exists()


@pytest.mark.alone
def test_a_run_that_can_never_be_claimed_does_not_keep_the_nursery_busy(bench: Bench) -> None:
    bench.root.mkdir()
    (bench.root / "r").write_text("not a directory")
    bench.finish("warm", "true")
    bench.shell("r", "true")
    bench.finish("after", "true")
    nursery = find_nursery()
    before = read_cpu_s(nursery)
    assert stays(lambda: read_cpu_s(nursery) - before < 0.08, 0.5)


def test_a_run_whose_directory_was_removed_is_settled_once_its_program_ended(bench: Bench) -> None:
    bench.shell("r", "while [ ! -e go ]; do sleep 0.02; done; echo word; exit 7")
    claim = bench.wait_alive("r")
    shutil.rmtree(bench.root / "r")
    assert look_badly(bench, "r") == ""
    (bench.place / "go").touch()
    poll_until(lambda: not bench.find_marked("r"), "its program's end")
    poll_until(lambda: bench.runs.look("r") != Alive(claim), "a settled run", 3.0)
    bench.reopen()
    poll_until(lambda: not is_running(claim.pid), "its wrapper's end", 3.0)


@pytest.mark.alone
def test_a_run_whose_directory_was_removed_is_stopped_or_the_stopping_says_why_not(bench: Bench) -> None:
    bench.shell("r", "exec sleep 60")
    bench.wait_alive("r")
    shutil.rmtree(bench.root / "r")
    assert answer_within(bench.root, lambda: bench.runs.stop("r"), 1.0) == ""
    assert answer_within(bench.root, lambda: bench.runs.stop("r", hard=True), 1.0) == ""


def test_a_run_whose_directory_was_removed_is_not_lost_while_its_program_lives(bench: Bench) -> None:
    bench.shell("r", "exec sleep 60")
    known = bench.wait_alive("r")  # as the ledger remembers it
    poll_until(lambda: bool(bench.find_marked("r")), "its program")
    shutil.rmtree(bench.root / "r")
    bench.reopen()  # another keeper, with nothing in memory
    verdict = decide_run(RunState.RUNNING, bench.runs.look("r", known), intended_here=True, kill=False)
    assert bench.find_marked("r")
    assert not isinstance(verdict, NoteLost)


@pytest.mark.alone
def test_stopping_or_reading_a_run_that_never_was_is_never_more_than_a_hive_error(bench: Bench) -> None:
    assert answer_within(bench.root, lambda: bench.runs.stop("never"), 1.0) == ""
    assert answer_within(bench.root, lambda: bench.runs.stop("never", hard=True), 1.0) == ""
    assert bench.runs.read_output("never") == ""


def test_a_forged_ending_is_replaced_by_the_true_one(bench: Bench) -> None:
    forged = json.dumps(good_exit()).replace('"', '\\"')
    bench.shell("r", f'echo "{forged}" > runs/r/exit; echo >> forged; sleep 0.1; exit 9')
    bench.wait_mark("forged")
    poll_until(lambda: bench.read_exit("r")["status"] == 9, "the true ending")
    look = bench.runs.look("r")
    assert isinstance(look, Ended)
    assert isinstance(look.claim, Claim)
    assert isinstance(look.ending, Ending)
