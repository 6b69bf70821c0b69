"""One keeper at a time, however they come, go, freeze and die."""

import os
import signal
from pathlib import Path

from hivekeeper.store.ledger import read_head
from hivekeeper.store.sqlite import reading_only
from tests.e2e.conftest import Shell

SLOW = "convoy: slow\ntasks:\n  - {id: A, command: 'echo x >> marks; while ! test -f go; do sleep 0.02; done'}\n"


def begin_slow(shell: Shell) -> int:
    """Start a keeper with a task that waits for the file `go`; give the keeper's pid."""
    process = shell.start("run", shell.plan(SLOW))
    shell.wait((shell.root / "marks").exists)
    shell.wait(lambda: "run.started" in shell.hive("log", "--json"))  # the task may be ahead of the record of its start
    return process.pid


def test_a_second_keeper_leaves_with_3_and_touches_nothing(shell: Shell) -> None:
    begin_slow(shell)
    events = shell.json("status")["events"]
    assert "Another keeper is active" in shell.hive("up", code=3)
    assert "Another keeper is active" in shell.hive("up", "--detach", code=3)
    assert shell.hive("up", "--if-idle", code=0) == ""
    assert shell.json("status")["events"] == events
    assert [convoy["convoy"] for convoy in shell.json("convoy", "ls")] == ["slow"]


def test_after_kill_9_the_next_keeper_starts_at_once_and_adopts_what_runs(shell: Shell) -> None:
    os.kill(begin_slow(shell), signal.SIGKILL)
    shell.started[0].wait()
    second = shell.start("run", "plan.yaml")
    shell.wait(shell.keeper_is_active)
    (shell.root / "go").touch()
    assert second.wait(30) == 0
    assert (shell.root / "marks").read_text() == "x\n"
    [task] = shell.json("ledger", "slow")["tasks"]
    assert (task["status"], task["attempt"]) == ("COMPLETE", 1)


def test_ctrl_c_leaves_the_worker_alone_and_says_how_to_come_back(shell: Shell) -> None:
    os.kill(begin_slow(shell), signal.SIGINT)
    said, _ = shell.started[0].communicate(timeout=30)
    assert shell.started[0].returncode == 130
    assert "hive run plan.yaml" in said
    assert not shell.keeper_is_active()
    (shell.root / "go").touch()
    shell.hive("run", "plan.yaml")
    assert (shell.root / "marks").read_text() == "x\n"


def test_a_keeper_that_is_told_to_go_says_how_much_it_saved(shell: Shell, source: Path) -> None:
    task = "{id: A, repo: app, command: 'echo a > a; sleep 30'}"
    shell.start("run", shell.plan(f"convoy: c\nrepos: {{app: {{path: {source}}}}}\ntasks:\n  - {task}\n"))
    shell.wait((shell.root / ".hive/sandboxes/c/A.1/work/a").exists)
    shell.wait(lambda: [row["state"] for row in shell.json("worker", "ls")] == ["working"])
    shell.started[0].terminate()
    said, _ = shell.started[0].communicate(timeout=30)
    assert "Stopping; saved the work of 1 of 1 worker.\n" in said
    shell.hive("down", "--workers")


def test_a_frozen_keeper_is_abandoned_killed_and_followed(shell: Shell) -> None:
    shell.set('[keeper]\nheartbeat = "0.5s"\nabandoned_after = "1s"\n')
    pid = begin_slow(shell)
    os.kill(pid, signal.SIGSTOP)
    (shell.root / "go").touch()
    shell.wait(lambda: "ABANDONED" in shell.hive("log", "-n", "100") or _try_run(shell))
    assert shell.started[0].wait(30) == -signal.SIGKILL
    assert shell.json("ledger", "slow")["tasks"][0]["status"] == "COMPLETE"
    assert (shell.root / "marks").read_text() == "x\n"
    assert shell.json("status")["epoch"] >= 2


def _try_run(shell: Shell) -> bool:
    process = shell.start("run", "plan.yaml")
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0 or (process.returncode == 5 and "has recorded no heartbeat" in said), said
    return process.returncode == 0


def test_a_frozen_keeper_that_wakes_after_its_lock_was_lost_is_refused_and_stops(shell: Shell) -> None:
    shell.set('[keeper]\nheartbeat = "0.5s"\nabandoned_after = "1s"\n')
    pid = begin_slow(shell)
    os.kill(pid, signal.SIGSTOP)
    (shell.root / ".hive" / "keeper.lock").unlink()  # somebody "cleaned up"
    successor = shell.start("up")
    shell.wait(lambda: shell.json("status")["epoch"] == 2)
    os.kill(pid, signal.SIGCONT)
    said, _ = shell.started[0].communicate(timeout=30)
    assert shell.started[0].returncode == 3
    assert "Epoch 1 has ended" in said
    (shell.root / "go").touch()
    shell.wait(lambda: shell.json("ledger", "slow")["tasks"][0]["status"] == "COMPLETE")
    assert (shell.root / "marks").read_text() == "x\n"
    successor.terminate()


def test_up_detached_takes_work_from_another_terminal_until_down(shell: Shell) -> None:
    assert "hive down" in shell.hive("up", "--detach")
    shell.hive("task", "add", "small", "A", "--command", "echo a > a")
    shell.hive("task", "add", "small", "B", "--command", "cat a > b", "--after", "A")
    shell.wait(lambda: shell.json("convoy", "ls")[0]["state"] == "COMPLETE")
    assert (shell.root / "b").read_text() == "a\n"
    assert "Stopped" in shell.hive("down")
    assert "The keeper is not running" in shell.hive("down")
    assert not shell.keeper_is_active()


def test_a_cancelled_task_is_ended_by_the_keeper_of_the_other_terminal(shell: Shell) -> None:
    begin_slow(shell)
    shell.hive("task", "cancel", "A", "--reason", "wrong branch")
    assert shell.started[0].wait(30) == 0
    assert "wrong branch" in shell.hive("task", "why", "A")


def test_nothing_of_a_hive_is_left_running_when_it_is_done(shell: Shell) -> None:
    shell.hive("run", shell.plan("convoy: c\ntasks:\n  - {id: A, command: 'sleep 300 & setsid sleep 300 & true'}\n"))
    with reading_only(shell.root / ".hive" / "ledger.db") as connection:
        marker = f"{read_head(connection).hive}/c/A.1.agent\0".encode()
    left = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if marker in (process / "environ").read_bytes():
                    left.append((process / "cmdline").read_bytes())
            except OSError:
                continue
    assert left == []
