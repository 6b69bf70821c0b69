"""`make bench-mail`: how soon and how many messages reach their receivers' inboxes, and what many mailboxes cost.

The router of a real keeper carries them, with a real ledger; its agents are rows of running runs without processes.
Another process is all of the workers: it writes into their outboxes, and is told by inotify what lies in their inboxes.
It is told in the same way of what it delivers itself, written and synced, without a ledger and without a router.
"""

import json
import os
import random
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from inotify_simple import INotify, flags

from benchmarks import Figure
from benchmarks.ledger import BENCHED_BY, Say
from hivekeeper.commands.attempts import dispatch_task
from hivekeeper.commands.plans import submit_plan
from hivekeeper.commands.runs import intend_run, note_started
from hivekeeper.domain import events as e
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.domain.run import Claim, RunSpec
from hivekeeper.domain.steps import Start
from hivekeeper.errors import UnavailableError
from hivekeeper.hive import Hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.mailbox.boxes import ACKNOWLEDGED, INBOX, OUTBOX, SENT, Mailbox
from hivekeeper.mailbox.watching import watch_directory
from hivekeeper.places import Places
from hivekeeper.settings import Settings
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByKeeper, Ledger, create_ledger, open_ledger
from hivekeeper.views.mail import show_mail

FEW, SOME = 20, 200  # mailboxes
A_SECOND = 100  # messages, where the time of each is measured
P50_MS, P99_MS, LEAST_RATIO, MOST_TIMES = 10.0, 100.0, 0.6, 1.5
ADDED = 500  # messages in a transaction, where a history is made
_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured, and how long."""

    mailboxes: int
    messages: int
    seconds: float
    idle_s: float
    history: int


def run_all(say: Say, size: Size, *, directory: Path | None) -> Iterator[Figure]:
    """Measure everything, in a directory on the disk where the hive would lie."""
    mailboxes, messages = size.mailboxes, size.messages
    costs, rates = dict[int, float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="hive-bench-", dir=directory) as name:
        for crowd in sorted({min(FEW, mailboxes), min(SOME, mailboxes - 1), mailboxes}):
            say(f"{crowd} mailboxes …")
            with _Crowd(Path(name) / str(crowd), crowd) as hive:
                if crowd in (min(costs, default=crowd), mailboxes):
                    yield from _measure_delay(hive, size.seconds)
                else:
                    yield from _measure_rate(hive, messages, rates)
                costs[crowd] = hive.measure_cost(messages)
                if crowd == mailboxes:
                    yield hive.measure_idle(size.idle_s)
        times = costs[mailboxes] / costs[min(costs)]
        detail = ", ".join(f"{cost:.2f} ms with {crowd}" for crowd, cost in costs.items())
        name_ = f"CPU of the keeper a message, {mailboxes} mailboxes / {min(costs)}"
        yield Figure(name_, times, "ratio", f"≤ {MOST_TIMES}", times <= MOST_TIMES, detail)
        say(f"a history of {size.history} messages …")
        yield _measure_search(Path(name) / "search", size.history)


def _measure_delay(hive: "_Crowd", seconds: float) -> Iterator[Figure]:
    """Time single messages at an even rate, and beside them synced files alone."""
    messages = round(A_SECOND * seconds)
    (plain50, plain99), (p50, p99) = (_sum_up(hive.play(how, messages, A_SECOND)) for how in ("plain", "carry"))
    name, detail = f"send to inbox, {hive.crowd} mailboxes", f"{A_SECOND} messages/s; synced files alone"
    yield Figure(f"{name}, p50", p50, "ms", f"≤ {P50_MS:g}", p50 <= P50_MS, f"{detail}: {plain50:.1f} ms")
    yield Figure(f"{name}, p99", p99, "ms", f"≤ {P99_MS:g}", p99 <= P99_MS, f"{detail}: {plain99:.1f} ms")


def _sum_up(played: dict[str, Any]) -> tuple[float, float]:
    took = sorted(played["delays_ms"])
    return statistics.median(took), took[int(len(took) * 0.99)]


def _measure_rate(hive: "_Crowd", messages: int, rates: list[float]) -> Iterator[Figure]:
    """Hold the hive against synced files alone, in turns: as many as it can carry."""
    ratios, plain = list[float](), list[float]()
    for _ in range(3):
        plain.append(messages / hive.play("plain", messages)["took_s"])
        rates.append(messages / hive.play("carry", messages)["took_s"])
        ratios.append(rates[-1] / plain[-1])
    ratio, rate = statistics.median(ratios), statistics.median(rates)
    detail = f"{rate:.0f}/s and {statistics.median(plain):.0f}/s; rounds {', '.join(f'{each:.2f}' for each in ratios)}"
    yield Figure(
        f"messages/s, {hive.crowd} mailboxes / synced files alone",
        ratio,
        "ratio",
        f"≥ {LEAST_RATIO}",
        ratio >= LEAST_RATIO,
        detail,
    )
    workers = rate / (A_WORKER_A_MINUTE / 60)
    detail = f"each writing {A_WORKER_A_MINUTE} messages a minute; more would need a broker"
    yield Figure("workers whose messages one hive carries", workers, "workers", "none", reached=True, detail=detail)


def _measure_search(root: Path, history: int) -> Figure:
    """Search a long history for a word that one message has, from the newest to the oldest."""
    with closing(_make_ledger(root)) as ledger:
        with ledger.write(BENCHED_BY) as tx:
            submit_plan(tx, PlanSpec("crowd", (TaskSpec("t0", "true"),)))
        for first in range(0, history, ADDED):
            with ledger.write(BENCHED_BY) as tx:
                for number in range(first, min(first + ADDED, history)):
                    text = f"message {number} says that the tests of module {number % 977} pass and what is next"
                    mail = f"crowd/t0/mail-{tx.head.seq + 1}"
                    tx.record(e.MailSent(mail, "inform", "crowd/t0", "crowd/t0", None, {"text": text}, mail))
        began = time.perf_counter()
        with ledger.read() as connection:
            found = queries.list_mail_matching(connection, limit=50, words="message 17 says")
        took = time.perf_counter() - began
        assert [show_mail(row)["gist"] for row in found]
    return Figure(f"search of {history} messages for words", took, "s", "none", reached=True)


A_WORKER_A_MINUTE = 10


class _Crowd:
    """A hive whose agents are at work for good, with a router alone, and the process that is all of its workers."""

    def __init__(self, root: Path, crowd: int) -> None:
        self.crowd = crowd
        self._places = Places(root)
        ledger = _make_ledger(root)
        settings = Settings(hourly=10**9, workers=crowd)
        self._keeper = Keeper(Hive(self._places, settings, ledger))
        _prepare(ledger, self._keeper.authority, self._places, crowd, self._keeper.runs.boot_id)
        self._keeper.loops = [loop for loop in self._keeper.loops if loop.name == "router"]
        argv = (sys.executable, "-m", "benchmarks.mail", str(root), str(crowd))
        self._workers = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._keeper.start()

    def __enter__(self) -> Self:
        self.play("carry", self.crowd)  # every mailbox is known
        return self

    def __exit__(self, *_: object) -> None:
        assert self._workers.stdin is not None
        self._workers.stdin.close()
        self._workers.wait()
        self._keeper.close()
        self._keeper.hive.close()

    def play(self, how: str, messages: int, a_second: int = 0) -> dict[str, Any]:
        """Have the workers send, and tell how long that took; then wait until the ledger has all of it."""
        assert self._workers.stdin is not None
        assert self._workers.stdout is not None
        self._workers.stdin.write(f"{how} {messages} {a_second}\n")
        self._workers.stdin.flush()
        answer: dict[str, Any] = json.loads(self._workers.stdout.readline())
        if "problem" in answer:
            raise UnavailableError(f"The benchmark's workers waited for a message: {answer['problem']}.")
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            with self._keeper.hive.ledger.read() as connection:
                if not queries.list_open_mail(connection):
                    return answer
            if time.monotonic() > deadline:
                raise UnavailableError("The benchmark waited for messages to be recorded as handled.")
            self._keeper.wait_for_commit(0.05)

    def measure_cost(self, messages: int) -> float:
        """Tell the CPU milliseconds that a message costs the keeper, at an even rate."""
        before = time.process_time()
        self.play("carry", messages, A_SECOND * 2)
        return (time.process_time() - before) * 1000 / messages

    def measure_idle(self, idle_s: float) -> Figure:
        """Tell what all these mailboxes cost while nobody writes."""
        before, began = time.process_time(), time.perf_counter()
        time.sleep(idle_s)
        share = (time.process_time() - before) / (time.perf_counter() - began) * 100
        name = f"router of {self.crowd} mailboxes without mail, share of a core"
        return Figure(name, share, "%", "< 1", share < 1)


def _make_ledger(root: Path) -> Ledger:
    places = Places(root)
    places.hive.mkdir(parents=True)
    create_ledger(places.ledger)
    return open_ledger(places.ledger)


def _prepare(ledger: Ledger, keeper: ByKeeper, places: Places, crowd: int, boot_id: str) -> None:
    """Record that every task has an agent at work, and make the mailboxes."""
    tasks = tuple(
        TaskSpec(f"t{number}", "true", outputs=(f"x{number}",), agent=f"w{number}") for number in range(crowd)
    )
    with ledger.write(BENCHED_BY) as tx:
        submit_plan(tx, PlanSpec("crowd", tasks))
    with ledger.write(keeper) as tx:
        for task in queries.list_tasks_of_convoy(tx.connection, "crowd"):
            attempt = dispatch_task(tx, task)
            owner, start = attempt_owner(task.key, attempt.number, None), Start("agent")
            intend_run(tx, owner, start, RunSpec(("true",), ".", {}, {}), boot_id=boot_id)
            run = queries.find_run(tx.connection, owner.name_run(start))
            assert run is not None
            note_started(tx, run, Claim(1, 1, boot_id, tx.now))
    for number in range(crowd):
        mailbox = places.mailbox(f"crowd/t{number}", 1)
        mailbox.parent.mkdir(parents=True)
        with Mailbox(mailbox) as box:
            box.open(SENT)
            box.open(ACKNOWLEDGED)


class _Workers:
    """All workers of a crowd: they write messages, and acknowledge each as soon as they are told of it."""

    def __init__(self, root: Path, crowd: int) -> None:
        self._boxes = [Mailbox(Places(root).mailbox(f"crowd/t{number}", 1)) for number in range(crowd)]
        self._chance, self._sent = random.Random(crowd), 0  # noqa: S311 - a choice, not a secret
        self._inotify = INotify(nonblocking=True)
        self._inboxes = {watch_directory(self._inotify, box.open(INBOX), flags.MOVED_TO): box for box in self._boxes}
        self._delays_ms: list[float] = []

    def play(self, how: str, messages: int, a_second: int) -> dict[str, object]:
        """Send so many messages, at a rate or as fast as they go, and receive them all."""
        self._delays_ms.clear()
        poll = select.poll()
        poll.register(self._inotify.fileno(), select.POLLIN)
        began, sent = time.perf_counter(), 0
        while len(self._delays_ms) < messages:
            due = messages if not a_second else min(messages, int((time.perf_counter() - began) * a_second) + 1)
            if sent < due:
                self._send(how)
                sent += 1
            wait_ms = 0 if sent < due else 1000 / a_second if sent < messages else _DEADLINE_S * 1000
            if poll.poll(wait_ms):
                self._receive()
            elif sent == messages:
                return {"problem": f"{len(self._delays_ms)} of {messages} came"}
        return {"took_s": time.perf_counter() - began, "delays_ms": self._delays_ms}

    def _send(self, how: str) -> None:
        """Write a message into the sender's outbox; or, without a hive, into the receiver's inbox, synced."""
        to = self._chance.randrange(len(self._boxes))
        sender = (to + 1 + self._chance.randrange(len(self._boxes) - 1)) % len(self._boxes)
        self._sent += 1
        name = f"{self._sent:09}.json"
        directory = self._boxes[to].open(INBOX) if how == "plain" else self._boxes[sender].open(OUTBOX)
        text = f"message {self._sent}: the tests of module {to} pass, and the next one is yours"
        message = {"type": "inform", "receiver": f"w{to}", "payload": {"text": text, "at": time.perf_counter()}}
        file = os.open(f".{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
        os.write(file, json.dumps(message).encode())
        if how == "plain":
            os.fsync(file)
        os.close(file)
        os.rename(f".{name}", name, src_dir_fd=directory, dst_dir_fd=directory)
        if how == "plain":
            os.fsync(directory)

    def _receive(self) -> None:
        for number, _, _, name in self._inotify.read(timeout=0):
            if name.startswith("."):
                continue
            box = self._inboxes[number]
            file = os.open(name, os.O_RDONLY, dir_fd=box.open(INBOX))
            said = json.loads(os.read(file, 1 << 16))
            os.close(file)
            self._delays_ms.append((time.perf_counter() - said["payload"]["at"]) * 1000)
            os.rename(name, name, src_dir_fd=box.open(INBOX), dst_dir_fd=box.open(ACKNOWLEDGED))


def _work(root: str, crowd: str) -> None:
    """Be all of the workers, until standard input ends."""
    workers = _Workers(Path(root), int(crowd))
    for line in sys.stdin:
        how, messages, a_second = line.split()
        sys.stdout.write(json.dumps(workers.play(how, int(messages), int(a_second))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _work(*sys.argv[1:])
