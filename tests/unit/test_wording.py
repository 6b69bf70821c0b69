"""A number and the words around it agree."""

from dataclasses import replace

import pytest

from hivekeeper.domain.budget import Cap
from hivekeeper.domain.states import TaskState
from hivekeeper.domain.why import Facts, explain
from hivekeeper.domain.wording import agree, say_count
from tests.unit.test_workers import MERGE, TASK


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 tasks are"), (1, "1 task is"), (2, "2 tasks are"), (12_345, "12,345 tasks are")]
)
def test_one_is_one_and_all_else_is_many(number: int, said: str) -> None:
    assert f"{say_count(number, 'task')} {agree(number, 'is', 'are')}" == said


def test_a_plural_of_its_own_is_taken() -> None:
    assert [say_count(number, "try", "tries") for number in (1, 2)] == ["1 try", "2 tries"]


@pytest.mark.parametrize(("ahead", "said"), [(1, "behind 1 other."), (3, "behind 3 others.")])
def test_a_task_in_the_queue_says_how_many_are_before_it(ahead: int, said: str) -> None:
    task = replace(TASK, state=TaskState.IN_PROGRESS)
    assert explain(Facts(task, merge=MERGE, ahead_in_queue=ahead)).endswith(said)


@pytest.mark.parametrize(("allowed", "said"), [(1, "in 1 of 1 attempt;"), (3, "in 1 of 3 attempts;")])
def test_a_failed_task_says_in_how_many_attempts(allowed: int, said: str) -> None:
    task = replace(TASK, state=TaskState.FAILED, attempts=1, attempts_allowed=allowed, reason="it broke")
    assert said in explain(Facts(task))


def test_a_budget_of_one_token_is_one() -> None:
    assert [Cap(tokens, None).describe() for tokens in (1, 2_000)] == ["1 token", "2,000 tokens"]
