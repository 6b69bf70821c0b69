"""Repositories as people have them: each is worked on, or refused in words, and none of them is harmed."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.domain.states import RepoState, RunState, TaskState
from hivekeeper.store import queries
from tests.e2e.conftest import Shell
from tests.git import git
from tests.hostile.conftest import GOOD, PATIENT, Person, Theatre, open_theatre

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 12345\n"
ODD_NAMES = (b"\xff\xfe", b"new\nline", b"tab\t", b"-rf", b"'\"\\", b"l" * 255, b":(top)", b"*")
WORKED_ON = (
    "bare",
    "dirty",
    "submodule",
    "lfs",
    "odd",
    "long",
    "loop",
    "dash",
    "quoted",
    "newline",
    "url",
    "many",
    "linked",
)
REFUSED = {
    "empty": "there is no branch main in {path}",
    "shallow": "the history of main in {path} is not whole: is it a shallow clone?",
    "sha256": "sha256",
}
UNREADABLE = {
    "missing": "'{path}' does not appear to be a git repository",
    "file": "invalid gitfile format: {path}",
    "plain": "'{path}' does not appear to be a git repository",
    "corrupt": "fatal: ",  # which of its complaints comes last is up to git
    "closed": "Failed to connect to 127.0.0.1",
    "program": "transport 'ext' not allowed",
}
NOT_PUBLISHED = {
    "gone": "'{path}' does not appear to be a git repository",
    "checked-out": "branch is currently checked out",
    "hook": "pre-receive hook declined",
    "prefix": "'refs/heads/hive' exists",
}


class Town:
    """Many people's repositories, by name, and one hive that is to work on all of them."""

    def __init__(self, root: Path, theatre: Theatre) -> None:
        self.root = root
        self.theatre = theatre
        self.people: dict[str, Person] = {}
        self.paths: dict[str, str] = {}
        self.before: dict[str, dict[str, bytes]] = {}

    def build(self, name: str, directory: str = "") -> Person:
        self.people[name] = person = Person(self.root / (directory or name))
        self.paths[name] = str(person.path)
        return person

    def git(self, *arguments: str, text: str = "") -> str:
        return git(self.root, "-c", "protocol.file.allow=always", *arguments, text=text)

    def build_all(self) -> None:
        self._build_workable()
        self._build_unusable()
        for name in (*NOT_PUBLISHED, GOOD):
            self.build(name)
        self.people["checked-out"].git("checkout", "--quiet", "-b", "hive/main")
        self.people["prefix"].git("branch", "hive")
        hook = self.people["hook"].path / ".git" / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
        self.before = {name: person.look() for name, person in self.people.items()}

    def _build_workable(self) -> None:
        self.build("dirty").make_dirty()
        self.git("clone", "--quiet", "--bare", self.paths["dirty"], "bare.git")
        self.paths["bare"] = str(self.root / "bare.git")
        submodule = self.build("submodule")
        submodule.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", self.paths["dirty"], "inner")
        submodule.git("commit", "--quiet", "-m", "with another inside")
        self.build("lfs").commit({".gitattributes": "*.bin filter=lfs diff=lfs -text\n", "a.bin": POINTER}, "pointers")
        odd = self.build("odd")
        for odd_name in ODD_NAMES:
            (odd.path / os.fsdecode(odd_name)).write_text("x")
        odd.commit({}, "odd names")
        long = self.build("long")
        deep = long.path.joinpath(*["p" * 250] * 12)
        deep.mkdir(parents=True)
        (deep / "file").write_text("x")
        long.commit({}, "a long way")
        loop = self.build("loop")
        for link, target in {"a": "b", "b": "a", "here": "."}.items():
            (loop.path / link).symlink_to(target)
        loop.commit({}, "links in a ring")
        for name, directory in {
            "dash": "-rf",
            "quoted": 'it\'s a "nïce" $HOME `place`',
            "newline": "new\nline",
        }.items():
            self.build(name, directory)
        self.paths["url"] = self.build("url").path.as_uri()
        many = self.build("many")
        refs = "".join(f"create refs/heads/b{number} {many.git('rev-parse', 'HEAD')}\n" for number in range(2000))
        self.git("-C", str(many.path), "update-ref", "--stdin", text=refs)
        self.git("-C", self.paths["dirty"], "worktree", "add", "--quiet", str(self.root / "linked"), "-b", "linked")
        self.paths["linked"] = str(self.root / "linked")

    def _build_unusable(self) -> None:
        self.paths |= {
            name: str(self.root / name) for name in ("missing", "file", "plain", "empty", "shallow", "sha256")
        }
        (self.root / "file").write_text("x")
        (self.root / "plain").mkdir()
        self.git("init", "--quiet", "--initial-branch=main", "empty")
        self.git("clone", "--quiet", "--depth=1", f"file://{self.paths['dirty']}", "--branch=main", "shallow")
        self.git("init", "--quiet", "--initial-branch=main", "--object-format=sha256", "sha256")
        self.git("-C", "sha256", "commit", "--quiet", "--allow-empty", "-m", "first")
        corrupt = self.build("corrupt")
        tree = corrupt.git("rev-parse", "HEAD^{tree}")
        spoilt = corrupt.path / ".git" / "objects" / tree[:2] / tree[2:]
        spoilt.chmod(0o600)
        spoilt.write_bytes(b"garbage")
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            self.paths["closed"] = f"http://127.0.0.1:{closed.getsockname()[1]}/app.git"
        self.paths["program"] = f"ext::touch {self.root}/fired"

    def work(self) -> None:
        """Have something made in each; one repository disappears when its worker has begun."""
        made = "git status --porcelain && echo x > made"
        deeds = dict.fromkeys(self.paths, made) | {"gone": f"sleep 1; {made}"}
        specs = [TaskSpec(name, deeds[name], repo=name.lower(), attempts=1, limits=PATIENT) for name in self.paths]
        repos = tuple(RepoSpec(name.lower(), path) for name, path in self.paths.items())
        self.theatre.submit(*specs, repos=repos)
        self.theatre.wait(lambda: any(run.kind == "agent" for run in self.theatre.runs("gone")))
        shutil.rmtree(self.paths["gone"])
        self.theatre.wait(self.is_over)

    def is_over(self) -> bool:
        """Tell whether everything has ended but what waits for a repository that cannot be read."""
        with self.theatre.hive.ledger.read() as connection:
            repos = {repo.name: repo for repo in queries.list_repos(connection)}
            open_attempts = queries.count_open_work(connection)[1]
            tasks = queries.list_tasks_of_convoy(connection, "work")
        idle = all(repo.published == repo.integration or repo.publish_problem for repo in repos.values())
        waiting = {name for name, repo in repos.items() if repo.fetch_failures or repo.state is RepoState.FAILED}
        pending = [task for task in tasks if task.state is TaskState.PENDING]
        return not open_attempts and idle and all(task.repo in waiting for task in pending)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    root = tmp_path_factory.mktemp("town")
    with open_theatre(root / "hive") as theatre:
        town = Town(root, theatre)
        town.build_all()
        town.work()
        yield town


@pytest.mark.parametrize("name", WORKED_ON)
def test_it_is_worked_on_and_exactly_the_change_is_published(town: Town, name: str) -> None:
    assert town.theatre.ending(name) == ""
    where = town.paths[name].removeprefix("file://")
    assert town.git("-C", where, "diff", "--name-status", "main", "hive/main") == "A\tmade"


@pytest.mark.parametrize("name", REFUSED)
def test_it_cannot_be_fetched_and_the_reason_says_why(town: Town, name: str) -> None:
    repo, words = town.theatre.repo(name), REFUSED[name].format(path=town.paths[name])
    assert repo.state is RepoState.FAILED
    assert words in (repo.problem or "")
    assert any(f"Repository {name} could not be fetched" in need and words in need for need in town.theatre.needs())
    assert town.theatre.task(name).state is TaskState.PENDING
    assert not (town.root / "fired").exists()


@pytest.mark.parametrize("name", UNREADABLE)
def test_it_cannot_be_read_and_its_task_waits_for_it(town: Town, name: str) -> None:
    repo, words = town.theatre.repo(name), UNREADABLE[name].format(path=town.paths[name])
    assert repo.state is RepoState.FETCHING
    assert words in (repo.fetch_problem or "")
    assert town.theatre.task(name).state is TaskState.PENDING
    assert not (town.root / "fired").exists()


@pytest.mark.parametrize("name", NOT_PUBLISHED)
def test_what_landed_stays_landed_when_it_cannot_be_published_and_the_reason_says_why(town: Town, name: str) -> None:
    assert town.theatre.ending(name) == ""
    words = NOT_PUBLISHED[name].format(path=town.paths[name])
    assert words in (town.theatre.repo(name).publish_problem or "")
    assert any(words in need for need in town.theatre.needs())


def test_who_behaves_beside_them_lands(town: Town) -> None:
    assert town.people[GOOD].changed() == ["A\tmade"]


def test_none_of_them_is_otherwise_than_before(town: Town) -> None:
    changed = [name for name, person in town.people.items() if name != "gone" and person.look() != town.before[name]]
    assert changed == []


def test_no_pass_of_the_keeper_failed_and_no_sandbox_was_made_twice(town: Town) -> None:
    town.theatre.assert_unimpressed()


def test_no_sentence_of_status_ends_twice(town: Town) -> None:
    assert [need for need in town.theatre.needs() if need.endswith("..")] == []


def test_a_plan_that_names_such_a_repository_is_refused_before_anything_is_done(town: Town, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.hive("init")
    repos = "".join(
        f"  {name}: {{path: '{town.paths[name]}'}}\n" for name in (*REFUSED, *UNREADABLE) if "/" in town.paths[name][:1]
    )
    plan = f"convoy: c\nrepos:\n{repos}tasks: [{{id: A, repo: empty, command: 'true'}}]\n"
    said = shell.hive("convoy", "submit", shell.plan(plan), code=2)
    for words in (
        f"there is no directory {town.paths['missing']}",
        f"there is no directory {town.paths['file']}",
        f"{town.paths['plain']} is not a git repository",
        f"{town.paths['empty']} has no branch 'main' (it has no commit yet)",
        f"git -C {town.paths['shallow']} fetch --unshallow",
        f"{town.paths['sha256']} is",
    ):
        assert words in said
    assert shell.json("convoy", "ls") == []


def test_a_path_too_long_for_this_system_fails_in_words_with_its_beginning(tmp_path: Path) -> None:
    person = Person(tmp_path / "app")
    path = "/".join(["p" * 250] * 17)
    person.git("update-index", "--add", "--cacheinfo", f"100644,{person.git('hash-object', '-w', 'README')},{path}/f")
    person.git("commit", "--quiet", "-m", "too long a way")
    with open_theatre(tmp_path / "hive") as theatre:
        theatre.play(TaskSpec("A", "echo x > x", repo="app", attempts=1), repos=(person.spec(),))
        assert theatre.ending("A").startswith("its sandbox could not be created: ")
        assert "fatal: cannot create directory at 'ppp" in theatre.ending("A")
        assert [run.state for run in theatre.runs("A") if run.kind == "agent"] == list[RunState]()
