"""An archive, written from a ledger, and what another one written from the same ledger would be."""

import shutil
from pathlib import Path

from hivekeeper.domain import events as e
from hivekeeper.git.archive import Archive, Mark, Tip
from hivekeeper.loops.committer import write_archive
from hivekeeper.places import Places
from hivekeeper.store.ledger import Ledger, read_events, read_head
from hivekeeper.store.replay import rebuilt
from hivekeeper.views.archive import FORMAT, Span, list_contents

BOOT = "this-boot"


def commit(ledger: Ledger, places: Places, *, now: str = "") -> Tip:
    """Bring the archive up to the ledger, in one try."""
    archive = Archive(places.archive, BOOT)
    with ledger.read() as connection, archive.hold(now or ledger.clock.now()):
        write_archive(archive, connection, read_head(connection))
    return get_tip(places)


def get_tip(places: Places) -> Tip:
    tip = Archive(places.archive, BOOT).find_tip()
    assert tip is not None
    return tip


def make_again(ledger: Ledger, directory: Path, seq: int) -> str:
    """Write an archive anew, as the ledger was after an event, and give its tree."""
    archive = Archive(directory, BOOT)
    with ledger.read() as connection, rebuilt(connection, until=seq) as tables, archive.hold(ledger.clock.now()):
        archive.make()
        (last,) = read_events(connection, seq - 1, 1)
        files = ((file.path, file.text) for file in list_contents(Span(connection, tables, 0, seq)))
        archive.commit(files, "everything", Mark(seq, last.hash, FORMAT), last.recorded_at, None, all_=True)
        tip = archive.find_tip()
    assert tip is not None
    shutil.rmtree(directory)
    return tip.tree


def list_archive_problems(ledger: Ledger, places: Places) -> list[str]:
    """Judge an archive that had the time to be committed to."""
    archive = Archive(places.archive, BOOT)
    if (problem := archive.find_problem() if archive.exists else "missing") is not None:
        return [f"lost: the archive: {problem}"]
    tip = archive.find_tip()
    if tip is None or tip.mark is None:
        return ["lost: the archive has no commit of ours"]
    with ledger.read() as connection:
        later = read_events(connection, tip.mark.seq, -1)
    behind = [event.seq for event in later if not isinstance(event.body, e.LeaseTaken | e.LeaseReleased)]
    found = [f"lost: the archive lacks events {behind}"] if behind else []
    if tip.tree != make_again(ledger, places.hive / "again", tip.mark.seq):
        found.append("unexpected: the archive is not what the ledger says")
    if changed := archive.list_changed():
        found.append(f"unexpected: files of the archive are not as committed: {changed}")
    locks = [str(path) for path in (places.archive / ".git").rglob("*.lock")]
    return found + [f"unexpected: {path} is left behind" for path in locks]
