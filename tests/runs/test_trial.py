"""A command that a person waits for: its time is limited, its output is read as it comes, and its end is kept."""

import time

from hivekeeper.runs.trial import MAX_KEPT, try_out


def sh(script: str, at_most_s: float = 20.0) -> tuple[str, bytes, int]:
    done = try_out(("sh", "-c", script), "/", {"X": "y"}, at_most_s=at_most_s)
    return done.ended_by, done.output, done.status


def test_its_output_and_its_exit_code_are_told() -> None:
    assert sh('echo "$X"; echo z >&2; exit 3') == ("exit", b"y\nz\n", 3)


def test_output_is_handed_on_as_it_comes_and_its_end_is_kept() -> None:
    chunks: list[bytes] = []
    script = "head -c 1000000 /dev/zero; echo end"
    done = try_out(("sh", "-c", script), "/", {}, at_most_s=20.0, take=chunks.append)
    assert sum(map(len, chunks)) == 1_000_004
    assert len(done.output) == MAX_KEPT
    assert done.output.endswith(b"end\n")


def test_what_takes_too_long_is_killed_with_all_of_its_processes() -> None:
    began = time.monotonic()
    ended_by, output, status = sh("echo begun; sleep 60 & sleep 60", at_most_s=0.5)
    assert (ended_by, output, status) == ("silence", b"begun\n", -9)
    assert time.monotonic() - began < 20


def test_one_that_closes_its_output_and_goes_on_is_killed_too() -> None:
    ended_by, _, status = sh("exec >&- 2>&-; sleep 60", at_most_s=0.5)
    assert (ended_by, status) == ("silence", -9)


def test_whoever_has_heard_enough_stops_it() -> None:
    began = time.monotonic()
    done = try_out(("sh", "-c", "echo x; sleep 60"), "/", {}, at_most_s=30.0, take=lambda chunk: b"x" in chunk)
    assert (done.ended_by, done.output, done.status) == ("limit", b"x\n", -9)
    assert time.monotonic() - began < 20
