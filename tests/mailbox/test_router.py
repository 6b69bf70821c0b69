"""The router between mailboxes whose workers change them at any moment, or break them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.domain import events as e
from hivekeeper.loops.router import MAX_DELIVERED
from hivekeeper.mailbox.boxes import SENT
from tests.mailbox.post import Post, open_post


def replace_file(post: Post) -> None:
    post.send("kind", "m.json", receiver="good", text="second")


def write_in_place(post: Post) -> None:
    (post.outbox("kind") / "m.json").write_text(json.dumps({"type": "inform", "receiver": "good", "text": "second"}))


@pytest.mark.parametrize("change", [replace_file, write_in_place])
def test_a_file_that_is_replaced_after_it_was_read_is_another_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Post], None]
) -> None:
    with open_post(tmp_path / "hive", "kind", "good") as post:
        record = post.router._record  # noqa: SLF001 - the moment after it

        def record_and_wait(*arguments: Any) -> None:  # noqa: ANN401 - handed on
            monkeypatch.undo()
            record(*arguments)
            change(post)

        post.send("kind", "m.json", receiver="good", text="first")
        monkeypatch.setattr(post.router, "_record", record_and_wait)
        post.carry()
        post.clock.let_pass(61)
        post.carry()
        assert [message["payload"]["text"] for message in post.read("good")] == ["first", "second"]
        assert len(post.rows()) == 2
        assert [path.name for path in post.outbox("kind").iterdir()] == [SENT]


def test_a_mailbox_that_is_gone_delays_no_other_and_is_tried_again_when_its_agent_starts(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "kind", "good", "bad", hourly=10**6) as post:
        sandbox, away = post.places.sandbox("work/bad", 1), tmp_path / "away"
        sandbox.rename(away)
        for number in range(MAX_DELIVERED + 2):
            post.send("kind", f"{number}.json", receiver="bad", text=f"{number}")
        post.send("kind", "last.json", receiver="good", text="hello")
        while post.router.run_once():
            pass
        assert post.router.interval_s > 0
        assert [message["payload"]["text"] for message in post.read("good")] == ["hello"]
        away.rename(sandbox)
        post.router.hear([e.RunStarted("work/bad.1.agent", 1, 1, "boot")])
        post.carry(8)
        assert len(post.read("bad")) == MAX_DELIVERED + 2


def test_an_inbox_that_takes_no_message_is_told_of_once_and_used_when_it_does_again(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "kind", "good", "bad") as post:
        drafts = [post.inbox("bad") / f".{number:09d}-inform.json.part" for number in range(100)]
        for draft in drafts:
            draft.mkdir()
        post.send("kind", "1.json", receiver="bad", text="one")
        for number in range(5):
            assert post.rows(state="QUARANTINED") == [] or number > 2, "once may be a matter of the moment"
            post.send("kind", f"{number}.json", receiver="good", text=f"{number}")
            post.clock.let_pass(61)
            post.carry()
        (told,) = post.rows(state="QUARANTINED")
        assert (told.sender, told.reason) == ("bad", "messages cannot be put into its inbox: Is a directory")
        assert len(post.read("good")) == 5
        for draft in drafts:
            draft.rmdir()
        post.clock.let_pass(61)
        post.carry()
        assert [message["payload"]["text"] for message in post.read("bad")] == ["one"]
