"""The router: carries messages between mailboxes, the ledger and people.

Rules:
1. A message is a file in a worker's outbox. Its sender, id, time and hops come from the mailbox that holds it and from
   the ledger, never from the file. A file that does not parse is given time before it is quarantined.
2. What a file came to is recorded before the file is moved, so a file that is found again is the same message.
3. A message is put into an inbox after it was accepted, and is DELIVERED once it lies there. Moving its file to `.done`
   is the acknowledgement.
4. Mailboxes take turns: of each, only so many files are read in one pass.
5. Mailboxes that changed are read at once; all are looked at from time to time, in case a change was missed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from hivekeeper.commands import mail as commands
from hivekeeper.commands.post import Outgoing, receive
from hivekeeper.domain import events as e
from hivekeeper.domain.mail import Limits, Unreadable, to_file
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.protocol import ADDRESSES, MERGE_READY, PRIORITY_MERGE, REWORK_REQUEST, Draft, read_draft
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.domain.schema import Body
from hivekeeper.domain.states import OPEN_ATTEMPTS, MailState, RunState
from hivekeeper.git.clone import read_head
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.mailbox.boxes import ACKNOWLEDGED, INBOX, OUTBOX, Listed, Mailbox
from hivekeeper.mailbox.watching import Watcher
from hivekeeper.store import queries
from hivekeeper.store.database import Connection

SETTLE_S = 2.0  # how long a file that does not parse must be unchanged before it is quarantined
MAX_FILES = 32  # of one mailbox in a pass
MAX_BOXES = 64  # in a pass
MAX_DELIVERED = 512  # in a pass
SWEEP_S, SWEEP_UNWATCHED_S = 30.0, 1.0
Key = tuple[str, int]  # a task and an attempt at it


@dataclass(slots=True)
class Found:
    """What a pass has found in one mailbox: new files, and delivered messages that were acknowledged or removed."""

    key: Key
    box: Mailbox
    files: list[Outgoing] = field(default_factory=list)
    done: list[tuple[MailRow, str]] = field(default_factory=list)
    outcomes: list[tuple[str, list[MailRow]]] = field(default_factory=list)


class Router(Loop):
    """Carries messages."""

    name = "router"
    order = 45  # what agents wrote is known before their work is judged
    wakes = Wakes((e.MailAccepted, e.MailSent, e.MailAssigned, e.MailForwarded, e.MailRequeued))

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._limits = Limits(self._settings.hourly, self._settings.max_hops)
        self._runs_seen: deque[str] = deque()  # agents that have started or ended since the last pass
        self._boxes: dict[Key, None] = {}  # the mailboxes of attempts under way
        self._watched: frozenset[Key] = frozenset()
        self._due: dict[Key, None] = {}  # those to read, in turn
        self._unsettled: dict[tuple[Key, str], tuple[Listed, float]] = {}
        self._placed: set[str] = set()  # messages that lie in an inbox, which is not recorded yet
        self._swept_s = float("-inf")
        self._watcher: Watcher[Key] = Watcher()

    def watch(self, wake: Callable[[], None]) -> None:
        """Wake the loop whenever a mailbox changes."""
        self._watcher.start(wake)

    def unwatch(self) -> None:
        """Stop watching mailboxes."""
        self._watcher.stop()

    def is_woken_by(self, body: Body) -> bool:
        """Whether this event wakes the loop: one of messages, or the start or end of an agent."""
        if isinstance(body, e.RunStarted | e.RunExited | e.RunLost):
            self._runs_seen.append(body.run)
            return True
        return self.wakes.is_woken_by(body)

    def run_once(self) -> Counts:
        """Accept what was written, deliver what was accepted, and note what was acknowledged."""
        if not self._settings.mail:
            return {}
        with ExitStack() as opened:
            boxes: dict[Key, Mailbox | None] = {}
            with self._ledger.read() as connection:
                self._find_boxes(connection)
                due = self._choose()
                found = [each for key in due if (each := self._look(connection, opened, boxes, key)) is not None]
                waiting = queries.list_accepted_mail(connection, MAX_DELIVERED)
                placed = [mail for mail in waiting if mail.id in self._placed]
                deliverable = [
                    (mail, key)
                    for mail in waiting
                    if mail.id not in self._placed and (key := self._find_box(connection, mail)) is not None
                ]
            counts = {
                "received": sum(len(each.files) for each in found),
                "acknowledged": sum(len(each.done) for each in found),
                "delivered": len(placed),
            }
            accepted = self._record(found, placed) if any(counts.values()) else []
            for each in found:
                for name, rows in each.outcomes:
                    each.box.finish(name, _find_reason(rows))
            self._placed -= {mail.id for mail in placed}
            problem = self._deliver(opened, boxes, deliverable, accepted)
        self._set_interval()
        if problem is not None:
            raise problem
        return {name: count for name, count in {**counts, "placed": len(self._placed)}.items() if count}

    # --- which mailboxes ----------------------------------------------------------------------------------------------

    def _find_boxes(self, connection: Connection) -> None:
        """Learn of mailboxes: of agents that started or ended, and from time to time of all."""
        while self._runs_seen:
            run = queries.find_run(connection, self._runs_seen.popleft())
            if run is not None and run.kind == "agent" and run.task and run.attempt:
                self._due[run.task, run.attempt] = None
                self._boxes.setdefault((run.task, run.attempt))
        changed = self._watcher.take_changed()
        self._due.update(dict.fromkeys(changed))
        now_s, every_s = self._clock.monotonic(), SWEEP_S if self._watcher.is_watching else SWEEP_UNWATCHED_S
        if now_s - self._swept_s >= every_s:
            self._swept_s = now_s
            pairs = (pair for state in OPEN_ATTEMPTS for pair in queries.list_open_attempts(connection, state))
            self._boxes = {(task.key, attempt.number): None for attempt, task in pairs if task.has_sandbox}
            self._due.update(self._boxes)
        for (key, _), (_, since_s) in self._unsettled.items():
            if now_s - since_s >= SETTLE_S:
                self._due[key] = None
        if self._boxes.keys() != self._watched:
            self._watched = frozenset(self._boxes)
            self._watcher.set_paths({path: key for key in self._boxes for path in self._list_watched(key)})

    def _list_watched(self, key: Key) -> Sequence[str]:
        place = self._places.mailbox(*key)
        return f"{place}/{OUTBOX}", f"{place}/{INBOX}/{ACKNOWLEDGED}"

    def _choose(self) -> list[Key]:
        chosen = list(self._due)[:MAX_BOXES]
        for key in chosen:
            del self._due[key]
        return chosen

    def _set_interval(self) -> None:
        if self._due or self._placed:
            self.interval_s = 0.0
        elif self._unsettled:
            self.interval_s = SETTLE_S / 4
        else:
            self.interval_s = SWEEP_S if self._watcher.is_watching or not self._boxes else SWEEP_UNWATCHED_S

    def _open(self, opened: ExitStack, boxes: dict[Key, Mailbox | None], key: Key) -> Mailbox | None:
        """Open a mailbox once in a pass; None if it is gone, or one of its directories is something else."""
        if key not in boxes:
            try:
                boxes[key] = opened.enter_context(Mailbox(self._places.mailbox(*key)))
            except OSError:
                boxes[key] = None
        return boxes[key]

    # --- one mailbox --------------------------------------------------------------------------------------------------

    def _look(
        self, connection: Connection, opened: ExitStack, boxes: dict[Key, Mailbox | None], key: Key
    ) -> Found | None:
        """Look at what a mailbox holds that is not recorded yet."""
        task, attempt = queries.find_task(connection, key[0]), queries.find_attempt(connection, *key)
        box = self._open(opened, boxes, key) if attempt is not None and attempt.sandbox == "PRESENT" else None
        if task is None or attempt is None or box is None:
            return None
        found, listed = Found(key, box), box.list_outbox()
        names = {each.name for each in listed}
        self._unsettled = {one: seen for one, seen in self._unsettled.items() if one[0] != key or one[1] in names}
        for each in listed:
            if len(found.files) == MAX_FILES:
                self._due[key] = None  # behind all others
                break
            if (file := self._read(box, task, attempt, each)) is not None:
                found.files.append(file)
        for mail in queries.list_open_mail(connection, task.key):
            if mail.state is MailState.DELIVERED and mail.receiver not in ADDRESSES:
                place = box.find_place(mail.inbox_name)
                if place == ACKNOWLEDGED or (not place and mail.delivered_run is None):
                    found.done.append((mail, "acknowledged" if place else "removed from the inbox"))
        return found

    def _read(self, box: Mailbox, task: TaskRow, attempt: AttemptRow, listed: Listed) -> Outgoing | None:
        """Read a file of an outbox; None if it is gone, or may still be written."""
        key, now_s = (task.key, attempt.number), self._clock.monotonic()
        if (read := box.read(listed)) is None:
            return None
        if read.problem is not None and read.may_be_incomplete:
            before, since_s = self._unsettled.get((key, listed.name), (None, now_s))
            if before is None or before.stamp != listed.stamp:
                self._unsettled[key, listed.name] = (listed, now_s)
                return None
            if now_s - since_s < SETTLE_S:
                return None
        self._unsettled.pop((key, listed.name), None)
        protocol, said = self._settings.protocol, read.problem
        draft = said or read_draft(read.said, protocol)
        if isinstance(draft, str):
            draft = Unreadable(draft, read.text)
        head = None
        if isinstance(draft, Draft) and protocol[draft.type].handled_as == MERGE_READY:
            head = read_head(self._places.sandbox(*key) / "work")
        return Outgoing(task, attempt, listed.name, read.digest, draft, head)

    def _find_box(self, connection: Connection, mail: MailRow) -> Key | None:
        """Find the mailbox that a message belongs into: that of a session which began before the message was sent.

        A later session gets it in its prompt.
        """
        if mail.task is None or mail.receiver in ADDRESSES or mail.type == REWORK_REQUEST:
            return None
        task = queries.find_task(connection, mail.task)
        if task is None or not task.has_sandbox or (mail.type == PRIORITY_MERGE and mail.attempt != task.attempts):
            return None
        runs = queries.list_runs_of_attempt(connection, task.key, task.attempts)
        agent = next((run for run in reversed(runs) if run.kind == "agent"), None)
        is_at_work = agent is not None and agent.state is RunState.RUNNING and agent.intended_seq < mail.seq
        return (task.key, task.attempts) if is_at_work else None

    # --- recording and delivering -------------------------------------------------------------------------------------

    def _record(self, found: Sequence[Found], placed: Sequence[MailRow]) -> list[MailRow]:
        """Record what a pass has found; return the messages that were accepted."""
        accepted: list[MailRow] = []
        with self._ledger.write(self._authority) as tx:
            for mail in placed:
                commands.deliver_mail(tx, mail)
            for each in found:
                for mail, why in each.done:
                    commands.handle_mail(tx, mail, why)
                for file in each.files:
                    rows = receive(tx, self._settings.protocol, self._limits, file)
                    each.outcomes.append((file.file, rows))
                    accepted += (row for row in rows if row.state is MailState.ACCEPTED and row.id not in self._placed)
        return accepted

    def _deliver(
        self,
        opened: ExitStack,
        boxes: dict[Key, Mailbox | None],
        deliverable: Sequence[tuple[MailRow, Key]],
        accepted: Sequence[MailRow],
    ) -> OSError | None:
        """Put messages into inboxes; return what went wrong, after all others were delivered."""
        problem = None
        with self._ledger.read() as connection:
            new = [(mail, key) for mail in accepted if (key := self._find_box(connection, mail)) is not None]
        for mail, key in [*deliverable, *new]:
            box = self._open(opened, boxes, key)
            try:
                if box is not None:
                    if not box.find_place(mail.inbox_name):
                        box.deliver(mail.inbox_name, to_file(mail))
                    self._placed.add(mail.id)
            except OSError as error:
                problem = problem or error
        return problem


def _find_reason(rows: Sequence[MailRow]) -> str:
    """Return why a file was refused; "" if it was accepted."""
    if not rows:
        return "too many messages of this worker were refused"
    refused = [row for row in rows if row.state in (MailState.QUARANTINED, MailState.RETURNED, MailState.DROPPED)]
    return refused[0].reason if len(refused) == len(rows) else ""
