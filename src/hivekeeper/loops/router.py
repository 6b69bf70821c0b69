"""The router: carries messages between mailboxes, the ledger and people.

Rules:
1. A message is a file in a worker's outbox. Its sender, id, time and hops come from the mailbox that holds it and from
   the ledger, never from the file. A file that does not parse is given time before it is quarantined.
2. What became of a file is recorded before the file is moved, so a file that is found again is the same message. Only
   the very file that was read is moved: what has replaced it is another message.
3. A message is put into an inbox after it was accepted, and is DELIVERED once its file there is synced. Moving the
   file to `.done` is the acknowledgement.
4. Mailboxes take turns: of each, only so many files are read at a time. One with more waits behind those that changed.
5. Mailboxes that changed are read at once; all are looked at from time to time, in case a change was missed.
6. What is wrong with one mailbox stops no other: it is left alone until all are looked at, or until its agent starts or
   ends. An inbox into which messages cannot be put at two looks in a row is told of.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice

from hivekeeper.commands import mail as commands
from hivekeeper.commands.post import Outgoing, receive
from hivekeeper.domain import events as e
from hivekeeper.domain.mail import Limits, Unreadable, to_file
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.schema import Body
from hivekeeper.domain.states import OPEN_ATTEMPTS, REFUSED_MAIL, AttemptState, MailState
from hivekeeper.errors import UnavailableError
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.mailbox.boxes import ACKNOWLEDGED, INBOX, OF_MACHINE, OUTBOX, SENT, Delivery, Mailbox, deliver
from hivekeeper.mailbox.watching import Watcher
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.working.outboxes import SETTLE_S, Batch, Key, Outboxes

MAX_BOXES, MAX_LOOKING_S = 64, 0.04  # in a pass
MAX_DELIVERED = 128  # in a pass
TOLD_AFTER = 2  # looks in a row at which an inbox took no message: one may be a matter of the moment
# The pause between two looks at all mailboxes: so long for each of them, and within these bounds.
SWEEP_S_A_BOX, LEAST_SWEEP_S, MOST_SWEEP_S, SWEEP_UNWATCHED_S = 0.03, 5.0, 60.0, 1.0
_AT_WORK = (AttemptState.WORKING, AttemptState.PARKED)


@dataclass(slots=True)
class Found:
    """What a pass has found in one mailbox: new files, and delivered messages that were acknowledged or removed."""

    key: Key
    box: Mailbox | None = None
    batch: Batch = field(default_factory=Batch)
    done: list[tuple[MailRow, str]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)  # why each file was refused, if it was

    def clear(self) -> None:
        """Move what was recorded out of the outbox."""
        if self.box is not None and self.batch.is_flooded:
            self.box.replace_outbox()
        elif self.box is not None:
            for (listed, _), reason in zip(self.batch.files, self.reasons, strict=True):
                if listed is not None:
                    self.box.finish(listed, reason)


class Router(Loop):
    """Carries messages."""

    name = "router"
    order = 45  # what agents wrote is known before their work is judged
    wakes = Wakes((e.MailAccepted, e.MailSent, e.MailAssigned, e.MailForwarded, e.MailRequeued, e.TaskCancelled))

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._limits = Limits(self._settings.hourly, self._settings.max_hops)
        self._runs_seen: deque[str] = deque()  # agents that have started or ended since the last pass
        self._boxes: set[Key] = set()  # the mailboxes of attempts under way
        self._due: dict[Key, None] = {}  # those that changed, in turn
        self._behind: dict[Key, None] = {}  # those that wait behind them
        self._outboxes = Outboxes(self._places, self._settings.protocol, self._clock)
        self._placed: dict[str, tuple[MailRow, Key]] = {}  # messages that lie in an inbox, which is not recorded yet
        self._blocked: dict[Key, OSError] = {}  # mailboxes that something is wrong with, until the next look at all
        self._failed: dict[Key, tuple[int, OSError]] = {}  # inboxes that took no message: how often in a row, and why
        self._swept_s = float("-inf")
        self._problem: OSError | None = None  # of the machine
        self._has_more = False
        self._watcher: Watcher[Key] = Watcher()

    def watch(self, wake: Callable[[], None]) -> None:
        """Wake the loop whenever a mailbox changes."""
        self._watcher.start(wake)

    def unwatch(self) -> None:
        """Stop watching mailboxes."""
        self._watcher.stop()

    def hear(self, bodies: Sequence[Body]) -> bool:
        """Hear of messages, and of every agent that started or ended; both wake the loop."""
        runs = [body.run for body in bodies if isinstance(body, e.RunStarted | e.RunExited | e.RunLost)]
        self._runs_seen.extend(runs)
        return bool(runs) or super().hear(bodies)

    def run_once(self) -> Counts:
        """Accept what was written, deliver what was accepted, and note what was acknowledged."""
        self._problem = None
        with ExitStack() as opened:
            with self._ledger.read() as connection:
                self._find_boxes(connection)
                found = list(self._look_around(connection, opened))
            counts = {
                "received": sum(len(each.batch.files) for each in found),
                "acknowledged": sum(len(each.done) for each in found),
                "delivered": len(self._placed),
                "for_people": len(to_people := queries.list_undelivered_to_hive(connection)),
                "returned": len(stale := queries.list_stale_mail(connection)),
            }
            if any(counts.values()):
                try:
                    self._record(found, to_people, stale)
                except BaseException:
                    self._due.update(dict.fromkeys(each.key for each in found))  # they are looked at again
                    raise
            for each in found:
                with self._noting(each.key), suppress(FileNotFoundError):
                    each.clear()
        counts["blocked"] = self._deliver()
        self._set_interval()
        if self._problem is not None:
            what = f"Mail could not be delivered: {self._problem.strerror}."
            raise UnavailableError(what, advice="Nothing is lost: what was accepted is delivered once this is fixed.")
        return {name: count for name, count in {**counts, "placed": len(self._placed)}.items() if count}

    @contextmanager
    def _noting(self, key: Key) -> Iterator[None]:
        """Do something with a mailbox; what is wrong with it is no other's concern, what is wrong with the disk is."""
        try:
            yield
        except OSError as error:
            if error.errno in OF_MACHINE:
                self._problem = self._problem or error
                self._due[key] = None
            else:
                self._blocked[key] = error

    # --- which mailboxes ----------------------------------------------------------------------------------------------

    def _find_boxes(self, connection: Connection) -> None:
        """Learn of mailboxes: of agents that started or ended, and from time to time of all."""
        while self._runs_seen:
            run = queries.find_run(connection, self._runs_seen.popleft())
            if run is not None and run.kind == "agent" and run.task and run.attempt:
                self._blocked = {key: error for key, error in self._blocked.items() if key[0] != run.task}
                self._due[run.task, run.attempt] = None
                self._boxes.add((run.task, run.attempt))
        self._due.update(dict.fromkeys(self._watcher.take_changed() - self._behind.keys()))
        now_s, every_s = self._clock.monotonic(), self._find_sweep_s()
        if now_s - self._swept_s >= every_s:
            self._swept_s = now_s
            pairs = (pair for state in OPEN_ATTEMPTS for pair in queries.list_open_attempts(connection, state))
            there = {(task.key, attempt.number) for attempt, task in pairs if task.has_sandbox}
            for key in self._boxes - there:
                self._watcher.forget(key)
            self._boxes = there
            self._outboxes.keep(there)
            self._blocked.clear()
            self._failed = {key: failed for key, failed in self._failed.items() if key in there}
            self._behind.update(dict.fromkeys(there - self._due.keys()))
        self._due.update(dict.fromkeys(self._outboxes.take_settled()))

    def _look_around(self, connection: Connection, opened: ExitStack) -> Iterator[Found]:
        """Look at mailboxes, each once, while there is time: at one of those behind, then at those that changed."""
        until_s = self._clock.monotonic() + MAX_LOOKING_S
        turns = dict.fromkeys(islice(chain(islice(self._behind, 1), self._due, self._behind), MAX_BOXES))
        for number, key in enumerate(turns):
            if number > 1 and self._clock.monotonic() > until_s:
                return
            self._behind.pop(key, None)
            self._due.pop(key, None)
            if key not in self._blocked:
                yield from self._look(connection, opened, key)

    def _find_sweep_s(self) -> float:
        if not self._watcher.is_watching:
            return SWEEP_UNWATCHED_S
        return min(max(len(self._boxes) * SWEEP_S_A_BOX, LEAST_SWEEP_S), MOST_SWEEP_S)

    def _set_interval(self) -> None:
        if self._due or self._behind or self._placed or self._has_more:
            self.interval_s = 0.0
        elif self._outboxes.is_settling:
            self.interval_s = SETTLE_S / 4
        else:
            self.interval_s = self._find_sweep_s() if self._boxes else MOST_SWEEP_S

    # --- one mailbox --------------------------------------------------------------------------------------------------

    def _look(self, connection: Connection, opened: ExitStack, key: Key) -> Iterator[Found]:
        """Look at what a mailbox holds that is not recorded yet."""
        task, attempt = queries.find_task(connection, key[0]), _find_attempt(connection, key)
        if task is None or attempt is None or attempt.state not in _AT_WORK or attempt.sandbox != "PRESENT":
            return  # of one that has been judged everything was read, and nothing is made again while it is removed
        found = Found(key)
        with self._noting(key), suppress(FileNotFoundError):  # its sandbox is being made
            try:
                found.box = box = opened.enter_context(Mailbox(self._places.mailbox(*key)))
                box.open(SENT)
                self._watch(key, box)
                found.batch = self._outboxes.read(box, task, attempt)
                if found.batch.has_more:
                    self._behind[key] = None
                box.open(ACKNOWLEDGED)
                if attempt.number == task.attempts:  # those of an earlier one are forwarded
                    found.done = list(self._find_done(connection, box, key))
            except NotADirectoryError as error:
                said = Unreadable(f"{error.filename} in its mailbox is a link or a file, and must be a directory")
                told = Outgoing(task, attempt, str(error.filename), "no directory", said)
                found.batch.files.append((None, told))
        times, why = self._failed.get(key, (0, None))
        if times >= TOLD_AFTER and why is not None:
            said = Unreadable(f"messages cannot be put into its inbox: {why.strerror}")
            found.batch.files.append((None, Outgoing(task, attempt, INBOX, "no inbox", said)))
        yield found

    def _watch(self, key: Key, box: Mailbox) -> None:
        directories = [box.open(OUTBOX)]
        with suppress(NotADirectoryError):  # it is told of once the outbox has been read
            directories.append(box.open(ACKNOWLEDGED))
        self._watcher.watch(key, directories)

    def _find_done(self, connection: Connection, box: Mailbox, key: Key) -> Iterator[tuple[MailRow, str]]:
        """Find messages in the inbox of a task's worker that were acknowledged or removed.

        One that lies there, though that is not recorded, was put there by a keeper that died.
        """
        for mail in queries.list_open_mail_to_worker(connection, key[0]):
            place = box.find_place(mail.inbox_name)
            if place and mail.state is MailState.ACCEPTED and mail.id not in self._placed:
                os.fsync(box.open(INBOX))
                self._placed[mail.id] = (mail, key)
            was_there = mail.state is MailState.DELIVERED or mail.id in self._placed
            if was_there and (place == ACKNOWLEDGED or (not place and mail.delivered_run is None)):
                yield mail, "acknowledged" if place else "removed from the inbox"

    # --- recording and delivering -------------------------------------------------------------------------------------

    def _record(self, found: Sequence[Found], to_people: Sequence[MailRow], stale: Sequence[MailRow]) -> None:
        """Record what lies in inboxes, and what a pass has found, all of it at once."""
        with self._ledger.write(self._authority) as tx:
            ended = {key for key in {key for _, key in self._placed.values()} if not _is_open(tx.connection, key)}
            for mail, key in self._placed.values():
                if key not in ended:  # else the next attempt gets it
                    commands.deliver_mail(tx, mail)
            for mail in to_people:  # their inbox is the ledger
                commands.deliver_mail(tx, mail)
            for mail in stale:
                commands.return_stale(tx, mail)
            for each in found:
                for mail, why in each.done:
                    commands.handle_mail(tx, mail, why)
                for _, file in each.batch.files:
                    each.reasons.append(_find_reason(receive(tx, self._settings.protocol, self._limits, file)))
        self._placed.clear()

    def _deliver(self) -> int:
        """Put messages into inboxes; return how many inboxes could not be used."""
        with self._ledger.read() as connection:
            blocked = [task for task, _ in self._blocked]
            waiting = queries.list_deliverable_mail(connection, blocked, MAX_DELIVERED)
        self._has_more = len(waiting) == MAX_DELIVERED
        with ExitStack() as opened:
            boxes, deliveries = dict[Key, Mailbox](), list[tuple[MailRow, Key, Delivery]]()
            for mail, number in waiting:
                key = (str(mail.task), number)
                with self._noting(key):
                    if key not in boxes:
                        boxes[key] = opened.enter_context(Mailbox(self._places.mailbox(*key)))
                    deliveries.append((mail, key, Delivery(boxes[key], mail.inbox_name, to_file(mail))))
            deliver([each for _, _, each in deliveries])
            for mail, key, each in deliveries:
                with self._noting(key):
                    if each.problem is not None:
                        raise each.problem
                    self._placed[mail.id] = (mail, key)
        keys = {(str(mail.task), number) for mail, number in waiting}
        for key in keys:
            times, _ = self._failed.pop(key, (0, None))
            if (error := self._blocked.get(key)) is not None:
                self._failed[key] = (times + 1, error)
        return len(keys & self._blocked.keys())


def _is_open(connection: Connection, key: Key) -> bool:
    attempt = _find_attempt(connection, key)
    return attempt is not None and attempt.state in OPEN_ATTEMPTS


def _find_attempt(connection: Connection, key: Key) -> AttemptRow | None:
    return queries.find(connection, AttemptRow, task=key[0], number=key[1])


def _find_reason(rows: Sequence[MailRow]) -> str:
    """Return why a file was refused; "" if it was accepted."""
    if not rows:
        return "too many messages of this worker were refused"
    refused = [row for row in rows if row.state in REFUSED_MAIL]
    return refused[0].reason if len(refused) == len(rows) else ""
