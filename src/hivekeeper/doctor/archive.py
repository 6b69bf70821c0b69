"""The archive: it is there, whole, up to date, and every file is what the ledger says."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.doctor.facts import Facts
from hivekeeper.doctor.findings import REPAIR, Check, Finding, RebuildArchive, Say, ok, or_ok, warn
from hivekeeper.domain import events as e
from hivekeeper.domain.names import name_some
from hivekeeper.git.archive import Archive
from hivekeeper.loops.committer import find_start, write_archive
from hivekeeper.settings import Settings
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_events, read_head
from hivekeeper.store.replay import rebuilt
from hivekeeper.store.sqlite import reading_only
from hivekeeper.views.archive import Span, list_contents

BEHIND_AFTER_S = 60.0  # a keeper commits every few seconds, and once more when it stops
_PAGE = 1000


def check_archive(facts: Facts, settings: Settings, say: Say = lambda _what: None) -> Iterator[Finding]:
    """Check the archive, if the settings ask for one."""
    if not settings.repository:
        yield ok(Check.ARCHIVE, "none is kept ([patterns] repository in hive.toml)")
        return
    say("the archive")
    archive = Archive(facts.places.archive, facts.boot_id)
    yield from or_ok(_check(facts, archive), Check.ARCHIVE, "every file is as the ledger says")


def _check(facts: Facts, archive: Archive) -> Iterator[Finding]:
    # Its last commit is read before the ledger: whatever a keeper commits is in the ledger before.
    problem = archive.find_problem() if archive.exists else None
    tip = archive.find_tip() if archive.exists and problem is None else None
    with reading_only(facts.places.ledger) as connection:
        head = read_head(connection)
        seq = find_start(connection, head, tip)
        if problem is not None:
            yield _warn(facts, archive, f"is damaged: {problem}")
        elif tip is None:
            if _is_behind(facts, connection, 0):
                yield _warn(facts, archive, "is missing")
        elif seq == 0:
            yield _warn(facts, archive, "has a last commit that is not of this ledger")
        else:
            if wrong := _list_wrong(archive, connection, tip.commit, seq):
                yield _warn(facts, archive, f"differs from the ledger at event {seq}: {name_some(wrong)}")
            elif facts.records.keeper is None and (changed := archive.list_changed()):
                yield _warn(
                    facts, archive, f"has files that were changed since they were committed: {name_some(changed)}"
                )
            if _is_behind(facts, connection, seq):
                yield _warn(facts, archive, f"goes up to event {seq}, and the ledger to event {head.seq}")


def _warn(facts: Facts, archive: Archive, what: str) -> Finding:
    sentence = f"The archive {archive.path} {what}."
    if facts.records.keeper is not None:
        return warn(Check.ARCHIVE, sentence, "Type: hive down; hive doctor --fix; hive up --detach")
    return warn(Check.ARCHIVE, sentence, REPAIR, RebuildArchive())


def _is_behind(facts: Facts, connection: Connection, seq: int) -> bool:
    """Whether something happened after an event that should have been committed by now.

    The lease alone does not count: it is given back after the last commit.
    """
    while page := read_events(connection, seq, _PAGE):
        missing = [event for event in page if not isinstance(event.body, e.LeaseTaken | e.LeaseReleased)]
        if missing:
            return facts.now_s - to_seconds(missing[0].recorded_at) > BEHIND_AFTER_S
        seq = page[-1].seq
    return False


def _list_wrong(archive: Archive, connection: Connection, commit: str, seq: int) -> list[str]:
    """List the files of a commit that are not what the ledger says as it was then."""
    with ExitStack() as stack:
        tables = connection
        if read_head(connection).seq != seq:
            tables = stack.enter_context(rebuilt(connection, until=seq))
        contents = list_contents(Span(connection, tables, 0, seq))
        wanted = {content.path: _hash(content.text) for content in contents if content.text is not None}
    found = archive.list_committed(commit)
    return sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))


def _hash(text: str) -> str:
    """Make the id that git gives a file's content."""
    content = text.encode()
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


def rebuild_archive(facts: Facts) -> str:
    """Write every file again: as one more commit, or into a new repository if the old one is damaged."""
    archive = Archive(facts.places.archive, facts.boot_id)
    with reading_only(facts.places.ledger) as connection, archive.hold(to_text(facts.now_s)):
        if archive.exists and archive.find_problem() is not None:
            archive.remove()
        archive.remove_index()
        write_archive(archive, connection, read_head(connection), anew=True)
    return f"Wrote every file of {archive.path} again."
