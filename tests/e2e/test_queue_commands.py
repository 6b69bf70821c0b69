"""The merge queue as a person sees it: what is in it and why it waits, and what they may ask of it."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.domain import events as e
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.git.remote import list_branches
from hivekeeper.views.status import list_needs
from tests.e2e.conftest import Shell
from tests.git import git
from tests.store.ledger_kit import COMMIT
from tests.store.ledger_world import World
from tests.store.test_queue_commands import bring_entry

GATE_RUN = f"_gates/r/{'d' * 20}-{'9' * 12}.1.1.gate"


@pytest.fixture
def world(shell: Shell, source: Path) -> Iterator[World]:
    """The ledger of the hive, with a person's repository that has a few branches."""
    git(source, "switch", "--quiet", "--create", "feature/login")
    (source / "login").write_text("1\n")
    git(source, "add", "login")
    git(source, "commit", "--quiet", "-m", "login")
    for name in ("-x", "hotfix"):
        git(source, "update-ref", f"refs/heads/{name}", "feature/login^" if name == "-x" else "feature/login")
    git(source, "switch", "--quiet", "main")
    world = World(shell.root / ".hive")
    world.submit("c", TaskSpec("t", "true", repo="r"), repos=(RepoSpec("r", str(source)),))
    world.fetch()
    yield world
    world.close()


def keep(world: World, *bodies: e.Body, why: str = "") -> None:
    with world.keep() as tx:
        for body in bodies:
            tx.record(body, why=why)


def add(world: World, name: str, state: str) -> str:
    world.submit("c", TaskSpec(name, "true", repo="r", attempts=3))
    bring_entry(world, f"c/{name}", state)
    return f"c/{name}"


def test_a_branch_is_handed_in_as_it_is_now_and_once(shell: Shell, world: World, source: Path) -> None:
    commit = git(source, "rev-parse", "feature/login")
    key = f"queue/feature-login-{commit[:10]}"
    said = shell.hive("queue", "submit", "feature/login")
    assert said == (
        f"feature/login goes to the queue of r, as it is now: {key}. The keeper is not running; type: hive up\n"
    )
    assert world.task(key).get_details() == {"branch": "feature/login", "commit": commit}
    assert f"   –  {key}  feature/login is to be fetched  (2" in shell.hive("queue", "ls")
    before = world.seq()
    again = shell.json("queue", "submit", "hotfix", "--priority")
    assert (again["task"], again["added"], world.seq()) == (key, False, before)
    git(source, "update-ref", "refs/heads/feature/login", "main")
    assert world.task(key).get_details()["commit"] == commit
    hot = shell.json("queue", "submit", "feature/login", "--priority", "--repo", "r")
    assert world.task(hot["task"]).priority == 10_000


def test_a_branch_called_like_an_option_is_a_branch(shell: Shell, world: World, source: Path) -> None:
    assert "No such option" in shell.hive("queue", "submit", "-x", code=2)
    commit = git(source, "rev-parse", "refs/heads/-x")
    assert f"-x goes to the queue of r, as it is now: queue/x-{commit[:10]}." in shell.hive(
        "queue", "submit", "--", "-x"
    )
    assert world.task(f"queue/x-{commit[:10]}").branch == "-x"
    assert "has no branch '--upload-pack=touch owned'" in shell.hive(
        "queue", "submit", "--", "--upload-pack=touch owned", code=2
    )
    assert not (shell.root / "owned").exists()


def test_what_a_repository_says_of_itself_is_not_followed(source: Path, tmp_path: Path) -> None:
    """A hive may lie in a repository whose settings lead git elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    git(tmp_path, "init", "--quiet", str(elsewhere))
    git(tmp_path, "init", "--quiet", str(tmp_path))
    git(tmp_path, "config", f"url.{elsewhere}.insteadOf", str(source))
    assert git(tmp_path, "ls-remote", str(source)) == "", "git itself is led there"
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert list(list_branches(str(source))) == ["main"]
    finally:
        os.chdir(before)


WISHES = {
    ("submit", "feature/logni"): "Did you mean 'feature/login'? It has -x, feature/login, hotfix, main.",
    ("submit", "main", "--repo", "rr"): "This hive has no repository 'rr'.\nDid you mean 'r'?",
    ("ls", "--repo", "wholly-other"): "This hive has no repository 'wholly-other'.\nIt has r.",
    ("resume", "rr"): "Did you mean 'r'?",
    ("show", "c/waitign"): "There is no task 'c/waitign'.\nDid you mean 'c/waiting'?",
    ("show", "t"): "Nothing of c/t is in the queue yet.\nType: hive task why c/t",
    ("prioritize", "landed"): "c/landed does not wait in the merge queue: it is LANDED there.",
    ("prioritize", "waiting", "--to", "9" * 30): "cannot be kept",
    ("approve", "waiting"): "c/waiting does not wait for you: it lands when it passes.",
}


def test_a_wish_that_cannot_be_is_a_sentence_and_writes_nothing(shell: Shell, world: World) -> None:
    add(world, "waiting", "QUEUED")
    add(world, "landed", "LANDED")
    before = world.seq()
    for arguments, sentence in WISHES.items():
        assert sentence in shell.hive("queue", *arguments, code=2)
    assert world.seq() == before


def test_a_repository_that_cannot_be_read_or_chosen_is_a_sentence(shell: Shell, world: World, source: Path) -> None:
    source.rename(source.with_name("moved"))
    said = shell.hive("queue", "submit", "main", code=5)
    assert f"{source} cannot be read: " in said
    assert f"git ls-remote {source}" in said
    world.submit("c", TaskSpec("u", "true", repo="s"), repos=(RepoSpec("s", str(source)),))
    assert "Choose one with --repo: r, s." in shell.hive("queue", "submit", "main", code=2)


def test_a_hive_without_a_repository_has_nothing_to_queue(shell: Shell) -> None:
    assert shell.hive("queue", "ls") == "The merge queue is empty.\n"
    assert "Add one with a plan: hive convoy submit PLAN.yaml" in shell.hive("queue", "submit", "main", code=2)
    assert "This hive has no repository yet." in shell.hive("queue", "pause", code=2)


def test_a_commit_that_was_refused_is_refused_again_with_the_way_out(shell: Shell, world: World) -> None:
    key = shell.json("queue", "submit", "hotfix")["task"]
    bring_entry(world, key, "REJECTED", 1)
    said = shell.hive("queue", "submit", "hotfix", code=2)
    assert "was refused: its gate did not pass." in said
    assert "Commit a change to the branch, then submit it again." in said


def test_the_list_says_where_each_is_how_the_queue_stands_and_what_conflicts_cost(shell: Shell, world: World) -> None:
    add(world, "landed", "LANDED")
    for name in ("first", "second"):
        add(world, name, "QUEUED")
    keep(world, e.MergeVerifying("c/first", 1, 1, "c" * 40, "1" * 40, "d" * 40, "rules"))
    keep(world, e.RepoStopped("r"), why="main does not pass: tox failed \x1b[31m")
    head, first, second, *tiers = shell.hive("queue", "ls").splitlines()
    assert head == "r: stopped: main does not pass: tox failed  [31m. To continue: hive queue resume r"
    assert first.startswith("   1  c/first   verifying on top of what has landed  (rules, 2")
    assert re.match(r"   2  c/second  waiting +\(clean, 2", second)
    assert [line.split()[:3] for line in tiers] == [
        ["Tier", "Tries", "Landed"],
        ["clean", "1", "1"],
        ["rules", "1", "0"],
    ]
    everything = shell.hive("queue", "ls", "--all", "--repo", "r")
    assert re.search(r"^   –  c/landed  landed as cccccccccc +\(clean, 2", everything, re.MULTILINE)
    view = shell.json("queue", "ls")
    assert [(row["position"], row["task"], row["commit"]) for row in view["entries"]] == [
        (1, "c/first", "b" * 40),
        (2, "c/second", "b" * 40),
    ]
    assert [tier["tier"] for tier in view["tiers"]][-2:] == ["anew", "rework"]


def test_an_entry_is_shown_with_its_gates_runs_and_what_was_asked_for(shell: Shell, world: World) -> None:
    add(world, "a", "REJECTED")
    body = {
        "mode": "rework",
        "why": "its gate did not pass",
        "reproduce": "git merge x\nmake",
        "hunks": ["<<<<<<<", "="],
    }
    keep(world, e.MailAccepted("c/a/1", "REWORK_REQUEST", "queue", "c.worker-1", "c/a", 1, body, "c/a/1"))
    bring_entry(world, "c/a", "VERIFYING", 2)
    owner = GATE_RUN.removeprefix("_gates/").removesuffix(".1.1.gate")
    run = e.RunIntended(GATE_RUN, "gate", None, None, "r", ["make"], "/", {}, {}, "boot")
    keep(world, replace(run, owner_kind="tree", owner=owner))
    keep(world, e.RunStarted(GATE_RUN, 1, 1, "boot"))
    lines = shell.hive("queue", "show", "a").splitlines()
    assert lines[0] == "c/a (attempt 2, number 1 of r): verifying on top of what has landed"
    assert f"  tree       {'d' * 40}" in lines
    assert f"  gate       under way ({GATE_RUN})" in lines
    assert f"  attempt 1  rejected: its gate did not pass ({'b' * 10})" in lines
    begin = lines.index("Retry instructions after attempt 1:")
    assert lines[begin + 1 : begin + 10] == [
        "  mode:", "    rework", "  why:", "    its gate did not pass", "  reproduce:", "    git merge x", "    make",
        "  hunks:", "    <<<<<<<",
    ]  # fmt: skip
    keep(world, e.RunExited(GATE_RUN, "gate", 2, "exit", 0), why="2 failed")
    view = shell.json("queue", "show", "c/a")
    assert [run["ending"] for run in view["gate_runs"]] == ["exit code 2; last output: 2 failed"]
    assert (view["base"], view["candidate"], view["tier"]) == (COMMIT, "c" * 40, "clean")
    assert view["rework_requests"][0]["payload"] == body


def test_what_is_held_is_told_with_a_look_at_it_and_lands_when_approved(
    shell: Shell, world: World, source: Path
) -> None:
    git(shell.root, "clone", "--quiet", "--bare", str(source), ".hive/repos/r.git")
    commit = git(source, "rev-parse", "feature/login")
    world.submit("c", TaskSpec("a", "true", repo="r"))
    world.dispatch("c/a")
    keep(world, e.AttemptSubmitted("c/a", 1, "r", commit, 0))
    keep(world, e.MergeHeld("c/a", 1), why="it changes tox.ini")
    (need,) = [need for need in shell.json("status")["needs_me"] if "c/a" in need["what"]]
    what, look = need["what"].split(" To see the change: ")
    assert what == "c/a waits for your approval: it changes tox.ini."
    looked = subprocess.run(("sh", "-c", look), cwd="/", check=True, capture_output=True, text=True).stdout
    assert "+++ b/login" in looked
    assert shell.json("queue", "show", "a")["look"] == look
    assert need["type"] == "hive queue approve c/a"
    assert shell.hive(*need["type"].split()[1:]) == "c/a is approved: it lands when it passes.\n"
    assert shell.hive("queue", "approve", "a") == "c/a is approved already: it lands when it passes.\n"
    assert "c/a" not in str(shell.json("status")["needs_me"])


def test_a_queue_that_stands_still_needs_a_person_if_something_waits_in_it(shell: Shell, world: World) -> None:
    def needs() -> list[str]:
        with world.ledger.read() as connection:
            found = list_needs(connection, keeper_is_alive=False)
        return [need["what"] for need in found if need["type"] == "hive queue resume r"]

    assert shell.hive("queue", "pause", "--reason", "release") == "The merge queue of r is paused: nothing lands.\n"
    assert needs() == []
    add(world, "a", "QUEUED")
    assert needs() == ["The merge queue of r is paused, and 1 in it cannot land."]
    assert shell.hive("queue", "pause", "r") == "The merge queue of r was paused already.\n"
    keep(world, e.RepoStopped("r"), why="main does not pass")
    assert needs() == ["The merge queue of r is stopped: main does not pass."]
    goes_on = "The merge queue of r continues; entries are verified again.\n"
    assert shell.hive("queue", "resume", "r") == goes_on
    assert needs() == []
    assert shell.hive("queue", "resume") == "The merge queue of r was not paused.\n"
    assert shell.hive("queue", "prioritize", "a") == "c/a has priority 10000 in the queue.\n"
    row = next(line for line in shell.hive("status").splitlines() if line.startswith("c/a "))
    assert row.split() == ["c/a", "r", "waiting"]
