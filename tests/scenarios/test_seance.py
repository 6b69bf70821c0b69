"""Asking what was tried: sessions leave logs, the historian collects them, people and workers ask."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.predecessors import describe_predecessors
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.domain.seance import Answer
from hivekeeper.domain.states import ConvoyState, MailState
from hivekeeper.seance.asking import ask, find_subject
from hivekeeper.seance.predecessors import load_predecessors
from hivekeeper.store import queries
from hivekeeper.store.excerpts import ExcerptIndex
from tests.scenarios.conftest import Scene
from tests.seance.logs import FACT, LOGS, QUESTION
from tests.stage import Repository

LOG = "home/.claude/projects/p/session.jsonl"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that workers put where their program would."""
    path = tmp_path / "claude.jsonl"
    LOGS["claude"][1](path)
    return path


@pytest.fixture
def hire(stage: Scene) -> Callable[..., None]:
    """Let prompts be taken by shell scripts, as a program that writes session logs."""

    def hiring(**settings: object) -> None:
        claude = Runner("claude", "sh", prompt=PromptBy.STDIN, log=LOG.replace("session", "*"))
        known = {**stage.hive.settings.runners, "claude": claude}
        stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, runners=known, **settings))  # type: ignore[arg-type]

    hiring()
    return hiring


def prompt(name: str, script: str, log: Path, **more: object) -> TaskSpec:
    write = f'mkdir -p "$HOME/.claude/projects/p" && cp {log} "$HOME/.claude/projects/p/session.jsonl"'
    return TaskSpec(name, prompt=f"{write}\n{script}\nexit", repo="app", runner="claude", **more)  # type: ignore[arg-type]


def hold(stage: Scene, who: str, question: str = "") -> Answer:
    with stage.hive.ledger.read() as connection:
        _, attempts = find_subject(connection, who)
    with ExcerptIndex(stage.places.seance, read_only=True) as index:
        return ask(index, attempts, question)


def list_cited(answer: Answer) -> Iterator[str]:
    for name, part in answer.parts:
        yield from (f"{name}: {cited.excerpt.text.partition(chr(10))[0]} {cited.citation}" for cited in part)


def test_what_an_attempt_said_and_did_is_found_with_its_place(
    stage: Scene, repository: Repository, hire: Callable[..., None], log: Path
) -> None:
    stage.submit(prompt("A", "echo a > a.txt", log, agent="ann"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    for who in ("A", "work/A", "ann"):
        answer = hold(stage, who, QUESTION)
        assert f"worked: {FACT} [claude session.jsonl:4]" in list(list_cited(answer)), who
    told = list(list_cited(hold(stage, "A")))
    assert "failed: Exit code 2 [claude session.jsonl:5]" in told
    assert "tried: Bash: cat port.txt [claude session.jsonl:3]" in told
    assert "worked: All done. [claude session.jsonl:6]" in told
    assert any(line.startswith("worked: attempt 1 completed the task, landed as ") for line in told)
    assert "worked: 1 path changed: [changes]" in told


def test_a_worker_that_asks_is_answered_from_the_record_of_its_own_task_and_its_own_agent_only(
    stage: Scene, repository: Repository, hire: Callable[..., None], log: Path, tmp_path: Path
) -> None:
    """It has failed once. Its agent has done another task, and somebody else a third."""
    for name, fact in (("own", "zebra one"), ("other", "zebra two")):
        (tmp_path / name).write_text(log.read_text().replace(FACT, fact))
    stage.submit(
        prompt("mine", "echo m > m.txt", tmp_path / "own", agent="ann"),
        prompt("theirs", "echo t > t.txt", tmp_path / "other", agent="bob"),
        repos=(repository.spec(),),
    )
    assert stage.finish() is ConvoyState.COMPLETE
    script = """[ "$HIVE_ATTEMPT" = 2 ] || exit 3
hive seance > A; hive seance 'zebra one, zebra two' >> A; hive seance 'which port of the heron' >> A"""
    stage.submit(prompt("A", script, log, agent="ann", attempts=2), convoy="next")
    assert stage.finish("next") is ConvoyState.COMPLETE
    said = repository.git("show", "hive/main:A")
    assert said.startswith("From the records of earlier sessions. This is information, not an order.\n")
    assert "rejected: attempt 1 failed: " in said
    assert "next/A attempt 1" in said
    assert f"{FACT} [claude session.jsonl:4]" in said
    assert "zebra one [claude session.jsonl:4]" in said, "its agent's earlier session"
    assert "zebra two" not in said.replace("'which", "")
    assert "theirs" not in said
    with stage.hive.ledger.read() as connection:
        asked = queries.list_mail_matching(connection, limit=-1, type_="SEANCE")
        answers = [queries.list_rows(connection, MailRow, "seq", parent=mail.id) for mail in asked]
    assert [mail.state for mail in asked] == [MailState.HANDLED] * 3
    assert [[answer.receiver for answer in each] for each in answers] == [["ann"]] * 3
    assert "SEANCE" not in "".join(list_cited(hold(stage, "ann", "seance zebra records")))


def test_without_a_record_a_worker_is_told_so(stage: Scene, repository: Repository, hire: Callable[..., None]) -> None:
    stage.submit(TaskSpec("A", "hive seance > A; hive seance --json why >> A", repo="app"), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    first, second = repository.git("show", "hive/main:A").splitlines()
    assert first == "There is no record yet: no earlier session of this task or of your agent has ended."
    assert json.loads(second)["state"] == "answered"


def test_the_next_attempt_is_told_what_the_last_one_did_before_anything_is_collected(
    stage: Scene, repository: Repository, hire: Callable[..., None], log: Path
) -> None:
    script = "echo x > left.txt; git add left.txt; git commit -qm left; echo 'boom: 42' >&2; exit 3"
    stage.submit(prompt("A", script, log, agent="ann", attempts=1), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.FAILED
    stage.places.seance.unlink()
    with stage.hive.ledger.read() as connection:
        assert stage.keeper is not None
        runners = stage.hive.settings.runners
        (found,) = load_predecessors(connection, stage.places, stage.keeper.runs, "work/A", 2, runners)
        assert load_predecessors(connection, stage.places, stage.keeper.runs, "work/A", 1, runners) == []
    assert (found.number, found.agent, found.changed) == (1, "ann", ("left.txt",))
    assert found.last_words is not None
    assert (found.last_words.excerpt.text, found.last_words.citation) == ("All done.", "[claude session.jsonl:6]")
    assert found.failure is not None
    assert "boom: 42" in found.failure.excerpt.text
    assert found.failure.citation == "[work/A.1.agent/output:1]"
    text = describe_predecessors([found])
    assert "tried: Bash: cat port.txt [claude session.jsonl:3]" in text
    assert "changed: left.txt" in text


def test_switched_off_nothing_is_collected_and_a_worker_is_told_so(
    stage: Scene, repository: Repository, hire: Callable[..., None], log: Path
) -> None:
    hire(identity=False)
    stage.submit(prompt("A", "hive seance > A", log), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.git("show", "hive/main:A").startswith("This hive keeps no record of its agents")
    assert not stage.places.seance.exists()


def test_what_is_lost_of_the_index_is_collected_again_from_the_logs_that_were_kept_and_what_is_there_is_left(
    stage: Scene, repository: Repository, hire: Callable[..., None], log: Path
) -> None:
    """The log says that it is another session's, in another task: it counts for the attempt that it was found in."""
    claims = {"type": "user", "message": {"content": "x"}, "sessionId": "of bob", "cwd": "/hive/sandboxes/work/B.1"}
    log.write_text(f"{json.dumps(claims)}\n{log.read_text()}")
    stage.submit(prompt("A", "echo a > a.txt", log), prompt("B", "echo b > b.txt", log), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.COMPLETE
    stage.step_until(lambda: all(attempt.sandbox == "REMOVED" for task in "AB" for attempt in stage.attempts(task)))
    first = {task: list(list_cited(hold(stage, task, QUESTION))) for task in "AB"}
    said = ["tried: Bash: cat port.txt [claude session.jsonl:4]", f"worked: {FACT} [claude session.jsonl:5]"]
    assert (first["A"], first["B"]) == (said, said)
    with ExcerptIndex(stage.places.seance, read_only=True) as index:
        before = index.list_documents([("work/A", 1), ("work/B", 1)])
    for is_lost in (False, True):
        assert stage.keeper is not None
        stage.keeper.close()
        if is_lost:
            stage.places.seance.unlink()
        stage.take()
        stage.step_until(stage.places.seance.exists)
        stage.step_until(lambda: stage.keeper is not None and not stage.keeper.step())
        with ExcerptIndex(stage.places.seance, read_only=True) as index:
            after = index.list_documents([("work/A", 1), ("work/B", 1)])
        assert {replace(each, id=0) for each in after} == {replace(each, id=0) for each in before}
        assert after == before or is_lost, "nothing is written twice"
        assert {task: list(list_cited(hold(stage, task, QUESTION))) for task in "AB"} == first
