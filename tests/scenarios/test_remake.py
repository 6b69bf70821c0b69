"""One story: somebody else moves the person's branch; what had landed is made again on it, verified and published."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.commands.queue import pause_queue, resume_queue
from hivekeeper.commands.remake import requeue_replaced
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.domain.states import ConvoyState, RepoState, TaskState
from hivekeeper.git.mirror import Mirror, list_refs
from hivekeeper.git.orders import CLEAN_ENVIRONMENT, REPLACED, fetch_repository
from hivekeeper.merging.entries import load_entries
from hivekeeper.merging.source import find_replaced
from hivekeeper.store import queries
from hivekeeper.testing.history import check_history, read_history
from tests.budget import sample
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository

GATE = "! grep -rqx broken ."
# Each builds on the one before it, in the very next line.
CHAIN = (TaskSpec("A", "echo a >> list", repo="app"), TaskSpec("B", "echo b >> list", repo="app", after=("A",)))


class Shared:
    """A person's branch that others move too, in the way it is published to."""

    def __init__(self, stage: Scene, person: Repository, publish: str) -> None:
        self.stage, self.person, self.publish = stage, person, publish
        self.path = person.path
        self.refuses = person.path / ".git" / "MERGE_HEAD"
        if publish == "push":
            self.path = person.path.with_name("remote.git")
            person.git("clone", "--quiet", "--bare", str(person.path), str(self.path))
            self.refuses = self.path / "hooks" / "pre-receive"

    def git(self, *arguments: str) -> str:
        return self.person.git("-C", str(self.path), *arguments)

    def land(self, *tasks: TaskSpec) -> list[str]:
        """Have tasks land while nothing can be published; tell their commits."""
        spec = RepoSpec("app", str(self.path), "main", GATE, publish=self.publish)
        self.stage.submit(*tasks, repos=(spec,))
        self.stage.step_until(lambda: self.stage.repo().state is RepoState.READY)
        self.refuses.write_text("#!/bin/sh\nexit 1\n")
        self.refuses.chmod(0o755)
        assert self.stage.finish() is ConvoyState.COMPLETE
        return [str(self.stage.task(task.id).commit_id) for task in tasks]

    def move(self, files: dict[str, str], *, rewritten: bool = False) -> str:
        """Move the branch as somebody else does, with a commit of theirs; from now on it takes what is published."""
        self.refuses.unlink(missing_ok=True)
        if rewritten:
            self.person.git("checkout", "--quiet", "--orphan", "anew")
        self.person.commit(files, "theirs")
        if rewritten:
            self.person.git("branch", "--quiet", "-M", "anew", "main")
        if self.publish == "push":
            self.person.git("push", "--quiet", "--force", str(self.path), "main")
        self.stage.clock.advance(61)
        return self.git("rev-parse", "main")

    def is_published(self) -> bool:
        """Tell whether everything has come to its end, and the branch holds it."""
        repo = self.stage.repo()
        if "queue" not in self.list_convoys() or self.stage.convoy("queue").state is ConvoyState.ACTIVE:
            return False
        if repo.publish_problem and not repo.publishing and repo.state is RepoState.READY:
            self.stage.clock.advance(61)
        return repo.integration == repo.published == self.git("rev-parse", "main") and self.stage.is_quiet()

    def list_convoys(self) -> list[str]:
        with self.stage.hive.ledger.read() as connection:
            return [convoy.name for convoy in queries.list_convoys(connection)]

    def list_entries(self) -> dict[str, str | None]:
        """List what is in the merge queue, and why it is held."""
        with self.stage.hive.ledger.read() as connection:
            return {entry.task.key: entry.row.held for entry in load_entries(connection)}

    def list_published(self) -> list[str]:
        """List what the branch holds, oldest first: who a commit is of, or what it says."""
        shown = "--format=%(trailers:key=Hive-Task,valueonly,separator=)|%s"
        return [line.lstrip("|").split("|")[0] for line in self.git("log", "--reverse", shown, "main").splitlines()]

    def assert_verified(self, since: str) -> None:
        """Hold against it every commit that is not one step, or whose own tree did not pass its gate."""
        passed = [run.id for run in self.stage.gate_runs() if run.kind == "gate" and run.succeeded]
        for line in self.git("log", "--format=%T %P", f"{since}..main").splitlines():
            tree, *parents = line.split()
            assert any(f"/{tree[:20]}-" in run for run in passed)
            assert len(parents) == 1

    def assert_true(self) -> None:
        """Let the judge of histories look at it."""
        # The clock was moved by hand: of when something began nothing can be said.
        assert check_history(read_history(self.stage.root, marks=(), restored=True)) == []

    def list_replaced(self) -> list[str]:
        return list(list_refs(self.stage.hive.places.mirror("app"), REPLACED).values())


@pytest.fixture(params=["push", "checkout"])
def shared(request: pytest.FixtureRequest, stage: Scene, repository: Repository) -> Shared:
    return Shared(stage, repository, request.param)


@pytest.fixture
def pushed(stage: Scene, repository: Repository) -> Shared:
    return Shared(stage, repository, "push")


@pytest.mark.parametrize("rewritten", [False, True])
def test_what_had_landed_is_made_again_on_a_branch_that_somebody_moved(shared: Shared, *, rewritten: bool) -> None:
    landed = shared.land(*CHAIN)
    theirs = shared.move({"theirs": "theirs\n"}, rewritten=rewritten)
    shared.stage.step_until(shared.is_published)
    assert shared.list_published() == [*(() if rewritten else ("first",)), "theirs", "A", "B"]
    assert shared.git("show", "main:list") == "a\nb"
    assert shared.git("show", "main:theirs") == "theirs"
    assert shared.git("merge-base", theirs, "main") == theirs
    shared.assert_verified(theirs)
    shared.assert_true()
    assert shared.list_replaced() == [landed[-1]]
    assert set(shared.stage.states("queue").values()) == {TaskState.COMPLETE}
    assert [str(shared.stage.task(name).commit_id) for name in "AB"] == landed


def test_what_is_made_again_says_what_it_said(pushed: Shared) -> None:
    landed = pushed.land(*CHAIN)
    mirror = pushed.stage.hive.places.mirror("app")
    said = [pushed.git("--git-dir", str(mirror), "log", "-1", "--format=%an %ae%n%B", commit) for commit in landed]
    theirs = pushed.move({"theirs": "theirs\n"})
    pushed.stage.step_until(pushed.is_published)
    again = [pushed.git("log", "-1", "--format=%an %ae%n%B", commit) for commit in ("main~1", "main")]
    assert again == said
    first = pushed.stage.task(f"remake-{landed[0][:10]}", "queue")
    details = first.get_details()
    assert (first.title, details["commit"], details["remakes"]) == ("A: echo a >> list", landed[0], "work/A")
    with pushed.stage.hive.ledger.write(ME) as tx:  # as if the fetch were noted a second time
        before = replace(pushed.stage.repo(), integration=landed[1])
        assert requeue_replaced(tx, str(mirror), before, find_replaced(Mirror(mirror), before, theirs)) == 0


def test_what_conflicts_with_theirs_waits_for_a_person_and_the_others_go_on(shared: Shared) -> None:
    clashing = TaskSpec("X", "echo x > README; echo x > x", repo="app")
    after = [TaskSpec(spec.id, spec.command, repo="app", after=(*spec.after, "X")) for spec in CHAIN]
    landed = shared.land(clashing, *after)
    shared.move({"README": "theirs\n"})
    shared.stage.step_until(shared.is_published)
    assert shared.list_published() == ["first", "theirs", "A", "B"]
    assert (shared.git("show", "main:README"), shared.git("show", "main:list")) == ("theirs", "a\nb")
    assert "x" not in shared.git("ls-tree", "--name-only", "main").split()
    failed = shared.stage.task(f"remake-{landed[0][:10]}", "queue")
    assert failed.state is TaskState.FAILED
    assert "it conflicts with what landed before it in README" in failed.reason
    command = failed.reason.partition("in a clone: ")[2]
    assert subprocess.run(command.split("&&")[0].split(), cwd=shared.person.path, check=False).returncode == 0
    assert shared.stage.task("X").state is TaskState.COMPLETE
    shared.assert_true()


def test_what_does_not_pass_with_theirs_is_not_published(pushed: Shared) -> None:
    broken = TaskSpec("X", "cp part whole 2>/dev/null || echo fine > whole", repo="app")
    landed = pushed.land(broken, CHAIN[0])
    pushed.person.commit({"check": ""}, "more")
    with_gate = RepoSpec("app", str(pushed.path), "main", "test ! -e whole || test ! -e theirs", publish="push")
    pushed.stage.submit(repos=(with_gate,))
    theirs = pushed.move({"theirs": "theirs\n"})
    pushed.stage.step_until(pushed.is_published)
    assert pushed.list_published() == ["first", "more", "theirs", "A"]
    failed = pushed.stage.task(f"remake-{landed[0][:10]}", "queue")
    assert failed.state is TaskState.FAILED
    assert "verify failed" in failed.reason
    pushed.assert_verified(theirs)


def test_nothing_else_begins_or_lands_until_it_is_made_again(pushed: Shared) -> None:
    stage, waiting = pushed.stage, TaskSpec("W", "echo w >> list", repo="app")
    pushed.land(*CHAIN)
    with stage.hive.ledger.write(ME) as tx:
        pause_queue(tx, stage.repo())
    stage.submit(waiting, convoy="more")
    stage.step_until(lambda: "more/W" in pushed.list_entries())
    pushed.move({"theirs": "theirs\n"})
    stage.step_until(lambda: "queue" in pushed.list_convoys())
    stage.submit(TaskSpec("N", "echo n > new", repo="app"), convoy="more")
    assert pushed.list_entries()["more/W"] == "replaced changes land again first"
    stage.step_until(lambda: len(pushed.list_entries()) == 3)
    assert sorted(pushed.list_entries().values(), key=str) == [None, None, pushed.list_entries()["more/W"]]
    assert stage.states("more")["N"] is TaskState.PENDING
    with stage.hive.ledger.write(ME) as tx:
        resume_queue(tx, stage.repo())
    stage.step_until(lambda: stage.convoy("more").state is not ConvoyState.ACTIVE)
    stage.step_until(pushed.is_published)
    published = pushed.list_published()
    assert published[:4] == ["first", "theirs", "A", "B"]
    assert sorted(published[4:]) == ["N", "W"]
    assert pushed.git("show", "main:list") == "a\nb\nw"
    pushed.assert_true()


def test_a_branch_that_is_moved_again_meanwhile_has_everything_once(pushed: Shared) -> None:
    pushed.land(*CHAIN, TaskSpec("C", "echo c > c", repo="app", after=("B",)))
    pushed.move({"theirs": "theirs\n"})
    pushed.stage.step_until(lambda: "queue" in pushed.list_convoys())
    pushed.stage.step_until(lambda: TaskState.COMPLETE in pushed.stage.states("queue").values())
    pushed.person.commit({"more": "more\n"}, "more")
    pushed.person.git("push", "--quiet", str(pushed.path), "main")
    pushed.stage.step_until(pushed.is_published)
    assert pushed.list_published() == ["first", "theirs", "more", "A", "B", "C"]
    assert pushed.git("show", "main:list") == "a\nb"
    pushed.assert_true()


def test_what_the_person_has_taken_over_under_another_id_is_not_made_twice(pushed: Shared) -> None:
    landed = pushed.land(*CHAIN)
    mirror = pushed.stage.hive.places.mirror("app")
    pushed.person.commit({"before": "before\n"}, "before")
    pushed.person.git("fetch", "--quiet", str(mirror), landed[0])
    pushed.person.git("cherry-pick", "FETCH_HEAD")
    pushed.move({"theirs": "theirs\n"})
    pushed.stage.step_until(pushed.is_published)
    assert pushed.list_published() == ["first", "before", "A", "theirs", "B"]
    assert pushed.stage.states("queue") == {f"remake-{landed[1][:10]}": TaskState.COMPLETE}


def test_what_the_person_has_made_themselves_meanwhile_is_complete_without_a_commit(pushed: Shared) -> None:
    (landed,) = pushed.land(CHAIN[0])
    theirs = pushed.move({"list": "a\n"})
    pushed.stage.step_until(pushed.is_published)
    made_again = pushed.stage.task(f"remake-{landed[:10]}", "queue")
    assert (made_again.state, made_again.commit_id) == (TaskState.COMPLETE, theirs)
    assert pushed.list_published() == ["first", "theirs"]
    pushed.assert_true()


def test_a_keeper_that_is_followed_after_every_step_comes_to_the_same_end(pushed: Shared) -> None:
    pushed.land(*CHAIN)
    theirs = pushed.move({"theirs": "theirs\n"})
    stage = pushed.stage

    for _ in range(2000):
        assert stage.keeper is not None
        stage.keeper.close()
        stage.changed.clear()
        if not stage.take().step():
            stage.changed.wait(0.1)
        if pushed.is_published():
            break
    assert pushed.list_published() == ["first", "theirs", "A", "B"]
    pushed.assert_verified(theirs)
    pushed.assert_true()


def test_a_branch_of_the_hives_own_stays_as_it_is(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "echo a > a", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    landed = stage.repo().integration
    repository.commit({"theirs": "theirs\n"}, "theirs")
    stage.submit(TaskSpec("B", "echo b > b", repo="app"), repos=(repository.spec(),), convoy="more")
    assert stage.finish("more") is ConvoyState.COMPLETE
    assert repository.landed() == ["A", "B"]
    assert repository.git("rev-parse", "hive/main~1") == landed
    assert list_refs(stage.hive.places.mirror("app"), REPLACED) == {}


# Kills the script that started it, before or after the git of a number.
_STRIKE = """#!/bin/sh
echo >> '%(count)s'
here=$(wc -l < '%(count)s').%(when)s
[ $here != %(number)s.before ] || kill -9 $PPID $$
'%(git)s' "$@"
status=$?
[ $here != %(number)s.after ] || kill -9 $PPID
exit $status
"""


def _make_diverged(tmp_path: Path) -> tuple[Repository, tuple[str, ...], dict[str, str]]:
    """Make a mirror in which something has landed, and a branch that somebody else has moved."""
    person = Repository(tmp_path / "app")
    (tmp_path / "repos").mkdir()
    (tmp_path / "public").mkdir()
    mirror, public = tmp_path / "repos" / "app.git", tmp_path / "public" / "app.git"
    argv = fetch_repository(mirror, public, str(person.path), "main", "push")
    environment = {**CLEAN_ENVIRONMENT, "PATH": os.environ["PATH"]}
    subprocess.run(argv, env=environment, check=True)
    person.git("checkout", "--quiet", "-b", "landed")
    person.commit({"landed": "landed\n"}, "landed")
    person.git("push", "--quiet", str(mirror), "landed:refs/heads/main")
    person.git("checkout", "--quiet", "main")
    person.commit({"theirs": "theirs\n"}, "theirs")
    return person, argv, environment


def test_a_fetch_that_is_killed_anywhere_is_brought_to_the_same_end_by_the_next(tmp_path: Path) -> None:
    person, argv, environment = _make_diverged(tmp_path)
    landed, theirs = person.git("rev-parse", "landed"), person.git("rev-parse", "main")
    shim, count, directories = tmp_path / "bin" / "git", tmp_path / "count", [tmp_path / "repos", tmp_path / "public"]
    shim.parent.mkdir()
    for directory in directories:
        shutil.copytree(directory, f"{directory}.saved")

    def strike(number: int, when: str) -> int:
        """Have it killed at a git; tell how it ended."""
        for directory in directories:
            shutil.rmtree(directory)
            shutil.copytree(f"{directory}.saved", directory)
        count.unlink(missing_ok=True)
        shim.write_text(_STRIKE % {"count": count, "number": number, "when": when, "git": shutil.which("git")})
        shim.chmod(0o755)
        struck = {**environment, "PATH": f"{shim.parent}:{environment['PATH']}"}
        return subprocess.run(argv, env=struck, check=False).returncode

    assert strike(0, "never") == 0
    points = [(number, when) for number in range(1, len(count.read_text()) + 1) for when in ("before", "after")]
    assert len(points) > 20
    for number, when in sample(points, 8):
        strike(number, when)  # one in a part of its own is not the end of the script
        subprocess.run(argv, env=environment, check=True)
        refs = list_refs(directories[0] / "app.git", "refs")
        assert (refs["refs/heads/main"], refs[f"{REPLACED}/{landed}"]) == (theirs, landed), (number, when)
        assert list_refs(directories[1] / "app.git", "refs") == {"refs/heads/main": theirs}, (number, when)
