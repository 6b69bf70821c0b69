"""Workers write anything into their mailboxes, and swap them under the router: nobody else is touched or delayed."""

import ctypes
import itertools
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import pytest

from hivekeeper.domain.states import MailState
from hivekeeper.mailbox import boxes
from hivekeeper.mailbox.boxes import ACKNOWLEDGED, INBOX, OUTBOX, SENT
from tests.budget import LINES, SOAK
from tests.mailbox.post import Post, open_post
from tests.needs import small_disk

CANARY = "PRIVATE-KEY-OF-THE-PERSON"
ROUNDS = 10_000
FILES, LOOKS, FLOOD = (10_000, 10_000, 10_000) if SOAK else (400, 200, 1_500)
LONGEST_S = 1.0  # that a message of one who behaves may take
BAD = ("bad-1", "bad-2", "bad-3", "bad-4")

pytestmark = [pytest.mark.alone, pytest.mark.timeout(3600 if SOAK else 600)]


class Attack:
    """What a hostile worker may put into its outbox, one kind after the other."""

    def __init__(self, secret: Path) -> None:
        self._secret = secret

    def write(self, outbox: Path, number: int) -> None:
        """Write the next file, or whatever it is."""
        kinds: list[Callable[[Path], object]] = [
            *(lambda path, data=data: path.write_bytes(data) for data in self._list_contents(number)),
            lambda path: path.symlink_to(self._secret),
            lambda path: path.symlink_to(self._secret.parent),
            lambda path: path.hardlink_to(self._secret),
            os.mkfifo,
            self._make_directory,
            self._make_sparse,
            self._make_socket,
        ]
        path = outbox / self._choose_name(number)
        kinds[number % len(kinds)](path)

    @staticmethod
    def _choose_name(number: int) -> str:
        names = [
            f"{number}.json",
            f"\x1b[2J{number}\n\x07.json",
            f"{number}-{'n' * 240}",
            f"{number} \udcff\udcfe.json",
            f"{number}",
        ]
        return names[number // 20 % len(names)]

    @staticmethod
    def _list_contents(number: int) -> Iterator[bytes]:
        good = {"type": "inform", "receiver": "good", "payload": {"text": f"{number}"}}
        yield b""
        yield json.dumps(good).encode()[:-7]
        yield b"[" * 100_000
        yield b'{"payload":' * 100_000 + b"1" + b"}" * 100_000
        yield b'{"type": "inform", "type": "ACK", "receiver": "good", "receiver": "person"}'
        yield b'{"type": "inform", "receiver": "good", "payload": {"n": NaN}}'
        yield b'{"type": "inform", "receiver": "good", "payload": {"n": 1e999}}'
        yield b'{"type": "inform", "receiver": "good", "payload": {"text": "\\ud800"}}'
        yield b"\xff\xfe" + json.dumps(good).encode("utf-16-le")
        yield b"9" * 100_000
        yield b"[" + b"{}," * 300_000 + b"{}]"
        yield json.dumps({**good, "id": "../../../../etc/passwd", "in_reply_to": "../x"}).encode()
        yield json.dumps(
            {**good, "sender": "person", "hops": -9, "timestamp": "1970-01-01", "task": "work/good"}
        ).encode()
        yield json.dumps({**good, "payload": {"text": "\x1b[31m\x00\r\n" * 9}}).encode()
        yield json.dumps({**good, "receiver": "../good"}).encode()

    def _make_directory(self, path: Path) -> None:
        path.mkdir()
        (path / "m.json").symlink_to(self._secret)

    @staticmethod
    def _make_sparse(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(100 << 20)

    @staticmethod
    def _make_socket(path: Path) -> None:
        directory = os.open(path.parent, os.O_RDONLY)  # whose path is too long for a socket's address
        with socket.socket(socket.AF_UNIX) as ear, suppress(OSError):
            ear.bind(b"/proc/self/fd/%d/%s" % (directory, os.fsencode(path.name)))
        os.close(directory)


class Ticker:
    """One who behaves writes to another all the while; how long each message took."""

    def __init__(self, post: Post) -> None:
        self.took_s: list[float] = []
        self._post, self._is_over = post, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._is_over.is_set():
                return
            began = time.monotonic()
            self._post.send("kind", f"{number}.json", receiver="good", payload={"text": f"tick {number}"})
            while not any(self._post.inbox("good").glob("*.json")):
                time.sleep(0.002)  # real time: how long it takes is what is asked
                if time.monotonic() - began > 20:
                    self.took_s.append(20.0)
                    return
            self.took_s.append(time.monotonic() - began)
            for path in self._post.inbox("good").glob("*.json"):
                path.rename(path.parent / ACKNOWLEDGED / path.name)


def tell(ticker: Ticker, what: str) -> None:
    LINES.append(f"  mailboxes: {what}; {len(ticker.took_s)} messages of others, {max(ticker.took_s):.2f} s at most")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "secret.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"type": "inform", "receiver": "good", "payload": {"text": CANARY}}))
    return path


def holds_canary(post: Post) -> bool:
    """Whether the secret came into the ledger or into anybody's mailbox."""
    with post.ledger.read() as connection:
        told = connection.rows("SELECT count(*) FROM event WHERE instr(data, ?) OR instr(why, ?)", (CANARY, CANARY))
    sandboxes = post.places.hive / "sandboxes"
    argv = ("grep", "-rlIZ", "--devices=skip", CANARY, str(sandboxes))
    found = subprocess.run(argv, capture_output=True, check=False).stdout.split(b"\0")
    return bool(told[0][0]) or any(name and os.lstat(name).st_nlink == 1 for name in found)


def test_whatever_lies_in_an_outbox_nothing_escapes_and_nobody_else_waits(tmp_path: Path, secret: Path) -> None:
    before = secret.read_bytes(), secret.stat().st_mode, sorted(path.name for path in secret.parent.iterdir())
    with open_post(tmp_path / "hive", "kind", "good", *BAD, hourly=10**6) as post:
        attack = Attack(secret)
        post.keeper.start()
        with Ticker(post) as ticker:
            for number in range(FILES):
                attack.write(post.outbox(BAD[number % len(BAD)]), number)
                if number % 50 == 49:
                    time.sleep(0.01)  # real time: the other threads' turn
            post.wait(lambda: all(is_clear(post.outbox(name)) for name in BAD))
        rows = post.rows()
        assert post.keeper.problems == {}
        assert max(ticker.took_s) < LONGEST_S
        tell(ticker, f"{FILES} hostile files")
        assert not holds_canary(post)
        bad = [row for row in rows if row.origin.startswith("work/bad")]
        assert {row.sender for row in bad} == set(BAD)
        assert {row.hops for row in bad} == {0}
        assert all(row.id.startswith("work/") and row.sent_at > "2020" for row in bad)
        refused = {row.origin for row in bad if row.state is not MailState.HANDLED and row.reason}
        assert len(refused) == len(BAD), "it is told what was refused"
        assert all(row.file is None or row.file.isprintable() for row in rows)
    after = secret.read_bytes(), secret.stat().st_mode, sorted(path.name for path in secret.parent.iterdir())
    assert after == before


def is_clear(outbox: Path) -> bool:
    """Whether nothing lies in an outbox; found without reading all of its names."""
    with os.scandir(outbox) as entries:
        return all(entry.name.startswith(".") for entry in entries)


def test_a_flood_in_one_outbox_delays_no_other_message(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "kind", "good", "flood", hourly=10**6) as post:
        for number in range(FLOOD - 10):
            post.send("flood", f"{number}.json", receiver="person", text=f"{number}")
        post.keeper.start()
        with Ticker(post) as ticker:
            post.wait(lambda: is_clear(post.outbox("flood")))
        tell(ticker, f"a flood of {FLOOD} files")
        assert max(ticker.took_s) < LONGEST_S
        assert len(list((post.outbox("flood") / SENT).glob("*.json"))) == FLOOD - 10, "each has an outcome"
        # Also where the acknowledgement came before DELIVERED was recorded; long before all are looked at.
        post.wait(lambda: {row.state for row in post.rows(address="kind")} == {MailState.HANDLED})


def test_an_outbox_with_too_many_files_is_set_aside_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "MAX_LISTED", 50)
    with open_post(tmp_path / "hive", "flood", "good") as post:
        for number in range(60):
            post.send("flood", f"{number}.json", receiver="good", text=f"{number}")
        post.carry()
        (row,) = post.rows()
        assert row.state is MailState.QUARANTINED
        assert "more than" in row.reason
        assert post.read("good") == []
        post.send("flood", "again.json", receiver="good", text="again")
        post.clock.let_pass(61)
        post.carry()
        assert [message["payload"]["text"] for message in post.read("good")] == ["again"]


# Exchanges a directory of a mailbox and a link to the same one outside, one after the other, as fast as it can, until
# standard input ends and at least so often; says how often.
SWAPPER = """
import ctypes, itertools, os, pathlib, select, sys
libc, mail, outside, least = ctypes.CDLL(None), pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
pairs = []
for name in ("inbox/.done", "outbox/.sent", "inbox", "outbox", ""):
    link = mail.with_name("link-" + name.replace("/", "-"))
    link.symlink_to(outside / name)
    pairs.append((os.fsencode(mail / name), os.fsencode(link)))
for number in itertools.count(1):
    one, other = pairs[number % len(pairs)]
    libc.renameat2(-100, one, -100, other, 2)
    for _ in range(number % 7 * 100):
        pass
    libc.renameat2(-100, one, -100, other, 2)
    if number >= least and number % 100 == 0 and select.select([0], [], [], 0)[0]:
        sys.exit(print(number))
"""


class Tripwire:
    """What the kernel tells of a directory and all below it, whoever touches or reads it."""

    def __init__(self, directory: Path) -> None:
        self._libc = ctypes.CDLL(None)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK)
        for path in (directory, *(path for path in directory.rglob("*") if path.is_dir())):
            assert self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), 0xFFF) > 0

    def has_fired(self) -> bool:
        return bool(select.select([self._descriptor], [], [], 0)[0])

    def close(self) -> None:
        os.close(self._descriptor)


def write_at(directory: int, name: str, **message: str) -> None:
    """Write a message into an open directory, whatever stands in its place now."""
    with open(name, "w", opener=lambda name, flags: os.open(name, flags, 0o600, dir_fd=directory)) as file:
        json.dump({"type": "inform", **message}, file)


def test_directories_swapped_for_links_lead_the_router_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for name in (f"inbox/{ACKNOWLEDGED}", f"outbox/{SENT}"):
        (outside / name).mkdir(parents=True)
    for name in ("inbox", "outbox", f"inbox/{ACKNOWLEDGED}", f"outbox/{SENT}"):
        (outside / name / "m.json").write_text(json.dumps({"type": "inform", "receiver": "good", "text": CANARY}))
    with open_post(tmp_path / "hive", "kind", "good", "bad", hourly=10**6) as post, ExitStack() as stack:
        outbox = os.open(post.outbox("bad"), os.O_RDONLY)
        stack.callback(os.close, outbox)
        tripwire = Tripwire(outside)
        stack.callback(tripwire.close)
        argv = (sys.executable, "-c", SWAPPER, str(post.mail("bad")), str(outside), str(ROUNDS))
        swapper = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(swapper.kill)
        for look in range(LOOKS):
            if look % 20 == 0:
                write_at(outbox, f"{look}.json", receiver="good", text=f"{look}")
                post.send("kind", f"{look}.json", receiver="bad", text=f"{look}")
            post.clock.let_pass(61)  # all mailboxes are looked at
            post.router.run_once()
        swaps, _ = swapper.communicate()
        assert int(swaps) >= ROUNDS
        post.clock.let_pass(61)
        post.carry(8)
        assert not tripwire.has_fired()
        assert not holds_canary(post)
        rows = post.rows()
        sent = LOOKS // 20
        LINES.append(f"  mailboxes: {swaps.strip()} swaps, {LOOKS} looks, {sent} messages each way")
        assert sum(row.receiver == "good" for row in rows) == sent
        delivered = {row.state for row in rows if row.receiver == "bad"}
        assert delivered <= {MailState.DELIVERED, MailState.HANDLED}
        assert sum(row.receiver == "bad" for row in rows) == sent


def test_a_mailbox_that_its_worker_deletes_is_made_again_and_what_lay_in_it_counts_as_read(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "kind", "bad") as post:
        post.send("kind", "1.json", receiver="bad", text="one")
        post.carry()
        assert [row.state for row in post.rows()] == [MailState.DELIVERED]
        shutil.rmtree(post.mail("bad"))
        post.send("kind", "2.json", receiver="bad", text="two")
        post.clock.let_pass(61)
        post.carry()
        assert [message["payload"]["text"] for message in post.read("bad")] == ["two"]
        one, two = post.rows()
        assert (one.state, one.reason) == (MailState.HANDLED, "removed from the inbox")
        assert two.state is MailState.DELIVERED


@pytest.mark.parametrize("name", [OUTBOX, f"{OUTBOX}/{SENT}", INBOX, f"{INBOX}/{ACKNOWLEDGED}"])
@pytest.mark.parametrize("instead", ["link", "file"])
def test_a_directory_that_is_something_else_is_told_of_once_and_used_when_it_is_one_again(
    tmp_path: Path, name: str, instead: str
) -> None:
    with open_post(tmp_path / "hive", "kind", "bad") as post:
        post.carry()
        place, away = post.mail("bad") / name, tmp_path / "away"
        place.rename(away)
        place.symlink_to(away) if instead == "link" else place.write_text("mine")
        for text in ("one", "two"):
            post.send("kind", f"{text}.json", receiver="bad", text=text)
            post.clock.let_pass(61)
            post.carry()
        (told,) = post.rows(state=MailState.QUARANTINED)
        assert told.sender == "bad"
        assert Path(name).name in told.reason
        place.unlink()
        away.rename(place)
        post.clock.let_pass(61)
        post.carry()
        assert [message["payload"]["text"] for message in post.read("bad")] == ["one", "two"]
        assert {row.state for row in post.rows(address="kind")} == {MailState.DELIVERED}


def test_a_clock_that_jumps_loses_no_message_and_changes_no_order(tmp_path: Path) -> None:
    """Nor does it use up what a pair may write in an hour: a time well ahead of now is no time of this hour."""
    with open_post(tmp_path / "hive", "kind", "good", hourly=3) as post:
        for number, jump_s in enumerate((0, -86_400, 172_800, -3_600, 10**7, -2 * 10**7)):
            post.clock.advance(jump_s)
            post.send("kind", f"{number}.json", receiver="good", text=f"{number}")
            post.clock.let_pass(1.1)
            post.carry()
        assert [message["payload"]["text"] for message in post.read("good")] == ["0", "1", "2", "3", "4", "5"]
        assert {row.state for row in post.rows()} == {MailState.DELIVERED}


def test_mail_that_found_no_space_is_told_of_and_delivered_once_there_is_some(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=16m") as disk, open_post(disk / "hive", "kind", "good") as post:
        post.keeper.start()
        post.send("kind", "0.json", receiver="good", text="0")
        post.wait(lambda: len(post.read("good")) == 1)
        for number in range(1, 6):
            post.send("kind", f".{number}", receiver="good", text=f"{number}")
        filler = disk / "filler"
        for size in (1 << 20, 4096, 1):
            with suppress(OSError), filler.open("ab", buffering=0) as file:
                while file.write(b"x" * size) == size:
                    pass
        for number in range(1, 6):
            (post.outbox("kind") / f".{number}").rename(post.outbox("kind") / f"{number}.json")
        post.wait(lambda: "router" in post.keeper.problems)
        assert "Traceback" not in post.keeper.problems["router"]
        filler.unlink()
        post.wait(lambda: len(post.read("good")) == 6 and not post.keeper.problems)
        assert [message["payload"]["text"] for message in post.read("good")] == [f"{number}" for number in range(6)]
        post.wait(lambda: [row.state for row in post.rows()] == [MailState.DELIVERED] * 6)
