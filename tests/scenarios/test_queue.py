"""The merge queue at work: who lands, who is refused and why, and main is green whatever happens."""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.commands import queue
from hivekeeper.commands.plans import request_fetch
from hivekeeper.commands.tasks import cancel_task
from hivekeeper.domain import events as e
from hivekeeper.domain import train as t
from hivekeeper.domain.merge import HOTFIX_PRIORITY
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.domain.rows import MergeRow, TaskRow
from hivekeeper.domain.states import MergeState, RepoState, TaskState
from hivekeeper.hive import open_hive
from hivekeeper.specs import queue as specs
from hivekeeper.store import queries
from hivekeeper.store.ledger import read_events
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository

LONGEST_S = 100.0


class Line(Scene):
    """A hive with one repository, whose branches are handed to the queue by hand."""

    def __init__(self, root: Path, settings: str = "") -> None:
        super().__init__(root)
        with (root / "hive.toml").open("a") as file:
            file.write(settings)
        self.reopen()
        self.repository = Repository(root.parent / "app")
        self.tasks: dict[str, str] = {}

    def reopen(self) -> None:
        """Have a new keeper, as after a restart; nobody told the old one."""
        self.close()
        self.keeper = None
        self.hive = open_hive(self.root, self.clock)

    def step_until(self, condition: Callable[[], bool]) -> None:
        """Step the keeper until the condition holds; tell how things are when it does not in time."""
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"it did not come to that in time: {self.describe()}")
            self.changed.clear()
            if not (self.keeper or self.take()).step():
                self.changed.wait(0.1)

    def describe(self) -> str:
        """Say how things are."""
        with self.hive.ledger.read() as connection:
            entries = [f"{row.key} {row.state} {row.reason}" for row in queries.list_open_merges(connection)]
            runs = [run.id for run in queries.list_open_runs(connection)]
        return f"queue {entries}, at work {runs}, stopped: {self.repo().stopped}"

    def know(self, verify: str | None = None, **more: Any) -> None:  # noqa: ANN401 - what a repository has
        """Make the repository known, and its mirror ready."""
        spec = replace(RepoSpec("app", str(self.repository.path), "main", verify), **more)
        with self.hive.ledger.write(ME) as tx:
            request_fetch(tx, spec)
        self.step_until(lambda: self.repo().state is RepoState.READY)

    def branch(self, name: str, files: Mapping[str, str | None], start: str = "main") -> str:
        """Make a branch with one commit; None removes a file."""
        git = self.repository.git
        git("checkout", "--quiet", "-B", name, start)
        for path, text in files.items():
            found = self.repository.path / path
            if text is None:
                git("rm", "--quiet", "-r", path)
            else:
                found.parent.mkdir(parents=True, exist_ok=True)
                found.write_text(text)
        git("add", "--all")
        git("commit", "--quiet", "--allow-empty", "-m", name)
        git("checkout", "--quiet", "main")
        return git("rev-parse", name)

    def hand_in(self, name: str, *, hotfix: bool = False) -> str:
        """Hand a branch in; tell its task's key."""
        with self.hive.ledger.write(ME) as tx:
            commit = self.repository.git("rev-parse", name)
            repo = self.repo()
            self.tasks[name] = queue.submit_branch(tx, repo, name, commit, is_hotfix=hotfix).task
        return self.tasks[name]

    def enter(self, *names: str, hotfix: bool = False) -> None:
        """Hand branches in, one after another, until each has its place in the queue."""
        for name in names:
            self.hand_in(name, hotfix=hotfix)
            self.step_until(lambda name=name: self.find_entry(name) is not None)  # type: ignore[misc]  # bound now

    def line_up(self, *names: str) -> None:
        """Have several in the queue, in this order, before any of them is looked at."""
        self.pause()
        for name in names:
            self.hand_in(name)
        self.step_until(lambda: all(self.find_entry(name) for name in names))
        for place, name in enumerate(names):
            self.prioritize(name, len(names) - place)
        self.resume()

    def prioritize(self, name: str, priority: int = HOTFIX_PRIORITY) -> None:
        with self.hive.ledger.write(ME) as tx:
            queue.prioritize_entry(tx, self.of(name), priority)

    def pause(self) -> None:
        with self.hive.ledger.write(ME) as tx:
            assert queue.pause_queue(tx, self.repo())

    def resume(self) -> None:
        with self.hive.ledger.write(ME) as tx:
            assert queue.resume_queue(tx, self.repo())

    def of(self, name: str) -> TaskRow:
        """Get the task of a branch."""
        with self.hive.ledger.read() as connection:
            found = queries.find_task(connection, self.tasks[name])
        assert found is not None
        return found

    def find_entry(self, name: str, attempt: int | None = None) -> MergeRow | None:
        task = self.of(name)
        with self.hive.ledger.read() as connection:
            return queries.find_merge(connection, task.key, attempt or task.attempts)

    def entry(self, name: str, attempt: int | None = None) -> MergeRow:
        found = self.find_entry(name, attempt)
        assert found is not None
        return found

    def is_over(self, *names: str) -> bool:
        over = (TaskState.COMPLETE, TaskState.FAILED, TaskState.CANCELLED)
        return all(self.of(name).state in over for name in names or self.tasks)

    def settle(self, *names: str) -> None:
        """Step until these are over, or all."""
        self.step_until(lambda: self.is_over(*names))

    def events(self, kind: type[e.Body]) -> list[e.Event]:
        """List everything of a kind that happened."""
        with self.hive.ledger.read() as connection:
            return [event for event in read_events(connection, 0, 100_000) if isinstance(event.body, kind)]

    def commits(self) -> list[str]:
        """List the commits of the integration branch since the person's own, oldest first."""
        return self.git("rev-list", "--reverse", f"{self.repository.git('rev-parse', 'main')}..refs/heads/main").split()

    def landed(self) -> list[str]:
        """List the branches that landed, oldest first."""
        names = {key.partition("/")[2]: name for name, key in self.tasks.items()}
        said = self.git("log", "--reverse", "--format=%(trailers:key=Hive-Task,valueonly)", "refs/heads/main")
        return [names[task] for task in said.split()]

    def git(self, *arguments: str) -> str:
        """Ask the mirror."""
        return self.repository.git("--git-dir", str(self.hive.places.mirror("app")), *arguments)

    def show(self, path: str, commit: str = "refs/heads/main") -> str:
        return self.git("show", f"{commit}:{path}")

    def assert_green(self, verify: str | None = None) -> None:
        """Check every commit of the integration branch out alone, and run its gate."""
        said = verify or self.repo().verify or "true"
        for number, commit in enumerate(self.commits()):
            place = self.root.parent / f"alone-{number}"
            self.git("worktree", "add", "--quiet", "--force", "--detach", str(place), commit)
            done = subprocess.run(("sh", "-c", said), cwd=place, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{commit} is red: {done.stdout}{done.stderr}"
            self.git("worktree", "remove", "--force", str(place))
        self.git("fsck", "--no-dangling", "--no-progress")
        assert len(self.landed()) == len(set(self.landed())), "something landed twice"


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path / "hive", "[queue]\nparallel = 3\n")
    yield line
    line.end()


def make_branches(line: Line, *names: str) -> None:
    for name in names:
        line.branch(name, {name: f"{name}\n"})


def list_gates(line: Line) -> list[str]:
    return [run.id for run in line.gate_runs() if run.kind == "gate"]


# Each passes alone; together they are one too many.
TOO_MANY = "test $(ls | grep -c part) -lt 2 || { echo too many; exit 4; }"


def test_of_two_that_pass_alone_and_fail_together_exactly_one_lands_and_nobody_else_is_refused(line: Line) -> None:
    line.know(TOO_MANY)
    make_branches(line, "before", "part-1", "between", "part-2", "behind")
    line.line_up("before", "part-1", "between", "part-2", "behind")
    line.settle()
    assert line.landed() == ["before", "part-1", "between", "behind"]
    said = "verify failed twice: exit code 4; last output: too many"
    assert line.of("part-2").reason == said
    assert {event.body.subject for event in line.events(e.MergeRejected)} == {line.tasks["part-2"]}
    line.assert_green()


def test_a_flake_lands_and_is_recorded_and_nobody_behind_it_suffers(line: Line) -> None:
    sign = line.root.parent / "tried"
    line.know(f"test ! -e flaky || test -e {sign} || {{ touch {sign}; exit 1; }}")
    make_branches(line, "flaky", "behind")
    line.enter("flaky")
    line.settle()
    line.enter("behind")
    line.settle()
    assert line.landed() == ["flaky", "behind"]
    assert [event.body.subject for event in line.events(e.MergeFlaked)] == [line.tasks["flaky"]]
    assert line.entry("flaky").flakes == 1
    line.assert_green()


def make_red(line: Line, *names: str) -> None:
    """Have a queue stopped by a main that does not pass, with these waiting."""
    line.repository.commit({"broken": "x\n"}, "broken")
    line.know("test ! -e broken")
    make_branches(line, *names)
    line.line_up(*names)
    line.step_until(lambda: line.repo().stopped is not None)
    assert "'main' itself does not pass" in (line.repo().stopped or "")
    assert line.events(e.MergeRejected) == []
    assert line.landed() == []


def test_a_red_main_blames_nobody_and_a_hotfix_lets_everybody_land(line: Line) -> None:
    make_red(line, "one", "two")
    line.branch("fix", {"broken": None})
    line.enter("fix", hotfix=True)
    line.settle()
    assert line.landed()[0] == "fix"
    assert set(line.landed()) == {"fix", "one", "two"}
    assert line.events(e.MergeRejected) == []
    assert line.repo().stopped is None
    line.assert_green()


def test_a_red_main_that_the_person_mends_lets_everybody_land(line: Line) -> None:
    make_red(line, "one", "two")
    line.repository.git("rm", "--quiet", "broken")
    line.repository.commit({}, "mended")
    with line.hive.ledger.write(ME) as tx:
        request_fetch(tx, line.repository.spec(verify="test ! -e broken"))
    line.settle()
    assert set(line.landed()) == {"one", "two"}
    assert line.events(e.MergeRejected) == []
    assert line.repo().stopped is None
    line.assert_green()


def test_a_paused_queue_stays_so_across_a_restart_and_goes_on_when_told(line: Line) -> None:
    line.know("true")
    make_branches(line, "one", "two")
    line.pause()
    line.enter("one")
    line.reopen()
    line.enter("two")
    assert line.repo().paused
    assert line.gate_runs() == []
    line.resume()
    line.settle()
    assert line.landed() == ["one", "two"]
    line.assert_green()


def test_a_hotfix_goes_ahead_of_those_being_verified_and_they_are_made_anew_on_it(line: Line) -> None:
    go = line.root.parent / "go"
    line.know(f"test -e hotfix || until test -e {go}; do sleep 0.05; done")
    make_branches(line, "one", "two", "hotfix")
    line.line_up("one", "two")
    line.step_until(lambda: len([run for run in line.gate_runs() if run.kind == "gate" and run.is_open]) == 2)
    before = line.entry("one").candidate
    line.enter("hotfix", hotfix=True)
    line.settle("hotfix")
    go.touch()
    line.settle()
    assert line.landed() == ["hotfix", "one", "two"]
    assert line.entry("one").candidate != before
    assert line.git("rev-parse", f"{line.entry('one').candidate}^") == line.entry("hotfix").candidate
    line.assert_green("true")


def test_an_entry_that_is_cancelled_while_it_is_verified_leaves_and_its_gate_is_ended(line: Line) -> None:
    line.know("test ! -e slow || sleep 300")
    make_branches(line, "slow", "behind")
    line.line_up("slow", "behind")
    line.step_until(lambda: any(run.kind == "gate" and run.is_open for run in line.gate_runs()))
    with line.hive.ledger.write(ME) as tx:
        assert cancel_task(tx, line.of("slow"))
    line.settle()
    line.step_until(lambda: not line.list_processes())
    assert line.landed() == ["behind"]
    assert line.entry("slow").state is MergeState.WITHDRAWN
    line.assert_green()


def test_the_same_tree_again_runs_no_second_gate(line: Line) -> None:
    line.know("true")
    make_branches(line, "add")
    line.enter("add")
    line.settle()
    line.repository.git("fetch", "--quiet", str(line.hive.places.mirror("app")), "main")
    line.branch("remove", {"add": None}, "FETCH_HEAD")
    line.enter("remove")
    line.settle()
    before = list_gates(line)
    line.branch("again", {"add": "add\n"})
    line.enter("again")
    line.settle()
    assert list_gates(line) == before
    line.assert_green()


def test_two_gates_really_run_at_once(line: Line) -> None:
    signs = line.root.parent
    meet = "touch {signs}/{mine}; until test -e {signs}/{other}; do sleep 0.02; done"
    first = meet.format(signs=signs, mine="first", other="second")
    second = meet.format(signs=signs, mine="second", other="first")
    line.know(f"if test -e two; then {second}; elif test -e one; then {first}; fi")
    make_branches(line, "one", "two")
    line.line_up("one", "two")
    line.settle()
    assert line.landed() == ["one", "two"]
    line.assert_green()


def test_a_tasks_own_gate_runs_after_the_repositorys(line: Line) -> None:
    signs = line.root.parent / "order"
    line.know(f"echo repo >> {signs}")
    line.submit(TaskSpec("A", "echo a > a", repo="app", verify=f"echo task >> {signs}; test -f a"))
    line.step_until(lambda: line.task("A").state is TaskState.COMPLETE)
    assert signs.read_text().split() == ["repo", "task"]


def test_a_candidate_that_was_given_up_between_two_runs_is_laid_out_again_before_its_gate_runs(tmp_path: Path) -> None:
    line = Line(tmp_path / "hive", "[queue]\nparallel = 2\n")
    line.know(f"echo $(ls) >> {tmp_path}/$HIVE_CANDIDATE; test ! -e bad")
    make_branches(line, "one", "bad")
    line.line_up("one", "bad")
    line.step_until(lambda: len(line.gate_runs()) == 2)
    wanted = line.entry("one").candidate
    # The keeper dies when it knows that both check-outs are there; then a person changes the order.
    executor = next(loop for loop in (line.keeper or line.take()).loops if loop.name == "executor")
    while not all(run.succeeded for run in line.gate_runs()):
        executor.run_once()
    line.reopen()
    line.prioritize("bad")
    line.settle()
    assert line.landed() == ["one"]
    assert line.entry("one").candidate == wanted
    assert set((tmp_path / str(wanted)).read_text().splitlines()) == {"README one"}
    line.assert_green("test ! -e bad")
    line.end()


def test_two_suspects_have_main_verified_once() -> None:
    suspects = [t.Car(key, "head", key, t.Verdict.FAILED, is_suspect=True) for key in ("a", "b")]
    actions = t.plan_strict(t.Snapshot("head", t.Verdict.UNTRIED, suspects, 4))
    assert actions == [t.VerifyMain()]


def test_additions_to_a_changelog_are_both_kept_by_rule(line: Line) -> None:
    line.repository.commit({"CHANGELOG.md": "# Changes\n\n- first\n"}, "changes")
    line.know("test -e CHANGELOG.md")
    line.branch("one", {"CHANGELOG.md": "# Changes\n\n- first\n- one\n"})
    line.branch("two", {"CHANGELOG.md": "# Changes\n\n- first\n- two\n"})
    line.line_up("one", "two")
    line.settle()
    assert line.show("CHANGELOG.md").split("\n")[2:] == ["- first", "- one", "- two"]
    assert line.entry("two").tier == "rules"
    line.assert_green()


def test_a_file_that_a_command_makes_is_made_anew(line: Line) -> None:
    line.repository.commit({"part-0": "0\n", "lock": "0\n"}, "locked")
    line.know("cat part-* | cmp - lock", regenerate={"lock": "cat part-* > lock"})
    line.branch("one", {"part-1": "1\n", "lock": "0\n1\n"})
    line.branch("two", {"part-2": "2\n", "lock": "0\n2\n"})
    line.line_up("one", "two")
    line.settle()
    assert line.landed() == ["one", "two"]
    assert line.show("lock").split() == ["0", "1", "2"]
    assert line.entry("two").tier == "regenerated"
    line.assert_green()


def open_with(directory: Path, script: str, name: str = "resolver") -> Line:
    """Open a hive whose conflicts are settled, or whose prompts are worked on, by a shell script."""
    directory.joinpath(f"{name}.sh").write_text(script)
    resolver = 'resolver = "resolver"\n' if name == "resolver" else ""
    runner = f'[runners.{name}]\ncommand = "sh {directory}/{name}.sh"\n'
    return Line(directory / "hive", f"[queue]\nparallel = 2\n{resolver}{runner}")


def make_clash(line: Line, path: str, *names: str) -> None:
    for name in names:
        line.branch(name, {path: f"{name[:4]}\n"})


def test_a_resolver_settles_a_conflict(tmp_path: Path) -> None:
    line = open_with(tmp_path, 'grep -q "Resolve a merge conflict" "$1" && printf "ours\\nthey\\n" > "$HIVE_CONFLICTS"')
    line.repository.commit({"x.txt": "base\n"}, "texts")
    line.know("! grep -rl '<<<<''<<<' .")
    make_clash(line, "x.txt", "ours", "they")
    line.line_up("ours", "they")
    line.settle()
    assert line.landed() == ["ours", "they"]
    assert line.show("x.txt") == "ours\nthey"
    assert line.entry("they").tier == "ai"
    with line.hive.ledger.read() as connection:
        ended = queries.list_runs_of_attempt(connection, line.tasks["they"], 1)
    assert "resolve" in [run.kind for run in ended]
    line.assert_green()
    line.end()


BAD_RESOLVERS = {
    "leaves-markers": ("true", "x.txt still has conflict markers"),
    "changes-others": ("echo both > x.txt; echo mine > README", "it changed README, which was no part of the conflict"),
    "fails": ("echo no idea; exit 1", "the resolver failed: exit code 1; last output: no idea"),
    "hangs": ("sleep 300", "the resolver failed: it ran longer than its time limit and was stopped"),
}


@pytest.mark.parametrize("kind", BAD_RESOLVERS)
def test_a_resolver_that_settles_nothing_leaves_it_to_the_next_tier_and_then_to_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    script, said = BAD_RESOLVERS[kind]
    monkeypatch.setattr(specs, "OUR_WALL_S", 3.0 if kind == "hangs" else specs.OUR_WALL_S)
    line = open_with(tmp_path, script)
    line.repository.commit({"x.txt": "base\n"}, "texts")
    line.know("! grep -rl '<<<<''<<<' .")
    make_clash(line, "x.txt", "ours", "they")
    make_branches(line, "innocent")
    line.line_up("ours", "they", "innocent")
    line.step_until(lambda: line.is_over("ours", "innocent") and line.entry("they", 1).ended_at is not None)
    assert line.entry("they", 1).reason == f"it conflicts with what landed before it in x.txt ({said})"
    with line.hive.ledger.read() as connection:
        resolves = [
            run for run in queries.list_runs_of_attempt(connection, line.tasks["they"], 1) if run.kind == "resolve"
        ]
    assert 1 <= len(resolves) <= 2
    if kind != "hangs":
        line.settle()
        assert line.of("they").state is TaskState.FAILED
    assert line.landed() == ["ours", "innocent"]
    line.assert_green()
    line.end()


def test_a_refused_prompt_is_told_why_in_its_next_prompt_and_goes_on_from_its_work(tmp_path: Path) -> None:
    script = (
        f'cp "$1" {tmp_path}/told.$HIVE_ATTEMPT; if test -e bad; then git rm -qf bad; else echo x > bad; fi; echo > w'
    )
    line = open_with(tmp_path, script, "worker")
    line.know("test ! -e bad || { echo bad is here; exit 3; }")
    line.submit(TaskSpec("A", repo="app", prompt="Do it well.", runner="worker"))
    line.step_until(lambda: line.task("A").state is TaskState.COMPLETE)
    with line.hive.ledger.read() as connection:
        (message,) = (row for row in queries.list_mail(connection, "work/A", 1) if row.type == "REWORK_REQUEST")
    body = message.get_payload()
    assert (message.type, body["mode"]) == ("REWORK_REQUEST", "rework")
    assert "bad is here" in body["output"]
    assert body["reproduce"] == "git merge origin/main && test ! -e bad || { echo bad is here; exit 3; }"
    told = (tmp_path / "told.2").read_text()
    assert "# Your task\n\nDo it well.\n" in told
    assert body["reproduce"] in told
    assert "bad is here" in told
    line.end()


def test_a_refused_command_finds_why_in_its_feedback_and_is_done_anew(line: Line) -> None:
    line.know("true")
    command = f"cp $HIVE_FEEDBACK {line.root.parent}/told || true; git log --oneline; echo they > README"
    gate = line.root.parent / "landed"
    line.submit(TaskSpec("A", f"{command}; until test -e {gate}; do sleep 0.05; done", repo="app"))
    line.step_until(lambda: any(run.kind == "agent" and run.is_open for run in line.runs("A")))
    make_clash(line, "README", "ours")
    line.enter("ours")
    line.settle()
    gate.touch()
    line.step_until(lambda: line.task("A").state is TaskState.COMPLETE)
    with line.hive.ledger.read() as connection:
        (message,) = (row for row in queries.list_mail(connection, "work/A", 1) if row.type == "REWORK_REQUEST")
    body = message.get_payload()
    assert (message.type, body["mode"]) == ("REWORK_REQUEST", "anew")
    assert "<<<<<<<" in body["hunks"]
    assert "+they" in body["diff"]
    told = (line.root.parent / "told").read_text()
    assert body["hunks"] in told
    assert "Start over on the current branch." in told


def test_a_keeper_that_ends_after_every_step_of_a_train_lands_everything_once(line: Line) -> None:
    line.know("test ! -e bad")
    make_branches(line, "one", "two", "bad", "four")
    line.line_up("one", "two", "bad", "four")
    restarts = 0
    while not line.is_over():
        keeper = line.keeper or line.take()
        # It ends in the middle of a pass over its loops, each time behind another one.
        loops = keeper.loops[: 1 + restarts % len(keeper.loops)]
        if [loop for loop in loops if loop.run_once()] or keeper.step():
            restarts += 1
            assert restarts < 300, line.describe()
            line.reopen()
        else:
            line.changed.wait(0.05)
            line.changed.clear()
    assert line.landed() == ["one", "two", "four"]
    assert line.of("bad").state is TaskState.FAILED
    assert len(line.events(e.MergeLanded)) == 3
    line.assert_green()
