"""What a person reads: times of their own clock, plain words, whole lines; and one they can find again."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from hivekeeper.cli import render
from hivekeeper.domain.lease import KeeperState, decide_keeper
from hivekeeper.hive import find_living_holder, open_records
from hivekeeper.store.queries import find_heartbeat
from tests.e2e.conftest import Shell

TASKS = "convoy: c\ntasks:\n  - {id: A, command: 'true'}\n"


@pytest.fixture
def _in_tokyo() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_in_tokyo")
def test_times_are_local_to_the_second_and_utc_for_programs_only(shell: Shell) -> None:
    shell.hive("convoy", "submit", shell.plan(TASKS))
    [line, *_] = shell.hive("log").splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d convoy c submitted", line)
    [event, *_] = map(json.loads, shell.hive("log", "--json").splitlines())
    hours = (int(line[11:13]) - int(event["occurred_at"][11:13])) % 24
    assert (hours, line[14:19]) == (9, event["occurred_at"][14:19])
    for arguments in (("status",), ("convoy", "ls"), ("convoy", "show", "c"), ("ledger", "c"), ("task", "show", "A")):
        assert not re.search(r"\d\dT\d\d:\d\d", shell.hive(*arguments))
    # What is shown can be typed: it is the beginning of its second.
    assert shell.json("diff", "0", line[:19])["to"]["seq"] == 0


def test_the_kind_of_an_event_is_shown_to_whoever_asks(shell: Shell) -> None:
    shell.hive("convoy", "submit", shell.plan(TASKS))
    assert "convoy.submitted" not in shell.hive("log")
    assert "convoy.submitted" in shell.hive("log", "--verbose")


def test_help_has_a_panel_for_each_thing_a_person_wants(shell: Shell) -> None:
    said = shell.hive("--help")
    panels = ("Start here", "Watch", "Steer", "Merge queue", "Agents", "History and repair")
    places = [said.index(panel) for panel in panels]
    assert places == sorted(places)


def test_a_subject_is_told_by_its_last_lines_and_one_that_nobody_knows_is_refused(shell: Shell) -> None:
    shell.hive("convoy", "submit", shell.plan(TASKS))
    shell.hive("task", "cancel", "A")
    assert len(shell.hive("log", "--subject", "c").splitlines()) == 3
    assert len(shell.hive("log", "--subject", "c", "-n", "1").splitlines()) == 1
    assert "Did you mean 'c/A'?" in shell.hive("log", "--subject", "A", code=2)


def test_a_difference_from_before_the_first_event_is_everything(shell: Shell) -> None:
    shell.hive("convoy", "submit", shell.plan(TASKS))
    for first in ("0", "2001-01-01 00:00"):
        shown = shell.json("diff", first, "now")
        assert (shown["from"]["seq"], [row["convoy"] for row in shown["convoys"]]) == (0, ["c"])
    assert shell.hive("diff", "0", "now").startswith("From before the first event\n")


def test_a_table_that_no_terminal_reads_is_not_wrapped(shell: Shell) -> None:
    name = "a-very-long-name-of-a-task-" * 2
    tasks = "".join(f"  - {{id: {name}{n}, command: 'true', after: [{name}0]}}\n" for n in range(1, 3))
    shell.hive("convoy", "submit", shell.plan(f"convoy: c\ntasks:\n  - {{id: {name}0, command: 'true'}}\n{tasks}"))
    rows = [line for line in shell.hive("convoy", "show", "c").splitlines() if name in line]
    assert [row.split()[0] for row in rows] == [f"{name}{n}" for n in range(3)]
    assert rows[1].rstrip().endswith(f"waits for {name}0 (PENDING)")


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (80, "  worker 12  auth-module/AUTH-140-refresh  working 1 min 15 s  Add refresh-toke…"),
        (60, "  auth-module/AUTH-140-refresh  working 1 min 15 s  Add ref…"),
    ],
)
def test_in_the_live_picture_a_workers_title_is_cut_first(columns: int, line: str) -> None:
    row = {
        "worker": 12,
        "task": "auth-module/AUTH-140-refresh",
        "state": "working",
        "for_s": 75,
        "silent_s": None,
        "progress": "",
        "title": "Add refresh-token rotation to the login flow",
    }
    out = Console(width=columns, color_system=None)
    with out.capture() as shown:
        out.print(render.draw_workers([row], 5, columns))
    assert shown.get() == f"{line}\n"


def test_a_hive_is_named_by_an_option_or_by_the_environment(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.hive("convoy", "submit", shell.plan(TASKS))
    assert "c" in shell.hive("-C", str(shell.root), "convoy", "ls", cwd=tmp_path)
    assert "-C takes an existing directory" in shell.hive("-C", str(tmp_path / "none"), "convoy", "ls", code=2)
    monkeypatch.setenv("HIVE_DIR", str(shell.root))
    assert "PENDING" in shell.hive("convoy", "show", "c", cwd=tmp_path)
    monkeypatch.setenv("HIVE_DIR", str(tmp_path))
    assert "unset HIVE_DIR" in shell.hive("status", code=2)


def test_ctrl_c_while_hive_starts_prints_no_traceback(shell: Shell) -> None:
    code = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "hivekeeper.cli.render":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from hivekeeper.cli import main
main()
"""
    argv = (sys.executable, "-c", code, "status")
    done = subprocess.run(argv, cwd=shell.root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


def test_a_frozen_keeper_is_abandoned_and_needs_a_person(shell: Shell) -> None:
    shell.set("[keeper]\nheartbeat = 1\nabandoned_after = 3\n")
    keeper = shell.start("up")
    shell.wait(shell.keeper_is_active)
    keeper.send_signal(signal.SIGSTOP)
    try:
        shell.wait(lambda: bool(shell.json("status")["keeper"]["state"] == "ABANDONED"))
        [need] = shell.json("status")["needs_me"]
        assert "has not recorded a heartbeat since" in need["what"]
        assert need["type"].startswith("hive up")
    finally:
        keeper.send_signal(signal.SIGCONT)
    shell.hive("down")


def test_a_keeper_before_its_first_heartbeat_is_unknown(shell: Shell) -> None:
    shell.start("up")
    shell.wait(shell.keeper_is_active)
    with open_records(shell.root).ledger.read() as connection:
        living, beat = find_living_holder(connection), find_heartbeat(connection)
    assert living is not None
    now = time.monotonic()
    assert decide_keeper(living, None, monotonic_s=now, abandoned_after_s=300) is KeeperState.UNKNOWN
    assert decide_keeper(living, beat, monotonic_s=now, abandoned_after_s=300) is KeeperState.ACTIVE
    assert decide_keeper(None, beat, monotonic_s=now, abandoned_after_s=300) is KeeperState.NONE
    shell.hive("down")


def test_a_schema_is_printed_anywhere_for_an_editor(shell: Shell, tmp_path: Path) -> None:
    for kind, key in (("plan", "tasks"), ("toml", "runners")):
        assert key in json.loads(shell.hive("schema", kind, cwd=tmp_path))["properties"]
    assert "'plan', 'toml'" in shell.hive("schema", "yaml", code=2, cwd=tmp_path)
