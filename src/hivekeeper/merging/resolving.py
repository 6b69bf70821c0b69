"""Resolves conflicts that no rule can: by regenerating files or asking the resolver, or else rejects the change."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from hivekeeper.clock import Clock
from hivekeeper.commands import merges as commands
from hivekeeper.commands.runs import intend_run
from hivekeeper.commands.sessions import Budgets, place_hold
from hivekeeper.domain import merge as m
from hivekeeper.domain.admission import Admitted, Held, may_start, need_of_resolver
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.budget import Cap
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.runner import Runner
from hivekeeper.domain.sequences import RESOLVE
from hivekeeper.domain.session import Hold
from hivekeeper.domain.steps import Cancelled, Done, Facts, Failed, Later, Park, Start, Stop, Wait, decide
from hivekeeper.git.candidate import Unresolved, check_resolution
from hivekeeper.git.mirror import Mirror
from hivekeeper.merging import entries
from hivekeeper.merging.entries import Entry
from hivekeeper.places import Places
from hivekeeper.runners.answers import Answer, Question, Unfit
from hivekeeper.specs import queue as specs
from hivekeeper.specs.names import name_places
from hivekeeper.specs.session import write_prompt
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

Act = Callable[[Transaction], object]
ANSWER = Question(
    "",
    {
        "type": "object",
        "properties": {"settled": {"type": "boolean"}, "why": {"type": "string", "maxLength": 300}},
        "required": ["settled", "why"],
    },
)


@dataclass(frozen=True, slots=True)
class ConflictResolver:
    """Plans the resolution of conflicts."""

    places: Places
    boot_id: str
    resolver: Runner | None
    day: Cap
    clock: Clock

    def plan(
        self, connection: Connection, mirror: Mirror, entry: Entry, unresolved: Unresolved, head: str
    ) -> Act | None:
        """Decide what to do about an entry's conflict with what has landed; None if it has to wait."""
        row, runs = entry.row, [run for run in entry.runs if run.kind in RESOLVE.kinds]
        has_resolver = self.resolver is not None
        tier = m.choose_tier(entry.repo, unresolved.paths, are_files=unresolved.are_files, has_resolver=has_resolver)
        if tier is None and not any(run.is_open for run in runs):
            return _reject(entry, mirror, unresolved, "")
        unfit = {run.id: wrong.why for run in runs if (wrong := _check_answer(run))}
        used = _find_outdated(mirror, entry, runs)
        admission: Admitted | Held = Admitted()
        if tier == "ai" and self.resolver is not None:
            need = need_of_resolver(entry.task, self.resolver.name)
            admission = may_start(need, queries.list_holds(connection), self.clock.now())
        action = decide(RESOLVE, runs, Facts(self.boot_id, admission, rejected=frozenset({*unfit, *used})))
        match action:
            case Start("conflict") if isinstance(admission, Held):
                return None  # nothing is checked out for a resolver that cannot be asked
            case Start("conflict" | "resolve") if tier == "ai" and (spent := self._find_exhausted(connection, entry)):
                return lambda tx: place_hold(tx, spent[0], why=spent[1])
            case Start("conflict") as start:
                spec = specs.specify_conflict(self.places, row, entry.repo, unresolved.tree)
                return lambda tx: self._begin(tx, entry, start, spec, unresolved, head)
            case Start("resolve") as start:
                return self._intend(entry, start, self._specify_resolution(connection, mirror, entry, start, runs))
            case Start() as start:
                spec = specs.specify_settle(self.places, row, entry.repo, start.number)
                return self._intend(entry, start, spec)
            case Done(run):
                return self._look(mirror, entry, unresolved, specs.resolved_ref(row, run.number))
            case Failed(run):
                ending = "" if run.succeeded else f"the resolver failed: {describe_ending(run)}"
                return _reject(entry, mirror, unresolved, unfit.get(run.id, ending))
            case Wait() | Later() | Park() | Stop() | Cancelled():
                return None
            case _:
                assert_never(action)

    def _find_exhausted(self, connection: Connection, entry: Entry) -> tuple[Hold, str] | None:
        return Budgets(connection, self.day, now=self.clock.now()).find_exhausted(entry.task)

    def _intend(self, entry: Entry, start: Start, spec: RunSpec) -> Act:
        owner, named = attempt_owner(entry.row.task, entry.row.attempt, entry.row.repo), name_places(self.places, spec)
        return lambda tx: intend_run(tx, owner, start, named, boot_id=self.boot_id)

    def _begin(
        self, tx: Transaction, entry: Entry, start: Start, spec: RunSpec, unresolved: Unresolved, head: str
    ) -> None:
        commands.note_conflict(tx, entry.row, ours=head, tree=unresolved.tree, paths=unresolved.paths)
        self._intend(entry, start, spec)(tx)

    def _specify_resolution(
        self, connection: Connection, mirror: Mirror, entry: Entry, start: Start, runs: list[RunRow]
    ) -> RunSpec:
        row = entry.row
        words = queries.find_prompt(connection, entry.task.key)
        told = entries.write_conflict_prompt(entry, mirror, row.conflicts, words, str(row.conflict_ours))
        argv = specs.make_regeneration(entry.repo, row.conflicts)
        runner = self.resolver if argv is None else None
        if runner is not None and runner.speaks:
            answers = [_check_answer(run) for run in runs if run.kind == "resolve"]
            told = replace(ANSWER, prompt=told).say(answers[-1] if answers else None)
        prompt = str(write_prompt(self.places, told))
        return specs.specify_resolution(self.places, row, start, prompt, argv or (), runner)

    def _look(self, mirror: Mirror, entry: Entry, unresolved: Unresolved, ref: str) -> Act:
        """Check the resolution in git: no marker is left and nothing else changed. Lost lines are recorded."""
        row = entry.row
        commit = mirror.find_commit(ref)
        if commit is None:
            return _reject(entry, mirror, unresolved, f"{ref} is gone")
        checked = check_resolution(mirror, commit, str(row.conflict_tree), row.conflicts)
        is_regenerated = all(m.find_regeneration(entry.repo, path) for path in row.conflicts)
        if isinstance(checked, str):
            return _reject(entry, mirror, unresolved, checked)
        tier, lost = "regenerated" if is_regenerated else "ai", list(map(entries.as_text, checked))
        return lambda tx: commands.note_resolved(tx, row, commit, tier, lost)


def _find_outdated(mirror: Mirror, entry: Entry, runs: list[RunRow]) -> set[str]:
    """Find the runs whose result was used and conflicts with what has landed since."""
    if not entry.row.resolved:
        return set()
    settled = [run for run in runs if run.kind == "settle" and run.succeeded]
    used = (n for n, r in enumerate(settled) if _get_result(mirror, entry, r) == entry.row.resolved)
    return {run.id for run in settled[: max(used, default=-1) + 1]}


def _get_result(mirror: Mirror, entry: Entry, run: RunRow) -> str | None:
    return mirror.find_commit(specs.resolved_ref(entry.row, run.number))


def _reject(entry: Entry, mirror: Mirror, unresolved: Unresolved, why: str) -> Act:
    body = entries.describe_unresolved(entry, mirror, unresolved)
    return lambda tx: entries.reject_conflict(tx, entry, unresolved, body, why)


def _check_answer(run: RunRow) -> Unfit | None:
    """Check a resolver's answer and return what is wrong with it, if it is a program that answers."""
    if run.kind != "resolve" or not run.ended_well or run.runner is None:
        return None
    answer = ANSWER.read(run.words or "")
    if isinstance(answer, Answer) and not answer.value["settled"]:
        return Unfit(f"the resolver cannot resolve it: {answer.value['why']}")
    return answer if isinstance(answer, Unfit) else None
