"""One story: what landed comes into a person's repository, or waits, and nothing of the person's is touched."""

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hivekeeper.clock import to_seconds
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.domain.states import ConvoyState
from hivekeeper.git.forward import Refusal
from hivekeeper.git.orders import CLEAN_ENVIRONMENT, publish_commit
from hivekeeper.store import queries
from hivekeeper.views.status import list_needs
from tests.budget import sample
from tests.needs import need_strace
from tests.property.budget import MEMORY
from tests.scenarios.conftest import Scene
from tests.stage import Repository

ODD = os.fsdecode(b"odd \xff\n'name")
# Every change there is; a text is a file, a link is one, nothing is a removal.
OLD = {
    "README": "hello\n",
    "run": "echo run\n",
    "kept": "kept\n",
    "gone/deep/file": "gone\n",
    "gone/stays": "stays\n",
    "becomes-file/a": "a\n",
    "becomes-file/b/c": "c\n",
    "becomes-directory": "file\n",
    "becomes-link": "file\n",
    "text": "line\n",
    ODD: "odd\n",
}
NEW: dict[str, str | Path | None] = {
    "README": "hello again\n",
    "gone/deep/file": None,
    "becomes-file/a": None,
    "becomes-file/b/c": None,
    "becomes-file": "now a file\n",
    "becomes-directory": None,
    "becomes-directory/inner": "now inside\n",
    "becomes-link": Path("kept"),
    ".gitattributes": "text eol=crlf\n",
    "text": "line\nanother\n",
    ODD: "odder\n",
    "-x/new dir/" + ODD: "new\n",
    "added": "added\n",
}
MINE = {"untracked": "u\n", "gone/deep/ignored": "i\n", "-x/new dir/mine": "m\n"}
# Kills itself at a changing call of its own, by number; without one it tells them all.
_STRUCK = """
import atexit, json, os, runpy, signal, sys
number, program, *arguments = int(sys.argv[1]), *sys.argv[2:]
calls = []
changing = {"os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "os.chmod", "subprocess.Popen"}

def hear(event, given):
    if event in changing or event == "open" and set("wx") & set(str(given[1])):
        calls.append(f"{event} {given!r}")
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

sys.argv = [program, *arguments]
sys.addaudithook(hear)
atexit.register(lambda: number or print(json.dumps(calls)))
runpy.run_path(program, run_name="__main__")
"""
# Saves a file at such a call instead, as an editor does: another one in its place, or into the one that is there.
_SAVED = """
def save(path, in_place, saved):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path if in_place else path + "~", "w") as file:
            file.write("mine\\n")
        if not in_place:
            os.replace(path + "~", path)
        open(saved, "w")
    except OSError:
        pass
"""
# Lets git die at a call of its own while it moves the branch, and the program that started it with it.
_STRIKE_UPDATE_REF = """#!/bin/sh
case " $* " in *" update-ref "*) ;; *) exec "{git}" "$@" ;; esac
strace -qq -o /dev/null -e trace={call} -e inject={call}:signal=KILL:when=1 "{git}" "$@"
kill -9 $PPID
"""


class Desk(Repository):
    """A person's check-out, and beside it a mirror in which something has landed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.write(OLD)
        (path / "run").chmod(0o644)
        self.commit({}, "old")
        self.old = self.git("rev-parse", "HEAD")
        self.write(NEW)
        (path / "run").chmod(0o755)
        self.commit({}, "new")
        self.new = self.git("rev-parse", "HEAD")
        self.mirror = path.with_name("mirror.git")
        self.git("clone", "--quiet", "--bare", str(path), str(self.mirror))
        self.git("reset", "--quiet", "--hard", self.old)
        self.git("reflog", "expire", "--expire=now", "--all")
        self.git("gc", "--quiet", "--prune=now")
        shutil.rmtree(path / ".git" / "hooks")

    def write(self, files: dict[str, str] | dict[str, str | Path | None]) -> None:
        for name, content in files.items():
            file = self.path / name
            if content is None:
                file.unlink()
                with_nothing = [parent for parent in file.relative_to(self.path).parents if parent.name]
                for parent in with_nothing:
                    if not any((self.path / parent).iterdir()):
                        (self.path / parent).rmdir()
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            if isinstance(content, Path):
                file.symlink_to(content)
            else:
                file.write_text(content)

    def copy(self, path: Path) -> "Desk":
        copied = object.__new__(Desk)
        copied.__dict__ = self.__dict__ | {"path": path}
        subprocess.run(("cp", "-a", "--", str(self.path), str(path)), check=True)
        return copied

    def forward(self, *before: str, commit: str = "", git: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Have it moved forward; `before` are words that go between the interpreter and the program."""
        python, *rest = publish_commit(self.mirror, str(self.path), commit or self.new, "main", "checkout")
        path = f"{git.parent}:{os.environ['PATH']}" if git else os.environ["PATH"]
        environment = {**CLEAN_ENVIRONMENT, "PATH": path}
        options = rest[:2] if not before else []
        argv = (python, *options, *before, *rest[2:])
        return subprocess.run(argv, env=environment, check=False, capture_output=True, text=True)

    def list_calls(self) -> list[str]:
        """List the changing calls of moving it forward."""
        done = self.forward("-c", _STRUCK, "0")
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    def kill_at(self, number: int) -> None:
        """Have the program that moves it killed at one of its calls."""
        assert self.forward("-c", _STRUCK, str(number)).returncode == -signal.SIGKILL

    def look(self) -> dict[str, bytes]:
        """Read all of it but objects: every file with its mode, every directory."""
        found: dict[str, bytes] = {}
        for directory, names, files in os.walk(self.path):
            if Path(directory).parent == self.path / ".git" and Path(directory).name == "objects":
                names.clear()
                continue
            found[directory] = b""
            for path in (Path(directory, name) for name in files):
                content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
                found[str(path)] = b"%o " % path.lstat().st_mode + content
        return {name.removeprefix(str(self.path)): content for name, content in found.items()}

    def look_at_files(self) -> dict[str, bytes]:
        """Read the checked-out files alone."""
        return {name: content for name, content in self.look().items() if not f"{name}/".startswith("/.git/")}

    def assert_forwarded(self) -> None:
        """Hold against it whatever is not exactly a clean check-out of the new commit."""
        assert self.git("rev-parse", "HEAD", "refs/heads/main").split() == [self.new] * 2
        assert self.git("symbolic-ref", "HEAD") == "refs/heads/main"
        assert self.git("status", "--porcelain", "--ignored") == ""
        assert self.git("diff-index", "--cached", "HEAD") == ""
        self.assert_free()

    def assert_free(self) -> None:
        """Hold against it whatever keeps a person's next command from working."""
        git = self.path / ".git"
        assert list(git.rglob("*.lock")) == []
        assert not (git / "hive-forward").exists()
        self.git("fsck", "--strict")


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A directory in memory where there is such a place: what is synced here is not about the disk."""
    with TemporaryDirectory(dir=MEMORY) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def template(memory: Path) -> Desk:
    return Desk(memory / "app")


@pytest.fixture
def directory(memory: Path) -> Iterator[Path]:
    with TemporaryDirectory(dir=memory) as directory:
        yield Path(directory)


@pytest.fixture
def desk(template: Desk, directory: Path) -> Desk:
    return template.copy(directory / "it's mine")


@pytest.fixture(scope="module")
def forwarded(template: Desk, memory: Path) -> Desk:
    """What git itself makes of the new commit."""
    desk = template.copy(memory / "forwarded")
    desk.git("fetch", "--quiet", str(desk.mirror), "main")
    desk.git("merge", "--quiet", "--ff-only", desk.new)
    return desk


def test_a_clean_check_out_comes_forward_exactly_as_git_itself_would_bring_it(desk: Desk, forwarded: Desk) -> None:
    (desk.path / ".git" / "info" / "exclude").write_text("ignored\n")
    desk.write(MINE)
    assert desk.forward().returncode == 0
    assert {name: (desk.path / name).read_text() for name in MINE} == MINE
    desk.write(dict.fromkeys(MINE))
    assert desk.look_at_files() == forwarded.look_at_files()
    assert (desk.path / "text").read_bytes() == b"line\r\nanother\r\n"
    desk.assert_forwarded()
    assert "hive: forward" in desk.git("reflog", "-1")


def test_moving_forward_twice_is_moving_once_and_beyond_it_is_there_already(desk: Desk) -> None:
    assert desk.forward().returncode == 0
    before = desk.look()
    assert desk.forward().returncode == 0
    assert desk.look() == before
    desk.commit({"mine": "on top\n"}, "mine")
    before = desk.look()
    assert desk.forward().returncode == 0
    assert desk.look() == before


def test_a_linked_work_tree_comes_forward_and_the_main_one_stays(desk: Desk, forwarded: Desk, directory: Path) -> None:
    desk.git("checkout", "--quiet", "--detach")
    desk.git("worktree", "add", "--quiet", str(directory / "linked"), "main")
    before = desk.look_at_files()
    desk.path = directory / "linked"
    assert desk.forward().returncode == 0
    assert desk.git("status", "--porcelain") == ""
    assert desk.git("rev-parse", "HEAD", "main").split() == [desk.new] * 2
    (desk.path / ".git").unlink()
    assert desk.look_at_files() == forwarded.look_at_files()
    desk.path = directory / "it's mine"
    assert desk.look_at_files() == before
    desk.assert_free()


def test_the_filters_of_its_own_configuration_are_used(desk: Desk) -> None:
    (desk.path / ".git" / "info" / "attributes").write_text("added filter=loud\n")
    desk.git("config", "filter.loud.smudge", "tr a-z A-Z")
    desk.git("config", "filter.loud.clean", "tr A-Z a-z")
    assert desk.forward().returncode == 0
    assert (desk.path / "added").read_text() == "ADDED\n"
    desk.assert_forwarded()


@dataclass(frozen=True)
class Mess:
    """What a person is in the middle of, and what they are told."""

    why: Refusal
    words: str
    make: Callable[[Desk], object]


def _write(name: str, text: str = "mine\n") -> Callable[[Desk], object]:
    return lambda desk: desk.write({name: text})


def _ignore(name: str) -> Callable[[Desk], object]:
    def make(desk: Desk) -> None:
        (desk.path / ".git" / "info" / "exclude").write_text("added\nignored\n")
        desk.write({name: "mine\n"})

    return make


def _stage(desk: Desk) -> None:
    desk.write({"kept": "mine\n"})
    desk.git("add", "kept")


def _hide(desk: Desk) -> None:
    desk.git("update-index", "--assume-unchanged", "README")
    desk.write({"README": "mine\n"})


def _merge(desk: Desk) -> None:
    desk.git("branch", "side")
    desk.git("commit", "--quiet", "--amend", "-m", "otherwise")
    desk.git("merge", "--quiet", "--no-ff", "--no-commit", "--strategy=ours", "side")


def _filter(desk: Desk) -> None:
    (desk.path / ".git" / "info" / "attributes").write_text("added filter=lfs\n")


MESSES = {
    "staged": Mess(Refusal.UNCLEAN, "kept is staged", _stage),
    "modified": Mess(Refusal.UNCLEAN, "kept is modified", _write("kept")),
    "removed": Mess(Refusal.UNCLEAN, "README is modified", lambda d: (d.path / "README").unlink()),
    "untracked": Mess(Refusal.IN_THE_WAY, "added is in the way", _write("added")),
    "ignored": Mess(Refusal.IN_THE_WAY, "added is in the way", _ignore("added")),
    "the same": Mess(Refusal.IN_THE_WAY, "added is in the way", _write("added", "added\n")),
    "directory": Mess(Refusal.IN_THE_WAY, "added is in the way", _write("added/mine")),
    "empty": Mess(Refusal.IN_THE_WAY, "added is in the way", lambda d: (d.path / "added").mkdir()),
    "below": Mess(Refusal.IN_THE_WAY, "becomes-file/b/ignored is in the way", _ignore("becomes-file/b/ignored")),
    "above": Mess(Refusal.IN_THE_WAY, "-x is in the way", _write("-x")),
    "link": Mess(Refusal.IN_THE_WAY, "-x is in the way", lambda d: (d.path / "-x").symlink_to("gone")),
    "nested": Mess(Refusal.IN_THE_WAY, "-x is in the way", lambda d: d.git("init", "--quiet", "--", "-x")),
    "hidden": Mess(Refusal.IN_THE_WAY, "README is in the way, or not as git writes it", _hide),
    "elsewhere": Mess(Refusal.ELSEWHERE, "is on branch mine", lambda d: d.git("checkout", "-q", "-b", "mine")),
    "detached": Mess(Refusal.ELSEWHERE, "is on no branch", lambda d: d.git("checkout", "-q", "--detach")),
    "merging": Mess(Refusal.UNCLEAN, "(MERGE_HEAD)", _merge),
    "locked": Mess(Refusal.LOCKED, "index.lock is there", lambda d: (d.path / ".git" / "index.lock").touch()),
    "diverged": Mess(Refusal.MOVED, "main has commits there", lambda d: d.commit({"mine": "m\n"}, "mine")),
    "filter": Mess(Refusal.UNABLE, "filter lfs is not in its own configuration", _filter),
    "sparse": Mess(Refusal.UNABLE, "sparse", lambda d: d.git("sparse-checkout", "set", "--no-cone", "/*", "!/gone")),
}


@pytest.mark.parametrize("name", MESSES)
def test_whoever_is_in_the_middle_of_something_is_told_and_nothing_of_it_is_touched(desk: Desk, name: str) -> None:
    mess = MESSES[name]
    mess.make(desk)
    before = desk.look()
    done = desk.forward()
    assert (done.returncode, desk.look()) == (mess.why, before)
    assert mess.words in done.stderr.splitlines()[-1]


def test_a_submodule_that_changes_is_left_to_the_person(desk: Desk) -> None:
    scratch = desk.copy(desk.path.with_name("scratch"))
    scratch.git("update-index", "--add", "--cacheinfo", f"160000,{desk.old},inner")
    scratch.git("commit", "--quiet", "-m", "with another inside")
    desk.mirror = scratch.path
    before = desk.look()
    done = desk.forward(commit=scratch.git("rev-parse", "HEAD"))
    assert (done.returncode, done.stderr) == (Refusal.UNABLE, "submodule inner changes\n")
    assert desk.look() == before


def test_a_disk_that_is_full_midway_leaves_everything_as_it_was(desk: Desk, template: Desk) -> None:
    before = desk.look_at_files()
    full = _STRUCK.replace("os.kill(os.getpid(), signal.SIGKILL)", "raise OSError(28, 'the disk is full')")
    done = desk.forward("-c", full, str(_find_call(desk, template, "os.link", "/added'")))
    assert (done.returncode, done.stderr) == (Refusal.UNABLE, "the disk is full: \n")
    assert desk.look_at_files() == before
    assert desk.git("status", "--porcelain") == ""
    desk.assert_free()


def test_a_killed_run_is_brought_to_the_same_end_by_the_next_wherever_it_was(
    template: Desk, forwarded: Desk, directory: Path
) -> None:
    expected = forwarded.look_at_files()
    desk = template.copy(directory / "calls")
    desk.write(MINE)
    above = {str(path) for name in MINE for path in (Path("/", name), *Path("/", name).parents)}
    mine = {name: content for name, content in desk.look_at_files().items() if name in above}
    calls = desk.list_calls()
    assert len(calls) > 60
    for number in sample(range(1, len(calls) + 1), 6):
        desk = template.copy(directory / str(number))
        desk.write(MINE)
        desk.kill_at(number)
        assert desk.look_at_files().items() >= mine.items(), calls[number - 1]
        desk.forward("-c", _STRUCK, str(5 + number % 60))  # the next one too, if it comes that far
        done = desk.forward()
        assert done.returncode == 0, (calls[number - 1], done.stderr)
        assert desk.look_at_files() == expected | mine, calls[number - 1]
        desk.write(dict.fromkeys(MINE))
        desk.assert_forwarded()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", ["README", "added", "gone/deep/file", "becomes-directory", "becomes-file/a"])
def test_what_a_person_saves_while_it_comes_forward_is_never_lost(
    template: Desk, directory: Path, name: str, *, in_place: bool
) -> None:
    calls, count = template.copy(directory / "calls").list_calls(), 0
    for number in sample(range(1, len(calls) + 1), 2):
        desk, saved = template.copy(directory / str(number)), directory / f"{number}.saved"
        mine = desk.path / name
        given = f"save({str(mine)!r}, {in_place}, {str(saved)!r})"
        if "os.remove" in calls[number - 1] and f"/{name}'" in calls[number - 1]:
            continue  # between a last look at it and this very call nobody comes
        desk.forward("-c", _SAVED + _STRUCK.replace("os.kill(os.getpid(), signal.SIGKILL)", given), str(number))
        for _ in range(2):
            assert not saved.exists() or mine.read_text() == "mine\n", calls[number - 1]
            desk.assert_free()
            desk.forward()
        count += saved.exists()
    assert count or "becomes" in name, "where a directory is by then, no file can be saved"


@pytest.mark.parametrize("call", ["openat", "write", "rename", "unlink"])
def test_what_a_git_killed_with_it_left_locked_is_cleared(desk: Desk, directory: Path, call: str) -> None:
    need_strace()
    git = directory / "bin" / "git"
    git.parent.mkdir()
    git.write_text(_STRIKE_UPDATE_REF.format(git=shutil.which("git"), call=call))
    git.chmod(0o755)
    assert desk.forward(git=git).returncode == -signal.SIGKILL
    if call == "rename":
        assert (desk.path / ".git" / "refs" / "heads" / "main.lock").exists()
    done = desk.forward()
    assert done.returncode == 0, done.stderr
    desk.assert_forwarded()


def _find_call(desk: Desk, template: Desk, *words: str) -> int:
    """Find the number of the last call that has these words."""
    calls = template.copy(desk.path.with_name("calls")).list_calls()
    return max(number for number, call in enumerate(calls, 1) if all(word in call for word in words))


def _kill_after(desk: Desk, template: Desk, *words: str) -> None:
    desk.kill_at(_find_call(desk, template, *words) + 1)


def test_a_directory_made_for_a_file_that_has_not_come_is_in_nobodys_way(desk: Desk, template: Desk) -> None:
    _kill_after(desk, template, "os.mkdir ('/", "becomes-directory'")
    assert list((desk.path / "becomes-directory").iterdir()) == []
    assert desk.forward().returncode == 0
    desk.assert_forwarded()


def test_a_lock_that_a_person_took_after_a_kill_is_respected(desk: Desk, template: Desk) -> None:
    _kill_after(desk, template, "/added'")
    lock = desk.path / ".git" / "index.lock"
    lock.unlink()
    lock.touch()
    before = desk.look()
    assert desk.forward().returncode == Refusal.LOCKED
    assert desk.look() == before
    lock.unlink()
    assert desk.forward().returncode == 0
    desk.assert_forwarded()


def test_what_a_person_changed_after_a_kill_stays_and_the_rest_is_as_it_was(desk: Desk, template: Desk) -> None:
    before = desk.look()
    _kill_after(desk, template, "/added'")
    assert (desk.path / ".git" / "index.lock").exists()
    assert (desk.path / "README").read_text() == "hello again\n"
    desk.write({"text": "my own words\n"})
    done = desk.forward()
    assert (done.returncode, done.stderr) == (Refusal.UNCLEAN, "text is modified\n")
    assert desk.look() == before | {"/text": before["/kept"][:7] + b"my own words\n"}
    desk.assert_free()


def test_who_took_over_after_a_kill_and_staged_what_was_there_keeps_it(desk: Desk, template: Desk) -> None:
    _kill_after(desk, template, "/added'")
    (desk.path / ".git" / "index.lock").unlink()
    desk.git("add", "--all")
    files, staged = desk.look_at_files(), desk.git("diff", "--cached", "--name-status")
    done = desk.forward()
    assert done.returncode == Refusal.UNCLEAN
    assert (desk.look_at_files(), desk.git("diff", "--cached", "--name-status")) == (files, staged)
    desk.assert_free()


def test_what_a_person_changed_after_the_branch_had_moved_is_a_change_to_the_new_commit(
    desk: Desk, template: Desk
) -> None:
    _kill_after(desk, template, "update-ref")
    assert desk.git("rev-parse", "HEAD") == desk.new
    desk.write({"README": "my own words\n"})
    assert desk.forward().returncode == 0
    assert desk.git("status", "--porcelain") == " M README"
    assert (desk.path / "README").read_text() == "my own words\n"
    desk.assert_free()


def test_what_landed_comes_in_the_way_the_plan_says(stage: Scene, repository: Repository, tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    repository.git("clone", "--quiet", "--bare", str(repository.path), str(remote))
    (repository.path / "untracked").write_text("mine\n")
    stage.submit(
        TaskSpec("A", "echo a > a; echo more >> README", repo="app"),
        TaskSpec("B", "echo b > b", repo="remote"),
        repos=(
            replace(repository.spec(), publish="checkout"),
            RepoSpec("remote", remote.as_uri(), publish="push"),
        ),
    )
    assert stage.finish() is ConvoyState.COMPLETE
    assert (repository.path / "README").read_text() == "hello\nmore\n"
    assert repository.git("rev-parse", "HEAD") == stage.repo().integration
    assert repository.git("status", "--porcelain") == "?? untracked"
    assert repository.git("--git-dir", str(remote), "rev-parse", "main") == stage.repo("remote").integration
    for git_dir in (repository.path / ".git", remote):
        assert repository.git("--git-dir", str(git_dir), "branch", "--list", "hive/*") == ""


def test_what_a_check_out_does_not_take_waits_longer_each_time_and_comes_once_it_is_clean(
    stage: Scene, repository: Repository
) -> None:
    (repository.path / "README").write_text("my own words\n")
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(replace(repository.spec(), publish="checkout"),))
    assert stage.finish() is ConvoyState.COMPLETE
    command = shlex.join(("git", "-C", str(repository.path), "status"))
    problem = f"Could not update main in {repository.path}: README is modified (type: {command})"
    for wait_s in (60, 120, 240):
        assert stage.repo().publish_problem == problem
        now = to_seconds(stage.clock.now())
        assert now < to_seconds(stage.repo().publish_retry_at or "") <= now + wait_s
        stage.clock.advance(wait_s + 1)
        tried = stage.count_publications() + 1
        stage.step_until(lambda: stage.count_publications() == tried and stage.repo().publishing is None)  # noqa: B023
    with stage.hive.ledger.read() as connection:
        needs = list_needs(connection, keeper_is_alive=True)
    assert needs == [{"what": f"Could not update main in {repository.path}: README is modified.", "type": command}]
    repository.git("checkout", "--", "README")
    stage.clock.advance(481)
    stage.step_until(lambda: stage.repo().publish_problem is None)
    assert repository.git("rev-parse", "HEAD") == stage.repo().published


def _refuse_first(stage: Scene, repository: Repository) -> None:
    """Have something land that a check-out does not take."""
    (repository.path / "README").write_text("my own words\n")
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(replace(repository.spec(), publish="checkout"),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert stage.repo().publish_problem


def _switch(repository: Repository) -> None:
    repository.git("stash", "--quiet")
    repository.git("switch", "--quiet", "-c", "mine")


@pytest.mark.parametrize("cause", ["modified", "elsewhere", "locked", "gone"])
def test_a_check_out_that_can_take_it_again_is_tried_within_seconds(
    stage: Scene, repository: Repository, tmp_path: Path, cause: str
) -> None:
    lock, elsewhere = repository.path / ".git" / "index.lock", tmp_path / "elsewhere"
    make: dict[str, Callable[[], object]] = {
        "modified": lambda: None,
        "elsewhere": lambda: _switch(repository),
        "locked": lambda: [repository.git("checkout", "--", "README"), lock.write_text("")],
        "gone": lambda: repository.path.rename(elsewhere),
    }
    end: dict[str, Callable[[], object]] = {
        "modified": lambda: repository.git("checkout", "--", "README"),
        "elsewhere": lambda: repository.git("switch", "--quiet", "main"),
        "locked": lock.unlink,
        "gone": lambda: (elsewhere.rename(repository.path), repository.git("checkout", "--", "README")),
    }
    _refuse_first(stage, repository)
    make[cause]()
    tried = stage.count_publications()
    if cause != "modified":
        stage.clock.advance(61)
        stage.step_until(lambda: stage.count_publications() > tried and stage.repo().publishing is None)
    for _ in range(3):  # and not before
        stage.clock.let_pass(2.5)
        assert stage.keeper
        assert not stage.keeper.step()
    end[cause]()
    stage.clock.let_pass(2.5)
    stage.step_until(lambda: stage.repo().publish_problem is None and stage.repo().publishing is None)
    assert repository.git("rev-parse", "HEAD") == stage.repo().published == stage.repo().integration


def test_a_refusal_noted_by_a_clock_ten_years_ahead_is_tried_when_that_is_set_right(
    stage: Scene, repository: Repository
) -> None:
    _refuse_first(stage, repository)
    for jump_s in (10 * 365 * 86_400.0, -10 * 365 * 86_400.0):
        tried = stage.count_publications()
        stage.clock.advance(jump_s)
        stage.step_until(lambda: stage.count_publications() > tried and stage.repo().publishing is None)  # noqa: B023
    retry_at = to_seconds(stage.repo().publish_retry_at or "")
    assert to_seconds(stage.clock.now()) < retry_at < to_seconds(stage.clock.now()) + 3600


def test_after_a_person_moved_their_branch_nothing_waits_and_nothing_replaced_is_to_be_merged(
    stage: Scene, repository: Repository
) -> None:
    _refuse_first(stage, repository)
    repository.git("checkout", "--", "README")
    repository.git("commit", "--quiet", "--amend", "-m", "first, in other words")
    stage.clock.let_pass(2.5)
    stage.step_until(lambda: stage.repo().published == stage.repo().integration and stage.is_quiet())
    assert stage.finish("queue") is ConvoyState.COMPLETE
    stage.step_until(lambda: stage.repo().published == stage.repo().integration and stage.is_quiet())
    assert repository.git("log", "--format=%s", "main").split("\n")[-1] == "first, in other words"
    assert (repository.path / "a").exists()
    with stage.hive.ledger.read() as connection:
        assert list_needs(connection, keeper_is_alive=True) == []


def test_what_somebody_put_on_the_branch_of_the_hive_can_be_kept_by_what_is_advised(
    stage: Scene, repository: Repository
) -> None:
    repository.git("branch", "hive/main")
    repository.git("switch", "--quiet", "hive/main")
    repository.commit({"mine": "m\n"}, "mine")
    mine = repository.git("rev-parse", "HEAD")
    repository.git("switch", "--quiet", "main")
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    with stage.hive.ledger.read() as connection:
        (need,) = list_needs(connection, keeper_is_alive=True)
    subprocess.run(("sh", "-c", need["type"]), cwd="/", check=True, capture_output=True)
    stage.clock.advance(61)
    stage.step_until(lambda: stage.repo().publish_problem is None and stage.is_quiet())
    assert repository.git("for-each-ref", f"--contains={mine}", "refs/heads").count("before-") == 1
    assert repository.landed() == ["A"]


def test_a_check_out_whose_run_was_killed_midway_is_mended_at_once(stage: Scene, repository: Repository) -> None:
    begun, go = stage.root / "begun", stage.root / "go"
    wait = f"touch '{begun}'; until test -e '{go}'; do sleep 0.02; done; cat"
    repository.git("config", "filter.slow.clean", wait)
    (repository.path / ".git" / "info" / "attributes").write_text("made filter=slow\n")
    stage.submit(TaskSpec("A", "echo a > made", repo="app"), repos=(replace(repository.spec(), publish="checkout"),))
    stage.step_until(begun.exists)
    assert (repository.path / ".git" / "index.lock").exists()
    with stage.hive.ledger.read() as connection:
        run = queries.find_run(connection, "_repos/app.0.publish")
    assert run is not None
    assert run.pid is not None
    for pid in (run.pid, *stage.list_processes(run.id)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    go.touch()
    assert stage.finish() is ConvoyState.COMPLETE
    stage.step_until(lambda: stage.repo().published == stage.repo().integration)
    assert stage.count_publications() == 2
    assert repository.git("rev-parse", "HEAD") == stage.repo().integration
    assert repository.git("status", "--porcelain") == ""
    assert list((repository.path / ".git").rglob("*.lock")) == []
