"""`hive rehearse`, as a person types it: seeded faults and killed keepers, and a judgement that finds nothing."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.domain import events as e
from hivekeeper.testing.history import History
from hivekeeper.testing.rehearsal import check_faults
from hivekeeper.testing.scripted import Fault, choose_fault
from tests.crash.budget import SOAK

DEADLINE_S = 100.0
SEEDS = range(1, 501 if SOAK else 7)
PLAN = """\
convoy: shop
repos:
  app: {path: app, verify: "test -d rehearsed"}
tasks:
  - {id: A, repo: app, command: exit 9}
  - {id: B, repo: app, command: exit 9, verify: test -s rehearsed/B.txt}
  - {id: C, repo: app, command: exit 9, after: [A]}
  - {id: D, repo: app, command: exit 9, after: [A, B], priority: 5}
  - {id: E, command: exit 9, after: [B], output: out/E.txt}
  - {id: F, repo: app, command: exit 9, attempts: 1}
"""
FAULTS = "crash=0.1,hang=0.05,lie=0.1,flood=0.1,die=0.1,fork=0.1,half=0.1,deaf=0.05"


class Desk:
    """A person's directory: a repository, a plan, and a shell to type in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main", "app", cwd=root)
        (self.app / "mine.txt").write_text("not committed yet\n")
        self.git("commit", "-q", "--allow-empty", "-m", "first")
        (root / "plan.yaml").write_text(PLAN)
        (root / "tmp").mkdir()

    @property
    def app(self) -> Path:
        return self.root / "app"

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(("git", *arguments), cwd=cwd or self.app, check=True, capture_output=True, text=True)
        return done.stdout

    def look(self) -> tuple[str, str, list[str]]:
        """Everything a rehearsal must not change."""
        seen = sorted(str(path) for path in self.root.rglob("*") if self.root / "tmp" not in (path, *path.parents))
        return self.git("for-each-ref"), self.git("status", "--porcelain"), seen

    def rehearse(self, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            (sys.executable, "-m", "hivekeeper", "rehearse", *arguments),
            cwd=self.root,
            env={**os.environ, "TMPDIR": str(self.root / "tmp")},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == code, f"exit {done.returncode} instead of {code}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        told = json.loads(self.rehearse(*arguments, "--json", code=code).stdout)
        assert isinstance(told, dict)
        return told


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_agents_do_and_whenever_keepers_die_everything_is_done_once(desk: Desk, seed: int) -> None:
    before = desk.look()
    kills = 1 + seed % 2
    options = ("--seed", str(seed), "--faults", FAULTS, "--workers", "3", "--kills", str(kills))
    told = desk.json("plan.yaml", *options)
    assert (told["violations"], told["processes_left"], told["sandboxes_left"]) == ([], [], [])
    assert [(task["task"], task["status"]) for task in told["tasks"]] == [(name, "COMPLETE") for name in "ABCDEF"]
    assert [task["landed"] for task in told["tasks"]] == [1, 1, 1, 1, 0, 1]
    assert all(task["began"] == task["attempts"] for task in told["tasks"])
    assert told["keepers_killed"] == kills
    assert desk.look() == before
    assert list((desk.root / "tmp").iterdir()) == [], "what went well is not kept"


def test_the_faults_of_a_seed_are_counted_by_kind(desk: Desk) -> None:
    (desk.root / "pair.yaml").write_text("convoy: pair\ntasks: [{id: A, command: x}, {id: B, command: x}]\n")
    told = desk.json("pair.yaml", "--seed", "5", "--faults", "crash=0.5,half=0.5", "--kills", "0")
    rates = {Fault.CRASH: 0.5, Fault.HALF: 0.5}
    expected = Counter(choose_fault(5, task, attempt, rates) for task in "AB" for attempt in (1, 2, 3))
    assert (told["seed"], told["faults"]) == (5, {str(fault): count for fault, count in expected.items()})
    assert [task["attempts"] for task in told["tasks"]] == [4, 4], "the fourth has no fault"


@pytest.mark.parametrize(
    ("fault", "attempt", "output", "wrong"),
    [
        (Fault.LIE, 1, "out.txt", 1),
        (Fault.LIE, 2, "out.txt", 0),
        (Fault.LIE, 1, None, 0),
        (Fault.CRASH, 2, None, 1),
        (Fault.FORK, 1, "out.txt", 0),
    ],
)
def test_no_attempt_is_believed_that_its_agent_cannot_have_done(
    fault: Fault, attempt: int, output: str | None, wrong: int
) -> None:
    added = e.TaskAdded("c/A", "c", "A", "", "x", None, [], None, 0, 3, output, idempotent=False, limits={})
    bodies = (added, e.TaskCompleted("c/A", attempt, None, output))
    events = [e.Event(seq, body, "", "", "", "", 1, "") for seq, body in enumerate(bodies, start=1)]
    assert len(list(check_faults(History(events), {("c/A", attempt): fault}))) == wrong


def test_a_person_is_told_what_is_done_and_how_it_went(desk: Desk) -> None:
    said = desk.rehearse("plan.yaml", "--faults", "none", "--kills", "0", "--keep", "kept", "--seed", "1").stdout
    assert "Nothing of yours is touched, and its commands are not run." in said
    assert "convoy shop is complete" in said, "the keeper's own lines"
    assert "6 tasks, 6 attempts" in said
    assert "Faults: none. Keepers killed: 0." in said
    assert "0 violations, 0 processes left, 0 sandboxes left." in said
    assert f"Everything is kept in {desk.root / 'kept'}." in said
    assert "hive/main" in desk.git("branch", "--list", cwd=desk.root / "kept" / "repos" / "app.git")


def test_a_gate_that_refuses_scripted_work_is_told_and_can_be_left_out(desk: Desk) -> None:
    (desk.root / "strict.yaml").write_text(
        "convoy: strict\nrepos: {app: {path: app, verify: test -s real-work.txt}}\n"
        "tasks: [{id: A, repo: app, command: exit 9}, {id: B, command: exit 9, after: [A]}]\n"
    )
    refused = desk.rehearse("strict.yaml", "--faults", "none", "--kills", "0", code=1).stdout
    assert "2 tasks did not get done. Where a gate refused them, try: --no-verify" in refused
    assert "0 violations" in refused
    desk.rehearse("strict.yaml", "--faults", "none", "--kills", "0", "--no-verify")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("plan.yaml", "--faults", "crahs=0.2"), "There is no fault 'crahs'. Did you mean 'crash'?"),
        (("plan.yaml", "--faults", "crash=2"), "The rate of 'crash' is 2; it must be between 0 and 1."),
        (("plan.yaml", "--faults", "crash"), "'crash' has no rate."),
        (("nowhere.yaml",), "nowhere.yaml: there is no such file"),
        (("broken.yaml",), "broken.yaml:2"),
        (("elsewhere.yaml",), "repo 'app': there is no directory"),
        (("branch.yaml",), "has no branch 'trunk' (it has main)"),
        (("plan.yaml", "--keep", "app"), "app is not empty."),
    ],
)
def test_bad_input_is_refused_in_a_sentence_and_nothing_is_played(
    desk: Desk, arguments: tuple[str, ...], sentence: str
) -> None:
    (desk.root / "broken.yaml").write_text("convoy: shop\ntaks: []\n")
    (desk.root / "elsewhere.yaml").write_text(PLAN.replace("path: app", "path: nowhere"))
    (desk.root / "branch.yaml").write_text(PLAN.replace("path: app", "path: app, branch: trunk"))
    before = desk.look()
    done = desk.rehearse(*arguments, code=2)
    assert sentence in done.stderr
    assert desk.look() == before
    assert list((desk.root / "tmp").iterdir()) == []
