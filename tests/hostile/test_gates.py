"""Gates that misbehave: whatever one does or leaves behind, the next candidate is verified on exactly its tree."""

import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.commands import queue
from hivekeeper.domain import events as e
from hivekeeper.domain.merge import list_gate_files
from hivekeeper.domain.rows import RepoRow
from hivekeeper.domain.states import RepoState, TaskState
from tests.scenarios.test_queue import Line
from tests.stage import ME

ONE_AT_A_TIME = "[queue]\nparallel = 1\n"
# Lists what a gate sees as `git ls-tree -r` would; and what git would not know of.
LISTER = """
import hashlib, os, stat, sys
def name(path):
    return os.fsencode(path)[2:].decode("utf-8", "backslashreplace").encode("unicode_escape").decode()
for directory, names, files in os.walk("."):
    if not names and not files or stat.S_IMODE(os.lstat(directory).st_mode) != 0o755:
        print("directory %o" % stat.S_IMODE(os.lstat(directory).st_mode), name(directory) or ".")
    links = [each for each in names if os.path.islink(os.path.join(directory, each))]
    for path in (os.path.join(directory, each) for each in files + links):
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            kind, data = "120000", os.fsencode(os.readlink(path))
        elif stat.S_ISREG(mode) and os.access(path, os.R_OK):
            kind, data = {0o644: "100644", 0o755: "100755"}.get(stat.S_IMODE(mode), oct(mode)), open(path, "rb").read()
        else:
            kind, data = oct(mode), b""
        print(kind, hashlib.sha1(b"blob %d\\0%s" % (len(data), data)).hexdigest(), name(path))
for name in ("HOME", "TMPDIR"):
    for path in os.listdir(os.environ[name]):
        print(name, path)
"""
DEEP = """python3 -c "import os
for _ in range(3000): os.mkdir('d'); os.chdir('d')
open('f', 'w').write('f')" """
SAME_TIME = "touch -r README $TMPDIR/was; printf 'HELLO\\n' > README; touch -r $TMPDIR/was README"
NOISE = "(setsid sh -c 'while :; do echo x > late; echo x > src/late; done' > /dev/null 2>&1 &)"
# What was not put right after the deed before must not be blamed on this one.
HEAL = """find . -type d ! -perm 755 -exec chmod 755 {} ';'
find . -type f ! -perm 644 ! -perm 755 -exec chmod 644 {} +
find . -type p -delete
rm -rf sub/*
"""
DEEDS = {
    "untracked": "mkdir -p build/x; echo x > build/x/y; echo x > src/x",
    "odd-names": "touch \"$(printf 'a\\nb')\" \"$(printf 'caf\\351')\" ./-rf ' '",
    "ignored": "echo x > result.ignored; mkdir src/x.ignored; echo x > src/x.ignored/y; echo '*' > src/.gitignore",
    "repository": "git init -q .; git add -A; git -c user.name=a -c user.email=a commit -qm x; echo x > result",
    "nested-repositories": "git init -q src; echo x > src/x; git init -q new; echo x > new/x; echo x > src/deep/.git",
    "shut": "mkdir shut; echo x > shut/x; chmod 000 shut src/deep; chmod 311 src",
    "same-size-and-time": SAME_TIME,
    "links-out": "rm README; ln -s /etc/passwd README; rm -r src; ln -s /etc src; ln -s / root; ln -s .. up",
    "read-only": "mkdir fixed; echo x > fixed/x; chmod 444 README src/f fixed/x; chmod 555 fixed src src/deep .",
    "unreadable": "chmod 000 README src/f",
    "executable": "chmod +x README; chmod -x run",
    "moved-behind-a-link": "mv src moved; ln -s moved src",
    "kinds-swapped": "rm -r src; echo x > src; rm README; mkdir README; echo x > README/x",
    "removed": "rm -rf src README deeds",
    "hard-links": "ln -f README run; ln README copy; echo more >> copy",
    "in-a-submodule": "echo passed > sub/result; mkdir sub/.git; echo x > sub/.git/x",
    "pipes": "mkfifo pipe src/pipe",
    "homes": "echo x > $HOME/.profile; echo x > $TMPDIR/result; chmod 000 $HOME $TMPDIR",
    "deep": f"mkdir deep; cd deep; {DEEP}",
    "check-out": "echo x > ../index; echo $HIVE_CANDIDATE > ../whole; mkdir ../work2; touch ../ready ../key",
    "noise": NOISE,
}


def name_deed(number: int) -> str:
    return f"{number:02}-{[*DEEDS, 'nothing'][number]}"


class Played:
    """A train of candidates: the gate of each looks at what it is given, then does something bad."""

    def __init__(self, line: Line, seen: Path) -> None:
        self.line = line
        self.seen = seen

    def list_seen(self, branch: str) -> list[str]:
        candidate = self.line.entry(branch).candidate
        return sorted((self.seen / str(candidate)).read_text().splitlines())

    def list_expected(self, branch: str) -> list[str]:
        tree = self.line.git("ls-tree", "-r", str(self.line.entry(branch).candidate)).splitlines()
        entries = [line.split(maxsplit=3) for line in tree]
        files = [f"{mode} {blob} {path}" for mode, kind, blob, path in entries if kind == "blob"]
        return sorted([*files, "directory 755 sub"])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    directory = tmp_path_factory.mktemp("gates")
    line = Line(directory / "hive", ONE_AT_A_TIME)
    seen = directory / "seen"
    seen.mkdir()
    (seen / "list.py").write_text(LISTER)
    line.repository.commit({".gitignore": "*.ignored\ncache\n", "run": "#!/bin/sh\n"}, "second")
    (line.repository.path / "run").chmod(0o755)
    (line.repository.path / "src" / "deep").mkdir(parents=True)
    line.repository.commit({"src/f": "f\n", "src/deep/g": "g\n"}, "third")
    head = line.repository.git("rev-parse", "HEAD")
    line.repository.git("update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    line.repository.git("commit", "--quiet", "-m", "fourth")
    (line.repository.path / "sub").mkdir()
    lister = f"{shlex.quote(sys.executable)} -I {shlex.quote(str(seen / 'list.py'))}"
    verify = f'{lister} > {seen}/$HIVE_CANDIDATE || exit\n{HEAL}sh -c "$(cat deeds/$(ls deeds | tail -n 1))" || true'
    line.know(verify)
    names = [name_deed(number) for number in range(len(DEEDS) + 1)]
    for name, command in zip(names, [*DEEDS.values(), ":"], strict=True):
        line.branch(name, {f"deeds/{name}": command})
    line.line_up(*names)
    line.settle()
    yield Played(line, seen)
    line.end()


@pytest.mark.parametrize(("number", "deed"), list(enumerate(DEEDS)), ids=list(DEEDS))
def test_the_next_candidate_is_verified_on_exactly_its_tree(played: Played, number: int, deed: str) -> None:
    assert played.line.of(name_deed(number)).state is TaskState.COMPLETE, deed
    after = name_deed(number + 1)
    assert played.list_seen(after) == played.list_expected(after)


def test_nobody_is_suspected_for_what_a_gate_before_it_left(played: Played) -> None:
    assert played.line.events(e.MergeFailed) == []
    played.line.assert_green("ls deeds")


def test_no_process_of_a_gate_is_left(played: Played) -> None:
    assert played.line.list_processes() == []


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path / "hive", '[queue]\nparallel = 2\ngate_timeout = "3s"\n')
    yield line
    line.end()


def test_what_a_gate_does_to_kept_directories_is_gone_and_setup_runs_once_for_each_lock_file(tmp_path: Path) -> None:
    line = Line(tmp_path / "hive", ONE_AT_A_TIME)  # of several that begin at once each may find nothing kept
    try:
        line.repository.commit({"lock": "1\n", ".gitignore": "cache\n"}, "locked")
        signs = line.root.parent
        line.know(
            "test $(cat cache/made) = $(cat lock) && test ! -e cache/more && echo 9 > cache/made && touch cache/more",
            setup=f"mkdir cache; cp lock cache/made; echo $(cat lock) >> {signs}/setups",
            keep=("cache",),
            lock=("lock",),
        )
        for name, files in {"a": {"a": "a"}, "b": {"b": "b"}, "c": {"lock": "2\n"}, "d": {"d": "d"}}.items():
            line.branch(name, files)
        line.line_up("a", "b", "c", "d")
        line.settle()
        assert line.landed() == ["a", "b", "c", "d"]
        assert (signs / "setups").read_text().split() == ["1", "2"]
        line.assert_green("true")
    finally:
        line.end()


def test_a_gate_that_hangs_is_ended_and_only_its_own_change_is_refused(line: Line) -> None:
    line.know("if test -e bad; then echo waiting; sleep 300; fi")
    line.branch("bad", {"bad": ""})
    line.branch("good", {"good": ""})
    line.line_up("bad", "good")
    line.settle()
    assert line.landed() == ["good"]
    said = "verify failed twice: it ran longer than its time limit and was stopped"
    assert line.of("bad").reason.startswith(said)
    assert not line.list_processes()
    line.assert_green()


def test_a_gate_that_writes_outside_of_its_checkout_fails_and_what_is_there_stays(tmp_path: Path) -> None:
    line = Line(tmp_path / "hive", ONE_AT_A_TIME)
    (line.root / "hive.toml").write_text(ONE_AT_A_TIME)  # nothing beside the check-out is to be written
    line.reopen()
    places = line.hive.places
    targets = [line.root / "x", places.hive / "x", places.mirror("app") / "x", line.repository.path / "x", Path("/x")]
    # What is made where the sandbox lets it seem to be (a temporary directory of its own) is gone with it.
    tries = " ; ".join(f"echo x > {target}" for target in [*targets, "../x", "../whole"])
    line.know(f"test ! -e bad || {{ {tries}; exit 5; }}")
    head = line.repository.git("rev-parse", "HEAD")
    line.branch("bad", {"bad": ""})
    line.enter("bad")
    line.settle()
    assert "exit code 5" in line.of("bad").reason
    assert [target for target in targets if target.exists()] == []
    assert line.git("rev-parse", "refs/heads/main") == head
    line.end()


def test_a_program_that_is_missing_everywhere_stops_the_queue_and_blames_nobody(line: Line) -> None:
    line.know("no-such-checker --all")
    line.branch("a", {"a": ""})
    line.branch("b", {"b": ""})
    line.line_up("a", "b")
    line.step_until(lambda: line.repo().stopped is not None)
    said = line.repo().stopped or ""
    assert "cannot be run on 'main' itself" in said
    assert "no-such-checker" in said
    assert [line.of(name).state for name in "ab"] == [TaskState.IN_PROGRESS] * 2
    assert line.events(e.MergeRejected) == []
    assert line.landed() == []


def test_a_program_that_is_missing_on_the_branch_only_has_it_refused(line: Line) -> None:
    line.repository.commit({"tool": "#!/bin/sh\ntrue\n"}, "tool")
    line.know("test -e tool || no-such-program")
    line.branch("bad", {"tool": None})
    line.branch("good", {"good": ""})
    line.line_up("bad", "good")
    line.settle()
    assert line.landed() == ["good"]
    assert line.of("bad").reason.startswith("verify could not be run, twice: exit code 127")
    line.assert_green()


def test_a_gate_that_cannot_be_started_three_times_stops_the_queue(line: Line) -> None:
    line.know(f"true {'x' * 200_000}")
    line.branch("a", {"a": ""})
    line.enter("a")
    line.step_until(lambda: line.repo().stopped is not None)
    assert "could not be verified: the command could not be started" in (line.repo().stopped or "")
    assert len([run for run in line.gate_runs() if run.kind == "gate"]) == 3
    assert line.of("a").state is TaskState.IN_PROGRESS


@pytest.mark.parametrize("passes", [True, False])
def test_a_branch_that_edits_the_gate_waits_for_a_person_and_holds_up_nobody(line: Line, *, passes: bool) -> None:
    line.repository.commit({"check.sh": "test ! -e bad\n"}, "gate")
    line.know("sh ./check.sh")
    line.branch("edits", {"check.sh": "true\n" if passes else "exit 3\n", "edited": ""})
    line.branch("good", {"good": ""})
    line.line_up("edits", "good")
    line.settle("good")
    assert line.entry("edits").held == "it changes the protected file check.sh"
    assert line.landed() == ["good"]
    with line.hive.ledger.write(ME) as tx:
        assert queue.approve_entry(tx, line.of("edits"))
    line.step_until(lambda: line.entry("edits", 1).ended_at is not None)
    assert line.landed() == (["good", "edits"] if passes else ["good"])
    assert passes or "exit code 3" in line.entry("edits", 1).reason
    line.assert_green()


def test_what_a_person_approved_and_the_gate_refused_does_not_ask_again(line: Line) -> None:
    line.repository.commit({"check.sh": "true\n"}, "gate")
    line.know("sh ./check.sh")
    line.branch("edits", {"check.sh": "exit 3\n"})
    line.enter("edits")
    line.step_until(lambda: line.entry("edits").held is not None)
    with line.hive.ledger.write(ME) as tx:
        assert queue.approve_entry(tx, line.of("edits"))
    line.step_until(lambda: line.is_over() or (line.of("edits").attempts == 2 and bool(line.find_entry("edits"))))
    line.step_until(lambda: line.is_over() or line.entry("edits").held is not None)
    assert line.of("edits").state is TaskState.FAILED


def test_a_branch_that_adds_what_the_gate_would_run_instead_waits_for_a_person(line: Line) -> None:
    line.repository.commit({"Makefile": "all:\n\ttest ! -e bad\n"}, "gate")
    line.know("make")
    line.branch("bad", {"GNUmakefile": "all:\n\ttrue\n", "bad": ""})
    line.enter("bad")
    line.step_until(lambda: line.is_over() or line.entry("bad").held is not None)
    assert line.landed() == []


def test_a_branch_that_edits_what_the_gate_runs_through_a_link_waits_for_a_person(line: Line) -> None:
    line.repository.commit({"real.sh": "test ! -e bad\n"}, "gate")
    (line.repository.path / "check.sh").symlink_to("real.sh")
    line.repository.commit({}, "link")
    line.know("sh check.sh")
    line.branch("bad", {"real.sh": "true\n", "bad": ""})
    line.enter("bad")
    line.step_until(lambda: line.is_over() or line.entry("bad").held is not None)
    assert line.landed() == []


def link_configuration(line: Line) -> None:
    """Ship agent configuration by links: a directory, and one more link on the way to it."""
    line.repository.path.joinpath("shared", "agents").mkdir(parents=True)
    line.repository.path.joinpath("tools").symlink_to("shared")
    line.repository.path.joinpath(".claude").symlink_to("tools/agents")
    line.repository.path.joinpath(".mcp.json").symlink_to("servers.txt")
    line.repository.path.joinpath(".codex").symlink_to("nothing/yet")
    line.repository.commit({"servers.txt": "{}\n", "shared/agents/settings.json": "{}\n"}, "configuration")


@pytest.mark.parametrize(
    "path",
    [
        *("servers.txt", "shared/agents/settings.json", "shared/agents/hooks/more.json", ".claude", "tools"),
        *("nothing/yet", "nothing/yet/config.toml"),
    ],
)
def test_a_branch_that_changes_what_agent_programs_obey_through_links_waits_for_a_person(line: Line, path: str) -> None:
    link_configuration(line)
    line.know()
    if (line.repository.path / path).is_symlink():
        line.branch("evil", {path: None})
    else:
        line.branch("evil", {path: "evil\n"})
    line.branch("good", {"good": ""})
    line.line_up("evil", "good")
    line.settle("good")
    assert line.entry("evil").held == f"it changes the agent configuration {path}"
    with line.hive.ledger.write(ME) as tx:
        assert queue.approve_entry(tx, line.of("evil"))
    line.settle("evil")
    assert line.landed() == ["good", "evil"]
    assert len(line.events(e.RepoPinned)) == 2, "what a person let through is trusted"


def test_a_link_that_leads_out_of_the_repository_or_in_circles_is_pinned_as_it_is(line: Line) -> None:
    line.repository.path.joinpath(".claude").symlink_to("../../somewhere")
    line.repository.path.joinpath(".mcp.json").symlink_to("around")
    line.repository.path.joinpath("around").symlink_to(".mcp.json")
    line.repository.commit({}, "links")
    line.know()
    (pinned,) = line.events(e.RepoPinned)
    assert isinstance(pinned.body, e.RepoPinned)
    assert sorted(pinned.body.files) == [".claude", ".mcp.json", "around"]


NO_REPO = RepoRow("app", "/app", "main", None, RepoState.READY, 1)


@pytest.mark.parametrize(
    "verify",
    [
        "sh check.sh",
        "./check.sh --all",
        "bash -eu ./check.sh",
        "set -e; ./check.sh",
        "test -d x && sh check.sh || exit 1",
        "A=1 B=2 sh check.sh",
        "(cd . && sh 'check.sh')",
        "timeout 60 sh check.sh",
        "env A=1 ./check.sh",
        "exec ./check.sh",
        "timeout -s KILL 60 nice -n 5 sh check.sh",
        "env -u HOME ./check.sh",
        "/usr/bin/env ./check.sh",
        "if ! ./check.sh; then exit 1; fi",
        ". ./check.sh",
        "! ./check.sh",
        'sh "$PWD/check.sh"',
        "sh .//check.sh",
    ],
)
def test_the_file_that_a_gate_runs_is_found_however_it_is_said(verify: str) -> None:
    repo = replace(NO_REPO, verify=verify)
    assert list_gate_files(repo, ["check.sh", "README"], lambda _path: "") == ["check.sh"]


def test_a_file_named_like_a_wrapper_is_itself_what_a_gate_runs() -> None:
    repo = replace(NO_REPO, verify="ci/time 5 make")
    assert list_gate_files(repo, ["ci/time", "Makefile"], lambda _path: "") == ["ci/time"]


def test_a_lock_file_that_is_a_link_is_not_followed_outside_of_the_sandbox(line: Line) -> None:
    pipe = line.root.parent / "pipe"
    os.mkfifo(pipe)
    line.repository.commit({"lock": "1\n"}, "locked")
    line.know("true", setup="mkdir -p cache", keep=("cache",), lock=("lock",))
    line.branch("bad", {"lock": None, "bad": ""})
    line.repository.git("checkout", "--quiet", "bad")
    (line.repository.path / "lock").symlink_to(pipe)
    line.repository.commit({}, "link")
    line.repository.git("checkout", "--quiet", "main")
    line.enter("bad")
    line.step_until(lambda: line.is_over() or has_reader(pipe))
    assert line.is_over()


def has_reader(pipe: Path) -> bool:
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
