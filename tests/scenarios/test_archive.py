"""One story: what has happened is in a git repository as files, as often as it is lost or spoilt."""

import hashlib
import json
import shutil
import time
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import pytest

from hivekeeper.commands.mail import requeue_mail
from hivekeeper.commands.sessions import raise_budget
from hivekeeper.domain.budget import Cap
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.protocol import Draft
from hivekeeper.domain.states import ConvoyState, MailState
from hivekeeper.errors import UnavailableError
from hivekeeper.git.archive import LOCKED_FOR_S, Archive, Tip
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.loops.committer import COMMIT_EVERY_S
from hivekeeper.store import queries
from hivekeeper.store.ledger import read_events
from hivekeeper.views.convoys import get_convoy, show_ledger
from hivekeeper.views.events import show_event
from tests.archives import BOOT, commit, get_tip, list_archive_problems, make_again
from tests.git import git
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository, Stage


@pytest.fixture
def kept(stage: Scene) -> Scene:
    """A hive that keeps an archive."""
    stage.hive = replace(stage.hive, settings=replace(stage.hive.settings, repository=True))
    return stage


def list_problems(stage: Scene) -> list[str]:
    return list_archive_problems(stage.hive.ledger, stage.places)


def read_json(path: Path) -> object:
    return json.loads(path.read_text())


def read_log(archive: Path) -> list[object]:
    parts = [*sorted(archive.glob("log-*.jsonl")), archive / "log.jsonl"]
    return [json.loads(line) for part in parts for line in part.read_text().split("\n") if line]


def make_blob_id(text: str) -> str:
    return hashlib.sha1(f"blob {len(text)}\0{text}".encode(), usedforsecurity=False).hexdigest()


def step_to_the_end(stage: Scene) -> Keeper:
    keeper = stage.keeper
    assert keeper is not None
    while keeper.step():
        pass
    return keeper


def count_commits(stage: Scene) -> int:
    return int(git(stage.places.archive, "rev-list", "--count", "main"))


def test_no_archive_is_kept_unless_the_settings_ask_for_it(stage: Scene) -> None:
    stage.submit(TaskSpec("a", "true"))
    stage.finish()
    assert [path.name for path in stage.places.hive.iterdir() if "archive" in path.name] == []


def test_the_log_the_mail_and_the_dispatch_ledgers_are_files_of_it(kept: Scene, repository: Repository) -> None:
    said = '{"type": "inform", "receiver": "person", "payload": {"text": "hello"}}'
    command = f"echo '{said}' > \"$HIVE_MAILBOX/outbox/1.json\"; echo a > a"
    kept.submit(TaskSpec("a", command, repo="app"), repos=(repository.spec(),))
    kept.submit(TaskSpec("b", "sleep 60"), convoy="more")
    kept.step_until(lambda: kept.convoy().state is ConvoyState.COMPLETE)
    archive, ledger = kept.places.archive, kept.hive.ledger
    step_to_the_end(kept)
    with ledger.read() as connection:
        done, active = (show_ledger(connection, get_convoy(connection, name)) for name in ("work", "more"))
        events = [show_event(event) for event in read_events(connection, 0, -1)]
        mail = [row for row in queries.list_mail_matching(connection, limit=-1) if row.type == "inform"]
    assert read_log(archive) == events
    assert read_json(archive / "completed" / "work.json") == done | {"last_coordinator_heartbeat": None}
    assert read_json(archive / "dispatch_ledger_more.json") == active | {"last_coordinator_heartbeat": None}
    assert not (archive / "dispatch_ledger_work.json").exists()
    (row,) = mail
    message = read_json(archive / "mail" / row.sent_at[:10] / f"{row.seq:09}.json")
    assert isinstance(message, dict)
    assert (message["id"], message["sender"], message["payload"]) == (row.id, "work.worker-1", {"text": "hello"})
    assert list_problems(kept) == []


def test_a_pass_without_news_commits_nothing(kept: Scene) -> None:
    kept.submit(TaskSpec("a", "true"))
    kept.finish()
    keeper = step_to_the_end(kept)
    before = count_commits(kept)
    for _ in range(3):
        assert keeper.step() == {}
    assert count_commits(kept) == before


def test_what_was_removed_is_written_again_to_the_same_tree(kept: Scene) -> None:
    kept.submit(TaskSpec("a", "true"), TaskSpec("b", "false", attempts=1))
    kept.finish()
    keeper = step_to_the_end(kept)
    tree = get_tip(kept.places).tree
    shutil.rmtree(kept.places.archive)
    keeper.step()
    assert get_tip(kept.places).tree == tree
    assert count_commits(kept) == 1


def test_a_keeper_that_stops_has_committed_what_it_did(kept: Scene) -> None:
    kept.submit(TaskSpec("a", "true"))
    keeper = kept.take()
    keeper.start()
    while kept.convoy().state is not ConvoyState.COMPLETE:
        keeper.wait_for_commit(1.0)
    keeper.close()
    kept.keeper = None
    assert (kept.places.archive / "completed" / "work.json").exists()
    assert list_problems(kept) == []


def test_a_busy_keeper_commits_every_few_seconds_and_not_for_every_event(kept: Scene) -> None:
    kept.submit(*(TaskSpec(f"t{number}", "true") for number in range(10)))
    keeper, began_s = kept.take(), time.monotonic()
    keeper.start()
    while kept.convoy().state is not ConvoyState.COMPLETE:
        keeper.wait_for_commit(1.0)
    keeper.close()
    kept.keeper = None
    assert count_commits(kept) <= 2 + (time.monotonic() - began_s) / COMMIT_EVERY_S


def test_a_pass_that_fails_is_repeated_soon_and_told_of_after_five_tries(kept: Scene) -> None:
    """As when a person's git has locked the archive; ten seconds later nobody's git would."""
    kept.submit(TaskSpec("a", "true"))
    kept.finish()
    keeper = step_to_the_end(kept)
    (committer,) = (loop for loop in keeper.loops if loop.name == "committer")
    kept.submit(TaskSpec("b", "true"), convoy="more")
    (kept.places.archive / ".git" / "index.lock").touch()
    pauses_s = []
    for _ in range(4):
        assert committer.run_once() == {}
        pauses_s.append(round(committer.rest_s, 3))
    with pytest.raises(UnavailableError, match=r"index\.lock"):
        committer.run_once()
    assert pauses_s == [0.05, 0.1, 0.15, 0.2]
    assert committer.rest_s == COMMIT_EVERY_S
    kept.clock.advance(LOCKED_FOR_S + 1)
    committer.run_once()
    assert list_problems(kept) == []


def test_a_message_that_was_quarantined_and_requeued_is_there_as_it_was_mended(
    kept: Scene, repository: Repository
) -> None:
    said = '{"type": "no-such-type", "receiver": "person"}'
    command = f"echo '{said}' > \"$HIVE_MAILBOX/outbox/1.json\"; echo a > a"
    kept.submit(TaskSpec("a", command, repo="app"), repos=(repository.spec(),))
    kept.finish()
    with kept.hive.ledger.write(ME) as tx:
        (row,) = queries.list_mail_matching(tx.connection, limit=9, state=MailState.QUARANTINED)
        requeue_mail(tx, kept.hive.settings.protocol, row, Draft("inform", "person", {"text": "mended"}))
    step_to_the_end(kept)
    message = read_json(kept.places.archive / "mail" / row.sent_at[:10] / f"{row.seq:09}.json")
    assert isinstance(message, dict)
    assert (message["type"], message["payload"]) == ("inform", {"text": "mended"})
    assert list_problems(kept) == []


class Written:
    """A hive that nobody keeps, whose archive is written by hand."""

    def __init__(self, root: Path) -> None:
        self.stage = Stage(root)
        self.places = self.stage.places
        self.stage.make_hive()
        self.stage.submit(TaskSpec("a", "true"))

    def write(self, events: int) -> None:
        with self.stage.ledger() as ledger, ledger.write(ME) as tx:
            for number in range(events):
                raise_budget(tx, "task", "work/a", Cap(tokens=number + 1), why="ümlauts\u2028 and lines\nof text")

    def commit(self) -> Tip:
        with self.stage.ledger() as ledger:
            return commit(ledger, self.places)

    def list_problems(self) -> list[str]:
        with self.stage.ledger() as ledger:
            return list_archive_problems(ledger, self.places)

    def git(self, *arguments: str) -> str:
        return git(self.places.archive, *arguments)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "hive")


def test_a_long_log_is_in_parts_that_follow_one_another(written: Written) -> None:
    """The same, however many events came between two commits."""
    for events in (5, 990, 1, 1, 1, 1999, 7004, 1, 1100):
        written.write(events)
        tip = written.commit()
        with written.stage.ledger() as ledger:
            assert tip.mark is not None
            assert tip.tree == make_again(ledger, written.places.hive / "again", tip.mark.seq)
    names = sorted(path.name for path in written.places.archive.glob("*.jsonl"))
    assert names == ["log-00000001.jsonl", "log-00010001.jsonl", "log.jsonl"]
    log = (written.places.archive / "log-00000001.jsonl").read_text().split("\n")
    assert len(log) == 10_000 + 1
    with written.stage.ledger() as ledger, ledger.read() as connection:
        events_ = [show_event(event) for event in read_events(connection, 0, -1)]
    assert read_log(written.places.archive) == events_
    assert len(written.git("log", "-1", "--format=", "--name-only").split()) == 2  # the part before is not touched


def test_after_an_older_ledger_was_restored_the_archive_follows_it_and_forgets_nothing(written: Written) -> None:
    copy = written.places.hive / "copy.db"
    shutil.copy(written.places.ledger, copy)
    written.write(3)
    old = written.commit()
    shutil.copy(copy, written.places.ledger)
    written.write(5)
    written.commit()
    assert written.list_problems() == []
    written.git("merge-base", "--is-ancestor", old.commit, "main")


def test_what_a_person_changed_in_it_is_put_right_and_stays_in_its_history(written: Written) -> None:
    written.commit()
    (written.places.archive / "log.jsonl").write_text("mine\n")
    (written.places.archive / "mine.txt").write_text("mine\n")
    written.git("add", "--all")
    written.git("commit", "--quiet", "-m", "mine")
    theirs = written.git("rev-parse", "HEAD")
    written.git("switch", "--quiet", "--create", "elsewhere")
    (written.places.archive / "log.jsonl").write_text("not committed\n")
    written.write(1)
    written.commit()
    assert written.list_problems() == []
    assert written.git("symbolic-ref", "HEAD") == "refs/heads/main"
    written.git("merge-base", "--is-ancestor", theirs, "main")


def test_no_hook_and_no_setting_of_a_person_has_a_part_in_it(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.commit()
    theirs, ran = tmp_path / "gitconfig", tmp_path / "ran"
    hooks = written.places.archive / ".git" / "hooks"
    hooks.mkdir()
    for name in (
        "pre-commit",
        "commit-msg",
        "post-commit",
        "reference-transaction",
        "post-checkout",
        "post-index-change",
    ):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        (hooks / name).chmod(0o755)
    theirs.write_text(f"[core]\nhooksPath = {hooks}\n[commit]\ngpgSign = true\n[user]\nname = me\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(theirs))
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    written.write(1)
    tip = written.commit()
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    assert not ran.exists()
    assert written.git("log", "-1", "--format=%an %G?", tip.commit) == "Hivekeeper N"


def test_a_hive_inside_of_another_repository_commits_to_its_own(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    written = Written(tmp_path / "hive")
    written.commit()
    (written.places.archive / ".git" / "HEAD").unlink()
    written.write(1)
    written.commit()
    assert written.list_problems() == []
    assert git(tmp_path, "for-each-ref") == ""


def test_a_clone_of_it_has_everything(written: Written, tmp_path: Path) -> None:
    written.write(10)
    written.commit()
    git(tmp_path, "clone", "--quiet", str(written.places.archive), "copy")
    assert read_log(tmp_path / "copy") == read_log(written.places.archive)


def test_loose_objects_are_packed_when_there_are_many(written: Written) -> None:
    """Git spreads them over 256 directories, and their number is estimated from what is in one of those."""
    written.commit()
    texts = (f"text {number}\n" for number in count())
    falls_in = (text for text in texts if make_blob_id(text).startswith("17"))
    with written.stage.ledger() as ledger:
        archive = Archive(written.places.archive, BOOT)
        with archive.hold(ledger.clock.now()):
            tip = archive.find_tip()
            assert tip is not None
            assert tip.mark is not None
            files = [(f"{number}.txt", text) for number, text in enumerate(islice(falls_in, 12))]
            assert not archive.pack()
            archive.commit(files, "many", tip.mark, ledger.clock.now(), tip, all_=False)
            assert archive.pack()
            assert not archive.pack()
    assert "count: 0" in written.git("count-objects", "-v")
    written.git("fsck")
