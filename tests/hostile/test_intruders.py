"""Workers that look for what is not theirs, at namespaces and at landlock: what each kind of task finds and changes."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import TaskState
from hivekeeper.sandbox.isolation import Level
from tests.hostile.conftest import GOOD, GOOD_DEED, PATIENT, Person, Theatre, open_theatre, require

CANARY = "canary-7f3a"
NOTHING = (*["nothing", "there"], *["Permission", "denied"])
# What it gets is what it says: a refusal, or the beginning of what it found.
INTRUDER = """
import glob, json, os, socket, sys
asked = json.load(open(0)) if len(sys.argv) == 1 else json.loads(sys.argv[1])
loot = {}
def attempt(name, deed):
    try: loot[name] = str(deed())
    except OSError as error: loot[name] = f"refused: {error.strerror}"
def see(path):
    if os.path.isdir(path): return " ".join(os.listdir(path)) or "refused: nothing there"
    return open(path, "rb").read(20000).decode("latin-1")
def spoil(path): return open(path, "ab").write(b"CANARY")
def plant(path): return open(os.path.dirname(path) + "/planted-CANARY", "w").close()
def replace(path): open("new", "w").close(); os.rename("new", path)
def send(path): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect(path)
def environments(paths):
    found = []
    for path in paths:
        try: found.append(open(path).read())
        except OSError: pass
    return "".join(found)
for path in asked["read"]: attempt("read " + path, lambda: see(path))
for path in asked["write"]:
    for deed in (spoil, plant, replace, os.unlink): attempt(deed.__name__ + " " + path, lambda: deed(path))
attempt("nudge", lambda: send(asked["nudge"]))
attempt("environments", lambda: environments(glob.glob("/proc/[0-9]*/environ")))
attempt("keeper", lambda: open("/proc/%d/environ" % asked["pid"]).read())
attempt("files of the keeper", lambda: see("/proc/%d/root%s" % (asked["pid"], asked["read"][0])))
attempt("kill", lambda: os.kill(asked["pid"], 0))
json.dump(loot, open("loot.json", "w"))
"""


class BreakIn:
    """A hive with something to find in every corner of it, and what three intruders at once made of it."""

    def __init__(self, theatre: Theatre, person: Person, home: Path) -> None:
        self.theatre = theatre
        self.person = person
        hive = theatre.hive.places.hive
        self.other = hive / "sandboxes" / "theirs" / "B.1" / "work" / "secret"
        self.secrets = [
            home / ".ssh" / "id",
            self.other,
            hive / "kept" / "theirs" / "B.1" / "secret",
            hive / "prompts" / "secret.md",
            hive / "runs" / "theirs" / "B.1.agent" / "output",
            hive / "repos" / "theirs.git" / "HEAD",
        ]
        for secret in self.secrets:
            secret.parent.mkdir(parents=True)
            secret.write_text(CANARY)
        self.spoilable = [theatre.root / "hive.toml", hive / "ledger.db", hive / "public" / "app.git" / "HEAD"]
        self.spoilable += [hive / "repos" / "app.git" / "HEAD", person.path / "README", person.path / ".git" / "config"]
        # At landlock nothing new can be made beside what is hidden, only in what is there already.
        (theatre.root / "scratch").mkdir()
        self.before = person.look()
        self.settings = (theatre.root / "hive.toml").read_text()

    def happen(self) -> None:
        sandbox = self.theatre.hive.places.sandbox("work/on-a-repository", 1)
        asked = {
            "read": [
                str(path) for path in (*self.secrets, self.theatre.hive.places.ledger, self.theatre.hive.places.hive)
            ],
            "write": [str(path) for path in (*self.spoilable, self.other, sandbox / "base", sandbox.parent / "x")],
            "nudge": str(self.theatre.hive.places.nudge),
            "pid": os.getpid(),
        }
        words = json.dumps(asked)
        command = f"exec {sys.executable} -I -S - '{words}' <<'END'\n{INTRUDER.replace('CANARY', CANARY)}\nEND"
        once = {"attempts": 1, "limits": PATIENT}
        tasks = (
            TaskSpec("on-a-repository", command, repo="app", **once),  # type: ignore[arg-type]
            TaskSpec("with-an-output", command, outputs=("loot.json",), **once),  # type: ignore[arg-type]
            TaskSpec("with-nothing", f"cd scratch\n{command}", **once),  # type: ignore[arg-type]
            GOOD_DEED.spec(),
        )
        victim = subprocess.Popen(("sleep", "60"), env={"SECRET": CANARY})
        try:
            self.theatre.play(*tasks, repos=(self.person.spec(),))
        finally:
            victim.kill()
            victim.wait()

    def loot(self, task: str) -> dict[str, str]:
        if task == "on-a-repository":
            found = self.person.git("show", "hive/main:loot.json")
        else:
            found = (self.theatre.root / ("scratch" if task == "with-nothing" else "") / "loot.json").read_text()
        loot: dict[str, str] = json.loads(found)
        return loot


@pytest.fixture(scope="module", params=[Level.NAMESPACES, Level.LANDLOCK])
def break_in(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakIn]:
    directory = tmp_path_factory.mktemp("break-in")
    home = directory / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        with open_theatre(directory / "hive", f'[sandbox]\nlevel = "{request.param}"\n') as theatre:
            require(request.param, theatre)
            person = Person(directory / "app")
            person.make_dirty()
            break_in = BreakIn(theatre, person, home)
            break_in.happen()
            yield break_in


TASKS = pytest.mark.parametrize("task", ["on-a-repository", "with-an-output", "with-nothing"])


@TASKS
def test_it_tried_everything_and_ended_well(break_in: BreakIn, task: str) -> None:
    assert break_in.theatre.ending(task) == ""
    assert len(break_in.loot(task)) > 30


@TASKS
def test_nothing_that_is_not_its_own_is_read(break_in: BreakIn, task: str) -> None:
    loot = break_in.loot(task)
    assert [name for name, found in loot.items() if CANARY in found or "SQLite format" in found] == []
    hive = f"read {break_in.theatre.hive.places.hive}"
    assert set(loot.pop(hive).removeprefix("refused: ").split()) <= {"sandboxes", "public", *NOTHING}, (
        "the way to its sandbox"
    )
    assert [name for name, found in loot.items() if name.startswith("read ") and not found.startswith("refused")] == []
    assert loot["keeper"].startswith("refused") or "HIVE_RUN" in loot["keeper"], "a pid of ours may be one of theirs"
    assert CANARY not in loot["files of the keeper"]


@TASKS
def test_the_keeper_is_neither_nudged_nor_signalled(break_in: BreakIn, task: str) -> None:
    if break_in.theatre.level() is Level.NAMESPACES:
        assert break_in.loot(task)["nudge"].startswith("refused")


def test_nothing_of_the_hive_or_of_others_is_changed(break_in: BreakIn) -> None:
    hive = break_in.theatre.hive.places
    assert (break_in.theatre.root / "hive.toml").read_text() == break_in.settings
    assert [secret for secret in break_in.secrets if secret.read_text() != CANARY] == []
    planted = [path for path in break_in.theatre.root.parent.rglob(f"planted-{CANARY}") if "scratch" not in path.parts]
    assert [path for path in planted if path.parent != break_in.theatre.root] == []
    for repository in (hive.public("app"), hive.mirror("app")):
        assert (repository / "HEAD").read_text() == "ref: refs/heads/main\n"


def test_what_the_person_was_in_the_middle_of_is_as_it_was(break_in: BreakIn) -> None:
    assert break_in.person.look() == break_in.before


def test_who_behaves_beside_them_lands_and_no_pass_failed(break_in: BreakIn) -> None:
    assert break_in.theatre.task(GOOD).state is TaskState.COMPLETE
    break_in.theatre.assert_unimpressed()


def test_a_connection_to_nobody_is_a_failed_attempt_in_its_own_words(tmp_path: Path) -> None:
    with socket.socket() as closed, open_theatre(tmp_path / "hive") as theatre:
        closed.bind(("127.0.0.1", 0))
        code = f"import socket; socket.create_connection(('127.0.0.1', {closed.getsockname()[1]}))"
        theatre.play(TaskSpec("A", f'exec {sys.executable} -c "{code}"', attempts=1, limits=PATIENT))
        assert theatre.ending("A").endswith("ConnectionRefusedError: [Errno 111] Connection refused")
