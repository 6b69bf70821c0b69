"""The past as a person types it: replay, diff, and readers of the log that miss nothing."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from hivekeeper.clock import to_local
from hivekeeper.store.turnstile import Turnstile
from tests.e2e.conftest import Shell

PLAN = "convoy: c\ntasks:\n  - {id: A, command: 'true'}\n  - {id: B, command: 'false', after: [A], attempts: 1}\n"


def _seqs(lines: str) -> list[int]:
    return [json.loads(line)["seq"] for line in lines.splitlines()]


def _events(shell: Shell) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shell.hive("log", "--since", "0", "--json").splitlines()]


def _seq_of(shell: Shell, kind: str, subject: str) -> int:
    return int(next(event["seq"] for event in _events(shell) if (event["kind"], event["subject"]) == (kind, subject)))


@pytest.fixture
def lived(shell: Shell) -> Shell:
    """A hive in which A was completed and B has failed."""
    shell.hive("run", shell.plan(PLAN), code=1)
    return shell


def test_the_hive_is_shown_as_it_was_by_number_and_by_time(lived: Shell) -> None:
    event = next(event for event in _events(lived) if event["kind"] == "task.completed")
    said = lived.hive("replay", "--at", str(event["seq"]))
    heading, *rest = said.splitlines()
    assert heading == f"As of event {event['seq']}, recorded at {to_local(event['recorded_at'])}"
    assert rest[0] == "Nothing needs you."
    assert any(line.split()[:3] == ["c", "ACTIVE", "1/2"] for line in rest)
    assert lived.hive("replay", "--at", event["recorded_at"]) == said
    assert lived.json("replay", "--at", event["recorded_at"])["as_of"]["seq"] == event["seq"]
    assert "c/B failed" in lived.hive("replay", "--at", "now")


def test_the_status_at_the_last_event_is_what_status_says(lived: Shell) -> None:
    now = lived.json("status")
    then = lived.json("replay", "--at", str(now["events"]))
    assert then.pop("as_of")["seq"] == now["events"]
    now["keeper"]["last_heartbeat"] = now["isolation"] = None  # observations: not in the log
    assert then == now


def test_a_convoy_is_shown_as_it_was_also_when_it_is_archived(lived: Shell) -> None:
    lived.hive("convoy", "archive", "c")
    dispatched = _seq_of(lived, "task.dispatched", "c/A")
    card = lived.json("replay", "--at", str(dispatched), "--convoy", "c")
    assert [(task["task"], task["state"]) for task in card["task_list"]] == [("A", "IN_PROGRESS"), ("B", "PENDING")]
    heading, title, *_ = lived.hive("replay", "--at", "now", "--convoy", "c").splitlines()
    assert heading.startswith("As of event ")
    assert title == "c  ARCHIVED  1/2 complete"


def test_the_difference_of_two_moments_is_shown_and_equal_ones_say_so(lived: Shell) -> None:
    begin, end = _seq_of(lived, "task.added", "c/B"), len(_events(lived))
    said = lived.hive("diff", str(begin), str(end))
    assert f"{end - begin} events" in said
    assert "PENDING → COMPLETE" in said
    assert "PENDING → FAILED" in said
    assert "ACTIVE → FAILED" in said
    view = lived.json("diff", str(end), str(begin))
    assert [(row["task"], row["to"]["state"]) for row in view["tasks"]] == [("c/A", "COMPLETE"), ("c/B", "FAILED")]
    assert f"Both are event {end}," in lived.hive("diff", str(end), "now")
    assert "No convoy, task or repository changed." in lived.hive("diff", str(end - 1), str(end))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("replay", "--at", "yesterday"), "Type an event's number"),
        (("replay", "--at", "25:00"), "Type an event's number"),
        (("replay", "--at", "-10 moons"), "Type an event's number"),
        (("replay", "--at", "0"), "Type a number from 1 to"),
        (("replay", "--at", "99999"), "Type a number from 1 to"),
        (("replay", "--at", "2020-01-01 10:00"), "The first event was recorded at"),
        (("replay", "--at", "-1h"), "The first event was recorded at"),
        (("replay", "--at", "9998-01-01T00:00:00Z"), "is in the future"),
        (("replay", "--at", "1", "--convoy", "c"), "There was no convoy 'c' at event 1"),
        (("replay", "--at", "1", "--convoy", "cc"), "Did you mean 'c'?"),
        (("diff", "1", "2 or 3"), "Type an event's number"),
        (("log", "--cursor", "Not A Name"), "Names are"),
        (("log", "--cursor", "a", "--since", "3"), "Leave out --since"),
    ],
)
def test_a_wrong_moment_or_name_is_refused_with_what_to_type(
    lived_once: Shell, arguments: tuple[str, ...], said: str
) -> None:
    assert said in lived_once.hive(*arguments, code=2)


@pytest.fixture(scope="module")
def lived_once(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A hive that is only looked at."""
    shell = Shell(tmp_path_factory.mktemp("hive"))
    shell.hive("init")
    shell.hive("run", shell.plan(PLAN), code=1)
    return shell


def test_a_hive_without_a_past_says_so(shell: Shell) -> None:
    assert "Nothing has happened" in shell.hive("replay", "--at", "now", code=2)


def test_a_reader_goes_on_where_it_was_and_does_not_disturb_another(lived: Shell) -> None:
    everything = list(range(1, len(_events(lived)) + 1))
    assert _seqs(lived.hive("log", "--cursor", "one", "--json")) == everything
    assert lived.hive("log", "--cursor", "one", "--json") == ""
    lived.hive("task", "retry", "c/B")
    new = list(range(len(everything) + 1, len(_events(lived)) + 1))
    assert new
    assert _seqs(lived.hive("log", "--cursor", "two", "--json")) == everything + new
    assert [(row["cursor"], row["behind"]) for row in lived.json("log", "--cursors")] == [("one", len(new)), ("two", 0)]
    assert _seqs(lived.hive("log", "--cursor", "one", "--json")) == new
    assert lived.hive("log", "--cursors").splitlines()[0].split() == ["Cursor", "Read", "up", "to", "Behind", "Moved"]


def test_a_reader_killed_between_writing_and_remembering_reads_the_same_again(lived: Shell) -> None:
    everything = list(range(1, len(_events(lived)) + 1))
    # The reader can write its lines, and waits at this door to move its cursor.
    with closing(Turnstile(lived.root / ".hive" / "ledger.lock")) as door, door:
        reader = lived.start("log", "-f", "--cursor", "one", "--json")
        assert reader.stdout is not None
        assert [json.loads(reader.stdout.readline())["seq"] for _ in everything] == everything
        os.kill(reader.pid, signal.SIGKILL)
        assert reader.wait() == -signal.SIGKILL
    assert lived.json("log", "--cursors") == []
    assert _seqs(lived.hive("log", "--cursor", "one", "--json")) == everything


def test_a_reader_that_follows_ends_at_ctrl_c_and_has_remembered_what_it_wrote(lived: Shell) -> None:
    everything = len(_events(lived))
    reader = lived.start("log", "-f", "--cursor", "one", "--json")
    assert reader.stdout is not None
    assert [json.loads(reader.stdout.readline())["seq"] for _ in range(everything)][-1] == everything
    lived.wait(lambda: bool(lived.json("log", "--cursors")))
    lived.hive("task", "retry", "c/B")
    assert json.loads(reader.stdout.readline())["seq"] == everything + 1
    lived.wait(lambda: bool(lived.json("log", "--cursors")[0]["behind"] == 0))
    os.kill(reader.pid, signal.SIGINT)
    assert reader.wait(30) == 0
    assert _seqs(lived.hive("log", "--cursor", "one", "--json")) == []


def test_a_reader_whose_output_is_gone_does_not_move_its_cursor(lived: Shell) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        argv = (sys.executable, "-m", "hivekeeper", "log", "--cursor", "one", "--json")
        subprocess.run(argv, cwd=lived.root, stdout=writing, stderr=subprocess.DEVNULL, timeout=40, check=False)
    finally:
        os.close(writing)
    assert lived.json("log", "--cursors") == []


def test_the_log_of_a_subject_is_its_own_and_of_what_is_beneath_it(lived: Shell) -> None:
    shown = [json.loads(line)["subject"] for line in lived.hive("log", "--subject", "c", "--json").splitlines()]
    expected = [event["subject"] for event in _events(lived) if not event["kind"].startswith("lease.")]
    assert shown == expected
    task = [json.loads(line)["kind"] for line in lived.hive("log", "--subject", "c/A", "--json").splitlines()]
    assert task == ["task.added", "task.dispatched", "task.completed"]
    assert "No event is about 'nobody'" in lived.hive("log", "--subject", "nobody", code=2)
