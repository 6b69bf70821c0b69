"""Sandboxes and gates without an attempt, attempts without their sandbox, and clones made ahead.

A sandbox may go only if its work is proven kept: its attempt has settled, a snapshot of it ended well and left nothing
out, the snapshot's ref is in the mirror, and no file of its worker is newer than the snapshot's start. The last is what
tells a directory that came back after a power cut, with nothing new in it, from one that somebody has worked in since.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from hivekeeper.clock import to_seconds
from hivekeeper.doctor.facts import Facts, Known
from hivekeeper.doctor.findings import MEND, Check, Finding, Level, RemoveTree
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.states import is_terminal
from hivekeeper.git.mirror import Mirror
from hivekeeper.git.orders import attempt_ref

PRESENT = "PRESENT"
# What the hive's own runs write beside a worker's tree, the snapshot too: no worker can.
_OURS = {"base", "ignored", "rest.tar", "key", "ready"} | {
    f"{index}{end}" for index in ("index", "save") for end in ("", ".lock", ".paths", ".said")
}
# After an older ledger was put back, it may belong to a run that the keeper is about to adopt (docs/adr/0006).
_SETTLE_FIRST = (
    "Let the keeper come to it first: hive up. If it is still reported when the hive has nothing left to do, "
    "take from it what you need."
)


def check_sandboxes(facts: Facts) -> Iterator[Finding]:
    """Hold what is laid out on disk against the attempts it was laid out for."""
    found = [*_check_orphans(facts), *_check_missing(facts)]
    yield from found
    if not found:
        what = f"{len(facts.laid_out)} sandboxes and gates, each of an attempt that needs it"
        yield Finding(Check.SANDBOXES, Level.OK, what)


def _check_orphans(facts: Facts) -> Iterator[Finding]:
    for path, key in facts.laid_out.items():
        known = facts.records.attempts.get(key)
        if (known is not None and known.attempt.sandbox == PRESENT) or not path.exists():
            continue
        doubt = _doubt_kept(facts, path, known)
        if doubt is None:
            what = f"{path} is left over: its attempt has ended and what was made in it is kept in the mirror."
            yield Finding(Check.SANDBOXES, Level.WARN, what, MEND, RemoveTree(path))
        else:
            what = f"{path} belongs to no attempt that needs it, and is not removed: {doubt}."
            advice = _SETTLE_FIRST if known is None else f"Take from it what you need, then: rm -rf {quote(str(path))}"
            yield Finding(Check.SANDBOXES, Level.WARN, what, advice)


def _doubt_kept(facts: Facts, path: Path, known: Known | None) -> str | None:
    """Say why a directory may hold the only copy of something; None when it is proven that it does not."""
    if known is None:
        return "the ledger knows no such attempt"
    if not is_terminal(known.attempt.state) or any(run.is_open for run in known.runs):
        return "its attempt is not over"
    if any(run.id in facts.processes for run in known.runs):
        return "processes of its runs are alive"
    snapshot = known.find_success("snapshot")
    if snapshot is None or snapshot.repo is None or snapshot.started_at is None:
        return "no snapshot of its work ended well, or only its outputs were kept"
    if snapshot.reason:
        return f"its snapshot said: {snapshot.reason}"
    mirror = Mirror(facts.places.mirror(snapshot.repo))
    ref = attempt_ref(known.attempt.task, known.attempt.number)
    if mirror.find_commit(ref) is None:
        return f"{ref} is not in the mirror"
    if _is_gate(facts, path):
        return None  # a tree of the mirror laid out; nobody works in it
    try:
        # Its start, not its end: what was written in between may be in it or not.
        newer = _find_newer(path, to_seconds(snapshot.started_at))
    except OSError as error:
        return f"{error.filename} cannot be looked at"
    return None if newer is None else f"{newer} was written after its snapshot began"


def _is_gate(facts: Facts, path: Path) -> bool:
    return path.is_relative_to(facts.places.hive / "gates")


def _find_newer(directory: Path, seconds: float) -> str | None:
    """Find a file that was changed, made or put there later; a directory changes also when something is taken away."""
    for parent, directories, names in os.walk(directory, onerror=_raise):
        links = [name for name in directories if Path(parent, name).is_symlink()]
        ours = _OURS if parent == str(directory) else ()
        for name in (name for name in names + links if name not in ours):
            # The change time, which nobody can set: a copy that was put back has a modification time of old.
            if os.lstat(f"{parent}/{name}").st_ctime > seconds:
                return f"{parent}/{name}"
    return None


def _raise(error: OSError) -> None:
    raise error


def _check_missing(facts: Facts) -> Iterator[Finding]:
    for known in facts.records.attempts.values():
        attempt = known.attempt
        path = facts.places.sandbox(attempt.task, attempt.number) / "work"
        made, removing = known.find_success("sandbox"), any(run.kind == "remove" for run in known.runs)
        if attempt.sandbox == PRESENT and made and not removing and not path.exists():
            yield _judge_missing(attempt, path, is_kept=known.find_success("snapshot") is not None)


def _judge_missing(attempt: AttemptRow, path: Path, *, is_kept: bool) -> Finding:
    what = f"{path} is gone, and attempt {attempt.number} at {attempt.task} needs it"
    if is_kept:
        kept = f"{what} no more: its work is kept in the mirror."
        return Finding(Check.SANDBOXES, Level.WARN, kept, "The next keeper takes note of it. Type: hive up")
    advice = f"Put it back if you can. Otherwise its work is lost; type: hive task why {attempt.task}"
    return Finding(Check.SANDBOXES, Level.FAIL, f"{what}: what was made in it was not kept.", advice)
