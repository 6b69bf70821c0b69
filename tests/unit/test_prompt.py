"""What a resumed session is told says why it stopped."""

from dataclasses import replace

import pytest

from hivekeeper.domain.report import Outcome
from hivekeeper.domain.run import BUDGET, DOWN, LIMIT
from hivekeeper.domain.session import StartSession
from hivekeeper.specs.prompt import add_mailbox, describe_task
from tests.property.test_decisions import make_run


@pytest.mark.parametrize(
    ("outcome", "cause", "words"),
    [
        (Outcome.RATE_LIMITED, None, "by a limit of the model's service"),
        (Outcome.KILLED, LIMIT, "by a limit of the model's service"),
        (Outcome.SERVER_ERROR, None, "because the model's service failed"),
        (Outcome.KILLED, BUDGET, "because a budget was spent"),
        (Outcome.KILLED, DOWN, "because all workers were"),
        (Outcome.DONE, None, "You were interrupted."),
    ],
)
def test_a_resumed_session_is_told_why_it_stopped(outcome: Outcome, cause: str | None, words: str) -> None:
    last = replace(make_run("agent"), outcome=outcome.value, kill_cause=cause)
    session = StartSession("claude", "s-1", resume=True)
    prompt, _ = describe_task("Do it.", None, (), session=session, last=last, changed=())
    assert words in prompt
    assert prompt.endswith("Continue your task exactly where you stopped.\n")
    assert "Do it." not in prompt, "it knows its task"


def test_a_prompt_ends_with_how_to_use_the_mailbox_in_few_lines() -> None:
    words = add_mailbox("Do it.\n")
    assert words.startswith("Do it.\n\n# Your mailbox\n")
    assert len(words.splitlines()) - 2 < 12
    for command in ("mail ls", "mail send", "progress", "help-me", "done"):
        assert f"`hive {command}" in words
