"""One story: tasks on a repository are worked on, verified and landed, and a person's files are left alone."""

import subprocess

from hivekeeper.commands.tasks import cancel_task, retry_task
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.store import queries
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository


def test_tasks_land_one_commit_each_in_order_and_publish_to_a_branch_of_their_own(
    stage: Scene, repository: Repository
) -> None:
    stage.submit(
        TaskSpec("A", "echo a > a", repo="app", title="Add a"),
        TaskSpec("B", "cat a > b", repo="app", after=("A",)),
        repos=(repository.spec(verify="test -f a"),),
    )
    before = repository.git("rev-parse", "main")
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.landed() == ["A", "B"]
    assert repository.git("rev-parse", "main") == before
    assert repository.git("rev-list", "--count", "--merges", "hive/main") == "0"
    assert repository.git("show", "hive/main:b") == "a"
    assert repository.git("log", "-1", "--format=%s", "hive/main~1") == "A: Add a"
    assert stage.task("A").commit_id == repository.git("rev-parse", "hive/main~1")


def test_what_a_worker_commits_itself_and_what_it_leaves_uncommitted_both_land_in_one_commit(
    stage: Scene, repository: Repository
) -> None:
    command = "echo 1 > one && git add one && git commit -qm one && echo 2 > two && rm README"
    stage.submit(TaskSpec("A", command, repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.git("ls-tree", "--name-only", "hive/main").split() == ["one", "two"]
    assert repository.git("rev-list", "--count", "main..hive/main") == "1"


def test_exit_0_without_a_change_is_not_success(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "true", repo="app", attempts=2), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.FAILED
    task = stage.task("A")
    assert (task.state, task.attempts) == (TaskState.FAILED, 2)
    assert task.reason == "it ended with exit code 0 but changed nothing"


def test_a_change_whose_gate_fails_never_reaches_the_branch_and_says_what_the_gate_said(
    stage: Scene, repository: Repository
) -> None:
    verify = "if test -f bad; then echo bad is here; exit 3; fi"
    stage.submit(TaskSpec("A", "touch bad", repo="app", attempts=1), repos=(repository.spec(verify=verify),))
    assert stage.finish() is ConvoyState.FAILED
    said = "verify failed twice: exit code 3; last output: bad is here"
    assert stage.task("A").reason == said
    assert repository.git("branch", "--list", "hive/main") == ""


def test_the_gate_runs_on_the_merged_tree_not_on_the_workers_own(stage: Scene, repository: Repository) -> None:
    # Each passes alone; together they are too many.
    verify = "test $(ls part-* | wc -l) -lt 2"
    stage.submit(
        TaskSpec("A", "touch part-a", repo="app", attempts=1),
        TaskSpec("B", "touch part-b", repo="app", attempts=1),
        repos=(repository.spec(verify=verify),),
    )
    assert stage.finish() is ConvoyState.FAILED
    assert sorted(stage.states().values()) == [TaskState.COMPLETE, TaskState.FAILED]
    assert len(repository.landed()) == 1


def test_a_conflict_is_a_failed_attempt_and_the_next_attempt_starts_from_what_landed(
    stage: Scene, repository: Repository
) -> None:
    stage.submit(
        TaskSpec("A", "echo a >> README", repo="app"),
        TaskSpec("B", "echo b >> README", repo="app"),
        repos=(repository.spec(),),
    )
    assert stage.finish() is ConvoyState.COMPLETE
    assert sorted(repository.git("show", "hive/main:README").split()) == ["a", "b", "hello"]
    second = [task_id for task_id in "AB" if len(stage.attempts(task_id)) == 2]
    assert len(second) == 1
    assert stage.attempts(second[0])[0].reason == "it conflicts with what landed before it in README"
    assert [attempt.swarm for attempt in stage.attempts(second[0])] == [1, 2]


def test_the_tasks_own_gate_runs_after_the_repositorys(stage: Scene, repository: Repository) -> None:
    task = TaskSpec("A", "touch a", repo="app", verify="test -f missing", attempts=1)
    stage.submit(task, repos=(repository.spec(verify="test -f README"),))
    assert stage.finish() is ConvoyState.FAILED
    assert "verify failed" in stage.task("A").reason


def test_a_persons_staged_modified_and_untracked_files_are_left_alone(stage: Scene, repository: Repository) -> None:
    (repository.path / "README").write_text("my own words\n")
    (repository.path / "untracked").write_text("mine\n")
    (repository.path / "staged").write_text("mine\n")
    repository.git("add", "staged")
    before = repository.git("status", "--porcelain")
    stage.submit(TaskSpec("A", "echo a > untracked", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.git("status", "--porcelain") == before
    assert (repository.path / "untracked").read_text() == "mine\n"


def test_what_cannot_be_published_waits_and_the_task_is_complete_all_the_same(
    stage: Scene, repository: Repository
) -> None:
    repository.git("checkout", "--quiet", "-b", "hive/main")  # git refuses to move a branch that is checked out
    repository.commit({"mine": "x\n"}, "mine")
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert "Could not update hive/main" in (stage.repo().publish_problem or "")
    repository.git("checkout", "--quiet", "main")
    repository.git("branch", "--quiet", "-D", "hive/main")
    stage.clock.advance(61)
    stage.step_until(lambda: stage.repo().publish_problem is None)
    assert repository.landed() == ["A"]


def test_a_failed_command_says_its_exit_code_and_its_last_words(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "echo no such luck; exit 7", repo="app", attempts=1), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.FAILED
    assert stage.task("A").reason == "exit code 7; last output: no such luck"


def test_what_a_failed_worker_left_is_kept_in_the_mirror(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "echo half > work; exit 1", repo="app", attempts=1), repos=(repository.spec(),))
    stage.finish()
    mirror = stage.hive.places.mirror("app")
    kept = repository.git("--git-dir", str(mirror), "show", "refs/hive/attempts/work/A/1:work")
    assert kept == "half"
    assert not stage.hive.places.sandbox("work/A", 1).exists()


def test_a_running_task_that_is_cancelled_leaves_no_process_and_never_runs_again(
    stage: Scene, repository: Repository
) -> None:
    stage.submit(TaskSpec("A", "echo $$ > pid; sleep 300", repo="app"), repos=(repository.spec(),))
    pid_file = stage.hive.places.sandbox("work/A", 1) / "work" / "pid"
    stage.step_until(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
    pid = pid_file.read_text().strip()
    assert stage.list_processes("work/A.1.agent")
    with stage.hive.ledger.write(ME) as tx:
        assert cancel_task(tx, stage.task("A"))
    assert stage.finish() is ConvoyState.COMPLETE, "what a person cancelled is no failure"
    assert stage.task("A").state is TaskState.CANCELLED
    assert not stage.list_processes("work/A.1.agent")
    assert len(stage.attempts("A")) == 1
    mirror = stage.hive.places.mirror("app")
    assert repository.git("--git-dir", str(mirror), "show", "refs/hive/attempts/work/A/1:pid") == pid


def test_a_failed_task_is_tried_again_when_a_person_asks(stage: Scene, repository: Repository) -> None:
    flag = stage.root / "now-it-works"
    stage.submit(TaskSpec("A", f"test -f {flag} && touch a", repo="app", attempts=1), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.FAILED
    flag.touch()
    with stage.hive.ledger.write(ME) as tx:
        assert retry_task(tx, stage.task("A"))
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.landed() == ["A"]


def test_a_repository_that_cannot_be_fetched_fails_the_convoy_with_the_reason(
    stage: Scene, repository: Repository
) -> None:
    spec = repository.spec()
    stage.submit(TaskSpec("A", "touch a", repo="app"), repos=(spec,))
    repository.git("branch", "-m", "main", "trunk")
    assert stage.finish() is ConvoyState.FAILED
    assert "main" in (stage.repo().problem or "")
    assert stage.task("A").state is TaskState.PENDING


def test_outputs_are_collected_from_the_sandboxes_they_were_written_in(stage: Scene) -> None:
    stage.submit(*(TaskSpec(f"t{number}", f": > t{number}.txt", outputs=(f"t{number}.txt",)) for number in range(24)))
    assert stage.finish() is ConvoyState.COMPLETE
    assert [len(stage.attempts(f"t{number}")) for number in range(24)] == [1] * 24


def test_an_output_that_cannot_be_read_fails_its_own_attempt_and_holds_up_nobody(stage: Scene) -> None:
    too_long = "x" * 300  # a name that no file can have: looking at it is an error for everybody, root too
    stage.submit(TaskSpec("a", f"ln -s {too_long} out", outputs=("out",), attempts=1), TaskSpec("b", "true"))
    assert stage.finish() is ConvoyState.FAILED
    assert stage.states() == {"a": TaskState.FAILED, "b": TaskState.COMPLETE}
    assert stage.task("a").reason == "it ended with exit code 0 but out is a link, or lies behind one"


def test_a_task_whose_namesake_landed_long_ago_is_not_taken_for_it(stage: Scene, repository: Repository) -> None:
    # As another hive left it on the same branch, under the same names.
    repository.commit({"a": "old\n"}, "work: a\n\nHive-Task: A\nHive-Convoy: work\nHive-Attempt: 1")
    stage.submit(TaskSpec("A", "echo old > a; true", repo="app", attempts=1), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.FAILED
    assert stage.states() == {"A": TaskState.FAILED}


def test_a_mirror_whose_refs_were_packed_is_fetched_again(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "echo a > a", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    mirror = stage.hive.places.mirror("app")
    subprocess.run(("git", "--git-dir", str(mirror), "pack-refs", "--all"), check=True)
    stage.submit(TaskSpec("B", "echo b > b", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE


def test_a_candidate_that_a_power_cut_took_is_made_and_verified_again(stage: Scene, repository: Repository) -> None:
    stage.submit(TaskSpec("A", "echo a > a", repo="app"), repos=(repository.spec(verify="test -f a"),))
    stage.step_until(lambda: any(run.kind == "gate" and run.is_open for run in stage.gate_runs()))
    with stage.hive.ledger.read() as connection:
        entry = queries.find_merge(connection, "work/A", 1)
    assert entry is not None
    lost = str(entry.candidate)
    (stage.hive.places.mirror("app") / "objects" / lost[:2] / lost[2:]).unlink()
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.landed() == ["A"]
