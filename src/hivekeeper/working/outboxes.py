"""Reads outboxes, a few files at a time, and gives files that may still be written the time to become messages.

An outbox with many files is listed once and read in turns, so that it costs others little. A file that does not parse
is read again when it has changed, or when it has not changed for long enough to be judged.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hivekeeper.clock import Clock
from hivekeeper.commands.post import Outgoing
from hivekeeper.domain.mail import Unreadable
from hivekeeper.domain.protocol import MERGE_READY, Draft, MessageType, read_draft
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.git.clone import read_head
from hivekeeper.mailbox.boxes import MAX_LISTED, OUTBOX, Listed, Mailbox
from hivekeeper.places import Places

SETTLE_S = 2.0  # how long a file that does not parse must be unchanged before it is judged
MAX_FILES, MAX_BYTES = 32, 1 << 20  # of one outbox at a time
Key = tuple[str, int]  # a task and an attempt at it


@dataclass(slots=True)
class Batch:
    """Some files of an outbox, each as it was listed, and whether there are more.

    What is told of a mailbox itself has no file. Of an outbox that holds too much only that is told: it `is_flooded`,
    and is to be set aside.
    """

    files: list[tuple[Listed | None, Outgoing]] = field(default_factory=list)
    has_more: bool = False
    is_flooded: bool = False


class Outboxes:
    """What lies in outboxes and was not read yet."""

    def __init__(self, places: Places, protocol: Mapping[str, MessageType], clock: Clock) -> None:
        self._places, self._protocol, self._clock = places, protocol, clock
        self._listed: dict[Key, deque[Listed]] = {}
        self._unsettled: dict[Key, dict[str, tuple[Listed, float]]] = {}  # since when a file is as it is
        self._settled_s: dict[Key, float] = {}  # when to look at these again

    @property
    def is_settling(self) -> bool:
        """Whether there are files that may still be written."""
        return bool(self._settled_s)

    def take_settled(self) -> list[Key]:
        """Take the outboxes that hold a file which has had its time."""
        now_s = self._clock.monotonic()
        settled = [key for key, settled_s in self._settled_s.items() if now_s >= settled_s]
        for key in settled:
            del self._settled_s[key]
        return settled

    def keep(self, keys: Iterable[Key]) -> None:
        """Forget all other outboxes."""
        kept = set(keys)
        self._listed = {key: listed for key, listed in self._listed.items() if key in kept}
        self._unsettled = {key: files for key, files in self._unsettled.items() if files and key in kept}

    def read(self, box: Mailbox, task: TaskRow, attempt: AttemptRow) -> Batch:
        """Read the next files of an outbox."""
        key, size = (task.key, attempt.number), 0
        rest = self._listed.pop(key, None)
        if (listed := rest) is None:
            if (found := box.list_outbox()) is None:
                said = Unreadable(f"its outbox held more than {MAX_LISTED} files; it was set aside, and is empty now")
                file = Outgoing(task, attempt, OUTBOX, box.identify_outbox(), said)
                return Batch([(None, file)], is_flooded=True)
            listed = deque(found)
            if before := self._unsettled.pop(key, None):
                names = {each.name for each in listed}
                self._unsettled[key] = {name: seen for name, seen in before.items() if name in names}
        batch = Batch()
        for _ in range(MAX_FILES):
            while listed and self._is_settling(key, listed[0]):
                listed.popleft()
            if not listed or size >= MAX_BYTES:
                break
            each = listed.popleft()
            size += each.stamp[1]
            if (file_ := self._read(box, task, attempt, each)) is not None:
                batch.files.append((each, file_))
        if listed:
            self._listed[key] = listed
        batch.has_more = bool(listed) or rest is not None  # more may have come while that was read
        return batch

    def _is_settling(self, key: Key, listed: Listed) -> bool:
        """Whether a file that did not parse has not changed, and not had its time."""
        before, since_s = self._unsettled.get(key, {}).get(listed.name, (None, 0.0))
        if before is None or before.stamp != listed.stamp or self._clock.monotonic() - since_s >= SETTLE_S:
            return False
        self._settled_s.setdefault(key, since_s + SETTLE_S)
        return True

    def _read(self, box: Mailbox, task: TaskRow, attempt: AttemptRow, listed: Listed) -> Outgoing | None:
        """Read a file; None if it is gone, or may still be written."""
        key, now_s = (task.key, attempt.number), self._clock.monotonic()
        if (read := box.read(listed)) is None:
            return None
        unsettled = self._unsettled.setdefault(key, {})
        before, _ = unsettled.pop(listed.name, (None, now_s))
        if read.may_be_incomplete and (before is None or before.stamp != listed.stamp):
            unsettled[listed.name] = (listed, now_s)
            self._settled_s.setdefault(key, now_s + SETTLE_S)
            return None
        draft = read.problem or read_draft(read.said, self._protocol)
        if isinstance(draft, str):
            draft = Unreadable(draft, read.text)
        head = None
        if isinstance(draft, Draft) and self._protocol[draft.type].handled_as == MERGE_READY:
            head = read_head(self._places.sandbox(*key) / "work")
        name = listed.name if listed.name.isprintable() else ascii(listed.name)[1:-1]
        return Outgoing(task, attempt, name, read.digest, draft, head)
