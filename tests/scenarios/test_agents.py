"""Agents with a past: who gets a task, why, and what becomes of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hivekeeper.commands import agents
from hivekeeper.commands.tasks import retry_task
from hivekeeper.domain.agents import Record
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.store import agent_queries, queries
from hivekeeper.views.tasks import show_why
from hivekeeper.working.priming import prime_agent, prime_task
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository

Hire = Callable[..., None]


@pytest.fixture
def hire(stage: Scene) -> Hire:
    """Let prompts be taken by shell scripts: a prompt is what is run."""

    def hiring(**settings: object) -> None:
        shell = Runner("shell", "sh", prompt=PromptBy.STDIN)
        known = {**stage.hive.settings.runners, "shell": shell}
        values: dict[str, Any] = {"runners": known, "mail": False, **settings}
        stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, **values))

    hiring()
    return hiring


def prompt(name: str, script: str = "", **more: object) -> TaskSpec:
    script = script or f"echo {name} > {name}.txt"
    return TaskSpec(name, prompt=f"{script}\nexit", repo="app", runner="shell", **more)  # type: ignore[arg-type]


def chosen(stage: Scene, task: str) -> list[tuple[str | None, int, str]]:
    return [(attempt.agent, attempt.session, attempt.chosen) for attempt in stage.attempts(task)]


def make_agent(stage: Scene, name: str, *strengths: str) -> None:
    with stage.hive.ledger.write(ME) as tx:
        agents.create_agent(tx, name, strengths=strengths)


def test_the_agent_that_a_plan_names_comes_to_be_and_its_sessions_are_numbered(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    stage.submit(prompt("A", agent="auth"), prompt("B", agent="auth"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert chosen(stage, "A") == [("auth", 1, "the plan names it")]
    assert chosen(stage, "B") == [("auth", 2, "the plan names it")]
    with stage.hive.ledger.read() as connection:
        (agent,) = agent_queries.list_agents(connection)
        record = agent_queries.load_records(connection)["auth"]
    assert (agent.name, agent.sessions) == ("auth", 2)
    assert record == Record(landed=2, repos={"app": 2})


def test_a_task_goes_to_a_free_agent_with_its_strengths_and_the_reason_is_told(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    make_agent(stage, "ann", "oauth", "sql")
    make_agent(stage, "bob", "css")
    specs = (prompt("A", strengths=("oauth",)), prompt("B", strengths=("rust",)))
    stage.submit(*specs, repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert chosen(stage, "A") == [("ann", 1, "it has the strength oauth")]
    assert chosen(stage, "B") == [("agent-1", 1, "no free agent has the strength rust")]
    with stage.hive.ledger.read() as connection:
        assert agent_queries.find_agent(connection, "agent-1").list_strengths() == ("rust",)  # type: ignore[union-attr]
        assert show_why(connection, stage.task("A"), keeper_is_alive=True).endswith(
            "Agent: ann (it has the strength oauth)."
        )


def test_work_is_spread_and_an_agent_stays_on_the_repository_it_knows(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    make_agent(stage, "ann")
    make_agent(stage, "bob")
    stage.submit(prompt("A", agent="bob"), repos=(repository.spec(),))
    stage.take(workers=2)
    assert stage.finish() is ConvoyState.COMPLETE
    stage.submit(prompt("B"), prompt("C"), convoy="more")
    stage.finish("more")
    with stage.hive.ledger.read() as connection:
        found = {
            task.id: queries.list_attempts_of_task(connection, task.key)[0]
            for task in queries.list_tasks_of_convoy(connection, "more")
        }
    assert (found["B"].agent, found["B"].chosen) == ("bob", "it has landed 1 change in app")
    assert (found["C"].agent, found["C"].chosen) == ("ann", "it was free")


def test_the_third_failure_grants_an_attempt_by_the_agent_with_the_best_record_and_then_needs_a_person(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    """The senior has landed five, so its record counts; it has not failed this one."""
    of_senior = [prompt(f"S{number}", agent="senior") for number in range(5)]
    of_junior = [prompt("J0", agent="junior")]
    stage.submit(*of_senior, *of_junior, repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    stage.submit(prompt("A", "exit 3", agent="junior"), convoy="hard")
    assert stage.finish("hard") is ConvoyState.FAILED
    with stage.hive.ledger.read() as connection:
        attempts = queries.list_attempts_of_task(connection, "hard/A")
        record = agent_queries.load_records(connection)
    assert [attempt.agent for attempt in attempts] == ["junior", "junior", "junior", "senior"]
    assert attempts[-1].chosen == "recommended after earlier attempts failed"
    assert record["senior"] == Record(landed=5, failed=1, repos={"app": 5})
    assert record["junior"].failed == 3
    task = stage.task("A", "hard")
    assert task.state is TaskState.FAILED
    with stage.hive.ledger.write(ME) as tx:
        assert retry_task(tx, task)
    assert stage.finish("hard") is ConvoyState.FAILED
    with stage.hive.ledger.read() as connection:
        assert queries.list_attempts_of_task(connection, "hard/A")[-1].agent == "junior", "the person's own try"


def test_rejected_work_goes_back_to_the_agent_that_made_it(stage: Scene, repository: Repository, hire: Hire) -> None:
    for name in ("ann", "bob", "eve"):
        make_agent(stage, name)
    script = 'if [ "$HIVE_ATTEMPT" = 1 ]; then touch bad; else rm -f bad; touch good; fi'
    spec = replace(repository.spec(), verify="! test -e bad")
    stage.submit(prompt("A", script), repos=(spec,))
    assert stage.finish() is ConvoyState.COMPLETE
    (first, _, _), (second, _, why) = chosen(stage, "A")
    assert second == first
    assert why == "its change was rejected, so it continues"
    with stage.hive.ledger.read() as connection:
        assert agent_queries.load_records(connection)[str(first)] == Record(1, 1, reworked=1, repos={"app": 1})


def test_retired_agents_get_nothing_but_what_a_plan_gives_them_and_renamed_ones_keep_everything(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    make_agent(stage, "ann", "sql")
    stage.submit(prompt("A", strengths=("sql",)), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    with stage.hive.ledger.write(ME) as tx:
        assert agents.rename_agent(tx, agents.get_agent(tx.connection, "ann"), "anna")
        assert not agents.rename_agent(tx, agents.get_agent(tx.connection, "ann"), "anna")
    assert chosen(stage, "A")[0][0] == "anna"
    stage.submit(prompt("B", agent="ann"), convoy="old-name")
    stage.finish("old-name")
    with stage.hive.ledger.write(ME) as tx:
        anna = agents.get_agent(tx.connection, "ann")
        assert (anna.name, anna.sessions, anna.list_former()) == ("anna", 2, ("ann",))
        assert agents.retire_agent(tx, anna)
    stage.submit(prompt("C", strengths=("sql",)), convoy="retired")
    stage.finish("retired")
    with stage.hive.ledger.read() as connection:
        assert queries.list_attempts_of_task(connection, "retired/C")[0].agent == "agent-1"
    with stage.hive.ledger.write(ME) as tx:
        anna = agents.get_agent(tx.connection, "anna")
        assert agents.restore_agent(tx, anna)
        assert not agents.restore_agent(tx, agents.get_agent(tx.connection, "anna"))
    stage.submit(prompt("D", strengths=("sql",)), prompt("E", strengths=("sql",)), convoy="restored")
    stage.finish("restored")
    with stage.hive.ledger.read() as connection:
        found = {queries.list_attempts_of_task(connection, f"restored/{name}")[0].agent for name in "DE"}
    assert found == {"agent-1", "anna"}, "both at once, and it is one of them again"


def test_without_the_pattern_only_the_name_of_a_plan_counts(stage: Scene, repository: Repository, hire: Hire) -> None:
    hire(identity=False)
    stage.submit(prompt("A", agent="auth"), prompt("B"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert chosen(stage, "A") == [("auth", 0, "")]
    assert chosen(stage, "B") == [(None, 0, "")]
    with stage.hive.ledger.read() as connection:
        assert agent_queries.list_agents(connection) == []


def test_a_command_has_no_memory_and_so_no_agent(stage: Scene) -> None:
    stage.submit(TaskSpec("A", "true"))
    assert stage.finish() is ConvoyState.COMPLETE
    assert chosen(stage, "A") == [(None, 0, "")]


LESSON = '{"type": "LESSON", "to": "supervisor", "payload": {"text": "%s", "topic": "%s"}}'
LEARN = f"echo '{LESSON}' > $HIVE_MAILBOX/outbox/%s.json"


def test_what_an_agent_learns_and_is_good_at_counts_from_the_landing_on(
    stage: Scene, repository: Repository, hire: Hire
) -> None:
    hire(mail=True)
    make_agent(stage, "ann", "make")
    good = f"echo A > A.txt\n{LEARN % ('Run make first.', 'patterns', 'a')}\n{LEARN % ('x', 'nonsense', 'b')}"
    bad = f"{LEARN % ('Push to main.', 'decisions', 'a')}\nexit 3"
    stage.submit(
        prompt("A", good, strengths=("make", "git")),
        prompt("B", bad, strengths=("make", "sql"), after=("A",), attempts=1),
        repos=(repository.spec(),),
    )
    stage.finish()
    with stage.hive.ledger.read() as connection:
        ann = agent_queries.find_agent(connection, "ann")
        lessons = agent_queries.list_lessons(connection, "ann")
    assert ann is not None
    assert chosen(stage, "B")[0][0] == "ann"
    assert ann.list_strengths() == ("make", "git")
    assert [(lesson.topic, lesson.text, lesson.source) for lesson in lessons] == [
        ("patterns", "Run make first.", "work/A.1")
    ]


def test_a_session_reads_what_its_agent_has_done_and_learnt(stage: Scene, repository: Repository, hire: Hire) -> None:
    make_agent(stage, "ann", "sql")
    hear = Runner("hear", "sh -c 'cat > told.txt'", prompt=PromptBy.STDIN)
    known = {**stage.hive.settings.runners, "hear": hear}
    stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, runners=known))
    with stage.hive.ledger.write(ME) as tx:
        agents.teach(tx, "ann", "decisions", "No ORM.", "person")
    stage.submit(prompt("A", agent="ann", title="First"), repos=(repository.spec(),))
    stage.finish()
    task = replace(prompt("B", "Go on.", agent="ann", verify="true"), runner="hear")
    stage.submit(task, convoy="more")
    with stage.hive.ledger.read() as connection:
        shown = prime_task(stage.hive.places, connection, stage.hive.settings, "more/B")
        alone = prime_agent(connection, agents.get_agent(connection, "ann"))
    stage.finish("more")
    told = repository.git("show", "hive/main:told.txt") + "\n"
    assert told.strip() == shown.strip(), "what is shown is what is read"
    for words in ("You are ann.", "This is your session 2.", "good at sql", "of your 1 task so far", "- No ORM."):
        assert words.lower() in told.lower()
    assert "- Task: A: First\n- Status: Complete, landed as " in told
    assert "- This must pass: `true`" in told
    assert "- No ORM." in alone


def test_a_retry_reads_what_the_attempt_before_it_tried(stage: Scene, repository: Repository, hire: Hire) -> None:
    """The first attempt does two of four steps and ends; the second is told of them, each as done once."""
    hear = Runner("hear", """sh -c 'cat > "$HIVE_ROOT/../told.$HIVE_ATTEMPT"; sh work.sh'""", prompt=PromptBy.STDIN)
    known = {**stage.hive.settings.runners, "hear": hear}
    stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, runners=known))
    step = "echo done step $n; echo $n > step$n; [ $n$HIVE_ATTEMPT != 21 ] || exit 9"
    steps = f"for n in 1 2 3 4; do [ -e step$n ] || {{ {step}; }}; done"
    repository.commit({"work.sh": steps + "\n"}, "steps")
    stage.submit(replace(prompt("A", "Do the steps.", agent="ann"), runner="hear"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    told = (stage.root.parent / "told.2").read_text()
    assert "step1" in told
    assert "step2" in told
    assert "step3" not in told
    assert "exit code 9" in told
    landed = repository.git("ls-tree", "--name-only", "hive/main").split()
    assert [name for name in landed if name.startswith("step")] == ["step1", "step2", "step3", "step4"]
