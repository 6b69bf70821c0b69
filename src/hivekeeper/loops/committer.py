"""The committer: keeps the ledger as files in a git repository, if the settings say so.

Rules:
1. The last commit says which event it goes up to; a pass commits everything since. A crash at any moment leaves that
   commit or the next one, so the next pass goes on from there.
2. If the last commit is not of this ledger (an older one was restored, or somebody else committed), or its files are of
   another format, everything is written again, as one more commit on top.
3. A pass that fails is repeated four times, after 50, 100, 150 and 200 ms; then it is an error like any other.
4. It rests between two passes, so that a busy hive commits once in a while and not for every event.

A commit is not a run: the repository can be made from the ledger again, and a run would be events to commit.
"""

from contextlib import suppress

from hivekeeper.errors import HiveError, UnavailableError
from hivekeeper.git.archive import Archive, Mark, Tip
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Head, read_events, read_head
from hivekeeper.views.archive import FORMAT, Span, count_settled, list_contents

COMMIT_EVERY_S = 5.0
TRIES, RETRY_S = 5, 0.05


class Committer(Loop):
    """Commits what has happened."""

    name = "committer"
    order = 110  # last, so that a commit has what the other passes did
    wakes = Wakes()
    rest_s, interval_s = COMMIT_EVERY_S, 0.0  # whatever wakes all loops does not wake it sooner

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._archive = Archive(self._places.archive, self._boot_id)
        self._done: Head | None = None  # the head that the last commit of this keeper goes up to
        self._failures = 0

    def run_once(self) -> Counts:
        """Commit everything since the last commit."""
        if not self._settings.repository:
            return {}
        with self._ledger.read() as connection:
            head = read_head(connection)
            if head.seq == 0 or (head == self._done and self._archive.exists):
                return {}
            try:
                with self._archive.hold(self._clock.now()):
                    count = write_archive(self._archive, connection, head)
            except UnavailableError:
                self._failures += 1
                if self._failures < TRIES:
                    self.rest_s = RETRY_S * self._failures
                    return {}
                self._failures, self.rest_s = 0, COMMIT_EVERY_S
                raise
        self._done, self._failures, self.rest_s = head, 0, COMMIT_EVERY_S
        return {"committed": count} if count else {}

    def finish(self) -> None:
        """Commit what has happened since the last pass; what fails is left to the next keeper."""
        with suppress(HiveError, OSError):
            self.run_once()


def write_archive(archive: Archive, connection: Connection, head: Head, *, anew: bool = False) -> int:
    """Bring an archive that is held up to the head, whatever state it is in; return how many events that took."""
    archive.make()
    tip = archive.find_tip()
    after = 0 if anew else find_start(connection, head, tip)
    if after < head.seq:
        (last,) = read_events(connection, head.seq - 1, 1)
        files = ((file.path, file.text) for file in list_contents(Span(connection, connection, after, head.seq)))
        message = f"Events {after + 1} to {head.seq}" if head.seq > after + 1 else f"Event {head.seq}"
        mark = Mark(head.seq, head.hash, FORMAT)
        archive.commit(files, message, mark, last.recorded_at, tip, all_=after == 0)
    archive.lay_out()
    # When log.jsonl begins anew: packed together, its versions are each what the one before lacks.
    archive.pack(is_due=count_settled(after) != count_settled(head.seq))
    return head.seq - after


def find_start(connection: Connection, head: Head, tip: Tip | None) -> int:
    """Find the event that a commit goes up to; 0 if it is not of this ledger."""
    mark = tip.mark if tip is not None else None
    if mark is None or mark.format != FORMAT or not 0 < mark.seq <= head.seq:
        return 0
    (last,) = read_events(connection, mark.seq - 1, 1)
    return mark.seq if last.hash == mark.hash else 0
