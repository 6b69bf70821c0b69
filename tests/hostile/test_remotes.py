"""Repositories that refuse, vanish or move while work is under way: each waits in words, nothing is forced on it."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.domain import events as e
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.domain.states import ConvoyState
from hivekeeper.git.forward import Refusal
from hivekeeper.git.orders import CLEAN_ENVIRONMENT, publish_commit
from hivekeeper.store.ledger import read_events
from hivekeeper.views.status import list_needs
from tests.hostile.conftest import PATIENT
from tests.scenarios.conftest import Scene
from tests.stage import Repository

PUBLISHED = ("good", "not-checked-out", "url")
# What each is told, and what it is told to type: {path} is the repository, {mirror} the hive's, {commit} what landed.
REFUSED = {
    "hook": ("(pre-receive hook declined)", "git --git-dir={mirror} push {path} {commit}:refs/heads/main"),
    "protected": ("(hook declined)", "git --git-dir={mirror} push {path} {commit}:refs/heads/main"),
    "gone": ("'{path}' does not appear to be a git repository", "hive repo set gone --path NEW"),
    "checked-out": (
        "(branch is currently checked out)",
        "git -C {path} merge --ff-only --no-overwrite-ignore {commit}",
    ),
}
# Refused as well, and needing nobody: what landed is made again on top of what came there.
OVERTAKEN = ("forced", "moved")


class Port:
    """Repositories that are pushed to, and a hive that has something landed for each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.person = Repository(root / "person")
        self.theirs: dict[str, str] = {}
        self.stage = Scene(root / "hive")
        self.paths = {name: root / f"{name}.git" for name in (*PUBLISHED, *REFUSED, *OVERTAKEN)}
        for name, path in self.paths.items():
            bare = () if name in {"checked-out", "not-checked-out"} else ("--bare",)
            self.git("clone", "--quiet", *bare, str(self.person.path), str(path))
        self.git("-C", str(self.paths["not-checked-out"]), "checkout", "--quiet", "-b", "mine")
        self.write_hook("hook", "pre-receive", "exit 1")
        self.write_hook("protected", "update", 'test "$1" != refs/heads/main || { echo "$1 is protected"; exit 1; }')
        self.git("-C", str(self.paths["protected"]), "config", "receive.denyNonFastForwards", "true")

    def git(self, *arguments: str) -> str:
        return self.person.git(*arguments)

    def tip(self, name: str) -> str:
        return self.git("-C", str(self.paths[name]), "rev-parse", "refs/heads/main")

    def write_hook(self, name: str, hook: str, script: str) -> None:
        file = self.paths[name] / "hooks" / hook
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def work(self) -> None:
        """Have something land for each; once the workers have begun, some of the repositories are not as they were."""
        go, tasks = self.root / "go", list(self.paths)
        wait = f"until test -e '{go}'; do sleep 0.05; done; echo x > made"
        specs = [TaskSpec(name, wait, repo=name, attempts=1, limits=PATIENT) for name in tasks]
        paths = {name: str(path) for name, path in self.paths.items()} | {"url": self.paths["url"].as_uri()}
        self.stage.submit(*specs, repos=tuple(RepoSpec(name, path, publish="push") for name, path in paths.items()))
        self.stage.take(workers=len(tasks))
        self.stage.step_until(lambda: all(self.has_begun(name) for name in tasks))
        self.paths["gone"].rename(self.root / "away")
        self.person.commit({"mine": "on top\n"}, "mine")
        self.git("push", "--quiet", str(self.paths["moved"]), "main")
        rewritten = self.git("commit-tree", "-m", "rewritten", "main^{tree}")
        self.git("push", "--quiet", "--force", str(self.paths["forced"]), f"{rewritten}:refs/heads/main")
        self.theirs = {name: self.tip(name) for name in (*REFUSED, *OVERTAKEN) if name != "gone"}
        go.touch()
        assert self.stage.finish() is ConvoyState.COMPLETE

    def has_begun(self, name: str) -> bool:
        return any(run.kind == "agent" for run in self.stage.runs(name))

    def find_refusal(self, name: str) -> e.RepoPublishFailed | None:
        """Find the first refusal of a repository."""
        with self.stage.hive.ledger.read() as connection:
            bodies = [event.body for event in read_events(connection, 0, 1 << 31)]
        return next((body for body in bodies if isinstance(body, e.RepoPublishFailed) and body.repo == name), None)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    port = Port(tmp_path_factory.mktemp("port"))
    try:
        port.work()
        yield port
    finally:
        port.stage.end()


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_landed_is_the_branch_itself_and_no_check_out_is_touched(port: Port, name: str) -> None:
    assert port.find_refusal(name) is None
    assert port.tip(name) == port.stage.repo(name).integration == port.stage.repo(name).published
    if name == "not-checked-out":
        assert port.git("-C", str(port.paths[name]), "status", "--porcelain", "--branch") == "## mine"
        assert not (port.paths[name] / "made").exists()


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_why_and_what_to_type_and_moves_nothing(port: Port, name: str) -> None:
    refused = port.find_refusal(name)
    assert refused is not None
    mirror = port.stage.hive.places.mirror(name)
    why, command = (text.format(path=port.paths[name], mirror=mirror, commit=refused.commit) for text in REFUSED[name])
    assert refused.problem.startswith(f"Could not update main in {port.paths[name]}: ")
    assert refused.problem.endswith(f"{why} (type: {command})")
    with port.stage.hive.ledger.read() as connection:
        needs = list_needs(connection, keeper_is_alive=True)
    assert {"what": f"{refused.problem.removesuffix(f' (type: {command})')}.", "type": command} in needs
    assert port.theirs.get(name) == (None if name == "gone" else port.tip(name))


@pytest.mark.parametrize("name", OVERTAKEN)
def test_what_landed_is_published_on_top_of_what_came_there_meanwhile(port: Port, name: str) -> None:
    refused = port.find_refusal(name)
    assert refused is not None
    assert refused.problem.endswith("it has commits there that the hive does not have (type: hive queue ls)")
    port.stage.step_until(lambda: port.stage.repo(name).published == port.tip(name) != port.theirs[name])
    assert port.git("-C", str(port.paths[name]), "rev-parse", "main^") == port.theirs[name]
    assert port.git("-C", str(port.paths[name]), "show", "main:made") == "x"


def test_once_they_are_as_they_should_be_what_waited_comes_by_itself(port: Port) -> None:
    for name, hook in {"hook": "pre-receive", "protected": "update"}.items():
        (port.paths[name] / "hooks" / hook).unlink()
    (port.root / "away").rename(port.paths["gone"])
    command = REFUSED["checked-out"][1].format(
        path=port.paths["checked-out"], commit=port.stage.repo("checked-out").integration
    )
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    waiting = ("hook", "protected", "gone", "checked-out")
    port.stage.clock.advance(61)
    port.stage.step_until(lambda: all(port.stage.repo(name).publish_problem is None for name in waiting))
    assert [port.tip(name) for name in waiting] == [port.stage.repo(name).integration for name in waiting]


def test_what_is_there_already_or_has_more_on_top_is_published(tmp_path: Path) -> None:
    person, remote = Repository(tmp_path / "person"), tmp_path / "remote.git"
    person.git("clone", "--quiet", "--bare", str(person.path), str(remote))
    mirror = tmp_path / "mirror.git"
    person.commit({"made": "x\n"}, "landed")
    person.git("clone", "--quiet", "--bare", str(person.path), str(mirror))
    landed = person.git("rev-parse", "main")
    argv = publish_commit(mirror, remote.as_uri(), landed, "main", "push")
    environment = {**CLEAN_ENVIRONMENT, "PATH": os.environ["PATH"]}
    for _ in range(2):
        subprocess.run(argv, env=environment, check=True)
        assert person.git("--git-dir", str(remote), "rev-parse", "main") == landed
    person.commit({"mine": "on top\n"}, "mine")
    person.git("push", "--quiet", str(remote), "main")
    subprocess.run(argv, env=environment, check=True)
    assert person.git("--git-dir", str(remote), "rev-parse", "main") == person.git("rev-parse", "main")


def test_a_bare_repository_has_nothing_to_move_forward_and_a_vanished_one_is_not_there(tmp_path: Path) -> None:
    person, bare = Repository(tmp_path / "person"), tmp_path / "bare.git"
    person.git("clone", "--quiet", "--bare", str(person.path), str(bare))
    environment = {**CLEAN_ENVIRONMENT, "PATH": os.environ["PATH"]}
    for path, why in ((bare, Refusal.NO_CHECKOUT), (tmp_path / "missing", Refusal.GONE)):
        argv = publish_commit(bare, str(path), person.git("rev-parse", "main"), "main", "checkout")
        done = subprocess.run(argv, env=environment, check=False, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (why, "no files are checked out there\n")
