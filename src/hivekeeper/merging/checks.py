"""What is known of the trees of one repository's queue, in one pass, and the runs that find out more."""

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
    """A commit whose tree is verified, by which gate, and what is known of it."""

    gate: g.Gate
    commit: str
    tree: str
    found: g.Found


@dataclass(frozen=True, slots=True)
class Checks:
    """The trees somebody wants to know of, by owner; `at_work` are the runs that verify, for whomever."""

    repo: RepoRow
    connection: Connection
    mirror: Mirror
    places: Places
    boot_id: str
    wall_s: float
    at_work: Sequence[RunRow]
    wanted: dict[str, Check] = field(default_factory=dict)

    def look(self, gate: g.Gate, commit: str, tree: str, excused: str | None = None) -> g.Found:
        """Tell what is known of a tree, and that somebody wants to know; `excused` is a failure that was counted."""
        owner = tree_owner(gate, tree)
        runs = queries.list_runs_of(self.connection, owner)
        facts = Facts(self.boot_id, excused=frozenset(filter(None, (excused,))))
        found = g.judge(gate, runs, facts)
        is_between = found.start is not None and found.slot is not None
        if is_between and not self._is_laid_out(found.slot, tree):  # another tree has its check-out now
            found = g.judge(gate, runs, replace(facts, gone=frozenset({runs[-1].id})))
        self.wanted[owner.name] = Check(gate, commit, tree, found)
        return found

    def look_at_main(self, head: str) -> g.Found:
        """Tell what is known of the integration branch itself; one failure alone may be a flake."""
        gate = g.Gate(self.repo)
        if not gate.commands:
            return g.Found(Verdict.PASSED)
        tree = self.mirror.get_tree(head)
        found = self.look(gate, head, tree)
        if found.verdict is Verdict.FAILED and found.failures == 1 and found.run is not None:
            return self.look(gate, head, tree, excused=found.run.id)
        return found

    def get(self, entry: Entry) -> g.Found:
        """Tell what was found of an entry's candidate."""
        return self.wanted[tree_owner(entry.gate, str(entry.row.tree)).name].found

    def get_run(self, entry: Entry) -> RunRow:
        """Tell which run decided about an entry's candidate."""
        run = self.get(entry).run
        assert run is not None
        return run

    def count_between(self) -> int:
        """Count the verifications that have their check-out and no run at work just now."""
        return sum(check.found.slot is not None and check.found.start is not None for check in self.wanted.values())

    def begin(self, gate: g.Gate, tree: str) -> list[Act]:
        """Begin another try at a tree, in a check-out that nobody has; once, however many want it."""
        name = tree_owner(gate, tree).name
        check = self.wanted[name]
        if check.found.start is None:
            return []
        used = {run.slot for run in self.at_work} | {other.found.slot for other in self.wanted.values()}
        slot = next(number for number in range(1, len(used) + 2) if number not in used)
        begun = replace(check, found=replace(check.found, slot=slot))
        self.wanted[name] = replace(begun, found=replace(begun.found, verdict=Verdict.RUNNING, start=None))
        return [self._intend(begun)]

    def go_on(self) -> Iterator[Act]:
        """Begin the next run of every try that is between two, and end those nobody wants any more."""
        for check in self.wanted.values():
            if check.found.slot is not None and check.found.start is not None:
                yield self._intend(check)
        for run in self.at_work:
            if run.owner not in self.wanted:
                yield end_unwanted(run)

    def _intend(self, check: Check) -> Act:
        start, slot = check.found.start, check.found.slot
        assert start is not None
        assert slot is not None
        verification = Verification(check.gate, check.commit, slot, self.wall_s)
        spec = specify_verification(self.places, verification, start.kind, self.boot_id)
        owner, named = tree_owner(check.gate, check.tree), name_places(self.places, spec)
        return lambda tx: intend_run(tx, owner, start, named, boot_id=self.boot_id, slot=slot)

    def _is_laid_out(self, slot: int | None, tree: str) -> bool:
        """Look whether a check-out holds what a try has laid out there: nobody else was given it since."""
        try:
            said = (self.places.checkout(self.repo.name, int(slot or 0)) / "whole").read_text()
        except OSError:
            return False
        if slot in {run.slot for run in self.at_work}:
            return False
        boot, _, commit = said.strip().partition(" ")
        return boot == self.boot_id and self.mirror.find_object(f"{commit}^{{tree}}") == tree


def end_unwanted(run: RunRow) -> Act:
    """End a run that verifies what nobody wants any more."""
    return lambda tx: request_kill(tx, run, "its candidate is no longer wanted")
