"""The router between mailboxes whose workers change them at any moment, or break them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
