"""One story: a worker's sandbox is made ready, kept, backed up, moved and removed, whatever happens to it."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.commands.tasks import cancel_task
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.domain.runner import Runner
from hivekeeper.domain.states import ConvoyState, RunState, TaskState
from hivekeeper.errors import InputError
from hivekeeper.git.mirror import list_refs
from hivekeeper.hive import open_hive
from hivekeeper.store import queries
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository


def settle(stage: Scene, **settings: object) -> None:
    stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, **settings))  # type: ignore[arg-type]


def begin(stage: Scene, task_id: str, attempt: int = 1) -> Path:
    """Step until a worker's agent runs; tell where it works."""
    stage.step_until(
        lambda: any(run.kind == "agent" and run.state is RunState.RUNNING for run in stage.runs(task_id, attempt))
    )
    return stage.hive.places.sandbox(f"work/{task_id}", attempt) / "work"


def test_setup_is_run_once_for_the_same_lock_files_and_what_it_made_is_there_again(
    stage: Scene, repository: Repository
) -> None:
    repository.commit({"lock": "one\n"}, "lock")
    setup = f"echo made >> {stage.root.parent}/setups; mkdir -p env && cp lock env/lock"
    spec = RepoSpec("app", str(repository.path), "main", setup=setup, keep=("env",), lock=("lock",))
    first = TaskSpec("A", "cp env/lock a && git add --all && git commit --quiet -m a", repo="app")
    second = TaskSpec("B", "cp env/lock b", repo="app", after=("A",))
    third = TaskSpec("C", "echo two > lock", repo="app", after=("B",))
    fourth = TaskSpec("D", "cp env/lock d", repo="app", after=("C",))
    stage.submit(first, second, third, fourth, repos=(spec,))
    assert stage.finish() is ConvoyState.COMPLETE
    assert (stage.root.parent / "setups").read_text().split() == ["made", "made"]
    assert [repository.git("show", f"hive/main:{name}") for name in "abd"] == ["one", "one", "two"]
    assert "env" not in repository.git("ls-tree", "--name-only", "hive/main").split()


def test_a_setup_that_fails_says_so(stage: Scene, repository: Repository) -> None:
    spec = RepoSpec("app", str(repository.path), "main", setup="echo no network; exit 3")
    stage.submit(TaskSpec("A", "echo a > a", repo="app", attempts=1), repos=(spec,))
    assert stage.finish() is ConvoyState.FAILED
    said = "its repository's setup failed: exit code 3; last output: no network"
    assert stage.task("A").reason == said


def test_what_a_worker_made_is_pushed_to_a_second_repository_too(
    stage: Scene, repository: Repository, tmp_path: Path
) -> None:
    backup = tmp_path / "backup.git"
    subprocess.run(("git", "init", "--quiet", "--bare", str(backup)), check=True)
    spec = RepoSpec("app", str(repository.path), "main", backup=str(backup))
    stage.submit(TaskSpec("A", "echo half > a; exit 1", repo="app", attempts=1), repos=(spec,))
    assert stage.finish() is ConvoyState.FAILED
    assert repository.git("--git-dir", str(backup), "show", "hive/attempts/work/A/1:a") == "half"


def test_a_second_repository_that_is_gone_holds_nothing_up(
    stage: Scene, repository: Repository, tmp_path: Path
) -> None:
    spec = RepoSpec("app", str(repository.path), "main", backup=str(tmp_path / "nowhere.git"))
    stage.submit(TaskSpec("A", "echo a > a", repo="app"), repos=(spec,))
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.landed() == ["A"]
    assert sum(run.kind == "backup" and not run.succeeded for run in stage.runs("A")) == 3


def test_a_change_outside_of_the_allowed_paths_does_not_land(stage: Scene, repository: Repository) -> None:
    stage.submit(
        TaskSpec("A", "mkdir -p src && echo a > src/a && echo b > b", repo="app", attempts=1, paths=("src",)),
        TaskSpec("B", "mkdir -p src/deep && echo a > src/deep/b", repo="app", attempts=1, paths=("src", "*.md")),
        repos=(repository.spec(),),
    )
    assert stage.finish() is ConvoyState.FAILED
    assert stage.task("A").reason == "it changed b, outside its allowed `paths`"
    assert repository.landed() == ["B"]


def test_without_a_queue_a_change_is_a_branch_of_the_persons_repository(stage: Scene, repository: Repository) -> None:
    settle(stage, queue=False)
    before = repository.git("rev-parse", "main")
    stage.submit(TaskSpec("A", "echo a > a", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.git("show", "hive/attempts/work/A/1:a") == "a"
    assert repository.git("rev-parse", "main") == before


def test_without_cleanup_sandboxes_stay(stage: Scene, repository: Repository) -> None:
    settle(stage, cleanup=False)
    stage.submit(TaskSpec("A", "echo a > a", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert (stage.hive.places.sandbox("work/A", 1) / "work" / "a").read_text() == "a\n"


def test_a_complete_convoy_stays_in_sight_for_archive_after(stage: Scene) -> None:
    settle(stage, archive_after_s=1000.0)
    stage.submit(TaskSpec("A", "true"))
    stage.finish()
    assert stage.keeper
    stage.keeper.step()
    assert stage.convoy().state is ConvoyState.COMPLETE
    stage.clock.advance(2000.0)
    stage.keeper.step()
    assert stage.convoy().state is ConvoyState.ARCHIVED


def test_without_convoys_a_complete_one_is_archived_at_once_and_a_failed_one_stays(stage: Scene) -> None:
    settle(stage, convoys=False)
    stage.submit(TaskSpec("A", "true"))
    stage.submit(TaskSpec("B", "false", attempts=1), convoy="bad")
    stage.finish("bad")
    stage.step_until(lambda: stage.convoy().state is ConvoyState.ARCHIVED)
    assert stage.convoy("bad").state is ConvoyState.FAILED


@pytest.mark.parametrize("key", ["command", "mcp.files"])
def test_hive_toml_that_names_what_no_worker_may_see_is_refused_at_start(stage: Scene, key: str) -> None:
    kept = str(stage.hive.places.hive / "ledger.db")
    servers = {"files": ("serve", kept)} if key == "mcp.files" else {}
    settle(stage, runners={"mine": Runner("mine", "agent" if servers else f"{kept} --print", servers=servers)})
    with pytest.raises(
        InputError, match=rf"\[runners.mine\] {key} in hive.toml names .*ledger.db, and no worker may see"
    ):
        stage.take()


def test_a_prompt_without_repository_and_outputs_can_be_read(stage: Scene) -> None:
    runner = Runner("reader", "cp -- {prompt} told")
    settle(stage, runners={"reader": runner})
    stage.submit(TaskSpec("A", prompt="Say hello.", runner="reader", attempts=1))
    assert stage.finish() is ConvoyState.COMPLETE, stage.task("A").reason
    assert "Say hello." in (stage.root / "told").read_text()


def test_what_working_agents_have_made_is_kept_before_the_machine_goes(stage: Scene, repository: Repository) -> None:
    names = [f"T{number}" for number in range(20)]
    command = 'echo "$HIVE_TASK" > made; echo more >> README; exec sleep 300'
    stage.submit(*(TaskSpec(name, command, repo="app") for name in names), repos=(repository.spec(),))
    keeper = stage.take(workers=20)
    for name in names:
        work = begin(stage, name)
        stage.step_until((work / "made").exists)
    keeper.start()
    saved = keeper.leave()
    mirror = stage.hive.places.mirror("app")
    kept = {name: repository.git("--git-dir", str(mirror), "show", f"refs/hive/saves/work/{name}/1/000001:made")
            for name in names}  # fmt: skip
    assert saved == (20, 20)
    assert kept == {name: name for name in names}
    assert all(stage.list_processes(f"work/{name}.1.agent") for name in names)


def test_a_hive_that_was_moved_goes_on_from_what_its_workers_had_made(
    stage: Scene, repository: Repository, tmp_path: Path
) -> None:
    command = "if [ -e made ]; then echo whole > made; else echo half > made; exec sleep 300; fi"
    stage.submit(TaskSpec("A", command, repo="app"), TaskSpec("B", "sleep 300"), repos=(repository.spec(),))
    work = begin(stage, "A")
    stage.step_until((work / "made").exists)
    stage.step_until(lambda: any(run.state is RunState.RUNNING for run in stage.runs("B")))
    stage.close()
    moved = tmp_path / "elsewhere"
    shutil.copytree(stage.root, moved, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
    (stage.root / ".hive").rename(stage.root / "gone")
    stage.root, stage.hive, stage.keeper = moved, open_hive(moved, stage.clock), None
    assert stage.finish() is ConvoyState.FAILED
    assert not stage.list_processes("work/A.1.agent")
    assert repository.git("show", "hive/main:made") == "whole"
    assert stage.attempts("A")[0].reason.endswith("the hive was moved while it ran")
    assert stage.task("B").state is TaskState.UNKNOWN


def test_the_public_repository_holds_what_has_landed_and_nothing_else(stage: Scene, repository: Repository) -> None:
    stage.submit(
        TaskSpec("A", "echo a > a", repo="app"),
        TaskSpec("B", "echo secret > b; exit 1", repo="app", attempts=1),
        repos=(repository.spec(),),
    )
    stage.finish()
    public, mirror = stage.hive.places.public("app"), stage.hive.places.mirror("app")
    assert list_refs(public, "refs/") == {"refs/heads/main": repository.git("rev-parse", "hive/main")}
    secret = list_refs(mirror, "refs/hive/attempts/work/B")["refs/hive/attempts/work/B/1"]
    looked = subprocess.run(("git", "--git-dir", str(public), "cat-file", "-e", secret), check=False)
    assert looked.returncode != 0


def test_workers_read_neither_the_ledger_nor_the_mirror_nor_each_other(stage: Scene, repository: Repository) -> None:
    settle(stage, level="namespaces", write=())
    hive = stage.hive.places.hive
    look = f"find {hive} -type f | grep -v '/sandboxes/work/B.1/work/' | grep -v '/public/' > seen; echo b > b"
    stage.submit(
        TaskSpec("A", "echo a > a; exec sleep 300", repo="app"),
        TaskSpec("B", look, repo="app"),
        repos=(repository.spec(),),
    )
    begin(stage, "A")
    stage.step_until(lambda: stage.task("B").state is TaskState.COMPLETE)
    assert repository.git("--git-dir", str(stage.hive.places.mirror("app")), "show", "main:seen") == ""
    with stage.hive.ledger.read() as connection:
        (agent,) = (run for run in queries.list_open_runs(connection) if run.kind == "agent")
    home = stage.hive.places.resolve(json.loads(agent.environment)["HOME"])
    assert home.startswith(str(stage.hive.places.sandbox("work/A", 1)))


def test_a_sandbox_that_cannot_be_removed_is_tried_again_after_a_while(
    stage: Scene, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "bin" / "rm"
    shim.parent.mkdir()
    shim.write_text('#!/bin/sh\ncase "$*" in */gates/*) exit 1 ;; esac\nexec /bin/rm "$@"\n')
    shim.chmod(0o755)
    stage.submit(TaskSpec("A", "echo a > a; sleep 300", repo="app"), repos=(repository.spec(),))
    begin(stage, "A")
    monkeypatch.setenv("PATH", str(shim.parent), prepend=":")
    with stage.hive.ledger.write(ME) as tx:
        cancel_task(tx, stage.task("A"))
    sandbox = stage.hive.places.sandbox("work/A", 1)
    stage.step_until(lambda: [run.exit_status for run in stage.runs("A") if run.kind == "remove"] == [1])
    monkeypatch.undo()
    stage.clock.advance(3599.0)
    assert stage.keeper
    stage.keeper.step()
    assert sandbox.exists()
    stage.clock.advance(2.0)
    stage.step_until(lambda: stage.attempts("A")[0].sandbox == "REMOVED")
    assert not sandbox.exists()
