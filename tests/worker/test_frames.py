"""Whatever a program writes, nothing of it stops the process that drives it, and every record can be read."""

import io
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hivekeeper.domain.runner import Runner
from hivekeeper.runners import make_reader
from hivekeeper.runners.acp import UsageBy, speak_acp
from hivekeeper.runners.acp_classes import Answer, classify
from hivekeeper.worker.agent import read_message
from hivekeeper.worker.inbox import Inbox
from hivekeeper.worker.records import Records
from hivekeeper.worker.transcript import Transcript, find_model

KEYS = st.sampled_from(
    (
        *("sessionUpdate", "toolCallId", "status", "content", "text", "used", "cost", "amount", "_meta", "goose"),
        *("activeRunId", "inputTokens", "outputTokens", "id", "error", "code", "message", "data", "method", "usage"),
    )
)
KINDS = st.sampled_from(
    ["agent_message_chunk", "tool_call", "tool_call_update", "usage_update", "session_info_update", "completed"]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
UPDATES = st.lists(st.dictionaries(KEYS, ANYTHING, max_size=6), max_size=12)


@given(UPDATES, st.sampled_from(UsageBy), ANYTHING)
def test_any_updates_become_records_that_can_be_read(
    updates: list[dict[str, Any]], usage_by: UsageBy, answer: object
) -> None:
    said = io.StringIO()
    transcript = Transcript(Records(said), usage_by)
    for number, update in enumerate(updates):
        transcript.take_update(update, float(number))
    result = answer if isinstance(answer, dict) else {}
    transcript.take_answer(result)
    find_model(result)
    reader = make_reader(speak_acp(Runner("x", ""), "x"))
    for line in said.getvalue().splitlines():
        assert isinstance(json.loads(line), dict)
        reader.take(line.encode())
    assert reader.open_tools == 0, "no tool call is open after the end of a turn"
    assert min(reader.usage.tokens_in, reader.usage.tokens_out, reader.usage.microusd) >= 0
    reader.report(0, "exit", must_act=True)


@given(ANYTHING)
def test_what_the_connection_gets_is_a_message_it_can_cope_with(said: object) -> None:
    message = read_message(json.dumps(said).encode())
    if message is not None:
        assert isinstance(message.get("id"), int | str | None)
        assert isinstance(message.get("method", ""), str)
        error = message.get("error")
        assert (
            "method" in message or error is None or (isinstance(error, dict) and isinstance(error.get("code", 0), int))
        )


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_none(said: bytes) -> None:
    assert read_message(b"\xff" + said) is None


@given(st.integers(), st.text(max_size=30), ANYTHING, st.text(max_size=30))
def test_any_answer_has_a_class(code: int, message: str, data: object, stop: str) -> None:
    assert classify(Answer(code, message, data)).outcome != "done"
    classify(Answer(stop=stop, text=message))


def test_what_lies_in_an_inbox_and_is_no_message_is_left_there(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "000000001-torn.json").write_text('{"id": ')
    (inbox / "000000002-list.json").write_text("[]")
    (inbox / "000000003-dir.json").mkdir()
    (inbox / "000000004-link.json").symlink_to("/etc/passwd")
    (inbox / ".draft.json").write_text("{}")
    (inbox / "000000005-inform.json").write_text('{"id": "m", "type": "inform", "sender": "q", "payload": {"a": 1}}')
    (inbox / "big.json").write_bytes(b" " * ((4 << 20) + 1))
    [letter] = Inbox(str(tmp_path)).list()
    assert (letter.id, letter.payload) == ("m", {"a": 1})
    assert Inbox("").list() == []
    assert Inbox(str(tmp_path / "missing")).list() == []


def test_a_hotfix_interrupts_only_whoever_has_to_rebase(tmp_path: Path) -> None:
    (inbox := tmp_path / "inbox").mkdir()
    for number, must_rebase in enumerate((True, False)):
        message = {
            "id": f"m-{number}",
            "type": "PRIORITY_MERGE",
            "sender": "queue",
            "payload": {"must_rebase": must_rebase},
        }
        (inbox / f"{number}.json").write_text(json.dumps(message))
    found = Inbox(str(tmp_path), ["PRIORITY_MERGE"]).list()
    assert [letter.is_urgent for letter in found] == [True, False]
    assert ["rebase it onto the hotfix" in letter.describe() for letter in found] == [True, False]
