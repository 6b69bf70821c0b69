"""Mirrors: every object that is needed is there, branches are where the ledger says, and nothing is left behind.

What the ledger does not know stays: a ledger that was newer than this one, or a hive before it, may have kept it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote

from hivekeeper.doctor.facts import Facts, list_attempts, list_directories, list_directory
from hivekeeper.doctor.findings import MEND, Check, Finding, Level, RemoveFile, RemoveTree, Say
from hivekeeper.domain.rows import RepoRow
from hivekeeper.domain.states import AttemptState, RepoState
from hivekeeper.errors import HiveError
from hivekeeper.git.mirror import Mirror, find_damage, list_refs, list_unreachable
from hivekeeper.git.orders import attempt_ref, integration_ref

# No run of ours that uses git may take longer, so an older lock is nobody's even while a keeper works.
LONGEST_GIT_RUN_S = 3600.0
_OURS = "hive.lock"  # locked by the kernel as long as its holder lives, not by being there
_MOST_NAMED = 5
_ATTEMPTS = "refs/hive/attempts"


def check_mirrors(facts: Facts, say: Say) -> Iterator[Finding]:
    """Look at the mirror of every repository that was ever fetched, and for mirrors of none."""
    yield from _check_strangers(facts)
    for repo in facts.records.repos:
        if repo.integration is None:
            continue
        say(f"the mirror of {repo.name}")
        try:
            found = list(_check_mirror(facts, repo))
        except HiveError as error:
            found = [Finding(Check.MIRRORS, Level.FAIL, error.what, error.advice or _advise(facts, repo))]
        yield from found
        if not found:
            yield Finding(Check.MIRRORS, Level.OK, f"{repo.name}: whole, and where the ledger says")


def _check_strangers(facts: Facts) -> Iterator[Finding]:
    mirrors = {facts.places.mirror(repo.name) for repo in facts.records.repos}
    known = mirrors | {_draft_of(mirror) for mirror in mirrors}
    for path in (facts.places.hive / "repos" / name for name in facts.stored):
        if path not in known:
            what = f"{path} is the mirror of no repository that the ledger knows."
            yield Finding(Check.MIRRORS, Level.WARN, what, _advise_leaving(path, "--all"))


def _check_mirror(facts: Facts, repo: RepoRow) -> Iterator[Finding]:
    path, advice = facts.places.mirror(repo.name), _advise(facts, repo)
    if not (path / "objects").is_dir():
        yield Finding(Check.MIRRORS, Level.FAIL, f"The mirror {path} is gone.", advice)
        return
    if damage := find_damage(path):
        yield Finding(Check.MIRRORS, Level.FAIL, f"The mirror {path} is damaged: {damage}.", advice)
    if repo.state is RepoState.READY:
        yield from _check_branch(repo, Mirror(path), advice)
    tasks = {task.commit_id: task.key for task in facts.records.complete if task.repo == repo.name and task.commit_id}
    if lost := list_unreachable(path, tuple(tasks)):
        names = _name([tasks[commit] for commit in lost])
        what = f"{len(lost)} COMPLETE tasks are not on a branch of {path}: {names}."
        yield Finding(Check.MIRRORS, Level.FAIL, what, advice)
    yield from _check_attempts(facts, repo, path, advice)


def _check_branch(repo: RepoRow, mirror: Mirror, advice: str) -> Iterator[Finding]:
    ref = integration_ref(repo.branch)
    head = mirror.find_commit(ref)
    if head is None:
        yield Finding(Check.MIRRORS, Level.FAIL, f"{ref} is gone from {mirror.path}.", advice)
    elif not mirror.is_ancestor(str(repo.integration), head):
        what = f"{ref} of {mirror.path} was moved: it is at {head[:12]} and must hold {str(repo.integration)[:12]}."
        yield Finding(Check.MIRRORS, Level.FAIL, what, advice)


def _check_attempts(facts: Facts, repo: RepoRow, path: Path, advice: str) -> Iterator[Finding]:
    refs = list_refs(path, _ATTEMPTS)
    yield from _check_unknown(facts, path, refs)
    for known in facts.records.attempts.values():
        attempt, snapshot = known.attempt, known.find_success("snapshot")
        is_open = attempt.state in (AttemptState.WORKING, AttemptState.SUBMITTED)
        ref = attempt_ref(attempt.task, attempt.number)
        if is_open and snapshot and snapshot.repo == repo.name and ref not in refs:
            what = f"{ref} is gone from {path}: what attempt {attempt.number} at {attempt.task} made is not kept."
            yield Finding(Check.MIRRORS, Level.FAIL, what, advice)


def _check_unknown(facts: Facts, path: Path, refs: Iterable[str]) -> Iterator[Finding]:
    # The ledger is asked after the refs were listed: whatever a keeper makes is in the ledger before it has a ref.
    tasks = {ref.removeprefix(f"{_ATTEMPTS}/").rpartition("/")[0] for ref in refs}
    known = {attempt_ref(attempt.task, attempt.number) for attempt in list_attempts(facts.places, tasks)}
    if unknown := sorted(set(refs) - known):
        what = f"{len(unknown)} refs of {path} are of attempts that are not in the ledger: {_name(unknown)}."
        yield Finding(Check.MIRRORS, Level.WARN, what, _advise_leaving(path, unknown[0]))


def _name(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (" …" if len(names) > _MOST_NAMED else "")


def _advise_leaving(path: Path, what: str) -> str:
    look = f"git --git-dir={quote(str(path))} log --oneline {quote(what)}"
    return f"Leave it: it is work kept by a ledger newer than this one, or by a hive before it. To look: {look}"


def _advise(facts: Facts, repo: RepoRow) -> str:
    path = facts.places.mirror(repo.name)
    return f"Restore {path} from a copy; what was published is branch hive/{repo.branch} of {repo.path}."


def check_locks(facts: Facts) -> Iterator[Finding]:
    """Find locks and drafts of git that whoever made them has left behind."""
    in_use = facts.records.keeper is not None
    found = [_judge_lock(facts, path) for path in _list_locks(facts) if not in_use or _is_old(facts, path)]
    yield from found
    if not found:
        yield Finding(Check.LOCKS, Level.OK, "no lock of git is left behind")


def _judge_lock(facts: Facts, path: Path) -> Finding:
    if facts.records.keeper is not None:
        what = f"{path} is left behind: it is older than any run of ours may take."
        return Finding(Check.LOCKS, Level.WARN, what, "Type: hive down; hive doctor --fix; hive up --detach")
    if worker := facts.may_run:
        what = f"{path} may be left behind, and is not removed: {worker} may be at work."
        return Finding(Check.LOCKS, Level.WARN, what, "Let it end (hive up), then look again: hive doctor")
    fix = RemoveTree(path) if path.is_dir() and not path.is_symlink() else RemoveFile(path)
    return Finding(Check.LOCKS, Level.WARN, f"{path} is left behind, and nobody of ours runs git.", MEND, fix)


def _is_old(facts: Facts, path: Path) -> bool:
    try:
        return facts.now_s - path.lstat().st_mtime > LONGEST_GIT_RUN_S
    except FileNotFoundError:
        return False


def _list_locks(facts: Facts) -> Iterator[Path]:
    for repo in facts.records.repos:
        mirror = facts.places.mirror(repo.name)
        if (draft := _draft_of(mirror)).name in facts.stored:
            yield draft
        names = (entry.name for entry in list_directory(mirror) if entry.name != _OURS)
        yield from (mirror / name for name in names if name.endswith(".lock"))
        yield from _walk(mirror / "refs")
        yield from _walk(mirror / "objects", drafts="tmp_")
    for room in ("sandboxes", "gates"):
        for convoy in list_directories(facts.places.hive / room):
            for entry in list_directory(convoy.path):
                if entry.name.endswith((".index", ".index.lock")) and entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)


def _draft_of(mirror: Path) -> Path:
    return mirror.with_name(f"{mirror.name}.new")  # as the script that fetches calls it


def _walk(directory: Path, *, drafts: str | None = None) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory):
        yield from (Path(parent, name) for name in names if name.endswith(".lock"))
        if drafts:
            yield from (Path(parent, name) for name in names + directories if name.startswith(drafts))
            directories[:] = [name for name in directories if not name.startswith(drafts)]  # it goes as a whole
