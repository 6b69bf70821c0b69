"""Wrong input: a clear sentence, the right exit code, nothing half done."""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell
from tests.needs import small_disk

TASK = "tasks:\n  - {id: A, command: 'true'}\n"


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ("convoy: c\ntasks:\n  - {id: A, comand: 'true'}\n", "plan.yaml:3: unknown key 'comand'"),
        ("convoy: c\ntasks:\n  - {id: A, comand: 'true'}\n", "did you mean 'command'?"),
        ("convoy: c\ntasks:\n  - {id: A, command: x, after: [B]}\n  - {id: B, command: x, after: [A]}\n", "-> B -> A"),
        ("convoy: c\ntasks:\n  - {id: A, command: x}\n  - {id: A, command: y}\n", "plan.yaml:4"),
        ("convoy: c\ntasks:\n  - {id: A, command: x, after: [C]}\n  - {id: Cc, command: x}\n", "'C'"),
        ("convoy: -x\n" + TASK, "plan.yaml:1"),
        ("convoy: c\ntasks:\n  - {id: ../A, command: x}\n", "plan.yaml:3"),
        ("convoy: c\nrepos: {r: {path: /nowhere/at/all}}\n" + TASK, "there is no directory"),
        ("convoy: c\nrepos: {r: {path: .}}\n" + TASK, "is not a git repository"),
        ("convoy: [c\n", "plan.yaml:"),
        ("", "plan.yaml"),
    ],
)
def test_a_wrong_plan_is_refused_whole_with_file_line_and_reason(shell: Shell, plan: str, sentence: str) -> None:
    assert sentence in shell.hive("run", shell.plan(plan), code=2)
    assert shell.json("status")["events"] == 0 or shell.json("convoy", "ls") == []


def test_a_repository_without_the_branch_is_refused_with_what_it_has(shell: Shell, source: Path) -> None:
    plan = shell.plan(f"convoy: c\nrepos: {{r: {{path: {source}, branch: mian}}}}\n{TASK}")
    assert "has no branch 'mian' (it has main)" in shell.hive("run", plan, code=2)


def test_a_shallow_clone_is_refused_with_what_makes_it_whole(shell: Shell, source: Path, tmp_path: Path) -> None:
    for number in range(2):
        argv = ("git", "-C", str(source), "commit", "--quiet", "--allow-empty", "-m", f"more {number}")
        subprocess.run(argv, check=True)
    shallow = tmp_path / "shallow"
    subprocess.run(("git", "clone", "--quiet", "--depth", "1", source.as_uri(), str(shallow)), check=True)
    plan = shell.plan(f"convoy: c\nrepos: {{r: {{path: {shallow}}}}}\n{TASK}")
    assert f"git -C {shallow} fetch --unshallow" in shell.hive("run", plan, code=2)


def test_a_missing_plan_is_a_sentence(shell: Shell) -> None:
    assert "nowhere.yaml" in shell.hive("run", "nowhere.yaml", code=2)


def test_an_unknown_setting_is_named_with_its_line_and_the_nearest_right_one(shell: Shell) -> None:
    (shell.root / "hive.toml").write_text("[hive]\nworkes = 3\n")
    for arguments, code in ((("up",), 2), (("status",), 0)):
        said = shell.hive(*arguments, code=code)
        assert "hive.toml:2" in said
        assert "did you mean 'workers'?" in said


def test_outside_a_hive_every_command_says_how_to_make_one(tmp_path: Path, shell: Shell) -> None:
    for arguments in (("status",), ("run", "x.yaml"), ("up",), ("log",), ("convoy", "ls")):
        assert "hive init" in shell.hive(*arguments, code=2, cwd=tmp_path)


def test_of_a_changed_plan_what_is_new_is_added_and_what_stays_is_told(shell: Shell) -> None:
    shell.hive("convoy", "submit", shell.plan("convoy: c\n" + TASK))
    changed = shell.plan("convoy: c\ntasks:\n  - {id: A, command: 'false'}\n  - {id: B, command: 'true'}\n")
    told = "Task 'A' already exists with a different command; it was not changed. To add it, use another id."
    said = shell.hive("convoy", "submit", changed).splitlines()
    assert said == ["Convoy c: 1 new task, 1 known already. The keeper is not running; type: hive up", told]
    again = shell.json("convoy", "submit", changed)
    assert again == {"convoy": "c", "added": 0, "known": 2, "unchanged_because": [told]}
    assert told in shell.hive("task", "add", "c", "A", "--command", "false", code=2)
    assert shell.json("convoy", "ls")[0]["tasks"] == 2


def test_a_repository_elsewhere_is_not_looked_for_on_this_disk(shell: Shell) -> None:
    plan = shell.plan("convoy: c\nrepos: {r: {url: 'git@host.invalid:r.git'}}\n" + TASK)
    assert shell.json("convoy", "submit", plan)["added"] == 1


def test_a_prompt_for_a_runner_that_the_hive_does_not_have_is_refused(shell: Shell) -> None:
    plan = shell.plan("convoy: c\ntasks:\n  - {id: A, prompt: x, runner: scriptd}\n")
    assert "plan.yaml:3: unknown runner 'scriptd'" in shell.hive("run", plan, code=2)
    (shell.root / "hive.toml").write_text("[runners.mine]\ncommand = 'cat'\n")
    plan = shell.plan("convoy: c\ntasks:\n  - {id: A, prompt: x, runner: mine}\n")
    assert shell.json("convoy", "submit", plan)["added"] == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "Task 'A' has no 'command' and no 'prompt'."),
        (("--command", "x", "--prompt", "y"), "Task 'A' has both 'command' and 'prompt'."),
        (("--prompt", "y"), "Task 'A' has a 'prompt' but no 'runner' to give it to."),
        (("--prompt", "y", "--runner", "scriptd"), "Did you mean 'scripted'?"),
        (("--prompt", "@nowhere.md", "--runner", "scripted"), "nowhere.md: there is no such file"),
        (("--command", "x", "--runner", "scripted"), "Task 'A' has a 'command', which takes no 'runner'."),
        (("--command", "x", "--output", "../x"), "Task 'A' cannot promise '../x'."),
        (("--command", "x", "--output", "x", "--output", "./x"), "'./x' of task 'A' is already promised by task 'A'."),
        (("--command", "x", "--path", "src"), "Task 'A' has 'paths' but no 'repo' to find them in."),
    ],
)
def test_a_task_that_cannot_be_is_not_added(shell: Shell, options: tuple[str, ...], sentence: str) -> None:
    assert sentence in shell.hive("task", "add", "c", "A", *options, code=2)
    assert shell.json("convoy", "ls") == []


def test_a_task_with_a_prompt_from_a_file_and_two_outputs_is_added(shell: Shell) -> None:
    (shell.root / "prompt.md").write_text("Mind the clock.\n")
    options = ("--prompt", "@prompt.md", "--runner", "scripted", "--output", "a.md", "--output", "b.md")
    assert "Added c/A." in shell.hive("task", "add", "c", "A", *options)
    assert "exists already" in shell.hive("task", "add", "c", "A", *options)
    assert "a different prompt" in shell.hive("task", "add", "c", "A", "--prompt", "x", *options[2:], code=2)


@pytest.mark.parametrize("agents", ["0", "1001", "many"])
def test_a_hive_for_no_number_of_agents_is_not_made(shell: Shell, tmp_path: Path, agents: str) -> None:
    assert "--agents" in shell.hive("init", str(tmp_path / "new"), "--agents", agents, code=2)
    assert not (tmp_path / "new").exists()


def test_a_hive_for_twelve_agents_has_their_settings_and_keeps_those_it_has(shell: Shell, tmp_path: Path) -> None:
    new = tmp_path / "new"
    said = shell.hive("init", str(new), "--agents", "12").splitlines()
    assert said[1].startswith("hive.toml is for 10–20 agents: ")
    written = (new / "hive.toml").read_text()
    assert "workers = 12 " in written
    shell.hive("init", str(new), "--agents", "12")
    shell.hive("init", str(new))
    assert "exists already and was not changed" in shell.hive("init", str(new), "--agents", "3", code=2)
    assert (new / "hive.toml").read_text() == written


def test_unknown_tasks_and_convoys_are_answered_with_the_nearest(shell: Shell) -> None:
    shell.hive("convoy", "submit", shell.plan("convoy: orders\ntasks:\n  - {id: AUTH-140, command: 'true'}\n"))
    assert "Did you mean 'AUTH-140'?" in shell.hive("task", "why", "AUTH-104", code=2)
    assert "Did you mean 'orders'?" in shell.hive("convoy", "show", "order", code=2)


def test_a_bare_id_that_two_convoys_know_asks_which(shell: Shell) -> None:
    for convoy in ("one", "two"):
        shell.hive("task", "add", convoy, "A", "--command", "true")
    said = shell.hive("task", "cancel", "A", code=2)
    assert "one/A" in said
    assert "two/A" in said


def test_a_cycle_through_task_add_cannot_be_made_and_unknown_predecessors_are_refused(shell: Shell) -> None:
    said = shell.hive("task", "add", "c", "A", "--command", "true", "--after", "B", code=2)
    assert "Unknown task 'B' in 'after' of task 'A'." in said


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"this is no database" * 100, "is not a database"), (b"", "creation was interrupted")],
)
def test_a_ledger_that_is_none_is_refused_with_4_and_not_written(shell: Shell, content: bytes, sentence: str) -> None:
    ledger = shell.root / ".hive" / "ledger.db"
    for leftover in (shell.root / ".hive").glob("ledger.db*"):
        leftover.unlink()
    ledger.write_bytes(content)
    for arguments in (("status",), ("up",), ("task", "add", "c", "A", "--command", "true")):
        assert sentence in shell.hive(*arguments, code=4)
    assert ledger.read_bytes() == content


def test_a_read_only_directory_is_a_sentence_and_5(shell: Shell, tmp_path: Path) -> None:
    with small_disk(tmp_path / "sealed", "size=8m", "ro") as sealed:
        assert "Could not create a hive in" in shell.hive("init", str(sealed), code=5)
    with small_disk(tmp_path / "later", "size=8m") as disk:
        shell.hive("init", str(disk))
        subprocess.run(("mount", "-o", "remount,ro", str(disk)), check=True)
        for arguments in (("up",), ("task", "add", "c", "A", "--command", "true")):
            assert "hive:" in shell.hive(*arguments, code=5, cwd=disk)


def test_a_full_disk_is_a_sentence_and_the_hive_works_again_once_there_is_space(shell: Shell, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=8m") as disk:
        shell.hive("init", str(disk))
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        path = tmp_path / "plan.yaml"
        path.write_text("convoy: c\ntasks:\n" + "".join(f"  - {{id: A{n}, command: 'true'}}\n" for n in range(9000)))
        assert "is full" in shell.hive("convoy", "submit", str(path), code=5, cwd=disk)
        filler.unlink()
        assert shell.hive("convoy", "ls", "--json", cwd=disk).strip() == "[]"
        shell.hive("task", "add", "c", "A", "--command", "true", cwd=disk)
