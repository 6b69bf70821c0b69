"""Verifies the trees of one repository's queue: what is known of them in this pass, and which runs to start."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hivekeeper.commands.runs import intend_run, request_kill
from hivekeeper.domain import gate as g
from hivekeeper.domain.owners import tree_owner
from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.steps import Facts
from hivekeeper.domain.train import Verdict
from hivekeeper.git.mirror import Mirror
from hivekeeper.merging.entries import Entry
from hivekeeper.places import Places
from hivekeeper.specs.names import name_places
from hivekeeper.specs.queue import Verification, specify_verification
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

Act = Callable[[Transaction], object]


@dataclass(frozen=True, slots=True)
class Check:
    """A commit whose tree is verified, its gate, and the result so far."""

    gate: g.Gate
    commit: str
    tree: str
    found: g.Found


@dataclass(frozen=True, slots=True)
class Checks:
    """The verifications that are wanted in this pass, by owner; `at_work` are the open runs of all verifications.

    `results` are those of entries: the same tree may mean something else to two of them, if one has failed before.
    """

    repo: RepoRow
    connection: Connection
    mirror: Mirror
    places: Places
    boot_id: str
    wall_s: float
    at_work: Sequence[RunRow]
    wanted: dict[str, Check] = field(default_factory=dict)
    results: dict[str, g.Found] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget what was wanted."""
        self.wanted.clear()
        self.results.clear()

    def check(self, gate: g.Gate, commit: str, tree: str, excused: str | None = None) -> g.Found:
        """Return the result for a tree and mark it as wanted; `excused` is a failure that was counted."""
        owner = tree_owner(gate, tree)
        runs = queries.list_runs_of(self.connection, owner)
        facts = Facts(self.boot_id, excused=frozenset(filter(None, (excused,))))
        found = g.judge(gate, runs, facts)
        is_pending = found.start is not None and found.slot is not None
        if is_pending and not self._has_tree(found.slot, tree):  # its checkout is used for another tree now
            found = g.judge(gate, runs, replace(facts, gone=frozenset({runs[-1].id})))
        known = self.wanted.get(owner.name)
        if known is None or known.found.start is None:  # whoever wants it to go on is not overruled
            self.wanted[owner.name] = Check(gate, commit, tree, found)
        return found

    def check_entry(self, entry: Entry) -> g.Found:
        """Return the result for an entry's candidate; a failure of its own that was counted is left out."""
        row = entry.row
        found = self.check(entry.gate, str(row.candidate), str(row.tree), row.failed_run)
        self.results[row.key] = found
        return found

    def check_main(self, head: str) -> g.Found:
        """Return the result for the integration branch itself; a single failure may be a flake."""
        gate = g.Gate(self.repo)
        if not gate.commands:
            return g.Found(Verdict.PASSED)
        tree = self.mirror.get_tree(head)
        found = self.check(gate, head, tree)
        if found.verdict is Verdict.FAILED and found.failures == 1 and found.run is not None:
            return self.check(gate, head, tree, excused=found.run.id)
        return found

    def get(self, entry: Entry) -> g.Found:
        """Return the result for an entry's candidate."""
        return self.results[entry.row.key]

    def get_run(self, entry: Entry) -> RunRow:
        """Return the run that decided the result for an entry's candidate."""
        run = self.get(entry).run
        assert run is not None
        return run

    def count_pending(self) -> int:
        """Count the verifications that occupy a checkout and have no open run at the moment."""
        return sum(check.found.slot is not None and check.found.start is not None for check in self.wanted.values())

    def start_try(self, gate: g.Gate, tree: str) -> list[Act]:
        """Start a try at a tree in a free checkout; only one, if several entries want the same tree."""
        name = tree_owner(gate, tree).name
        check = self.wanted[name]
        if check.found.start is None:
            return []
        used = {run.slot for run in self.at_work} | {other.found.slot for other in self.wanted.values()}
        slot = next(number for number in range(1, len(used) + 2) if number not in used)
        started = replace(check, found=replace(check.found, slot=slot))
        self.wanted[name] = replace(started, found=replace(started.found, verdict=Verdict.RUNNING, start=None))
        return [self._intend(started)]

    def continue_tries(self) -> Iterator[Act]:
        """Start the next run of every try under way, and stop the tries that are no longer wanted."""
        for check in self.wanted.values():
            if check.found.slot is not None and check.found.start is not None:
                yield self._intend(check)
        for run in self.at_work:
            if run.owner not in self.wanted:
                yield stop_unwanted(run)

    def _intend(self, check: Check) -> Act:
        start, slot = check.found.start, check.found.slot
        assert start is not None
        assert slot is not None
        verification = Verification(check.gate, check.commit, slot, self.wall_s)
        spec = specify_verification(self.places, verification, start.kind, self.boot_id)
        owner, named = tree_owner(check.gate, check.tree), name_places(self.places, spec)
        return lambda tx: intend_run(tx, owner, start, named, boot_id=self.boot_id, slot=slot)

    def _has_tree(self, slot: int | None, tree: str) -> bool:
        """Whether a checkout still holds the tree that a try checked out there."""
        try:
            said = (self.places.checkout(self.repo.name, int(slot or 0)) / "whole").read_text()
        except OSError:
            return False
        if slot in {run.slot for run in self.at_work}:
            return False
        boot, _, commit = said.strip().partition(" ")
        return boot == self.boot_id and self.mirror.find_object(f"{commit}^{{tree}}") == tree


def stop_unwanted(run: RunRow) -> Act:
    """Stop a verification that is no longer wanted."""
    return lambda tx: request_kill(tx, run, "its candidate is no longer wanted")
