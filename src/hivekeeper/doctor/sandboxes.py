"""Sandboxes and gates without an attempt, and attempts without their sandbox.

A sandbox is removed only if its work is proven saved: its attempt has ended, a snapshot of it succeeded and left
nothing out, the snapshot's ref is in the mirror, and no file of its worker is newer than the start of the snapshot. The
last tells a directory that came back after a power cut, with nothing new in it, from one that was worked in since.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from hivekeeper.clock import to_seconds
from hivekeeper.doctor.facts import Facts, Known
from hivekeeper.doctor.findings import REPAIR, Check, Finding, RemoveTree, fail, or_ok, warn
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.states import is_terminal
from hivekeeper.domain.wording import say_count
from hivekeeper.git.mirror import Mirror
from hivekeeper.git.orders import attempt_ref

PRESENT = "PRESENT"
# Written beside a worker's tree by the hive's own runs, the snapshot too; no worker can write there.
_OURS = {"base", "ignored", "rest.tar", "key", "ready"} | {
    f"{index}{end}" for index in ("index", "save") for end in ("", ".lock", ".paths", ".said")
}
# After an older ledger was restored, it may belong to a run that the keeper is about to adopt (docs/adr/0006).
_SETTLE_FIRST = (
    "Let the keeper settle it first: hive up. If it is still reported when the hive has nothing left to do, "
    "copy what you need from it."
)


def check_sandboxes(facts: Facts) -> Iterator[Finding]:
    """Compare the sandboxes and gates on disk with the attempts they are for."""
    what = f"{say_count(len(facts.laid_out), 'directory', 'directories')}, each of an attempt that needs it"
    return or_ok((*_check_orphans(facts), *_check_missing(facts)), Check.SANDBOXES, what)


def _check_orphans(facts: Facts) -> Iterator[Finding]:
    for path, key in facts.laid_out.items():
        known = facts.records.attempts.get(key)
        if (known is not None and known.attempt.sandbox == PRESENT) or not path.exists():
            continue
        doubt = _doubt_kept(facts, path, known)
        if doubt is None:
            what = f"{path} is left over: its attempt has ended and its work is saved in the mirror."
            yield warn(Check.SANDBOXES, what, REPAIR, RemoveTree(path))
        else:
            what = f"{path} is needed by no attempt, and is not removed: {doubt}."
            advice = _SETTLE_FIRST if known is None else f"Copy what you need from it, then: rm -rf {quote(str(path))}"
            yield warn(Check.SANDBOXES, what, advice)


def _doubt_kept(facts: Facts, path: Path, known: Known | None) -> str | None:
    """Say why a directory may have the only copy of something; None when it is proven that it does not."""
    if known is None:
        return "its attempt is not in the ledger"
    if not is_terminal(known.attempt.state) or any(run.is_open for run in known.runs):
        return "its attempt has not ended"
    if any(run.id in facts.processes for run in known.runs):
        return "processes of its runs are alive"
    snapshot = known.find_success("snapshot")
    if snapshot is None or snapshot.repo is None or snapshot.started_at is None:
        return "no snapshot of its work succeeded, or only its outputs were saved"
    if snapshot.reason:
        return f"its snapshot said: {snapshot.reason}"
    mirror = Mirror(facts.places.mirror(snapshot.repo))
    ref = attempt_ref(known.attempt.task, known.attempt.number)
    if mirror.find_commit(ref) is None:
        return f"{ref} is not in the mirror"
    if _is_gate(facts, path):
        return None  # a checkout of a tree in the mirror; nothing is made there
    try:
        # Its start, not its end: what was written in between may be in it or not.
        newer = _find_newer(path, to_seconds(snapshot.started_at))
    except OSError as error:
        return f"{error.filename} cannot be read"
    return None if newer is None else f"{newer} was written after its snapshot began"


def _is_gate(facts: Facts, path: Path) -> bool:
    return path.is_relative_to(facts.places.hive / "gates")


def _find_newer(directory: Path, seconds: float) -> str | None:
    """Find a file that was changed, made or put there later; directories do not count, a removal changes them too."""
    for parent, directories, names in os.walk(directory, onerror=_raise):
        links = [name for name in directories if Path(parent, name).is_symlink()]
        ours = _OURS if parent == str(directory) else ()
        for name in (name for name in names + links if name not in ours):
            # The change time, which cannot be set: a restored copy keeps its old modification time.
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
        saved = f"{what} no longer: its work is saved in the mirror."
        return warn(Check.SANDBOXES, saved, "The next keeper records that. Type: hive up")
    advice = f"Restore it if you can. Otherwise its work is lost; type: hive task why {attempt.task}"
    return fail(Check.SANDBOXES, f"{what}: its work was not saved.", advice)
