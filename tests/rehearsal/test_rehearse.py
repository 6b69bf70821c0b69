"""`hive rehearse`, as a person types it: seeded faults and killed keepers, and a judgement that finds nothing."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.domain import events as e
from hivekeeper.domain.plan import TaskSpec, find_stray
from hivekeeper.testing.history import History
from hivekeeper.testing.rehearsal import check_faults, choose_files
from hivekeeper.testing.scripted import HARMLESS, Fault, choose_fault
from tests.budget import SEED, SOAK, TALLY, get_seconds, read_cpu_s, sample
from tests.git import git

DEADLINE_S = 110.0
AT_ONCE = 2
PLAN = """\
convoy: shop
repos:
  app: {path: app, verify: "test -d rehearsed"}
tasks:
  - {id: A, repo: app, command: exit 9}
  - {id: B, repo: app, command: exit 9, verify: test -s rehearsed/B.txt}
  - {id: C, repo: app, command: exit 9, after: [A], attempts: 1}
  - {id: D, repo: app, command: exit 9, after: [A, B], priority: 5}
  - {id: E, command: exit 9, after: [B], output: out/E.txt, idempotent: true}
"""
FAULTS = ",".join(f"{fault}=0.04" for fault in Fault)
EVERYTHING = """\
convoy: everything
repos:
  app: {path: app, verify: test -d rehearsed}
  lib: {url: "file://ROOT/lib", setup: echo once >> made/log, keep: [made], lock: [uv.lock], backup: "file://ROOT/nowhere"}
defaults: {runner: claude, attempts: 2}
accept: test -s app/rehearsed/A.txt && test -s lib/docs/D.md
tasks:
  - {id: A, repo: app, prompt: Do it.}
  - {id: B, outputs: [out/b.txt, out/more/], prompt: Write both., after: [A]}
  - {id: C, repo: lib, command: exit 9, paths: [src]}
  - {id: D, repo: lib, prompt: Document., runner: other, paths: ["docs/*.md"], after: [C]}
  - {id: E, repo: lib, prompt: Correct., paths: [./README]}
"""


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
        return git(cwd or self.app, *arguments)

    def look(self) -> tuple[str, str, list[str]]:
        """Everything a rehearsal must not change."""
        seen = sorted(str(path) for path in self.root.rglob("*") if self.root / "tmp" not in (path, *path.parents))
        return self.git("for-each-ref"), self.git("status", "--porcelain"), seen

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        argv = (sys.executable, "-m", "hivekeeper", "rehearse", *arguments)
        environment = {**os.environ, "TMPDIR": str(self.root / "tmp")}
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, cwd=self.root, env=environment, stdout=pipe, stderr=pipe, text=True)

    def finish(self, process: "subprocess.Popen[str]", code: int = 0) -> tuple[str, str]:
        out, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == code, f"exit {process.returncode} instead of {code}\n{out}\n{err}"
        return out, err

    def rehearse(self, *arguments: str, code: int = 0) -> str:
        """Give all that a person is told."""
        return "".join(self.finish(self.start(*arguments), code))

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        told = json.loads(self.finish(self.start(*arguments, "--json"), code)[0])
        assert isinstance(told, dict)
        return told


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.timeout(600 + SOAK * 7200)
def test_whatever_agents_do_and_whenever_keepers_die_everything_is_done_once(desk: Desk) -> None:
    first, end = SEED, read_cpu_s() + get_seconds("rehearsals")
    while first == SEED or read_cpu_s() < end:
        rehearse_at_once(desk, range(first, first + AT_ONCE))
        first += AT_ONCE


def rehearse_at_once(desk: Desk, seeds: Sequence[int]) -> None:
    """Rehearse the plan with each of these seeds, and see that everything was done once."""
    before = desk.look()
    options = ("--faults", FAULTS, "--workers", "3", "--json")
    played = {
        seed: desk.start("plan.yaml", "--seed", str(seed), "--kills", str(1 + seed % 2), *options) for seed in seeds
    }
    for seed, process in played.items():
        told = json.loads(desk.finish(process)[0])
        assert (told["violations"], told["processes_left"], told["sandboxes_left"]) == ([], [], [])
        assert [(task["task"], task["status"]) for task in told["tasks"]] == [(name, "COMPLETE") for name in "ABCDE"]
        assert [task["landed"] for task in told["tasks"]] == [1, 1, 1, 1, 0]
        assert all(task["began"] == task["attempts"] for task in told["tasks"])
        assert told["keepers_killed"] == 1 + seed % 2
        TALLY.update({"rehearsals": 1, "rehearsed faults": sum(told["faults"].values())})
    assert desk.look() == before
    assert list((desk.root / "tmp").iterdir()) == [], "what went well is not kept"


def test_a_plan_with_everything_in_it_is_rehearsed(desk: Desk) -> None:
    desk.git("init", "-q", "-b", "main", "lib", cwd=desk.root)
    (desk.root / "lib" / "uv.lock").write_text("1\n")
    (desk.root / "lib" / "README").write_text("2\n")
    (desk.root / "lib" / ".gitignore").write_text("made/\n")
    desk.git("add", ".", cwd=desk.root / "lib")
    desk.git("commit", "-q", "-m", "first", cwd=desk.root / "lib")
    plan = EVERYTHING.replace("ROOT", str(desk.root)).replace("echo once", "mkdir -p made && echo once")
    (desk.root / "everything.yaml").write_text(plan)
    before = desk.look()
    told = desk.json("everything.yaml", "--faults", "crash=0.3,half=0.3", "--seed", "1", "--keep", "kept")
    assert (told["violations"], told["processes_left"], told["sandboxes_left"]) == ([], [], [])
    assert [task["status"] for task in told["tasks"]] == ["COMPLETE"] * 5
    assert told["convoy"] == "COMPLETE"
    lib, hive = desk.root / "kept" / "repos" / "lib.git", desk.root / "kept" / "hive"
    listed = desk.git("ls-tree", "-r", "--name-only", "hive/main", cwd=lib).split()
    assert listed == [".gitignore", "README", "docs/D.md", "src/C.txt", "uv.lock"]
    assert [path.read_text() for path in hive.glob(".hive/caches/lib/*/made/log")] == ["once\n"]
    assert sorted(path.name for path in (hive / "out").rglob("*.txt")) == ["B.txt", "b.txt"]
    shutil.rmtree(desk.root / "kept")
    assert desk.look() == before


def test_what_is_a_persons_own_is_left_out_when_they_say_so(desk: Desk) -> None:
    (desk.root / "strict.yaml").write_text(
        "convoy: strict\nrepos: {app: {path: app, setup: exit 8, verify: exit 9}}\naccept: exit 7\n"
        "tasks: [{id: A, repo: app, command: exit 9, verify: exit 9}, {id: B, command: exit 9, after: [A]}]\n"
    )
    desk.rehearse("strict.yaml", "--faults", "none", "--kills", "0", "--no-verify")


def test_a_plan_that_is_not_accepted_is_no_success(desk: Desk) -> None:
    (desk.root / "vain.yaml").write_text("convoy: vain\naccept: exit 7\ntasks: [{id: A, command: exit 9}]\n")
    said = desk.rehearse("vain.yaml", "--faults", "none", "--kills", "0", code=1)
    assert "All tasks are done, but the plan's acceptance failed. To skip it: --no-verify" in said


@pytest.mark.parametrize(
    ("fault", "ending"), sample([(Fault.BOMB, "processes"), (Fault.FILL, "disk"), (Fault.FLOOD, "output")], 1)
)
def test_whoever_takes_too_much_is_ended_by_that_very_limit(desk: Desk, fault: Fault, ending: str) -> None:
    (desk.root / "one.yaml").write_text(
        "convoy: one\nrepos: {app: {path: app}}\ntasks: [{id: A, repo: app, command: x}]\n"
    )
    told = desk.json("one.yaml", "--faults", f"{fault}=1", "--kills", "0")
    assert (told["faults"], told["endings"]) == ({fault: 3}, {ending: 3, "exit": 1})
    assert (told["violations"], told["processes_left"], told["sandboxes_left"]) == ([], [], [])


@pytest.mark.parametrize("fault", sample([Fault.VANDAL, Fault.TRAP], 1))
def test_what_an_agent_does_to_its_own_sandbox_harms_nobody(desk: Desk, fault: Fault) -> None:
    told = desk.json("plan.yaml", "--faults", f"{fault}=1", "--kills", "0")
    assert (told["violations"], told["processes_left"], told["sandboxes_left"]) == ([], [], [])
    assert [task["attempts"] for task in told["tasks"]] == [1 if fault in HARMLESS else 4] * 5


@pytest.mark.parametrize(
    ("task", "files"),
    [
        (TaskSpec("T"), ["rehearsed/T.txt"]),
        (TaskSpec("T", outputs=("a.txt", "out/")), ["a.txt", "out/T.txt"]),
        (TaskSpec("T", paths=("src/api/",)), ["src/api/T.txt"]),
        (TaskSpec("T", paths=("./README", "src")), ["README"]),
        (TaskSpec("T", paths=("docs/**/v?.[md]*",)), ["docs/T/vx.mT"]),
        (TaskSpec("T", paths=("src",), outputs=("out.txt",)), ["src/T.txt"]),
    ],
)
def test_an_agent_makes_what_is_promised_and_only_where_it_may(task: TaskSpec, files: list[str]) -> None:
    assert choose_files(task, {"README": 1}) == files
    assert find_stray(files, [path.removeprefix("./") for path in task.paths]) is None


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
        (Fault.LIE, 2, "out.txt", 1),
        (Fault.LIE, 1, None, 0),
        (Fault.CRASH, 2, None, 1),
        (Fault.FORK, 1, "out.txt", 0),
        (Fault.TRAP, 1, "out.txt", 0),
        (Fault.VANDAL, 2, None, 1),
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
    said = desk.rehearse("plan.yaml", "--faults", "none", "--kills", "0", "--keep", "kept", "--seed", "1")
    assert "Your files and repositories are not touched, and its tasks' commands do not run." in said
    assert "convoy shop is complete" in said, "the keeper's own lines"
    assert "5 tasks, 5 attempts" in said
    assert "Faults: none. Keepers killed: 0. Isolation: " in said
    assert "Agents ended: 5 by exit." in said
    assert "0 violations, processes left: 0, sandboxes left: 0." in said
    assert f"Everything is kept in {desk.root / 'kept'}." in said
    assert "hive/main" in desk.git("branch", "--list", cwd=desk.root / "kept" / "repos" / "app.git")


def test_a_gate_that_refuses_scripted_work_is_told(desk: Desk) -> None:
    (desk.root / "strict.yaml").write_text(
        "convoy: strict\nrepos: {app: {path: app, verify: '! test -e rehearsed'}}\n"
        "tasks: [{id: A, repo: app, command: exit 9}, {id: B, command: exit 9, after: [A]}]\n"
    )
    refused = desk.rehearse("strict.yaml", "--faults", "none", "--kills", "0", code=1)
    assert "Not done: 2 tasks. If a gate rejected them, try: --no-verify" in refused
    assert "0 violations" in refused


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
    assert sentence in desk.rehearse(*arguments, code=2)
    assert desk.look() == before
    assert list((desk.root / "tmp").iterdir()) == []
