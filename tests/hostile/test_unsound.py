"""Changes that a remote would refuse to take: they are sent back, and everything after them is published."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.domain.merge import describe_rework
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import TaskState
from hivekeeper.git.candidate import Candidate, Change, Made, Unsound, make_candidate
from hivekeeper.git.mirror import Mirror
from hivekeeper.store import queries
from tests.scenarios.test_queue import Line
from tests.stage import Repository

URL = "-oProxyCommand=touch"
MODULES = f"printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = {URL}\\n' > .gitmodules"
REFUSED = f".gitmodules: gitmodulesUrl: disallowed submodule url: {URL}"
# Trees as broken or malicious tools write them, which git takes in and a strict remote does not; each by its mode and
# name of one entry, and what is said of it.
TREES = {
    "git-directory": ("40000 .git", "hasDotgit: contains '.git'"),
    "git-directory-in-disguise": ("40000 .GiT", "hasDotgit: contains '.git'"),
    "parent": ("40000 ..", "hasDotdot: contains '..'"),
    "slash": ("40000 a/b", "fullPathname: contains full pathnames"),
    "padded-mode": ("040000 z", "zeroPaddedFilemode: contains zero-padded file modes"),
}


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path / "hive")
    yield line
    line.end()


def run_git(repository: Repository, *arguments: str, given: bytes) -> str:
    argv = ("git", "-C", str(repository.path), *arguments)
    return subprocess.run(argv, input=given, check=True, capture_output=True).stdout.decode().strip()


def commit_bad_tree(repository: Repository, entry: str) -> str:
    """Make a commit on main in which a directory is a tree that git itself would not write."""
    git = repository.git
    inner = bytes.fromhex(git("rev-parse", "main:dir"))
    tree = run_git(
        repository,
        *("hash-object", "-t", "tree", "--literally", "-w", "--stdin"),
        given=entry.encode() + b"\0" + inner,
    )
    readme = git("rev-parse", "main:README")
    root = run_git(repository, "mktree", given=f"100644 blob {readme}\tREADME\n040000 tree {tree}\tdir\n".encode())
    return git("commit-tree", "-p", "main", "-m", "bad", root)


def make_on_main(repository: Repository, commit: str) -> Made:
    mirror = Mirror(repository.path / ".git")
    change = Change(commit, None, "change\n", "", "@1700000000 +0000")
    return make_candidate(mirror, repository.git("rev-parse", "main"), change)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "app")
    (repository.path / "dir").mkdir()
    repository.commit({"dir/file": "x\n"}, "second")
    return repository


@pytest.mark.parametrize("name", TREES)
def test_a_tree_that_a_strict_remote_would_refuse_is_no_candidate(repository: Repository, name: str) -> None:
    entry, words = TREES[name]
    made = make_on_main(repository, commit_bad_tree(repository, entry))
    assert made == Unsound("dir", words, can_be_mended=False)


def test_what_a_person_has_in_their_history_already_is_held_against_nobody(repository: Repository) -> None:
    repository.git("update-ref", "refs/heads/main", commit_bad_tree(repository, "040000 z"))
    root = run_git(
        repository, "mktree", given=f"{repository.git('ls-tree', 'main')}\n".encode().replace(b"README", b"R")
    )
    made = make_on_main(repository, repository.git("commit-tree", "-p", "main", "-m", "good", root))
    assert isinstance(made, Candidate)
    assert made.changed == ("R", "README")


def test_checking_a_candidate_writes_nothing(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "-b", "change")
    repository.commit({"new": "x\n"}, "change")
    repository.git("repack", "-adq")  # so that whatever were written would be a file of its own
    mirror, commit = Mirror(repository.path / ".git"), repository.git("rev-parse", "change")
    before = sorted((repository.path / ".git" / "objects").rglob("*"))
    assert mirror.find_fault(commit, repository.git("rev-parse", "main")) is None
    assert sorted((repository.path / ".git" / "objects").rglob("*")) == before


def test_what_a_strict_remote_would_refuse_goes_back_to_its_worker_and_later_work_is_published(line: Line) -> None:
    line.repository.git("config", "receive.fsckObjects", "true")
    line.submit(TaskSpec("BAD", MODULES, repo="app", attempts=1), repos=(line.repository.spec(),), convoy="bad")
    line.finish("bad")
    line.submit(TaskSpec("GOOD", "echo x > good", repo="app"), repos=(line.repository.spec(),), convoy="good")
    line.finish("good")
    assert line.repo().publish_problem is None
    assert line.repository.landed() == ["GOOD"]
    bad = line.task("BAD", "bad")
    assert bad.state is TaskState.FAILED
    assert bad.reason == f"a git server that checks pushed objects would refuse it ({REFUSED})"
    with line.hive.ledger.read() as connection:
        (message,) = (row for row in queries.list_mail(connection, bad.key, 1) if row.type == "REWORK_REQUEST")
    assert f"```\n{REFUSED}\n```" in describe_rework(message.get_payload())


def test_a_tree_with_a_git_directory_in_it_stops_no_queue(line: Line) -> None:
    (line.repository.path / "dir").mkdir()
    line.repository.commit({"dir/file": "x\n"}, "second")
    line.repository.git("branch", "bad", commit_bad_tree(line.repository, "40000 .git"))
    line.branch("good", {"good": "good\n"})
    line.know("true")
    line.line_up("bad", "good")
    line.settle()
    assert "(dir: hasDotgit: contains '.git')" in line.of("bad").reason
    assert line.landed() == ["good"]
    assert line.repo().stopped is None
