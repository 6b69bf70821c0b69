"""What is known of the trees of one repository's queue, in one pass, and the runs that find out more."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hivekeeper.commands import gates
from hivekeeper.commands.entries import Entry
from hivekeeper.commands.runs import request_kill
from hivekeeper.domain import gate as g
from hivekeeper.domain.names import gate_run_id
from hivekeeper.domain.rows import RepoRow, RunRow
from hivekeeper.domain.train import Verdict
from hivekeeper.git.mirror import Mirror
from hivekeeper.places import Places
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
    """The trees somebody wants to know of; `at_work` are the runs that verify, for whomever."""

    repo: RepoRow
    connection: Connection
    mirror: Mirror
    places: Places
    boot_id: str
    wall_s: float
    at_work: Sequence[RunRow]
    wanted: dict[str, Check] = field(default_factory=dict)

    def look(self, gate: g.Gate, commit: str, tree: str, without: str | None = None) -> g.Found:
        """Tell what is known of a tree, and that somebody wants to know."""
        prefix = gate_run_id(self.repo.name, tree, gate.digest)
        runs = queries.list_runs_of_gate(self.connection, prefix)
        found = g.judge(runs, gate.kinds, boot_id=self.boot_id, without=without)
        if (between := found.under_way) and not between.last.is_open and not self._is_laid_out(between.slot, tree):
            found = replace(found, verdict=Verdict.UNTRIED, under_way=None)  # another one has its check-out now
        self.wanted[prefix] = Check(gate, commit, tree, found)
        return found

    def look_at_main(self, head: str) -> g.Found:
        """Tell what is known of the integration branch itself; one failure alone may be a flake."""
        gate = g.Gate(self.repo)
        if not gate.commands:
            return g.Found(Verdict.PASSED)
        tree = self.mirror.get_tree(head)
        found = self.look(gate, head, tree)
        if found.verdict is Verdict.FAILED and found.failures == 1 and found.run is not None:
            return self.look(gate, head, tree, without=found.run.id)
        return found

    def get(self, entry: Entry) -> g.Found:
        """Tell what was found of an entry's candidate."""
        return self.wanted[gate_run_id(self.repo.name, str(entry.row.tree), entry.gate.digest)].found

    def get_run(self, entry: Entry) -> RunRow:
        """Tell which run decided about an entry's candidate."""
        run = self.get(entry).run
        assert run is not None
        return run

    def count_between(self) -> int:
        """Count the verifications that have their check-out and no run at work just now."""
        tries = (check.found.under_way for check in self.wanted.values())
        return sum(under_way is not None and not under_way.last.is_open for under_way in tries)

    def begin(self, gate: g.Gate, tree: str) -> Act:
        """Begin another try at a tree, in a check-out that nobody has."""
        prefix = gate_run_id(self.repo.name, tree, gate.digest)
        check = self.wanted[prefix]
        used = {int(run.id.rsplit(".", 2)[1]) for run in self.at_work}
        used |= {other.found.under_way.slot for other in self.wanted.values() if other.found.under_way}
        slot = next(number for number in range(1, len(used) + 2) if number not in used)
        begun = g.Try(check.found.tries + 1, slot, ())
        self.wanted[prefix] = replace(check, found=replace(check.found, under_way=begun))
        return self._intend(check, begun, "checkout")

    def go_on(self) -> Iterator[Act]:
        """Begin the next run of every try that is between two, and end those nobody wants any more."""
        for check in self.wanted.values():
            under_way = check.found.under_way
            if under_way and under_way.runs and (kind := g.next_kind(under_way, check.gate.kinds)):
                yield self._intend(check, under_way, kind)
        for run in self.at_work:
            if f"{run.id.rsplit('.', 3)[0]}." not in self.wanted:
                yield end_unwanted(run)

    def _intend(self, check: Check, under_way: g.Try, kind: str) -> Act:
        verification = gates.Verification(
            check.gate, check.commit, check.tree, under_way.number, under_way.slot, self.wall_s
        )
        return lambda tx: gates.intend_verification(tx, self.places, verification, kind, boot_id=self.boot_id)

    def _is_laid_out(self, slot: int, tree: str) -> bool:
        """Look whether a check-out holds what a try has laid out there: nobody else was given it since."""
        try:
            said = (self.places.checkout(self.repo.name, slot) / "whole").read_text()
        except OSError:
            return False
        if slot in {int(run.id.rsplit(".", 2)[1]) for run in self.at_work}:
            return False
        boot, _, commit = said.strip().partition(" ")
        return boot == self.boot_id and self.mirror.find_object(f"{commit}^{{tree}}") == tree


def end_unwanted(run: RunRow) -> Act:
    """End a run that verifies what nobody wants any more."""
    return lambda tx: request_kill(tx, run, "its candidate is no longer wanted")
