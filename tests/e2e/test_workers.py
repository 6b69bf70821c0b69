"""Workers as a person sees them: who is at work, what each says, ending one, and the picture of a run."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Shell
from tests.e2e.test_terminal import _run_on_a_terminal

WAIT = "while ! test -f go; do sleep 0.02; done"
TWO = f"""\
convoy: c
defaults: {{attempts: 2}}
tasks:
  - {{id: A, command: 'echo hello; printf "\\033[31mred\\033]0;owned\\007\\n"; {WAIT}; echo bye'}}
  - {{id: B, command: '{WAIT}', silence: 60s}}
"""


def _begin(shell: Shell, text: str = TWO, name: str = "plan.yaml") -> None:
    shell.start("run", shell.plan(text, name))
    shell.wait(lambda: {row["state"] for row in _workers(shell)} == {"working"})


def _workers(shell: Shell) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = shell.json("worker", "ls")
    return rows


def _kill_keeper(shell: Shell) -> None:
    shell.started[-1].kill()
    shell.started[-1].wait()


def test_those_at_work_are_listed_with_what_they_do_and_how_long_they_are_silent(shell: Shell) -> None:
    assert "No workers are running." in shell.hive("worker", "ls")
    _begin(shell)
    shell.wait(lambda: _workers(shell)[0]["output_bytes"] > 6)
    first, second = _workers(shell)
    assert (first["worker"], first["task"], first["attempt"], first["state"]) == (1, "c/A", 1, "working")
    assert (second["worker"], second["task"], second["output_bytes"]) == (2, "c/B", 0)
    assert 0 <= first["silent_s"] < first["for_s"] + 1
    os.kill(first["pid"], 0)
    said = shell.hive("worker", "ls")
    assert re.search(r"^1 +c/A +1 +working", said, re.MULTILINE)
    assert "not running" not in said


def test_a_worker_silent_for_half_its_limit_is_stalled_and_one_without_a_wrapper_is_a_zombie(shell: Shell) -> None:
    _begin(shell)
    _kill_keeper(shell)
    first, second = _workers(shell)
    patient = shell.root / ".hive" / "runs" / first["run"] / "output"  # its limit is an hour
    os.utime(patient, (patient.stat().st_mtime - 600,) * 2)
    output = shell.root / ".hive" / "runs" / second["run"] / "output"
    output.touch()
    os.utime(output, (output.stat().st_mtime - 31,) * 2)
    assert [row["state"] for row in _workers(shell)] == ["working", "stalled"]
    os.kill(first["pid"], signal.SIGKILL)
    shell.wait(lambda: [row["state"] for row in _workers(shell)] == ["zombie", "stalled"])
    assert "Type: hive up" in shell.hive("worker", "ls")


def test_what_an_agent_says_is_shown_harmless_and_followed_to_its_end(shell: Shell) -> None:
    _begin(shell)
    shell.wait(lambda: "red" in shell.hive("worker", "log", "A"))
    assert shell.hive("worker", "log", "1") == "hello\n [31mred ]0;owned \n"
    assert shell.hive("worker", "log", "c/A", "-n", "1") == " [31mred ]0;owned \n"
    assert "Worker 2 (c/B, attempt 1) has written no output yet." in shell.hive("worker", "log", "B")
    following = shell.start("worker", "log", "A", "-f", "-n", "1")
    assert following.stdout is not None
    assert "red" in following.stdout.readline()
    silent = shell.start("worker", "log", "B", "-f")
    (shell.root / "go").touch()
    assert following.communicate(timeout=30)[0] == "bye\n"
    assert "(c/B, attempt 1) has written no output.\n" in silent.communicate(timeout=30)[0]
    shell.started[0].wait()
    for who in (("A",), ("1",), ("A", "--attempt", "1")):
        assert shell.hive("worker", "log", *who).endswith("bye\n")
    assert "Type a number from 1 to 1." in shell.hive("worker", "log", "A", "--attempt", "2", code=2)


def test_what_lies_where_an_agents_words_should_be_is_not_followed(shell: Shell, tmp_path: Path) -> None:
    _begin(shell)
    run = shell.root / ".hive" / "runs" / _workers(shell)[1]["run"]
    (tmp_path / "secret").write_text("secret\n")
    (run / "output").symlink_to(tmp_path / "secret")
    assert "has written no output" in shell.hive("worker", "log", "B")
    (run / "output").unlink()
    os.mkfifo(run / "output")
    assert "has written no output" in shell.hive("worker", "log", "B")
    assert _workers(shell)[1]["output_bytes"] == 0


def test_a_killed_worker_may_have_had_its_effect_so_its_task_waits_for_a_person(shell: Shell) -> None:
    _begin(shell)
    assert "Worker 1 (c/A) is being stopped." in shell.hive("worker", "kill", "1", "--reason", "it [loops]")
    shell.wait(lambda: shell.json("task", "show", "A")["state"] == "UNKNOWN")
    [first] = shell.json("task", "show", "A")["attempts"]
    assert first["reason"] == "it may have run: it was stopped: it [loops]"
    shell.hive("task", "retry", "A")
    shell.wait(lambda: [row["worker"] for row in _workers(shell) if row["state"] == "working"] == [2, 3])
    (shell.root / "go").touch()
    assert shell.started[0].wait(30) == 0
    assert shell.hive("worker", "log", "A", "--attempt", "1").startswith("hello\n")


def test_with_nobody_keeping_a_kill_waits_for_the_next_keeper_and_says_so(shell: Shell) -> None:
    _begin(shell)
    _kill_keeper(shell)
    said = shell.hive("worker", "kill", "c/B")
    assert "Worker 2 (c/B) is being stopped." in said
    assert "The keeper is not running, so the worker goes on until one is started. Type: hive up" in said
    assert "already being stopped" in shell.hive("worker", "kill", "2")
    assert [row["state"] for row in _workers(shell)] == ["working", "stopping"]
    shell.start("up")
    shell.wait(lambda: shell.json("task", "show", "B")["state"] == "UNKNOWN")
    [first] = shell.json("task", "show", "B")["attempts"]
    assert first["reason"] == "it may have run: it was stopped: a person asked for it"


def test_a_worker_whose_work_is_being_verified_is_listed_and_has_no_agent_to_kill(shell: Shell, source: Path) -> None:
    gate = f"cd {shell.root}; {WAIT}"
    (shell.root / "hive.toml").write_text(f"[sandbox]\nread = ['{shell.root}']\n")  # where the gate looks for its sign
    plan = f'convoy: c\nrepos:\n  app: {{path: {source}, verify: "{gate}"}}\ntasks:\n'
    shell.start("run", shell.plan(f"{plan}  - {{id: A, repo: app, command: 'echo x > x'}}\n"))
    verifying = "in the merge queue: verifying"
    shell.wait(lambda: [row["state"] for row in _workers(shell)] == [verifying])
    [row] = _workers(shell)
    assert (row["worker"], row["task"], row["pid"]) == (1, "c/A", None)
    assert "Worker 1 has no agent running for c/A just now." in shell.hive("worker", "kill", "1", code=2)
    assert "Worker 1 (c/A, attempt 1) has written no output." in shell.hive("worker", "log", "1")
    (shell.root / "go").touch()
    assert shell.started[0].wait(30) == 0
    assert _workers(shell) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kill", "7"), "Worker 7 is not running."),
        (("kill", "D"), "No worker is at work on c/D."),
        (("kill", "nobody"), "There is no task 'nobody'."),
        (("kill", "A"), "Name its task: c/A (worker 1), d/A (worker 1)"),
        (("kill", "1"), "Name its task: c/A (worker 1), d/A (worker 1)"),
        (("kill", "2"), "Name its task: c/B (worker 2), c/2 (worker 3)"),
        (("log", "7"), "There is no worker 7, and there was none."),
        (("log", "c/D"), "c/D has had no worker yet."),
    ],
)
def test_whoever_is_meant_by_nobody_or_by_several_is_asked_for(
    hive_of_two: Shell, arguments: tuple[str, ...], said: str
) -> None:
    assert said in hive_of_two.hive("worker", *arguments, code=2)


@pytest.fixture(scope="module")
def hive_of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A hive with two convoys at work, one of which has a task called like a worker."""
    shell = Shell(tmp_path_factory.mktemp("hive"))
    shell.hive("init")
    waits = f"command: '{WAIT}'"
    tasks = (
        f"  - {{id: A, {waits}}}\n  - {{id: B, {waits}}}\n  - {{id: '2', {waits}}}\n  - {{id: D, after: [A], {waits}}}"
    )
    shell.hive("convoy", "submit", shell.plan(f"convoy: c\ntasks:\n{tasks}\n"))
    shell.hive("convoy", "submit", shell.plan(f"convoy: d\ntasks:\n  - {{id: A, {waits}}}\n", "d.yaml"))
    shell.start("up")
    shell.wait(lambda: [row["state"] for row in _workers(shell)] == ["working"] * 4)
    yield shell
    (shell.root / "go").touch()
    shell.wait(lambda: not _workers(shell))
    shell.started[0].terminate()
    shell.started[0].communicate()


def test_a_run_on_a_terminal_shows_a_line_a_worker_and_titles_stay_words(shell: Shell) -> None:
    title = r"[red]boom[/red] \e]0;owned\a [/nothing]"
    plan = shell.plan(f'convoy: c\ntasks:\n  - {{id: A, title: "{title}", command: "sleep 1"}}\n')
    shown = _run_on_a_terminal(shell, "run", plan)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert re.search(r"^c  ░+  0/1  \d s so far", plain, re.MULTILINE)
    assert re.search(r"worker 1  c/A  working \d s  \[red\]boom\[/red\]  \]0;owned  \[/nothing\]", plain)
    assert "\x1b]" not in shown


def test_a_busy_run_is_drawn_no_more_than_four_times_a_second(shell: Shell) -> None:
    tasks = "".join(f"  - {{id: T{number}, command: 'sleep 0.02'}}\n" for number in range(40))
    shown = _run_on_a_terminal(shell, "run", shell.plan(f"convoy: c\ntasks:\n{tasks}"), "--workers", "1")
    [(begin, end)] = {(row["submitted_at"][17:26], row["ended_at"][17:26]) for row in shell.json("convoy", "ls")}
    # A picture is drawn once more when lines are put above it, in the same write.
    assert shown.count(" so far") <= 2 * (4 * ((float(end) - float(begin)) % 60) + 2)
    assert shown.count("✓") == 40
