"""The hive's side of a mailbox: what is read is believed in nothing, and what is delivered is whole."""

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hivekeeper.domain.mail import Unreadable
from hivekeeper.domain.protocol import MAX_DEPTH, PROTOCOL, read_draft
from hivekeeper.errors import UnavailableError
from hivekeeper.mailbox import boxes
from hivekeeper.mailbox.boxes import (
    ACKNOWLEDGED,
    INBOX,
    OUTBOX,
    SENT,
    Delivery,
    Listed,
    Mailbox,
    deliver,
    has_unread,
    read_json,
)
from hivekeeper.mailbox.watching import Watcher

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
@example(b"9" * 10_000)
@example(b'"\\ud800"')
@example(b"1e999")
@example(b"\xef\xbb\xbf{}")
@example(b"\xff\xfe{\x00}\x00")
def test_whatever_bytes_are_read_what_comes_of_them_can_be_written(data: bytes) -> None:
    read = read_json(data)
    if read.problem is None:
        json.dumps(read.said, ensure_ascii=False, allow_nan=False).encode()
        draft = read_draft(read.said, PROTOCOL)
        assert isinstance(draft, str) or draft.type in PROTOCOL
    else:
        assert isinstance(read.problem, Unreadable)
        read.problem.text.encode()


@given(st.integers(1, 3 * MAX_DEPTH), st.sampled_from(["[", '{"a":']), st.text())
def test_what_is_nested_is_read_up_to_the_deepest_that_is_allowed(depth: int, bracket: str, text: str) -> None:
    close = "]" if bracket == "[" else "}"
    beside = json.dumps(text + '\\"]}[{')  # brackets in a text are none
    read = read_json(f"{bracket * depth}{beside}{close * depth}".encode())
    assert (read.problem is None) == (depth <= MAX_DEPTH)


@pytest.fixture
def box(tmp_path: Path) -> Path:
    with Mailbox(tmp_path / "mail") as mailbox:
        mailbox.open(SENT)
        mailbox.open(ACKNOWLEDGED)
    return tmp_path / "mail"


def get_only(mailbox: Mailbox) -> Listed:
    """Get the one file of an outbox."""
    listed = mailbox.list_outbox()
    assert listed is not None
    assert len(listed) == 1
    return listed[0]


def test_a_message_is_delivered_once_and_one_half_written_before_is_replaced(box: Path) -> None:
    (box / INBOX / ".1.json.part").write_text('{"half')
    for _ in range(2):
        with Mailbox(box) as mailbox:
            delivery = Delivery(mailbox, "1.json", {"text": "whole"})
            deliver([delivery])
            assert delivery.problem is None
    assert json.loads((box / INBOX / "1.json").read_text()) == {"text": "whole"}
    assert sorted(path.name for path in (box / INBOX).iterdir()) == [ACKNOWLEDGED, "1.json"]


def test_a_message_that_cannot_be_delivered_leaves_the_others_alone(box: Path) -> None:
    (box / INBOX / ".1.json.part").mkdir()
    with Mailbox(box) as mailbox:
        deliveries = [Delivery(mailbox, name, {}) for name in ("1.json", "2.json")]
        deliver(deliveries)
    assert [each.problem is None for each in deliveries] == [False, True]
    assert not (box / INBOX / "1.json").exists()
    assert (box / INBOX / "2.json").exists()


def test_a_directory_that_its_worker_made_unusable_is_usable_again(box: Path) -> None:
    (box / OUTBOX / "m.json").write_text("{}")
    for name, mode in ((f"{OUTBOX}/{SENT}", 0o400), (INBOX, 0o500), (OUTBOX, 0)):
        (box / name).chmod(mode)
    with Mailbox(box) as mailbox:
        listed = get_only(mailbox)
        mailbox.finish(listed)
        mailbox.open(INBOX)
    assert (box / OUTBOX / SENT / "m.json").exists()
    assert {(box / name).stat().st_mode & 0o777 for name in (OUTBOX, INBOX)} == {0o700}


@pytest.mark.parametrize("name", [OUTBOX, f"{OUTBOX}/{SENT}", INBOX, f"{INBOX}/{ACKNOWLEDGED}"])
def test_a_link_in_place_of_a_directory_is_no_directory(box: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (box / name).rename(tmp_path / "away")
    (box / name).symlink_to(outside)
    with Mailbox(box) as mailbox, pytest.raises(NotADirectoryError):
        mailbox.open(Path(name).name)


def test_files_sent_under_one_name_are_all_kept(box: Path) -> None:
    for text in ("one", "two", "three"):
        (box / OUTBOX / "m.json").write_text(text)
        with Mailbox(box) as mailbox:
            listed = get_only(mailbox)
            mailbox.finish(listed)
    assert sorted(path.read_text() for path in (box / OUTBOX / SENT).iterdir()) == ["one", "three", "two"]


@pytest.mark.parametrize("name", ["m.json", "é" * 120])
def test_each_file_that_was_refused_lies_beside_its_own_reason(box: Path, name: str) -> None:
    for text in ("one", "two", "three"):
        (box / OUTBOX / name).write_text(text)
        with Mailbox(box) as mailbox:
            listed = get_only(mailbox)
            mailbox.finish(listed, f"not {text}")
    sent = box / OUTBOX / SENT
    bad = [path for path in sent.iterdir() if path.suffix != ".reason"]
    reasons = {path.read_text(): (sent / f"{path.name}.reason").read_text() for path in bad}
    assert reasons == {text: f"not {text}\n" for text in ("one", "two", "three")}


def test_a_reason_of_an_earlier_file_is_replaced_and_what_is_in_its_place_holds_nobody_up(box: Path) -> None:
    sent = box / OUTBOX / SENT
    (sent / "bad-m.json.reason").write_text("of another\n")
    (sent / "bad-n.json.reason").mkdir()
    for name in ("m.json", "n.json"):
        (box / OUTBOX / name).write_text("{")
    with Mailbox(box) as mailbox:
        for listed in mailbox.list_outbox() or ():
            mailbox.finish(listed, "it is not JSON")
    assert (sent / "bad-m.json.reason").read_text() == "it is not JSON\n"
    assert (sent / "bad-n.json").exists()


def replace_file(path: Path) -> None:
    """Put another file in the place of one, whole."""
    path.with_name(".two").write_text("two")
    path.with_name(".two").rename(path)


def write_in_place(path: Path) -> None:
    path.write_text("two")


def test_what_has_replaced_a_file_that_was_read_stays_in_the_outbox(box: Path) -> None:
    for change in (replace_file, write_in_place):
        (box / OUTBOX / "m.json").write_text("one!")
        with Mailbox(box) as mailbox:
            listed = get_only(mailbox)
            change(box / OUTBOX / "m.json")
            mailbox.finish(listed)
            mailbox.finish(listed, "it is not JSON")
        assert (box / OUTBOX / "m.json").read_text() == "two"
        assert list((box / OUTBOX / SENT).iterdir()) == []


@pytest.mark.parametrize("change", [replace_file, write_in_place])
def test_what_replaces_a_file_while_that_is_moved_is_put_back(
    box: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    rename = os.rename

    def rename_late(*arguments: Any, **where: Any) -> None:  # noqa: ANN401 - handed on
        monkeypatch.setattr(os, "rename", rename)
        change(box / OUTBOX / "m.json")
        rename(*arguments, **where)

    (box / OUTBOX / "m.json").write_text("one!")
    with Mailbox(box) as mailbox:
        listed = get_only(mailbox)
        monkeypatch.setattr(os, "rename", rename_late)
        mailbox.finish(listed)
        again = get_only(mailbox)
    assert (box / OUTBOX / again.name).read_text() == "two"
    assert list((box / OUTBOX / SENT).iterdir()) == []


def test_a_directory_is_the_same_whatever_is_put_into_it(box: Path) -> None:
    (box / OUTBOX / "d").mkdir()
    with Mailbox(box) as mailbox:
        listed = get_only(mailbox)
        (box / OUTBOX / "d" / "file").touch()
        mailbox.finish(listed, "it is not a regular file")
    assert (box / OUTBOX / SENT / "bad-d").is_dir()


def test_an_outbox_with_too_many_names_is_not_listed_and_can_be_set_aside(
    box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "MAX_LISTED", 5)
    for number in range(5):
        (box / OUTBOX / f"{number}.json").write_text("{}")
    with Mailbox(box) as mailbox:
        assert mailbox.list_outbox() is None
        mailbox.replace_outbox()
        assert mailbox.list_outbox() == []
    (aside,) = box.glob(f".{OUTBOX}*")
    assert len(list(aside.glob("*.json"))) == 5


def put(path: Path) -> None:
    """Put a file there, whole."""
    draft = path.with_name(f".{path.name}")
    draft.write_text("{}")
    draft.rename(path)


class Watching:
    """A watcher, and a wait for what it tells."""

    def __init__(self) -> None:
        self.watcher: Watcher[str] = Watcher()
        self.woken = threading.Event()
        self.watcher.start(self.woken.set)

    def wait(self) -> set[str]:
        assert self.woken.wait(10)
        self.woken.clear()
        return self.watcher.take_changed()


def test_whatever_is_put_into_a_watched_directory_is_told_of_but_for_drafts(tmp_path: Path) -> None:
    watching = Watching()
    descriptors = {}
    for key in "ab":
        (tmp_path / key).mkdir()
        descriptors[key] = os.open(tmp_path / key, os.O_RDONLY)
        watching.watcher.watch(key, [descriptors[key]])
    try:
        assert watching.watcher.is_watching
        (tmp_path / "a" / ".draft").write_text("not yet")
        put(tmp_path / "b" / "m.json")
        assert watching.wait() == {"b"}
        put(tmp_path / "a" / "m.json")
        assert watching.wait() == {"a"}
        (tmp_path / "a").rename(tmp_path / "c")
        assert watching.wait() == {"a"}, "there may be another in its place"
        watching.watcher.forget("a")
        put(tmp_path / "c" / "n.json")
        put(tmp_path / "b" / "n.json")
        assert watching.wait() == {"b"}
    finally:
        watching.watcher.stop()
        for descriptor in descriptors.values():
            os.close(descriptor)
    assert not watching.watcher.is_watching


@pytest.mark.parametrize("shortage", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO, errno.ENOMEM])
def test_a_shortage_of_the_machine_says_nothing_of_what_a_mailbox_holds(
    box: Path, monkeypatch: pytest.MonkeyPatch, shortage: int
) -> None:
    def fail(*_arguments: object, **_where: object) -> int:
        raise OSError(shortage, os.strerror(shortage))

    (box / OUTBOX / "m.json").write_text("{}")
    with Mailbox(box) as mailbox:
        listed = get_only(mailbox)
        monkeypatch.setattr(os, "open", fail)
        with pytest.raises(OSError, match=os.strerror(shortage)):
            mailbox.read(listed)
    with pytest.raises(UnavailableError, match=os.strerror(shortage)):
        has_unread(box, ())
    monkeypatch.undo()
    assert has_unread(box, ())


def test_a_mailbox_that_is_gone_or_is_none_holds_nothing_unread(box: Path, tmp_path: Path) -> None:
    assert not has_unread(tmp_path / "nowhere" / "mail", ["1.json"])
    (box / OUTBOX).rename(tmp_path / "away")
    (box / OUTBOX).symlink_to(tmp_path / "away")
    assert not has_unread(box, ())


def test_a_mailbox_that_cannot_be_looked_into_may_hold_something(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "scandir", refuse)
    assert has_unread(box, ())
