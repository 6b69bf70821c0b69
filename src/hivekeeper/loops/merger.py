"""The merger: lands workers' changes on the integration branch, each commit verified exactly as it lands.

Rules:
1. Candidates are built without a checkout, each on the one before it (git/candidate.py). The policy (domain/train.py)
   decides what to build, verify, land and reject. This loop takes one snapshot per repository and carries out the
   policy's answers.
2. The gate is the repository's and the task's as recorded in the ledger, never the branch's own; it runs on exactly
   the candidate's tree, in one of the hive's checkouts. A change to a file that decides what passes waits for approval.
3. Only a candidate that passed lands, by compare-and-swap from its base. Once the branch holds the candidate, and not
   before, the task is COMPLETE.
4. A rejected change goes back to its task, with everything that its next worker must know.
5. One repository's errors do not affect another's queue.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from hivekeeper.commands import merges as commands
from hivekeeper.commands.attempts import cancel_attempt
from hivekeeper.commands.runs import request_kill
from hivekeeper.commands.trust import pin
from hivekeeper.domain import events as e
from hivekeeper.domain import gate as g
from hivekeeper.domain import merge as m
from hivekeeper.domain import train as t
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.owners import OwnerKind, landing_owner
from hivekeeper.domain.rows import MergeRow, RepoRow, RunRow
from hivekeeper.domain.sequences import GATE, LAND, RESOLVE
from hivekeeper.domain.states import MergeState, RepoState, TaskState
from hivekeeper.domain.steps import Done, Facts, Failed, Start, decide
from hivekeeper.errors import HiveError, UnavailableError
from hivekeeper.git import candidate as c
from hivekeeper.git import orders
from hivekeeper.git.mirror import Mirror
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.merging import entries as queue_entries
from hivekeeper.merging.checks import Act, Checks, stop_unwanted
from hivekeeper.merging.entries import Entry
from hivekeeper.merging.resolving import ConflictResolver
from hivekeeper.merging.source import list_changed_configuration, read_configuration
from hivekeeper.places import Places
from hivekeeper.specs.queue import specify_landing
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

MAX_BUILDS = 100


@dataclass(slots=True)
class Queue:
    """One repository's queue in this pass: its entries by their keys, and what to record."""

    repo: RepoRow
    entries: dict[str, Entry]
    mirror: Mirror
    head: str
    checks: Checks
    acts: list[Act] = field(default_factory=list)


_WOKEN_BY = (
    e.AttemptSubmitted,
    e.TaskCancelRequested,
    e.MergeVerifying,
    e.MergeRequeued,
    e.MergeFailed,
    e.MergeFlaked,
    e.MergeApproved,
    e.MergePrioritized,
    e.MergeResolved,
    e.MergeLanded,
    e.MergeRejected,
    e.MergeWithdrawn,
    e.RepoFetched,
    e.RepoResumed,
    e.RepoRecovered,
    e.RunReported,
    e.HoldLifted,
)


class Merger(Loop):
    """Builds, verifies and lands candidates."""

    name = "merger"
    order = 70
    wakes = Wakes(
        _WOKEN_BY,
        ends_of=(*GATE.kinds, *LAND.kinds, *RESOLVE.kinds),
    )
    interval_s = 5.0

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        settings = self._settings
        resolver = settings.runners.get(settings.resolver or "")
        self._conflict_resolver = ConflictResolver(self._places, self._boot_id, resolver, settings.day, self._clock)
        self._parallel = settings.parallel or os.cpu_count() or 1
        # Landings that were not recorded, and commits that a change cannot be merged onto. Caches: git objects never
        # change.
        self._landed: set[str | None] = set()
        self._unmerged: dict[tuple[str, str], c.Unmergeable] = {}

    def run_once(self) -> Counts:
        """Advance every repository's queue as far as possible."""
        acts: list[Act] = []
        problems: list[HiveError] = []
        with self._ledger.read() as connection:
            by_repo: dict[str, list[Entry]] = {}
            for entry in queue_entries.load_entries(connection):
                by_repo.setdefault(entry.row.repo, []).append(entry)
            at_work = [run for run in queries.list_open_runs(connection) if run.owner_kind == OwnerKind.TREE]
            slots = self._parallel - len(at_work)
            for entries in by_repo.values():
                try:
                    queue = self._open(connection, entries, at_work)
                    slots = self._plan(queue, slots)
                    acts += queue.acts
                except HiveError as error:
                    problems.append(error)
            acts += _stop_orphans(at_work, by_repo)
        if acts:
            with self._ledger.write(self._authority) as tx:
                for act in acts:
                    act(tx)
        if problems:
            raise problems[0]
        return {"moved": len(acts)} if acts else {}

    def _open(self, connection: Connection, entries: Sequence[Entry], at_work: Sequence[RunRow]) -> Queue:
        repo = entries[0].repo
        mirror = Mirror(self._places.mirror(repo.name))
        head = mirror.find_commit(orders.integration_ref(repo.branch))
        if head is None:
            raise UnavailableError(f"The integration branch of '{repo.name}' is gone.", advice="Type: hive doctor")
        ours = [run for run in at_work if run.repo == repo.name]
        checks = Checks(repo, connection, mirror, self._places, self._boot_id, self._settings.gate_timeout_s, ours)
        return Queue(repo, {entry.row.key: entry for entry in entries}, mirror, head, checks)

    def _plan(self, queue: Queue, slots: int) -> int:
        """Decide everything for one repository; return how many more verifications may start."""
        for entry in list(queue.entries.values()):
            if entry.row.state is MergeState.LANDING:
                self._continue_landing(queue, entry)
            elif entry.task.state is TaskState.CANCELLING:
                queue.acts.append(_cancel(entry))
                del queue.entries[entry.row.key]
        if queue.repo.paused or queue.repo.state is not RepoState.READY:
            return slots
        actions, main, free = self._decide(queue, slots)
        for action in actions:
            free -= self._apply(queue, action, main)
        queue.acts += queue.checks.continue_tries()
        if queue.repo.stopped and not any(isinstance(action, t.Stop) for action in actions):
            queue.acts.append(lambda tx: commands.recover_queue(tx, queue.repo))
        return free

    def _decide(self, queue: Queue, slots: int) -> tuple[list[t.Action], g.Found, int]:
        """Ask the policy, and build candidates as long as it wants one; return how many checkouts are left."""
        for _ in range(MAX_BUILDS):
            queue.checks.clear()
            main = queue.checks.check_main(queue.head)
            cars = [self._look(queue, entry) for entry in queue.entries.values() if not entry.row.held]
            free = slots - queue.checks.count_pending()
            actions = t.plan_strict(t.Snapshot(queue.head, main.verdict, cars, free))
            build = next((action for action in actions if isinstance(action, t.Build)), None)
            if build is None:
                return actions, main, free
            self._build(queue, queue.entries[build.key], build.onto)
        return [], g.Found(t.Verdict.UNTRIED), 0

    def _look(self, queue: Queue, entry: Entry) -> t.Car:
        """Return an entry as a car of the train."""
        row, verdict = entry.row, t.Verdict.UNTRIED
        is_made = row.state is not MergeState.QUEUED  # an earlier candidate does not count
        if is_made and row.candidate and row.tree:
            verdict = t.Verdict.PASSED
            if entry.gate.commands:
                verdict = queue.checks.check_entry(entry).verdict
        theirs = row.resolved or row.commit_id
        return t.Car(
            row.key,
            row.base if is_made else None,
            row.candidate,
            verdict,
            is_suspect=bool(row.failures),
            is_landing=row.state is MergeState.LANDING,
            is_landed=is_made and row.candidate in self._landed and row.candidate != row.base,
            is_hotfix=row.priority >= m.HOTFIX_PRIORITY,
            conflicts=lambda onto: (onto, theirs) in self._unmerged,
        )

    def _build(self, queue: Queue, entry: Entry, onto: str) -> None:
        """Build a candidate on a commit, or find out why it is impossible."""
        row, mirror = entry.row, queue.mirror
        change = queue_entries.describe_change(mirror, entry)
        try:
            made = c.make_candidate(mirror, onto, change)
        except UnavailableError:
            before = next((other for other in queue.entries.values() if other.row.candidate == onto), None)
            if before is None or mirror.find_commit(onto):
                raise
            _requeue_missing(queue, before.row)
            return
        if not isinstance(made, c.Candidate):
            self._unmerged[onto, row.resolved or row.commit_id] = made
            return
        if made.base != onto:
            self._landed.add(made.commit)
        guarded = m.list_gate_files(queue.repo, made.changed, lambda path: mirror.find_link(onto, path))
        obeyed = list_changed_configuration(queue.repo, made.changed)
        guarded += [path for path in obeyed if path not in guarded]
        if guarded and not row.approved:
            what = "the agent configuration" if guarded[0] in obeyed else "the protected file"
            why = queue_entries.as_text(f"it changes {what} {guarded[0]}")
            queue.acts.append(lambda tx: commands.hold(tx, row, why=why))
            del queue.entries[row.key]
            return
        tier = row.tier if row.resolved and made.tier == "clean" else made.tier
        state, number = MergeState.VERIFYING, row.round + 1
        made_row = replace(
            row, state=state, round=number, base=made.base, candidate=made.commit, tree=made.tree, tier=tier
        )
        queue.entries[row.key] = replace(entry, row=made_row)
        queue.acts.append(lambda tx: commands.begin_verifying(tx, made_row))

    def _apply(self, queue: Queue, action: t.Action, main: g.Found) -> int:
        """Carry out an action of the policy; return how many checkouts it takes."""
        entry = queue.entries.get(getattr(action, "key", None) or "")
        match action:
            case t.VerifyMain():
                gate, tree = g.Gate(queue.repo), queue.mirror.get_tree(queue.head)
                queue.acts += queue.checks.start_try(gate, tree)
                return 1
            case t.Stop():
                _stop(queue, entry, main)
                return 0
            case _:
                pass
        assert entry is not None
        row, mirror = entry.row, queue.mirror
        match action:
            case t.Verify() if mirror.find_commit(str(row.candidate)) is None:
                _requeue_missing(queue, row)
            case t.Verify():
                queue.acts += queue.checks.start_try(entry.gate, str(row.tree))
                return 1
            case t.Land():
                self._land(queue, entry)
            case t.Suspect():
                queue.acts.append(partial(commands.suspect, entry=row, run=queue.checks.get_run(entry)))
            case t.Clear():
                queue.acts.append(partial(commands.clear, entry=row, run=queue.checks.get_run(entry)))
            case t.Reject():
                failed = queue.checks.get_run(entry)
                output = self._runs.read_output(failed.id)
                queue.acts.append(lambda tx: queue_entries.reject_failed(tx, entry, failed, output))
            case t.Resolve():
                self._resolve(queue, entry)
            case t.Build():
                pass
            case _:
                assert_never(action)
        return 0

    def _land(self, queue: Queue, entry: Entry) -> None:
        """Land a candidate, if it still exists and is, by object id, the tree that was verified."""
        row, mirror = entry.row, queue.mirror
        if row.round > m.MAX_ROUNDS:
            queue.acts.append(lambda tx: queue_entries.reject_after_max_rounds(tx, entry))
            return
        if mirror.find_commit(str(row.candidate)) is None:
            _requeue_missing(queue, row)
            return
        if mirror.get_tree(str(row.candidate)) != row.tree:
            raise UnavailableError(f"The candidate of {row.task} is not the tree that was verified.")
        passed = queue.checks.get(entry).run if entry.gate.commands else None
        at = (passed.ended_at if passed else None) or row.queued_at

        def land(tx: Transaction) -> None:
            commands.begin_landing(tx, row, at=at)
            self._intend_landing(tx, entry, Start("land"))

        queue.acts.append(land)

    def _intend_landing(self, tx: Transaction, entry: Entry, start: Start) -> None:
        spec = specify_landing(self._places, entry.row, entry.repo)
        self._intend(tx, landing_owner(entry.row), start, spec)

    def _continue_landing(self, queue: Queue, entry: Entry) -> None:
        """Record a landing when its run succeeded, so that it is safe on disk, and the branch holds it."""
        row, places = entry.row, self._places
        runs = [run for run in entry.runs if run.owner_kind == OwnerKind.ENTRY and run.round == row.round]
        match decide(LAND, runs, Facts(self._boot_id)):
            case Start() as start:
                queue.acts.append(lambda tx: self._intend_landing(tx, entry, start))
            case Done(run) if queue.mirror.is_ancestor(str(row.candidate), queue.head):
                queue.acts.append(_note_landed(queue, entry, places, run.ended_at or run.intended_at))
            case Done():
                queue.acts.append(partial(commands.requeue, entry=row, why="the integration branch has moved"))
            case Failed(run):
                why = f"its landing failed: {describe_ending(run)}"
                queue.acts.append(partial(commands.requeue, entry=row, why=why))
            case _:
                pass

    def _resolve(self, queue: Queue, entry: Entry) -> None:
        """Resolve a conflict with what has landed, or reject the change."""
        row, mirror = entry.row, queue.mirror
        made = self._unmerged[queue.head, row.resolved or row.commit_id]
        match made:
            case c.Unresolved():
                act = self._conflict_resolver.plan(queue.checks.connection, mirror, entry, made, queue.head)
                queue.acts += [act] if act else []
            case c.Empty() | c.Strays() | c.Unsound():
                queue.acts.append(partial(queue_entries.reject_unmergeable, entry=entry, made=made))
            case _:
                assert_never(made)


def _note_landed(queue: Queue, entry: Entry, places: Places, at: str) -> Act:
    row, mirror = entry.row, queue.mirror
    changed = mirror.list_changed(str(row.base), str(row.candidate))
    holder = None
    if row.base == row.candidate:  # the branch had all its changes already
        holder = c.find_holder(mirror, str(row.candidate), queue_entries.describe_change(mirror, entry))

    is_trusted = row.approved and list_changed_configuration(entry.repo, changed)
    shipped = read_configuration(mirror, entry.repo, str(row.candidate)) if is_trusted else None
    is_hotfix = row.priority >= m.HOTFIX_PRIORITY
    notices = queue_entries.find_hotfix_notices(queue.checks.connection, places, entry, changed) if is_hotfix else []

    def note(tx: Transaction) -> None:
        commands.note_landed(tx, row, entry.task, at=at, head=queue.head, holder=holder)
        if shipped is not None:
            pin(tx, entry.repo, shipped, why="a person let it land")
        queue_entries.send_hotfix_notices(tx, notices)

    return note


def _requeue_missing(queue: Queue, row: MergeRow) -> None:
    """Requeue an entry whose candidate was lost in a power cut."""
    queue.entries.pop(row.key, None)
    queue.acts.append(lambda tx: commands.requeue(tx, row, why="the machine restarted before it was safe on disk"))


def _stop(queue: Queue, entry: Entry | None, main: g.Found) -> None:
    """Stop the queue and record why: an entry's gate cannot be run, or the branch itself does not pass."""
    repo = queue.repo
    found = queue.checks.get(entry) if entry else main
    ending = describe_ending(found.run) if found.run else "its gate could not be run"
    who = f"{entry.row.task} could not be verified" if entry else f"'{repo.branch}' itself does not pass"
    if entry is None and found.run and g.could_not_run(found.run):
        who = f"The gate of '{repo.name}' cannot be run on '{repo.branch}' itself"
    if not repo.stopped:
        queue.acts.append(lambda tx: commands.stop_queue(tx, repo, why=f"{who}: {ending}"))


def _stop_orphans(at_work: Sequence[RunRow], by_repo: dict[str, list[Entry]]) -> list[Act]:
    """Stop verifications of repositories whose queue is empty."""
    return [stop_unwanted(run) for run in at_work if run.repo not in by_repo]


def _cancel(entry: Entry) -> Act:
    """Stop the runs of a cancelled task's entry; once none is open, withdraw it."""

    def cancel(tx: Transaction) -> None:
        still_open = [run for run in entry.runs if run.is_open]
        for run in still_open:
            request_kill(tx, run, entry.task.reason)
        if not still_open:
            commands.withdraw(tx, entry.row, why=entry.task.reason)
            cancel_attempt(tx, entry.task, entry.attempt)

    return cancel
