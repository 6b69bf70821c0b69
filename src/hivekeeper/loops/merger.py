"""The merger: takes what workers made to the integration branch, one entry at a time a repository.

Rules:
1. The candidate is made on the branch's head without a check-out: merge-tree, then a commit with one parent.
2. The gate (the repository's `verify`, then the task's) runs on exactly the candidate's tree, laid out apart.
3. Only a candidate whose gate ended with 0 lands, by compare-and-swap from the head it was made on.
4. A landing is believed when the branch holds the candidate, and not before; then the task is COMPLETE.
5. Anything lost on the way begins a new round; a conflict or a failed gate goes back to the task as a failed attempt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import assert_never

from hivekeeper.clock import to_seconds
from hivekeeper.commands import merges as commands
from hivekeeper.commands.attempts import cancel_attempt
from hivekeeper.commands.runs import intend_run, request_kill
from hivekeeper.commands.work import make_environment, make_rooms
from hivekeeper.domain import events as e
from hivekeeper.domain import merge as m
from hivekeeper.domain.names import attempt_run_id
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.rows import AttemptRow, MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.run import Order
from hivekeeper.domain.runner import make_shell_argv
from hivekeeper.domain.states import AttemptState, MergeState, TaskState
from hivekeeper.errors import UnavailableError
from hivekeeper.git import orders
from hivekeeper.git.mirror import Conflict, Merged, Mirror
from hivekeeper.loops import Counts, is_end_of
from hivekeeper.places import Places
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import ByKeeper, Ledger, Transaction


@dataclass(frozen=True, slots=True)
class Settings:
    """`gate_wall_s`: how long a gate may take."""

    interval_s: float = 5.0
    gate_wall_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A commit made on the head, ready to be verified."""

    base: str
    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class Landed:
    """The branch holds the candidate."""

    at: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The task was cancelled and nothing of the entry runs."""


@dataclass(frozen=True, slots=True)
class EndRuns:
    """The task was cancelled and something of the entry still runs."""

    runs: tuple[RunRow, ...]


Action = Candidate | Landed | Withdraw | EndRuns | m.IntendRun | m.Land | m.Requeue | m.Reject


@dataclass(frozen=True, slots=True)
class Facts:
    """One entry and everything that belongs to it."""

    entry: MergeRow
    task: TaskRow
    attempt: AttemptRow
    repo: RepoRow
    runs: Sequence[RunRow]

    @property
    def gate(self) -> tuple[str, ...]:
        """The commands the candidate must pass, the repository's first."""
        return tuple(command for command in (self.repo.verify, self.task.verify) if command)


_WOKEN_BY = (
    e.AttemptSubmitted,
    e.TaskCancelRequested,
    e.MergeVerifying,
    e.MergeRequeued,
    e.MergeLanded,
    e.MergeRejected,
    e.MergeWithdrawn,
)


class Merger:
    """Builds, verifies and lands."""

    name = "merger"
    rest_s = 0.0

    def __init__(self, ledger: Ledger, authority: ByKeeper, places: Places, boot_id: str, settings: Settings) -> None:
        self.interval_s = settings.interval_s
        self._ledger = ledger
        self._authority = authority
        self._places = places
        self._boot_id = boot_id
        self._settings = settings

    def hears(self, body: e.Body) -> bool:
        return isinstance(body, _WOKEN_BY) or is_end_of(body, "checkout", "gate", "land")

    def run_once(self) -> Counts:
        """Move every repository's first entry one step, and let cancelled entries leave."""
        with self._ledger.read() as connection:
            facts = list(_load(connection))
        steps: list[tuple[Facts, Action]] = []
        busy: set[str] = set()
        for fact in facts:
            action: Action | None
            if fact.task.state is TaskState.CANCELLING and fact.entry.state is not MergeState.LANDING:
                action = _cancel(fact)
            elif fact.entry.repo in busy or _must_wait(fact, facts):
                continue
            else:
                busy.add(fact.entry.repo)
                action = self._decide(fact)
            if action is not None:
                steps.append((fact, action))
        if steps:
            with self._ledger.write(self._authority) as tx:
                for fact, action in steps:
                    self._record(tx, fact, action)
        return {"moved": len(steps)} if steps else {}

    def _decide(self, fact: Facts) -> Action | None:
        entry = fact.entry
        step = m.decide_merge(entry, fact.runs, has_gate=bool(fact.gate), boot_id=self._boot_id)
        match step:
            case m.Wait():
                return None
            case m.Build():
                return self._build(fact)
            case m.LookAtBranch(at):
                mirror = Mirror(self._places.mirror(entry.repo))
                landed = mirror.is_ancestor(str(entry.candidate), orders.integration_ref(fact.repo.branch))
                return Landed(at) if landed else m.Requeue("the integration branch was not where it was")
            case m.Land():
                return step if self._is_whole(entry) else m.Requeue("the machine restarted before it was safe on disk")
            case m.IntendRun() | m.Requeue() | m.Reject():
                return step
            case _:
                assert_never(step)

    def _build(self, fact: Facts) -> Candidate | m.Reject:
        entry = fact.entry
        mirror = Mirror(self._places.mirror(entry.repo))
        head = mirror.find_commit(orders.integration_ref(fact.repo.branch))
        if head is None:
            raise UnavailableError(f"The integration branch of '{entry.repo}' is gone.", advice="Type: hive doctor")
        merged = mirror.merge(head, entry.commit_id)
        adds_nothing = isinstance(merged, Conflict) or merged.tree == mirror.get_tree(head)
        if adds_nothing and (landed := mirror.find_landed(head, entry.commit_id)):
            # The landing was not seen to its end, or an older ledger was put back: it does not land again.
            return Candidate(landed.parent, landed.commit, mirror.get_tree(landed.commit))
        match merged:
            case Conflict(paths):
                names = ", ".join(paths[:5]) + (" …" if len(paths) > 5 else "")  # noqa: PLR2004 - as many as fit a line
                return m.Reject(f"it conflicts with what landed before it in {names}", entry.queued_at)
            case Merged() if adds_nothing:
                return m.Reject("everything it changes is on the integration branch already", entry.queued_at)
            case Merged(tree):
                when = f"@{int(to_seconds(entry.queued_at))} +0000"
                return Candidate(head, mirror.commit_tree(tree, head, _message(fact), when), tree)

    def _is_whole(self, entry: MergeRow) -> bool:
        """Make sure that what lands is what was tested, by object id; tell whether it is still there."""
        mirror = Mirror(self._places.mirror(entry.repo))
        if mirror.find_commit(str(entry.candidate)) is None:
            return False
        if mirror.get_tree(str(entry.candidate)) != entry.tree:
            raise UnavailableError(f"The candidate of {entry.task} is not the tree that was verified.")
        return True

    def _record(self, tx: Transaction, fact: Facts, action: Action) -> None:
        entry = fact.entry
        match action:
            case Candidate(base, commit, tree):
                commands.begin_verifying(tx, entry, base=base, candidate=commit, tree=tree)
            case m.IntendRun(kind):
                self._intend(tx, fact, kind)
            case m.Land(at):
                commands.begin_landing(tx, entry, at=at)
                self._intend(tx, fact, "land")
            case Landed(at):
                commands.note_landed(tx, entry, fact.task, at=at)
            case m.Requeue(why):
                commands.requeue(tx, entry, why=why)
            case m.Reject(why, at):
                commands.reject(tx, entry, fact.task, fact.attempt, why=why, at=at)
            case EndRuns(to_end):
                for run in to_end:
                    request_kill(tx, run, fact.task.reason)
            case Withdraw():
                commands.withdraw(tx, entry, why=fact.task.reason)
                cancel_attempt(tx, fact.task, fact.attempt)
            case _:
                assert_never(action)

    def _intend(self, tx: Transaction, fact: Facts, kind: str) -> None:
        entry = fact.entry
        mirror, gate = self._places.mirror(entry.repo), self._places.gate(entry.task, entry.attempt)
        rooms: dict[str, list[str]] | None = None
        run = attempt_run_id(entry.task, entry.attempt, m.run_kind(kind, entry))
        environment, directory = dict(orders.CLEAN_ENVIRONMENT), str(self._places.root)
        limits: dict[str, float | int | None] = {"wall_s": self._settings.gate_wall_s, "grace_s": 5.0}
        match kind:
            case "checkout":
                argv = orders.check_out_tree(mirror, str(entry.candidate), gate)
            case "gate":
                argv, directory = make_shell_argv("\n".join(map(_as_step, fact.gate))), str(gate / "work")
                # With its candidate, so that no other one's gate is taken for it.
                environment = make_environment(self._places, gate, HIVE_CANDIDATE=str(entry.candidate))
                limits, rooms = {**asdict(Limits()), **limits}, make_rooms(self._places, gate)
            case _:
                public, branch = self._places.public(entry.repo), fact.repo.branch
                argv = orders.land_commit(mirror, public, branch, str(entry.candidate), str(entry.base))
        order = Order(run, kind, argv, directory, environment, limits, rooms)
        intend_run(tx, order, boot_id=self._boot_id, task=entry.task, attempt=entry.attempt, repo=entry.repo)


def _as_step(command: str) -> str:
    # Each in a shell of its own: neither can end or change the other, and the first failure is the gate's.
    return f"(\n{command}\n) || exit $?"


def _load(connection: Connection) -> Iterator[Facts]:
    entries = queries.list_open_merges(connection)
    if not entries:
        return
    attempts = {(attempt.task, attempt.number): (attempt, task)
                for attempt, task in queries.list_open_attempts(connection, AttemptState.SUBMITTED)}  # fmt: skip
    runs = queries.list_runs_of_open_attempts(connection, AttemptState.SUBMITTED)
    repos = {repo.name: repo for repo in queries.list_repos(connection)}
    for entry in entries:
        key = (entry.task, entry.attempt)
        attempt, task = attempts[key]
        yield Facts(entry, task, attempt, repos[entry.repo], runs.get(key, []))


def _must_wait(fact: Facts, facts: Sequence[Facts]) -> bool:
    """Tell whether another entry of the repository is already being verified or landed, whatever its priority."""
    begun = (MergeState.VERIFYING, MergeState.LANDING)
    if fact.entry.state in begun:
        return False
    return any(other.entry.repo == fact.entry.repo and other.entry.state in begun for other in facts)


def _cancel(fact: Facts) -> Withdraw | EndRuns | None:
    still_open = tuple(run for run in fact.runs if run.is_open)
    if not still_open:
        return Withdraw()
    to_end = tuple(run for run in still_open if run.kill_requested_at is None)
    return EndRuns(to_end) if to_end else None


def _message(fact: Facts) -> str:
    title = fact.task.title or (fact.task.command.strip() or fact.task.id).splitlines()[0]
    trailers = {
        "Hive-Task": fact.task.id,
        "Hive-Convoy": fact.task.convoy,
        "Hive-Attempt": str(fact.attempt.number),
        "Hive-Change": fact.entry.commit_id,
        "Hive-Verified": " && ".join(command.replace("\n", "; ") for command in fact.gate) or "no gate",
    }
    lines = "\n".join(f"{name}: {value}" for name, value in trailers.items())
    return f"{fact.task.id}: {title[:120]}\n\n{lines}\n"
