"""Asking what was tried: sessions leave logs, the historian collects them, people and workers ask."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.domain.seance import Answer
from hivekeeper.domain.states import ConvoyState
from hivekeeper.seance.asking import ask, find_subject
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
    print("\n".join(told))
    assert "failed: Exit code 2 [claude session.jsonl:5]" in told
    assert "tried: Bash: cat port.txt [claude session.jsonl:3]" in told
    assert "worked: All done. [claude session.jsonl:6]" in told
    assert any(line.startswith("worked: attempt 1 completed the task, landed as ") for line in told)
    assert "worked: 1 path changed: [changes]" in told
