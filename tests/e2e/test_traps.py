"""What a new user runs into in the first hour, as they type it; only what a keeper of its own proves has one."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.hive import open_records
from hivekeeper.store import queries
from hivekeeper.store.ledger import create_ledger
from tests.e2e.conftest import Shell
from tests.e2e.test_terminal import _run_on_a_terminal
from tests.git import git

WAIT = 'while ! test -f "$HIVE_ROOT/go"; do sleep 0.02; done'
ONE = "convoy: c\ntasks:\n  - {id: A, command: 'true'}\n"
SLOW = f"convoy: c\ntasks:\n  - {{id: A, command: 'echo made > made; {WAIT}', outputs: [made], idempotent: true}}\n"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Path]:
    """A directory on the PATH."""
    directory = tmp_path / "programs"
    directory.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        yield directory


def _read_to_its_end(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    said = process.stdout.read()
    process.wait()
    return said


def _add_runner(shell: Shell, command: str) -> None:
    with (shell.root / "hive.toml").open("a") as file:
        file.write(f"\n[runners.mine]\ncommand = '{command}'\n")


def test_a_prompt_without_repository_and_outputs_reads_its_prompt_inside_the_sandbox(shell: Shell) -> None:
    shell.set('[runners.mine]\ncommand = """sh -c \'cat "$0" > heard\'"""\n')
    plan = shell.plan("convoy: c\ntasks:\n  - {id: A, prompt: 'Say hello.', runner: mine}\n")
    shell.hive("run", plan)
    assert (shell.root / "heard").read_text().endswith("# Your task\n\nSay hello.\n")


def test_a_runner_that_is_not_installed_is_refused_at_submission_with_what_to_write(shell: Shell) -> None:
    _add_runner(shell, "no-such-agent")
    plan = shell.plan("convoy: c\ntasks:\n  - {id: A, prompt: hello, runner: mine}\n")
    said = shell.hive("convoy", "submit", plan, code=2)
    assert "'no-such-agent' of runner 'mine' is not installed, or not on the PATH" in said
    assert "write its full path as `command` in [runners.mine] of hive.toml" in said
    assert "not installed" in shell.hive("task", "add", "c", "A", "--prompt", "hello", "--runner", "mine", code=2)
    assert shell.json("convoy", "ls") == []


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('command = "FOO=1 timeout 60 no-such-agent"', "'no-such-agent' of runner 'mine' is not installed"),
        ('command = "python3 /nowhere/agent.py"', "'/nowhere/agent.py' of runner 'mine' is not there; create it"),
        ('command = "cat"\nmcp = {a = ["no-such-server"]}', "write its full path as `mcp.a` in [runners.mine]"),
        ('command = "cat"\nmcp = {a = ["python3", "--root=/nowhere/x"]}', "'/nowhere/x' of MCP server 'a' of runner"),
    ],
)
def test_a_runner_is_refused_for_all_that_it_starts_with(shell: Shell, table: str, told: str) -> None:
    shell.set(f"[runners.mine]\n{table}\n")
    plan = shell.plan("convoy: c\ntasks:\n  - {id: A, prompt: hello, runner: mine}\n")
    assert told in shell.hive("convoy", "submit", plan, code=2)
    assert shell.json("convoy", "ls") == []


def test_one_runner_of_several_that_is_here_is_enough(shell: Shell) -> None:
    _add_runner(shell, "no-such-agent")
    plan = shell.plan("convoy: c\ntasks:\n  - {id: A, prompt: hello, runner: [mine, scripted]}\n")
    assert "1 new task" in shell.hive("convoy", "submit", plan)


def test_cancelling_without_a_keeper_says_that_the_agent_goes_on_and_down_workers_ends_it(shell: Shell) -> None:
    keeper = shell.start("run", shell.plan(SLOW))
    shell.wait(lambda: (shell.json("worker", "ls") or [{}])[0].get("state") == "working")
    shell.wait(lambda: any(shell.root.glob(".hive/sandboxes/c/A.1/work/made")))
    [worker] = shell.json("worker", "ls")
    keeper.send_signal(signal.SIGINT)
    keeper.wait()
    said = shell.hive("task", "cancel", "A")
    assert "c/A will be cancelled, but its run goes on: the keeper is not running. Type: hive up" in said
    assert "hive down --workers" in said
    os.kill(worker["pid"], 0)
    assert "Ended 1 worker and saved its work." in shell.hive("down", "--workers")
    assert shell.json("task", "show", "A")["state"] == "CANCELLED"
    assert (shell.root / ".hive/kept/c/A.1/made").read_text() == "made\n"


def test_ended_workers_leave_their_tasks_to_go_on_with_and_no_attempt_is_lost(shell: Shell) -> None:
    plan = shell.plan(SLOW.replace("idempotent: true", "idempotent: true, attempts: 1"))
    shell.start("run", plan)
    shell.wait(lambda: any(shell.root.glob(".hive/sandboxes/c/A.1/work/made")))
    said = shell.hive("down", "--workers")
    assert "Stopped keeper" in said
    assert "Ended 1 worker" in said
    assert not shell.keeper_is_active()
    assert shell.json("task", "show", "A")["state"] == "PENDING"
    (shell.root / "go").touch()
    assert "COMPLETE" in shell.hive("run", plan)


def test_a_plan_run_while_a_keeper_is_running_is_taken_by_it_and_followed(shell: Shell) -> None:
    keeper = shell.start("up")
    shell.wait(shell.keeper_is_active)
    said = shell.hive("run", shell.plan(ONE))
    assert "The running keeper takes the plan. Ctrl-C stops watching; the keeper goes on." in said
    assert "c/A → worker 1" in said
    assert "COMPLETE  1/1 complete" in said
    following = shell.start("run", shell.plan(SLOW.replace("convoy: c", "convoy: d"), "slow.yaml"))
    shell.wait(lambda: bool(shell.json("worker", "ls")))
    following.send_signal(signal.SIGINT)
    assert "Stopped watching. The keeper goes on: hive status" in _read_to_its_end(following)
    assert following.returncode == 130
    assert shell.keeper_is_active()
    following = shell.start("run", "slow.yaml")
    shell.wait(lambda: bool(shell.json("worker", "ls")))
    assert following.stdout is not None
    while "takes the plan" not in following.stdout.readline():
        pass
    keeper.kill()
    assert "Type: hive up" in _read_to_its_end(following)
    assert following.returncode != 0


def test_a_change_that_waits_for_approval_ends_an_unattended_run_and_is_named(shell: Shell, source: Path) -> None:
    shell.plan(f"""\
convoy: c
repos: {{app: {{path: {source}, gate: [check.sh]}}}}
tasks:
  - {{id: A, repo: app, command: 'echo true > check.sh'}}
  - {{id: B, repo: app, command: 'echo b > b', after: [A]}}
""")
    said = shell.hive("run", "plan.yaml", code=1)
    assert "Needs you" in said
    assert "hive queue approve c/A" in said
    # What to look at can be pasted anywhere.
    assert f"git --git-dir={shell.root}/.hive/repos/app.git diff" in said


def test_a_changed_hive_toml_is_taken_up_by_the_running_keeper_and_a_broken_one_is_said(shell: Shell) -> None:
    toml = shell.root / "hive.toml"
    toml.write_text("[hive]\nworkers = 1\n[keeper]\npoll = 0.1\n")
    shell.start("up")
    shell.wait(shell.keeper_is_active)
    tasks = "".join(f"  - {{id: {name}, command: '{WAIT}'}}\n" for name in "ABC")
    shell.hive("convoy", "submit", shell.plan(f"convoy: c\ntasks:\n{tasks}"))
    shell.wait(lambda: len(shell.json("status")["workers"]) == 1)
    toml.write_text("[hive]\nworkers = 'many'\n")
    [need] = shell.json("status")["needs_me"]
    assert "hive.toml cannot be used, and the keeper keeps the previous settings" in need["what"]
    assert "workers" in need["what"]
    assert need["type"].endswith(f" {toml}")
    assert len(shell.json("status")["workers"]) == 1
    toml.write_text("[hive]\nworkers = 3\n[keeper]\npoll = 0.1\n")
    shell.wait(lambda: len(shell.json("status")["workers"]) == 3)
    assert shell.json("status")["needs_me"] == []
    shell.hive("down", "--workers")


def test_a_second_hive_on_one_repository_says_so_and_a_gone_one_is_no_matter(
    shell: Shell, source: Path, tmp_path: Path
) -> None:
    plan = f"convoy: c\nrepos: {{app: {{path: {source}}}}}\ntasks:\n  - {{id: A, repo: app, command: 'true'}}\n"
    assert "also works on" not in shell.hive("convoy", "submit", shell.plan(plan))
    assert "also works on" not in shell.hive("convoy", "submit", "plan.yaml")
    other = _make_another(shell, tmp_path / "other")
    said = other.hive("convoy", "submit", other.plan(plan))
    assert f"The hive in {shell.root} also works on app ({source}, main): both publish to hive/main" in said
    (shell.root / ".hive").rename(tmp_path / "gone")
    assert "also works on" not in other.hive("convoy", "submit", "plan.yaml")


def _make_another(shell: Shell, root: Path) -> Shell:
    (root / ".hive").mkdir(parents=True)
    create_ledger(root / ".hive" / "ledger.db")
    other = Shell(root)
    other.started = shell.started
    return other


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("{path}", "file://{url}"), ("file://{url}", "{path}"), ("file://{url}", "file://{url}"), ("{path}", "{tree}")],
)
def test_a_second_hive_is_told_however_each_names_the_repository(
    shell: Shell, source: Path, tmp_path: Path, ours: str, theirs: str
) -> None:
    source = source.rename(tmp_path / "my app")
    git(source, "worktree", "add", "-q", "--detach", "../tree")
    places = {"path": source, "url": f"{tmp_path}/my%20app", "tree": tmp_path / "tree"}
    text = "convoy: c\nrepos: {{app: {{{} '{}'}}}}\ntasks:\n  - {{id: A, repo: app, command: 'true'}}\n"

    def plan(place: str) -> str:
        return text.format("url:" if "://" in place else "path:", place.format(**places))

    assert "also works on" not in shell.hive("convoy", "submit", shell.plan(plan(ours)))
    other = _make_another(shell, tmp_path / "other")
    said = other.hive("convoy", "submit", other.plan(plan(theirs)))
    assert f"The hive in {shell.root} also works on app ({theirs.format(**places)}, main): both publish to" in said
    assert f"The hive in {other.root} also works on app" in shell.hive("convoy", "submit", "plan.yaml")


@pytest.mark.parametrize(
    "url", ["ssh://nowhere.invalid/app", "nowhere.invalid:app", "file://nowhere/app", "file:///no%00where"]
)
def test_of_a_repository_elsewhere_nothing_is_said(shell: Shell, tmp_path: Path, url: str) -> None:
    text = f"convoy: c\nrepos: {{app: {{url: '{url}'}}}}\ntasks:\n  - {{id: A, repo: app, command: 'true'}}\n"
    for hive in (shell, _make_another(shell, tmp_path / "other")):
        assert "also works on" not in hive.hive("convoy", "submit", hive.plan(text))


def test_a_failure_shows_its_last_lines_and_where_all_of_them_are(shell: Shell) -> None:
    lines = "; ".join(f"echo line {n}" for n in range(9))
    tasks = f"tasks:\n  - {{id: A, command: '{lines}; exit 3', attempts: 1}}\n"
    shell.hive("run", shell.plan(f"convoy: c\n{tasks}"), code=1)
    path = shell.root / ".hive/runs/c/A.1.agent/output"
    for arguments in (("status",), ("task", "why", "A"), ("task", "show", "A")):
        said = shell.hive(*arguments)
        assert re.search(r"\| line 4\n.*\| line 8\n", said, re.DOTALL)
        assert "| line 3" not in said
        assert f"full output: less {path}" in said
    assert path.read_text().startswith("line 0\n")


def test_a_cancelled_task_does_not_fail_its_convoy_and_can_be_revived_with_a_note(shell: Shell) -> None:
    text = "convoy: c\ntasks:\n  - {id: A, command: 'true'}\n  - {id: B, command: 'cat \"$HIVE_FEEDBACK\" > heard'}\n"
    shell.hive("convoy", "submit", shell.plan(text))
    shell.hive("task", "cancel", "B")
    shell.hive("run", "plan.yaml")
    assert "COMPLETE  1/2 complete" in shell.hive("convoy", "show")
    assert "c/B will be retried." in shell.hive("task", "retry", "B", "--note", "try X")
    assert "ACTIVE" in shell.hive("convoy", "show")
    shell.hive("run", "plan.yaml")
    assert "try X" in (shell.root / "heard").read_text()


def test_a_prompt_that_nobody_has_begun_is_edited_and_another_is_not(shell: Shell) -> None:
    plan = shell.plan("convoy: c\ntasks:\n  - {id: A, prompt: 'write \"a\"', runner: scripted}\n")
    shell.hive("convoy", "submit", plan)
    assert "c/A is changed." in shell.hive("task", "edit", "A", "--prompt", "say hello")
    assert "has not changed" in shell.hive("task", "edit", "A", "--prompt", "say hello")
    with open_records(shell.root).ledger.read() as connection:
        assert queries.find_prompt(connection, "c/A") == "say hello"
    told = shell.hive("task", "edit", "A", "--command", "true", code=2)
    assert "has a prompt, and cannot become anything else" in told
    assert "exactly one" in shell.hive("task", "edit", "A", code=2)


def test_tasks_are_listed_and_the_only_convoy_needs_no_name(shell: Shell) -> None:
    assert "There is no convoy" in shell.hive("convoy", "show", code=2)
    shell.hive("convoy", "submit", shell.plan(ONE + "  - {id: B, command: 'true'}\n"))
    assert "PENDING" in shell.hive("convoy", "show")
    assert [row["task_id"] for row in shell.json("ledger")["tasks"]] == ["A", "B"]
    shell.hive("task", "cancel", "B")
    assert [row["task"] for row in shell.json("task", "ls")] == ["c/A", "c/B"]
    assert [row["task"] for row in shell.json("task", "ls", "c", "--state", "cancelled")] == ["c/B"]
    assert "c/A" in shell.hive("task", "ls")
    shell.hive("convoy", "submit", shell.plan(ONE.replace("convoy: c", "convoy: d")))
    assert "Name one: " in shell.hive("convoy", "show", code=2)


def test_a_task_that_is_added_takes_the_defaults_of_its_convoy(shell: Shell) -> None:
    defaults = "defaults: {attempts: 7, priority: 2, timeout: 45s, runner: scripted}"
    shell.hive("convoy", "submit", shell.plan(ONE.replace("tasks:", f"{defaults}\ntasks:")))
    shell.hive("task", "add", "c", "B", "--prompt", "say hi")
    shell.hive("task", "add", "c", "C", "--command", "true", "--attempts", "1")
    with open_records(shell.root).ledger.read() as connection:
        tasks = {task.id: task for task in queries.list_tasks_of_convoy(connection, "c")}
    assert [(tasks[name].attempts_allowed, tasks[name].priority) for name in "BC"] == [(7, 2), (1, 2)]
    assert (tasks["B"].runners, tasks["B"].get_limits()["wall_s"]) == (("scripted",), 45.0)


def test_a_branch_that_one_repository_has_needs_no_name_of_it(shell: Shell, source: Path, tmp_path: Path) -> None:
    subprocess.run(("git", "clone", "-q", str(source), str(tmp_path / "lib")), check=True)
    subprocess.run(("git", "-C", str(tmp_path / "lib"), "branch", "-q", "fix"), check=True)
    repos = f"repos: {{app: {{path: {source}}}, lib: {{path: {tmp_path / 'lib'}}}}}"
    tasks = "tasks:\n  - {id: A, repo: app, command: 'true'}\n  - {id: B, repo: lib, command: 'true'}\n"
    shell.hive("convoy", "submit", shell.plan(f"convoy: c\n{repos}\n{tasks}"))
    assert "queue of lib" in shell.hive("queue", "submit", "fix")
    assert "app and lib have a branch 'main'" in shell.hive("queue", "submit", "main", code=2)


def test_advice_names_the_hive_that_was_named(shell: Shell, tmp_path: Path) -> None:
    shell.hive("convoy", "submit", shell.plan(ONE))
    assert f"→ hive -C {shell.root} up" in shell.hive("-C", str(shell.root), "status", cwd=tmp_path)
    assert "→ hive up" in shell.hive("status")


def test_without_convoys_a_complete_one_is_archived_at_once(shell: Shell) -> None:
    shell.set("[patterns]\nconvoys = false\n")
    assert "1/1 complete" in shell.hive("run", shell.plan(ONE))
    assert [row["state"] for row in shell.json("convoy", "ls", "--all")] == ["ARCHIVED"]


TITLE = "Add refresh-token rotation to the login flow and to all that calls it, from the gateway to the jobs"
PROGRESS = "3 of 5 files are done; the session store is next, then the tests that still expect that there is one token"
LONG = "AUTH-141-" + "x" * 55  # as long as a task's id may be
AT_WORK = f"""\
convoy: auth-module
tasks:
  - {{id: AUTH-140-refresh, title: '{TITLE}', command: 'hive progress "{PROGRESS}"; {WAIT}', outputs: [made]}}
  - {{id: {LONG}, title: '{TITLE}', command: 'true', after: [AUTH-140-refresh]}}
"""


@pytest.fixture
def at_work(shell: Shell) -> Shell:
    """A hive with a worker that has told of its progress."""
    shell.start("run", shell.plan(AT_WORK))
    shell.wait(lambda: any(row["progress"] for row in shell.json("worker", "ls")))
    return shell


def _look(shell: Shell, columns: int, *arguments: str) -> list[str]:
    """Type a command on a terminal so wide, and give its lines without colours."""
    said = re.sub(r"\x1b\[[0-9;]*m", "", _run_on_a_terminal(shell, *arguments, columns=columns))
    return said.splitlines()


@pytest.mark.parametrize("columns", [60, 80])
def test_status_and_tables_stay_readable_in_few_columns(at_work: Shell, columns: int) -> None:
    for arguments, first, second in (
        (("status",), r"1 +auth-module/AUTH-140-refresh .*", ""),
        (("worker", "ls"), r"1 +auth-module/AUTH-140-refresh  working  .*3 of 5 .*…", ""),
        (
            ("task", "ls"),
            r"auth-module/AUTH-140-refresh +IN_PROGRESS  Add .*…",
            rf"auth-module/{LONG}  PENDING +Add .*…",
        ),
        (("convoy", "show"), r"AUTH-140-refresh +IN_PROGRESS  3 of 5 .*…", rf"{LONG}  PENDING +waits for .*"),
        (("ledger",), r"AUTH-140-refresh +IN_PROGRESS.*", rf"{LONG}  PENDING.*"),
    ):
        lines = _look(at_work, columns, *arguments)
        rows = [line for line in lines if "AUTH-14" in line]
        assert len(rows) == 1 + bool(second), rows
        assert re.fullmatch(first, rows[0])
        assert not second or re.fullmatch(second, rows[1])
        assert [line for line in lines if len(line) > columns and LONG not in line] == []
        assert all(len(line) <= 2 * columns for line in lines)
    assert any(re.match("auth-module  ACTIVE  0/2", line) for line in _look(at_work, columns, "convoy", "ls"))


def test_what_no_terminal_reads_is_neither_wrapped_nor_cut(at_work: Shell) -> None:
    assert f" {PROGRESS}\n" in at_work.hive("worker", "ls")
    assert re.search(rf"AUTH-140-refresh +IN_PROGRESS .* {PROGRESS}\n", at_work.hive("convoy", "show"))
    assert re.search(
        rf"{LONG} +PENDING .* waits for AUTH-140-refresh \(IN_PROGRESS\)\n", at_work.hive("convoy", "show")
    )
    assert len(re.findall(rf"^auth-module/AUTH-14.* {TITLE}$", at_work.hive("task", "ls"), re.MULTILINE)) == 2


def test_cancelling_a_convoy_says_how_many_of_its_tasks_are_running(at_work: Shell) -> None:
    said = at_work.hive("convoy", "cancel", "auth-module").splitlines()
    assert said[0] == "Cancelled 2 tasks of auth-module."
    assert said[1:] == ["1 of them is running: its run is stopped first, and its work is saved."]
