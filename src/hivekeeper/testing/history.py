"""The judge of a whole history: what was lost, done twice, never asked for, or done out of order.

Three witnesses who do not know each other are compared: the ledger's events, the marks that the runs themselves left
on disk when they began, and the commits on the integration branches. A fourth list says what somebody was told: an
acknowledgement is a promise, whatever happened afterwards.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from hivekeeper.domain import events as e
from hivekeeper.domain.gate import Gate
from hivekeeper.domain.owners import tree_owner
from hivekeeper.domain.rows import RepoRow, TaskRow
from hivekeeper.domain.states import RepoState, TaskState
from hivekeeper.git.orders import REPLACED, integration_ref, published_ref
from hivekeeper.places import Places
from hivekeeper.store import queries
from hivekeeper.store.ledger import open_ledger, read_events

Key = tuple[str, int]


class Fault(StrEnum):
    """What can be wrong with a history."""

    LOST = "lost"
    DOUBLED = "doubled"
    UNEXPECTED = "unexpected"
    OUT_OF_ORDER = "out of order"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not be."""

    fault: Fault
    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.fault.value}: {self.subject}: {self.what}"


@dataclass(frozen=True, slots=True)
class Landed:
    """A commit on an integration branch, as its trailers say."""

    task: str
    attempt: int
    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class History:
    """What the witnesses say.

    `held`: attempts that added nothing to the branch, each with the commit of the branch that holds what they changed.
    `settled`: everything was given the time to come to its end. `restored`: an older ledger was put back, so that a run
    may be older than the intent that adopted it.
    """

    events: Sequence[e.Event]
    tasks: Sequence[TaskRow] = ()
    begun: Mapping[Key, int] = field(default_factory=dict)
    landed: Sequence[Landed] = ()
    kept: frozenset[Key] = frozenset()
    published: Mapping[str, str] = field(default_factory=dict)
    acknowledged: Sequence[str] = ()
    settled: bool = True
    restored: bool = False
    held: frozenset[tuple[Key, str]] = frozenset()


def check_history(history: History) -> list[Violation]:
    """Find everything that is wrong."""
    checks = (
        _check_log, _check_dispatches, _check_begun, _check_kept, _check_landed, _check_published, _check_acknowledged,
        _check_settled,
    )  # fmt: skip
    return [violation for check in checks for violation in check(history)]


def _check_log(history: History) -> Iterator[Violation]:
    """Check that events are numbered without a gap, epochs only rise, and who writes as keeper holds the lease."""
    epoch, holder = 0, ""
    for expected, event in enumerate(history.events, start=1):
        if event.seq != expected:
            yield Violation(Fault.LOST, f"event {expected}", f"the log goes on with {event.seq}")
            return
        if isinstance(event.body, e.LeaseTaken):
            holder = event.body.holder
        elif isinstance(event.body, e.LeaseReleased):
            holder = ""
        elif type(event.body) not in e.REQUESTS and event.who != holder:
            yield Violation(
                Fault.UNEXPECTED, event.body.subject, f"{event.who} wrote {event.body.kind} without the lease"
            )
        if event.epoch < epoch:
            yield Violation(Fault.OUT_OF_ORDER, f"event {event.seq}", f"epoch {event.epoch} after epoch {epoch}")
        epoch = event.epoch


def _check_dispatches(history: History) -> Iterator[Violation]:
    """Check that tasks are dispatched after their predecessors, one attempt at a time, and never after their end."""
    after: dict[str, list[str]] = {}
    complete: set[str] = set()
    ended: set[str] = set()
    at_work: dict[str, int] = {}
    for event in history.events:
        match event.body:
            case e.TaskAdded() as b:
                after[b.task] = b.after
            case e.TaskDispatched() as b:
                if b.task in ended:
                    yield Violation(Fault.DOUBLED, b.task, f"attempt {b.attempt} was dispatched after its end")
                if b.task in at_work:
                    yield Violation(Fault.DOUBLED, b.task, f"attempt {b.attempt} began beside {at_work[b.task]}")
                for other in after.get(b.task, ()):
                    if other not in complete:
                        yield Violation(Fault.OUT_OF_ORDER, b.task, f"it was dispatched before {other} was complete")
                at_work[b.task] = b.attempt
            case e.TaskCompleted() as b:
                if b.task in complete:
                    yield Violation(Fault.DOUBLED, b.task, "it was completed twice")
                complete.add(b.task)
                ended.add(b.task)
                at_work.pop(b.task, None)
            case e.TaskCancelled() as b:
                ended.add(b.task)
            case e.AttemptFailed() | e.AttemptUnknown() | e.AttemptCancelled() as b:
                at_work.pop(b.task, None)
            case _:
                pass


def _check_begun(history: History) -> Iterator[Violation]:
    """Check that every mark of an agent has one intent before it, and every completed attempt a mark."""
    intended = {
        (b.task, b.attempt)
        for b in (event.body for event in history.events)
        if isinstance(b, e.RunIntended) and b.run_kind == "agent"
    }
    for (task, attempt), times in history.begun.items():
        if times > 1:
            yield Violation(Fault.DOUBLED, task, f"attempt {attempt} began {times} times")
        if (task, attempt) not in intended:
            yield Violation(Fault.UNEXPECTED, task, f"attempt {attempt} began and the ledger never meant it to")
    intended_at: dict[str, str] = {}
    by_hand = {
        ev.body.task for ev in history.events if isinstance(ev.body, e.TaskAdded) and "branch" in ev.body.details
    }
    for event in history.events:
        match event.body:
            case e.TaskCompleted() as b if b.task in by_hand:
                pass
            case e.TaskCompleted() as b if history.begun and not history.begun.get((b.task, b.attempt)):
                yield Violation(Fault.UNEXPECTED, b.task, f"attempt {b.attempt} is complete and never began")
            case e.RunIntended() as b:
                intended_at[b.run] = event.recorded_at
            case e.RunStarted() as b if event.occurred_at < intended_at[b.run] and not history.restored:
                yield Violation(Fault.UNEXPECTED, b.run, "it began before it was intended")
            case _:
                pass


def _check_kept(history: History) -> Iterator[Violation]:
    """Check that no sandbox in which an agent was is gone before what it made was kept."""
    worked: set[Key] = set()
    for b in (event.body for event in history.events):
        if isinstance(b, e.RunIntended) and b.run_kind == "agent" and b.repo and b.task and b.attempt:
            worked.add((b.task, b.attempt))
        elif isinstance(b, e.AttemptSwept) and (b.task, b.attempt) in worked - history.kept:
            yield Violation(
                Fault.LOST, b.task, f"the sandbox of attempt {b.attempt} is gone, and nothing of it is kept"
            )


def _check_published(history: History) -> Iterator[Violation]:
    """Check that the person's repository has what the ledger says was published to it, in the end nothing else."""
    last = {ev.body.repo: ev.body.commit for ev in history.events if isinstance(ev.body, e.RepoPublished)}
    for repo, commit in last.items():
        if history.settled and history.published.get(repo, commit) != commit:
            yield Violation(Fault.LOST, repo, f"{commit[:10]} was published, and its branch is elsewhere")


def _check_landed(history: History) -> Iterator[Violation]:
    """Check that what landed by the ledger is on the branch once, nothing else is, and each passed its own gate."""
    on_branch = Counter(landed.task for landed in history.landed)
    for task, times in on_branch.items():
        if times > 1:
            yield Violation(Fault.DOUBLED, task, f"it landed {times} times")
    commits = {landed.commit for landed in history.landed}
    verified = _list_verified(history.events)
    completed: set[str] = set()
    on_repository = {ev.body.task for ev in history.events if isinstance(ev.body, e.TaskAdded) and ev.body.repo}
    made_again, added_nothing = _list_made_again(history.events), _list_added_nothing(history.events)
    for b in (event.body for event in history.events):
        if isinstance(b, e.TaskCompleted) and b.task in on_repository:
            completed.add(b.task)
            if (b.task, b.attempt) in added_nothing:
                if ((b.task, b.attempt), b.commit) not in history.held:
                    what = f"it is complete without a commit of its own, and {b.commit} does not hold what it changed"
                    yield Violation(Fault.LOST, b.task, what)
            elif b.commit not in commits | made_again:
                yield Violation(Fault.LOST, b.task, f"it is complete, and its commit {b.commit} is not on the branch")
    for landed in history.landed:
        if history.settled and landed.task not in completed:
            yield Violation(Fault.UNEXPECTED, landed.task, "it is on the branch, and the ledger does not say so")
        if (landed.commit, landed.tree) not in verified:
            yield Violation(Fault.UNEXPECTED, landed.task, f"{landed.commit[:10]} landed and nobody verified its tree")


def _list_made_again(events: Sequence[e.Event]) -> set[str | None]:
    """List commits that a person's branch left behind: each has a task of its own that makes it again."""
    details = (event.body.details for event in events if isinstance(event.body, e.TaskAdded))
    return {said["commit"] for said in details if "remakes" in said}


def _list_added_nothing(events: Sequence[e.Event]) -> set[Key]:
    """List attempts whose change was on the branch already, by their last candidate: it is its own base."""
    last = {(b.task, b.attempt): b for b in (event.body for event in events) if isinstance(b, e.MergeVerifying)}
    return {key for key, made in last.items() if made.base == made.candidate}


def _list_verified(events: Sequence[e.Event]) -> set[tuple[str, str]]:
    """List candidates, with their trees, whose tree passed its own gate, or that no gate was ever defined for."""
    candidates: dict[Key, tuple[str, str]] = {}
    repos: dict[str, RepoRow] = {}
    tasks: dict[str, e.TaskAdded] = {}
    passed: set[str] = set()
    owners: dict[str, str] = {}
    verified: set[tuple[str, str]] = set()
    added_nothing = _list_added_nothing(events)
    for event in events:
        match event.body:
            case e.RepoWanted() as b:
                repos[b.repo] = _as_row(b, repos.get(b.repo))
            case e.RepoResumed() as b:
                repos[b.repo] = replace(repos[b.repo], resumptions=event.seq)
            case e.TaskAdded() as b:
                tasks[b.task] = b
            case e.MergeVerifying() as b:
                candidates[b.task, b.attempt] = (b.candidate, b.tree)
            case e.RunIntended() as b if b.run_kind == "gate":
                owners[b.run] = b.owner
            case e.RunExited() as b if b.run_kind == "gate" and b.status == 0 and b.ended_by == "exit":
                passed.add(owners[b.run])
            case e.MergeLanding() as b:
                task, (candidate, tree) = tasks[b.task], candidates[b.task, b.attempt]
                if (b.task, b.attempt) in added_nothing:
                    continue  # what its gate says of somebody else's commit does not count for that
                gate = Gate(repos[str(task.repo)], task.verify)
                if not gate.commands or tree_owner(gate, tree).name in passed:
                    verified.add((candidate, tree))
            case _:
                pass
    return verified


def _as_row(wanted: e.RepoWanted, known: RepoRow | None) -> RepoRow:
    """See a repository as the merger did."""
    place = (wanted.repo, wanted.path, wanted.branch, wanted.verify)
    resumptions = known.resumptions if known else 0
    return RepoRow(*place, RepoState.READY, wanted.fetch, e.encode_json(wanted.details), resumptions=resumptions)


def _check_acknowledged(history: History) -> Iterator[Violation]:
    """Check that what somebody was told, `submitted CONVOY`, `asked TASK` or `complete TASK`, is in the ledger."""
    known: set[str] = set()
    for b in (event.body for event in history.events):
        match b:
            case e.ConvoySubmitted():
                known.add(f"submitted {b.convoy}")
            case e.TaskRetryRequested() | e.TaskCancelRequested() | e.TaskCancelled():
                known.add(f"asked {b.task}")
            case e.TaskCompleted():
                known.add(f"complete {b.task}")
            case _:
                pass
    for told in history.acknowledged:
        if told.startswith(("submitted ", "asked ", "complete ")) and told not in known:
            yield Violation(Fault.LOST, told.partition(" ")[2], f"somebody was told '{told}', and the ledger forgot")


def _check_settled(history: History) -> Iterator[Violation]:
    """Check that, given the time, every task has an end, or waits for one that needs a person."""
    if not history.settled:
        return
    after = {ev.body.task: ev.body.after for ev in history.events if isinstance(ev.body, e.TaskAdded)}
    states = {task.key: task.state for task in history.tasks}
    stuck = {key for key, state in states.items() if state in _NEEDS_A_PERSON}
    while found := {key for key in states if key not in stuck and stuck.intersection(after.get(key, ()))}:
        stuck |= found
    for key, state in states.items():
        if state is not TaskState.COMPLETE and key not in stuck:
            yield Violation(Fault.LOST, key, f"it is still {state.value}, and nothing moves it")


_NEEDS_A_PERSON = (TaskState.FAILED, TaskState.UNKNOWN, TaskState.CANCELLED)


def read_history(
    root: Path,
    *,
    marks: Sequence[str],
    acknowledged: Sequence[str] = (),
    settled: bool = True,
    restored: bool = False,
) -> History:
    """Hear the witnesses of the hive in a directory; `marks` has `CONVOY/TASK ATTEMPT` for every beginning."""
    places = Places(root.resolve())
    ledger = open_ledger(places.ledger)
    try:
        with ledger.read() as connection:
            events = read_events(connection, 0, 1 << 31)
            convoys = queries.list_convoys(connection, archived=True)
            tasks = [task for convoy in convoys for task in queries.list_tasks_of_convoy(connection, convoy.name)]
            repos = queries.list_repos(connection)
    finally:
        ledger.close()
    begun = Counter((name, int(attempt)) for name, _, attempt in (mark.partition(" ") for mark in marks))
    landed = [item for repo in repos for item in _list_landed(places.mirror(repo.name), repo.branch)]
    kept = frozenset(key for repo in repos for key in _list_kept(places.mirror(repo.name)))
    refs = {repo.name: (published_ref if repo.publish == "branch" else integration_ref)(repo.branch) for repo in repos}
    tips = {repo.name: _find_tip(Path(repo.path), refs[repo.name]) for repo in repos}
    published = {repo: tip for repo, tip in tips.items() if tip is not None}
    by_key = {task.key: task for task in tasks}
    held = frozenset(
        ((task.key, attempt), task.commit_id)
        for task, attempt in ((by_key[key], attempt) for key, attempt in _list_added_nothing(events))
        if task.repo and task.commit_id and _holds(places.mirror(task.repo), task, attempt)
    )
    return History(events, tasks, begun, landed, kept, published, acknowledged, settled, restored, held)


def _list_kept(mirror: Path) -> Iterator[Key]:
    prefix = "refs/hive/attempts/"
    argv = ("git", "--git-dir", str(mirror), "for-each-ref", "--format=%(refname)", prefix)
    for ref in subprocess.run(argv, capture_output=True, check=False, text=True).stdout.split():
        task, _, attempt = ref.removeprefix(prefix).rpartition("/")
        yield task, int(attempt)


def _holds(mirror: Path, task: TaskRow, attempt: int) -> bool:
    """Tell whether a task's commit is on a branch, today's or a replaced one, and its attempt adds nothing to it."""
    git, commit = ("git", "--git-dir", str(mirror)), str(task.commit_id)
    kept = f"refs/hive/attempts/{task.key}/{attempt}"
    asked = (
        (*git, "for-each-ref", "--contains", commit, "refs/heads", REPLACED),
        (*git, "merge-tree", "--write-tree", commit, kept),
        (*git, "rev-parse", f"{commit}^{{tree}}"),
    )
    branches, merged, tree = (
        subprocess.run(argv, capture_output=True, check=False, text=True).stdout for argv in asked
    )
    # What is made again is one commit, and a merge would bring everything before it.
    return bool(branches) and (merged == tree or task.remakes is not None)


def _find_tip(repository: Path, ref: str) -> str | None:
    """Find where a branch of a person's repository is; nothing where the repository is gone."""
    argv = ("git", "-C", str(repository), "rev-parse", "--quiet", "--verify", ref)
    done = subprocess.run(argv, capture_output=True, check=False, text=True)
    return done.stdout.strip() if repository.is_dir() else None


def _list_landed(mirror: Path, branch: str) -> Iterator[Landed]:
    keys = "".join(f"%(trailers:key=Hive-{key},valueonly,separator=)%x09" for key in ("Convoy", "Task", "Attempt"))
    argv = (
        "git",
        "--git-dir",
        str(mirror),
        "log",
        "--reverse",
        f"--format={keys}%H%x09%T",
        f"refs/heads/{branch}",
        "--",
    )
    shown = subprocess.run(argv, capture_output=True, check=False, text=True)
    for line in shown.stdout.splitlines():
        convoy, task, attempt, commit, tree = line.split("\t")
        if task:
            yield Landed(f"{convoy}/{task}", int(attempt), commit, tree)
