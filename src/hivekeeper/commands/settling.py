"""A conflict that no rule settles: who settles it, what that came to, and what follows when nobody can."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from hivekeeper.clock import Clock
from hivekeeper.commands import entries as queue_entries
from hivekeeper.commands import gates
from hivekeeper.commands import merges as commands
from hivekeeper.commands.entries import Entry
from hivekeeper.commands.gates import Settling
from hivekeeper.commands.sessions import Budgets, place_hold
from hivekeeper.commands.work import write_prompt
from hivekeeper.domain import merge as m
from hivekeeper.domain.budget import Cap
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.report import LIMITED, Outcome
from hivekeeper.domain.rows import RunRow, TaskRow
from hivekeeper.domain.runner import Runner
from hivekeeper.domain.session import Hold, decide_hold, find_hold
from hivekeeper.git.candidate import Clash, check_settled
from hivekeeper.git.mirror import Mirror
from hivekeeper.places import Places
from hivekeeper.runners.answers import Answer, Question, Unfit
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

Act = Callable[[Transaction], object]
MOST_SETTLINGS = 2
ANSWER = Question(
    "",
    {
        "type": "object",
        "properties": {"settled": {"type": "boolean"}, "why": {"type": "string", "maxLength": 300}},
        "required": ["settled", "why"],
    },
)


@dataclass(frozen=True, slots=True)
class Settler:
    """Whoever settles conflicts in this boot."""

    places: Places
    boot_id: str
    resolver: Runner | None
    day: Cap
    clock: Clock

    def plan(self, connection: Connection, mirror: Mirror, entry: Entry, clash: Clash, head: str) -> Act | None:
        """Decide what to do about a conflict of an entry with what has landed; None while a run is at it."""
        row = entry.row
        has_resolver = self.resolver is not None
        tier = m.choose_settling(entry.repo, clash.paths, are_files=clash.are_files, has_resolver=has_resolver)
        ours = [run for run in entry.runs if run.kind in m.SETTLING]
        begun = Settling(row, entry.repo, *queue_entries.read_noted(ours[-1])) if ours else None
        spent = 0
        for number in range(1, len(ours) + 1):
            if row.resolved and mirror.find_commit(gates.resolved_ref(row, number)) == row.resolved:
                spent = number
        last = ours[-1] if ours else None
        unfit = _check_answer(last) if last else None
        hold = self._find_hold(connection, last) if last else None
        words, retry_at = (last.words, last.retry_at) if last else (None, None)
        if tier == "ai" and hold is None and (last is None or not last.is_open):
            hold, words = self._find_hold_of_asking(connection, entry.task)
        if isinstance(hold, Hold):
            return lambda tx: place_hold(tx, hold, why=words or hold.cause, retry_at=retry_at)
        step = m.decide_settling(
            ours,
            most=MOST_SETTLINGS if tier else 0,
            spent=spent,
            boot_id=self.boot_id,
            unfit=unfit.why if unfit else "",
            is_held=hold is not None,
        )
        match step:
            case m.IntendRun("conflict" | "resolve") if hold is not None:
                return None  # nobody asks a resolver that is held up
            case m.Wait():
                return None
            case m.GiveUp(why):
                return _refuse(entry, mirror, clash, why)
            case m.LookAtSettled(number):
                assert begun is not None
                return self._look(mirror, entry, clash, begun, gates.resolved_ref(row, number))
            case m.IntendRun("conflict"):
                settling = Settling(row, entry.repo, head, clash.tree, clash.paths)
            case m.IntendRun():
                assert begun is not None
                settling = self._choose(connection, mirror, entry, begun, ours) if step.kind == "resolve" else begun
            case _:
                assert_never(step)
        return lambda tx: gates.intend_settling(tx, self.places, settling, step, boot_id=self.boot_id)

    def _find_hold(self, connection: Connection, last: RunRow) -> Hold | HoldRow | None:
        """Find what holds the resolver up, or say that its limit is to do so."""
        if last.outcome not in LIMITED:
            return None
        key = ("runner", last.runner, last.outcome)
        found = [h for h in queries.list_holds(connection) if (h.scope, h.name, h.cause) == key]
        held = found[0] if found else None
        if held is not None and (held.is_active(self.clock.now()) or held.placed_seq > last.reported_seq):
            return held if held.is_active(self.clock.now()) else None
        return decide_hold(str(last.runner), Outcome(str(last.outcome)), held)

    def _find_hold_of_asking(self, connection: Connection, task: TaskRow) -> tuple[Hold | HoldRow | None, str | None]:
        """Find what keeps the resolver from being asked: a hold on it or on the task, or a budget that is spent."""
        name, now = self.resolver.name if self.resolver else "", self.clock.now()
        holds = [hold for hold in queries.list_holds(connection) if hold.is_active(now)]
        held = next((hold for hold in holds if (hold.scope, hold.name) == ("runner", name)), None)
        if (found := held or find_hold(task, holds, now)) is not None:
            return found, None
        return Budgets(connection, self.day, now=now).find_exhausted(task) or (None, None)

    def _choose(
        self, connection: Connection, mirror: Mirror, entry: Entry, begun: Settling, ours: Sequence[RunRow]
    ) -> Settling:
        words = queries.find_prompt(connection, entry.task.key)
        told = queue_entries.describe_conflict(entry, mirror, begun.paths, words, begun.ours)
        argv = gates.make_regeneration(entry.repo, begun.paths)
        runner = self.resolver if argv is None else None
        if runner is not None and runner.speaks:
            answers = [_check_answer(run) for run in ours if run.kind == "resolve"]
            told = replace(ANSWER, prompt=told).say(answers[-1] if answers else None)
        prompt = str(write_prompt(self.places, told))
        return replace(begun, argv=argv or (), prompt=prompt, runner=runner)

    def _look(self, mirror: Mirror, entry: Entry, clash: Clash, begun: Settling, ref: str) -> Act:
        """Believe the repository: no marker is left, nothing else was changed; what is lacking is told."""
        commit = mirror.find_commit(ref)
        if commit is None:
            return _refuse(entry, mirror, clash, f"{ref} is gone")
        checked = check_settled(mirror, commit, begun.tree, begun.paths)
        is_made_anew = all(m.find_regeneration(entry.repo, path) for path in begun.paths)
        if isinstance(checked, str):
            return _refuse(entry, mirror, clash, checked)
        return lambda tx: commands.note_resolved(
            tx, entry.row, commit, "regenerated" if is_made_anew else "ai", list(map(queue_entries.as_text, checked))
        )


def _refuse(entry: Entry, mirror: Mirror, clash: Clash, why: str) -> Act:
    body = queue_entries.describe_clash(entry, mirror, clash)
    return lambda tx: queue_entries.refuse_clash(tx, entry, clash, body, why)


def _check_answer(run: RunRow) -> Unfit | None:
    """Tell what is wrong with what a resolver answered; nothing where it is no program that answers."""
    if run.kind != "resolve" or not run.ended_well or run.runner is None:
        return None
    answer = ANSWER.read(run.words or "")
    if isinstance(answer, Answer) and not answer.value["settled"]:
        return Unfit(f"the resolver says that it cannot be settled: {answer.value['why']}")
    return answer if isinstance(answer, Unfit) else None
