"""A worker is cut off: everything it had made is kept and comes back, or is named as not kept."""

import json
import os
import shlex
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.commands.runs import kill_worker
from hivekeeper.domain.plan import Limits, RepoSpec, TaskSpec
from hivekeeper.domain.states import ConvoyState, RunState
from hivekeeper.git import rest
from hivekeeper.git.mirror import list_refs
from hivekeeper.git.orders import MAX_REST
from hivekeeper.hive import open_hive
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository

WAIT = "touch {ready}; while :; do sleep 0.05; done"


class Story:
    """One worker that does something, then waits and is cut off."""

    def __init__(self, stage: Scene, repository: Repository) -> None:
        self.stage = stage
        self.repository = repository
        self.ready = stage.root.parent / "ready"
        self.out = stage.root.parent / "out"

    def begin(self, deeds: str, *, attempts: int = 1, **repo: Any) -> None:  # noqa: ANN401 - whatever a RepoSpec takes
        spec = RepoSpec("app", str(self.repository.path), "main", **repo)
        command = f"{deeds}\n{WAIT.format(ready=self.ready)}"
        self.stage.submit(TaskSpec("A", command, repo="app", attempts=attempts), repos=(spec,))
        self.stage.step_until(self.is_waiting)

    def is_waiting(self) -> bool:
        agents = [run for attempt in self.stage.attempts("A") for run in self.stage.runs("A", attempt.number)]
        return self.ready.exists() and any(r.kind == "agent" and r.state is RunState.RUNNING for r in agents)

    def cut_off(self) -> None:
        with self.stage.hive.ledger.write(ME) as tx:
            kill_worker(tx, self.stage.attempts("A")[-1])
        self.ready.unlink()

    def end(self, deeds: str, **repo: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a RepoSpec takes
        """Have it done, cut it off, and bring back what is kept of it; tell what was said."""
        self.begin(deeds, **repo)
        self.cut_off()
        assert self.stage.finish() is ConvoyState.FAILED
        return self.restore()

    def restore(self, *arguments: str) -> dict[str, Any]:
        argv = (sys.executable, "-m", "hivekeeper", "task", "restore", "A", "--json", "--to", str(self.out), *arguments)
        done = subprocess.run(argv, cwd=self.stage.root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def files(self) -> dict[str, str]:
        """What came back: files by their content, links by where they lead."""
        found = (path for path in self.out.rglob("*") if path.is_symlink() or path.is_file())
        names = {str(path.relative_to(self.out)): path for path in found}
        return {n: f"-> {p.readlink()}" if p.is_symlink() else p.read_text("latin-1") for n, p in names.items()}

    def refs(self, under: str) -> list[str]:
        return list(list_refs(self.stage.hive.places.mirror("app"), f"refs/hive/{under}/work/A"))


@pytest.fixture
def story(stage: Scene, repository: Repository) -> Story:
    return Story(stage, repository)


def test_committed_uncommitted_untracked_and_deleted_all_come_back_as_they_were(story: Story) -> None:
    story.repository.commit({"old": "old\n", "gone": "gone\n"}, "second")
    said = story.end(
        """
        echo 1 > committed; git add committed; git commit -qm one
        echo 2 > staged; git add staged; echo more >> README; mkdir -p deep/er; echo 3 > deep/er/untracked
        printf '#!/bin/sh\\n' > tool; chmod +x tool; rm gone; ln -s README link; ln -s nowhere dangling
        """
    )
    files = story.files()
    assert files.pop("tool") == "#!/bin/sh\n"
    assert files == {
        "README": "hello\nmore\n",
        "committed": "1\n",
        "dangling": "-> nowhere",
        "deep/er/untracked": "3\n",
        "link": "-> README",
        "old": "old\n",
        "staged": "2\n",
    }
    assert (story.out / "tool").stat().st_mode & stat.S_IXUSR
    assert not (story.out / "README").stat().st_mode & stat.S_IXUSR
    assert (said["attempt"], said["kind"], said["changed"], said["not_kept"]) == (1, "end of attempt", 8, [])


def test_ignored_files_and_repositories_inside_come_back_too(story: Story) -> None:
    story.repository.commit({".gitignore": "secret\nbuild/\n"}, "ignore")
    said = story.end(
        """
        echo s > secret; mkdir -p build/x; echo b > build/x/b; ln build/x/b build/x/hard; ln -s x/b build/soft
        git init -q inner; echo i > inner/file; git -C inner add file; git -C inner commit -qm i
        mkdir -p plain/nested; git init -q plain/nested; echo n > plain/nested/n; echo p > plain/p
        """
    )
    files = story.files()
    expected = {"secret": "s\n", "build/x/b": "b\n", "inner/file": "i\n", "plain/nested/n": "n\n", "plain/p": "p\n"}
    assert {name: files.get(name) for name in expected} == expected
    assert files["build/soft"] == "-> x/b"
    assert said["not_kept"] == []
    assert files.get("build/x/hard") == "b\n"
    assert sorted(said["repositories"]) == ["inner", "plain/nested"]
    log = subprocess.run(("git", "-C", story.out / "inner", "log", "--format=%s"), capture_output=True, check=True)
    assert log.stdout == b"i\n"


def test_names_of_any_bytes_come_back(story: Story) -> None:
    story.repository.commit({".gitignore": "ign*\n"}, "ignore")
    names = [
        b"\xff\xfe",
        b"new\nline",
        b"tab\t",
        b"'\"\\",
        b" lead",
        b"-rf",
        b"*",
        b":(top)x",
        b"caf\xc3\xa9",
        b"git~1",
    ]
    odd = names + [b"ign" + name for name in names]
    spelt = ("".join(f"\\{byte:03o}" for byte in name) for name in odd)
    said = story.end("\n".join(f"printf x > ./\"$(printf '{name}')\"" for name in spelt))
    found = os.listdir(os.fsencode(story.out))  # noqa: PTH208 - names as bytes
    named = "\n".join(said["not_kept"])
    missing = [name for name in odd if name not in found and name.decode("utf-8", "replace") not in named]
    assert missing == []
    assert set(found) >= {name for name in odd if name != b"git~1"}


def test_an_empty_directory_comes_back_or_is_named(story: Story) -> None:
    said = story.end("mkdir -p empty/inside; echo x > x")
    assert (story.out / "empty" / "inside").is_dir() or "empty" in "".join(said["not_kept"])


def test_more_than_the_cap_is_named_and_the_rest_is_kept(story: Story) -> None:
    story.repository.commit({".gitignore": "big\nsmall\n"}, "ignore")
    said = story.end(f"truncate -s {MAX_REST + 1} big; echo s > small")
    assert story.files()["small"] == "s\n"
    assert not (story.out / "big").exists()
    assert said["not_kept"] == [f"big ({MAX_REST + 1:,} bytes)"]


def test_a_tree_of_any_depth_is_kept_or_named(story: Story, request: pytest.FixtureRequest) -> None:
    # Python, and so whoever clears up after tests, cannot remove what is so deep.
    left = ("rm", "-rf", story.out, story.stage.hive.places.hive / "sandboxes")
    request.addfinalizer(lambda: subprocess.run(left, check=True))
    story.repository.commit({".gitignore": "build/\n"}, "ignore")
    script = "import os, sys; os.makedirs(sys.argv[1]); os.chdir(sys.argv[1]); n = int(sys.argv[2])\n"
    script += "while n: os.mkdir('d'); os.chdir('d'); n -= 1\nopen('leaf', 'w')"
    dig = f"{sys.executable} -c {shlex.quote(script)}"
    said = story.end(f"{dig} build 1100; {dig} deeper 2200; echo x > x")
    found = subprocess.run(("find", story.out, "-name", "leaf", "-printf", "%d"), capture_output=True, check=True)
    assert (found.stdout, story.out.joinpath("x").read_text()) == (b"1102", "x\n")
    assert [name.startswith("deeper/d/d/d/") for name in said["not_kept"]] == [True]


def test_a_directory_of_too_many_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "top" / "cache").mkdir(parents=True)
    for number in range(2000):
        (tmp_path / "top" / "cache" / str(number)).touch()
    (tmp_path / "listed").write_bytes(b"cache/\0")
    argv = ("pack", tmp_path / "top", tmp_path / "listed", tmp_path / "tar", "1000000")
    done = subprocess.run((sys.executable, "-I", rest.__file__, *argv), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("not kept: cache (over ")
    argv = (*argv[:-1], "2000000")
    done = subprocess.run((sys.executable, "-I", rest.__file__, *argv), capture_output=True, text=True, check=True)
    assert done.stdout == ""
    with tarfile.open(tmp_path / "tar") as tar:
        assert len(tar.getnames()) == 2001


def test_what_setup_makes_again_is_neither_kept_nor_named(story: Story) -> None:
    story.repository.commit({".gitignore": "venv/\n"}, "ignore")
    said = story.end(
        "mkdir -p venv/src/dep; echo v > venv/v; git init -q venv/src/dep; echo mine > mine",
        setup="mkdir -p venv",
        keep=("venv",),
    )
    assert "mine" in story.files()
    assert not (story.out / "venv").exists()
    assert said["not_kept"] == []


def test_a_pipe_and_a_socket_where_files_were_stop_nothing(story: Story) -> None:
    story.repository.commit({"one": "1\n", "two": "2\n", ".gitignore": "hidden/\n"}, "more")
    socket = "import socket; socket.socket(socket.AF_UNIX).bind('two')"
    said = story.end(f"""
        rm one two; mkfifo one new; mkdir hidden; mkfifo hidden/p; echo h > hidden/h; echo x > x
        {sys.executable} -c "{socket}"; test -S two && echo s > socket
    """)
    files, named = story.files(), " ".join(said["not_kept"])
    assert (files["x"], files["socket"], files["hidden/h"]) == ("x\n", "s\n", "h\n")
    assert all(name not in files or f"{name} " in named for name in ("one", "two"))
    kinds = (stat.S_IFMT(path.lstat().st_mode) for path in story.out.rglob("*"))
    assert set(kinds) == {stat.S_IFREG, stat.S_IFDIR}


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", ".git/config", ".git/HEAD"])
def test_a_pipe_that_git_would_read_does_not_hold_the_keeper_up(story: Story, name: str) -> None:
    said = story.end(f"echo x > x; rm -f {name}; mkfifo {name}")
    assert story.files()["x"] == "x\n"
    assert said["attempt"] == 1


def test_a_link_to_a_file_outside_is_kept_as_a_link(story: Story) -> None:
    story.repository.commit({".gitignore": "ign*\n"}, "ignore")
    said = story.end("rm README; ln -s /etc/passwd README; ln -s /etc dir; ln -s /etc/passwd ignored; ln -s x ign")
    files = story.files()
    assert files["README"] == "-> /etc/passwd"
    assert files["ign"] == "-> x"
    assert not any(content.startswith("root:") for content in files.values())
    assert said["refused"] == ["ignored"]


def test_an_unreadable_file_is_kept_or_named(story: Story) -> None:
    story.repository.commit({".gitignore": "ign\n"}, "ignore")
    said = story.end(
        "echo a > a; echo b > ign; chmod 000 a ign; mkdir shut; echo c > shut/c; chmod 000 shut; echo x > x"
    )
    files, named = story.files(), " ".join(said["not_kept"])
    assert files["x"] == "x\n"
    for name, content in {"a": "a\n", "ign": "b\n", "shut/c": "c\n"}.items():
        assert files.get(name) == content or name.split("/")[0] in named


def test_words_that_cannot_be_converted_are_kept_or_named_and_lose_nothing_else(story: Story) -> None:
    said = story.end("echo 'bad working-tree-encoding=UTF-16' > .gitattributes; printf x > bad; echo y > y")
    assert story.files().get("y") == "y\n"
    assert "bad" in story.files() or "bad" in " ".join(said["not_kept"])


@pytest.mark.parametrize(
    "deed",
    [
        "rm -rf .git",
        "rm -rf .git; ln -s /nowhere .git",
        "mv .git ../elsewhere 2>/dev/null || rm -rf .git; ln -s {source}/.git .git",
        "rm -rf .git; echo 'gitdir: {source}/.git' > .git",
        "rm -rf .git/objects; mkdir .git/objects",
        "echo nonsense > .git/HEAD",
    ],
)
def test_a_worker_that_spoils_its_git_directory_loses_its_commits_at_most(story: Story, deed: str) -> None:
    story.repository.commit({"more": "m\n"}, "second")
    committed = "echo x > x; git add x; git commit -qm x"
    said = story.end(f"{committed}; {deed.format(source=story.repository.path)}")
    assert story.files() == {"README": "hello\n", "more": "m\n", "x": "x\n"}
    assert said["not_kept"] == ["its git directory, which cannot be read"]
    assert not (story.out / ".git").exists()


def test_a_worker_that_deletes_its_whole_tree_leaves_what_was_saved_before(story: Story) -> None:
    go = story.stage.root.parent / "go"
    _save_every_second(story.stage)
    deeds = f"echo x > x; touch {story.ready}; until [ -e {go} ]; do sleep 0.02; done; rm -rf ./* ./.git; touch {go}2"
    story.begin(deeds)
    story.stage.clock.advance(2)
    story.stage.step_until(lambda: bool(story.refs("saves")))
    go.touch()
    story.stage.step_until(go.with_name("go2").exists)
    story.cut_off()
    story.stage.finish()
    assert story.restore()["not_kept"] == ["its git directory, which cannot be read"]
    assert story.files() == {}
    mirror = str(story.stage.hive.places.mirror("app"))
    assert story.repository.git("--git-dir", mirror, "show", f"{story.refs('saves')[0]}:x") == "x"


def test_nothing_a_worker_planted_runs_in_the_keeper(story: Story) -> None:
    fired = story.stage.root.parent / "fired"
    plants = f"""
        canary="$PWD/.git/canary"; printf '#!/bin/sh\\necho "$0 $*" >> {fired}\\n' > $canary; chmod +x $canary
        for hook in post-checkout pre-commit post-commit reference-transaction pre-push post-index-change \\
            fsmonitor-watchman pre-auto-gc post-rewrite sendemail-validate proc-receive update pre-receive; do
          mkdir -p .git/hooks; cp $canary .git/hooks/$hook
        done
        printf '* filter=evil diff=evil merge=evil\\n' > .gitattributes
        printf '[core]\\n\\tfsmonitor = %s\\n\\tpager = %s\\n' $canary $canary > .git/included
        cat >> .git/config <<END
[core]
	fsmonitor = $canary
	hooksPath = $PWD/.git/hooks
	worktree = /etc
	sshCommand = $canary
	alternateRefsCommand = $canary
	gitProxy = $canary
	editor = $canary
[filter "evil"]
	clean = $canary
	smudge = $canary
	process = $canary
	required = true
[diff "evil"]
	textconv = $canary
	command = $canary
[uploadpack]
	packObjectsHook = $canary
[remote "origin"]
	uploadpack = $canary
[includeIf "gitdir:/"]
	path = included
[include]
	path = included
END
        echo /etc >> .git/objects/info/alternates; echo x > x
    """
    _save_every_second(story.stage)
    story.begin(plants)
    story.stage.clock.advance(2)
    story.stage.step_until(lambda: bool(story.refs("saves")))
    story.cut_off()
    assert story.stage.finish() is ConvoyState.FAILED
    story.restore()
    assert story.files()["x"] == "x\n"
    assert not fired.exists(), fired.read_text()


@pytest.mark.parametrize(
    "theft",
    [
        "echo {mirror} > .git/commondir; echo 'ref: {theirs}' > .git/HEAD",
        "rm -rf .git/refs .git/objects; ln -s {mirror}/refs {mirror}/objects .git; echo 'ref: {theirs}' > .git/HEAD",
    ],
)
def test_what_another_worker_made_is_not_taken_for_this_ones(story: Story, theft: str) -> None:
    stage, mirror = story.stage, str(story.stage.hive.places.mirror("app"))
    stage.submit(TaskSpec("B", "echo b > secret; exit 1", repo="app", attempts=1), repos=(story.repository.spec(),))
    stage.step_until(lambda: bool(stage.attempts("B")) and stage.attempts("B")[0].ended_at is not None)
    story.end(theft.format(mirror=mirror, theirs="refs/hive/attempts/work/B/1"))
    log = ("log", "--name-only", "--format=", "refs/hive/attempts/work/A/1")
    assert "secret" not in story.repository.git("--git-dir", mirror, *log)


def _save_every_second(stage: Scene) -> None:
    toml = stage.root / "hive.toml"
    toml.write_text(f'{toml.read_text()}snapshot_every = "1s"\n')
    stage.hive.close()
    stage.hive = open_hive(stage.root, stage.clock)


def test_what_is_made_is_saved_at_intervals_and_an_unchanged_tree_only_once(story: Story) -> None:
    stage = story.stage
    go = stage.root.parent / "go"
    _save_every_second(stage)
    story.begin(f"echo 1 > x; touch {story.ready}; until [ -e {go} ]; do sleep 0.02; done; echo 2 > x; touch {go}2")

    def save() -> None:
        before = sum(run.kind == "save" for run in stage.runs("A"))
        stage.clock.advance(2)
        stage.step_until(lambda: _count_saves(stage) > before)

    save()
    assert len(story.refs("saves")) == 1
    save()
    assert len(story.refs("saves")) == 1
    said = story.restore()
    assert (said["kind"], said["object"]) == ("saved while it worked", story_commit(story, "saves/work/A/1/000001"))
    assert story.files()["x"] == "1\n"
    go.touch()
    stage.step_until(go.with_name("go2").exists)
    save()
    assert story.refs("saves") == [f"refs/hive/saves/work/A/1/{number}" for number in ("000001", "000003")]
    story.cut_off()
    stage.finish()


def story_commit(story: Story, ref: str) -> str:
    return story.repository.git(
        "--git-dir", str(story.stage.hive.places.mirror("app")), "rev-parse", f"refs/hive/{ref}"
    )


def _count_saves(stage: Scene) -> int:
    return sum(run.kind == "save" and not run.is_open for run in stage.runs("A"))


def test_a_worker_out_of_time_has_a_successor_that_goes_on_from_what_it_left(
    stage: Scene, repository: Repository
) -> None:
    seen = stage.root.parent / "seen"
    command = f"test ! -e half || {{ cat half > {seen}; echo whole > whole; exit 0; }}; echo half > half; sleep 300"
    task = TaskSpec("A", command, repo="app", attempts=2, limits=Limits(wall_s=0.5))
    stage.submit(task, repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert seen.read_text() == "half\n"
    assert stage.attempts("A")[1].start is not None
    assert repository.git("ls-tree", "--name-only", "hive/main").split() == ["README", "half", "whole"]


def test_after_a_lie_and_after_two_failures_a_worker_starts_fresh(stage: Scene, repository: Repository) -> None:
    log = stage.root.parent / "log"
    liar = f"ls >> {log}; echo end >> {log}; touch lie; test -e never"
    stage.submit(
        TaskSpec("A", f"{liar}; exit 1", repo="app", attempts=3),
        repos=(repository.spec(),),
    )
    assert stage.finish() is ConvoyState.FAILED
    assert log.read_text().split() == ["README", "end", "README", "lie", "end", "README", "end"]
    assert [attempt.start is not None for attempt in stage.attempts("A")] == [False, True, False]
    log.unlink()
    stage.submit(
        TaskSpec("L", f"ls >> {log}; echo end >> {log}; touch lie", repo="app", attempts=2, verify="false"),
        convoy="lies",
    )
    assert stage.finish("lies") is ConvoyState.FAILED
    assert log.read_text().split() == ["README", "end", "README", "end"]
