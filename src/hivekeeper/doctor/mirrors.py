"""Mirrors: every object that is needed is there, and branches are where the ledger says.

What the ledger does not know stays: it may come from a ledger newer than this one, or from an earlier hive.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote

from hivekeeper.doctor.facts import Facts, list_attempts
from hivekeeper.doctor.findings import Check, Finding, Say, fail, or_ok, warn
from hivekeeper.doctor.locks import draft_of
from hivekeeper.domain.names import name_some
from hivekeeper.domain.rows import RepoRow
from hivekeeper.domain.states import OPEN_ATTEMPTS, RepoState
from hivekeeper.domain.wording import agree, say_count
from hivekeeper.errors import HiveError
from hivekeeper.git.mirror import Mirror, find_damage, list_refs, list_unreachable
from hivekeeper.git.orders import attempt_ref, integration_ref

_KINDS = ("attempts", "saves", "rest")


def check_mirrors(facts: Facts, say: Say) -> Iterator[Finding]:
    """Check the mirror of every repository that was ever fetched, and for mirrors of unknown repositories."""
    yield from _check_strangers(facts)
    for repo in facts.records.repos:
        if repo.integration is None or _lacks_lender(facts, repo):
            continue
        say(f"the mirror of {repo.name}")
        try:
            yield from or_ok(
                _check_mirror(facts, repo), Check.MIRRORS, f"{repo.name}: whole, and where the ledger says"
            )
        except HiveError as error:
            yield fail(Check.MIRRORS, error.what, error.advice or _advise(facts, repo))


def _check_strangers(facts: Facts) -> Iterator[Finding]:
    places = (facts.places.mirror, facts.places.public)
    stored = {place(repo.name) for repo in facts.records.repos for place in places}
    known = stored | {draft_of(path) for path in stored}
    for path in facts.stored:
        if path not in known:
            what = f"{path} is a mirror of a repository that is not in the ledger."
            yield warn(Check.MIRRORS, what, _advise_leaving(path, "--all"))


def _lacks_lender(facts: Facts, repo: RepoRow) -> bool:
    """Tell whether a mirror borrows from a public repository that is gone; that is a finding of its own."""
    borrows = (facts.places.mirror(repo.name) / "objects" / "info" / "alternates").exists()
    return borrows and not facts.places.public(repo.name).is_dir()


def _check_mirror(facts: Facts, repo: RepoRow) -> Iterator[Finding]:
    path, advice = facts.places.mirror(repo.name), _advise(facts, repo)
    if not (path / "objects").is_dir():
        yield fail(Check.MIRRORS, f"The mirror {path} is gone.", advice)
        return
    if damage := find_damage(path):
        yield fail(Check.MIRRORS, f"The mirror {path} is damaged: {damage}.", advice)
    if repo.state is RepoState.READY:
        yield from _check_branch(repo, Mirror(path), advice)
    tasks = {task.commit_id: task.key for task in facts.records.complete if task.repo == repo.name and task.commit_id}
    refs = {ref: to for kind in _KINDS for ref, to in list_refs(path, f"refs/hive/{kind}").items()}
    # Without a merge queue, what a task made stays where it was saved.
    if lost := [commit for commit in list_unreachable(path, tuple(tasks)) if commit not in refs.values()]:
        names = name_some([tasks[commit] for commit in lost])
        tasks_are = say_count(len(lost), "COMPLETE task is", "COMPLETE tasks are")
        what = f"{tasks_are} not on a branch of {path}: {names}."
        yield fail(Check.MIRRORS, what, advice)
    yield from _check_unknown(facts, path, refs)
    yield from _check_attempts(facts, repo, path, refs)


def _check_branch(repo: RepoRow, mirror: Mirror, advice: str) -> Iterator[Finding]:
    ref = integration_ref(repo.branch)
    head = mirror.find_commit(ref)
    if head is None:
        yield fail(Check.MIRRORS, f"{ref} is gone from {mirror.path}.", advice)
    elif not mirror.is_ancestor(str(repo.integration), head):
        what = f"{ref} of {mirror.path} was moved: it is at {head[:12]} and must hold {str(repo.integration)[:12]}."
        yield fail(Check.MIRRORS, what, advice)


def _check_attempts(facts: Facts, repo: RepoRow, path: Path, refs: Iterable[str]) -> Iterator[Finding]:
    for known in facts.records.attempts.values():
        attempt, snapshot = known.attempt, known.find_success("snapshot")
        is_open = attempt.state in OPEN_ATTEMPTS
        ref = attempt_ref(attempt.task, attempt.number)
        if is_open and snapshot and snapshot.repo == repo.name and ref not in refs:
            what = f"{ref} is gone from {path}: what attempt {attempt.number} at {attempt.task} made is not saved."
            yield fail(Check.MIRRORS, what, _advise(facts, repo))


def _check_unknown(facts: Facts, path: Path, refs: Iterable[str]) -> Iterator[Finding]:
    # The ledger is read after the refs: whatever a keeper makes is in the ledger before it has a ref.
    owners = {ref: _owner_of(ref) for ref in refs}
    tasks = {owner.rpartition("/")[0] for owner in owners.values()}
    known = {f"{attempt.task}/{attempt.number}" for attempt in list_attempts(facts.places, tasks)}
    if unknown := sorted(ref for ref, owner in owners.items() if owner not in known):
        whose = agree(len(unknown), "belongs to an attempt that is", "belong to attempts that are")
        what = f"{say_count(len(unknown), 'ref')} of {path} {whose} not in the ledger: {name_some(unknown)}."
        yield warn(Check.MIRRORS, what, _advise_leaving(path, unknown[0]))


def _owner_of(ref: str) -> str:
    """Return the task and number of the attempt that a ref belongs to."""
    kind, _, owner = ref.removeprefix("refs/hive/").partition("/")
    return owner.rpartition("/")[0] if kind == "saves" else owner


def _advise_leaving(path: Path, what: str) -> str:
    look = f"git --git-dir={quote(str(path))} log --oneline {quote(what)}"
    return f"Leave it: it is work saved by a newer ledger, or by an earlier hive. To see it: {look}"


def _advise(facts: Facts, repo: RepoRow) -> str:
    path = facts.places.mirror(repo.name)
    return f"Restore {path} from a copy; what was published is branch {repo.published_as} of {repo.path}."
