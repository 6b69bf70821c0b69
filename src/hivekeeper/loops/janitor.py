"""The janitor: completes, removes and archives finished work.

Rules:
1. A convoy is COMPLETE when all its tasks are, at the end of the last one; FAILED when nothing more can start.
2. A swarm is closed when none of its attempts is open and no task can join it.
3. An ended attempt's sandbox is removed once its content is saved, and not before.
4. A complete convoy is archived after a while; its ids are never reused.
5. Every ten thousand events a checkpoint is saved, so that any moment of the past can be rebuilt quickly.
"""

from collections.abc import Sequence

from hivekeeper.clock import to_seconds
from hivekeeper.commands import convoys as commands
from hivekeeper.commands import history
from hivekeeper.commands.attempts import sweep_attempt
from hivekeeper.domain import events as e
from hivekeeper.domain.convoy import Outcome, decide_outcome
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.rows import AttemptRow, ConvoyRow, RunRow
from hivekeeper.domain.sequences import OUTPUTS_MISSING, removal_sequence
from hivekeeper.domain.states import ConvoyState
from hivekeeper.domain.steps import Done, Facts, Later, Start, decide
from hivekeeper.domain.waits import has_passed
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.seance.logs import list_patterns
from hivekeeper.specs.attempt import specify_removal
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction, read_head

SANDBOXES_A_PASS = 64


class Janitor(Loop):
    """Completes, removes and archives finished work."""

    name = "janitor"
    order = 100
    wakes = Wakes(
        (
            e.ConvoySubmitted,
            e.ConvoyCompleted,
            e.ConvoyFailed,
            e.TaskCompleted,
            e.TaskCancelled,
            e.AttemptFailed,
            e.AttemptUnknown,
            e.RepoFetchFailed,
        ),
        ends_of=("gate", "land", "snapshot", "remove"),
    )
    rest_s = 0.1
    interval_s = 30.0

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._archive_after_s = self._settings.archive_after_s if self._settings.convoys else 0.0

    def run_once(self) -> Counts:
        """Complete, remove and archive finished work."""
        with self._ledger.read() as connection:
            convoys = queries.list_convoys(connection)
            ended = [(convoy, outcome, at) for convoy, outcome, at in _list_ended(connection, convoys)]
            swarms = queries.list_closable_swarms(connection)
            limit = SANDBOXES_A_PASS if self._settings.cleanup else 0
            settled = queries.list_removable_sandboxes(connection, limit)
            sandboxes = [(row, queries.list_runs_of_attempt(connection, row.task, row.number)) for row in settled]
            due = history.is_checkpoint_due(read_head(connection).seq, queries.find_last_checkpoint(connection))
        removals = [(row, runs, self._find_removal(runs)) for row, runs in sandboxes]
        to_remove = [(row, runs, start) for row, runs, start in removals if isinstance(start, Start)]
        removed = [row for row, _, action in removals if isinstance(action, Done)]
        to_archive = [convoy for convoy in convoys if self._is_old(convoy)]
        counts = {
            "ended": len(ended),
            "closed": len(swarms),
            "removing": len(to_remove),
            "removed": len(removed),
            "archived": len(to_archive),
            "checkpoints": int(due),
        }
        if any(counts.values()):
            with self._ledger.write(self._authority) as tx:
                for convoy, outcome, at in ended:
                    if _decide_outcome(tx.connection, convoy) is outcome:  # a person may have added a task since
                        commands.end_convoy(tx, convoy.name, outcome, at=at or tx.now)
                        self._archive_at_once(tx, convoy.name)
                for swarm in swarms:
                    commands.close_swarm(tx, swarm)
                for attempt, runs, start in to_remove:
                    self._remove(tx, attempt, runs, start)
                for attempt in removed:
                    sweep_attempt(tx, attempt)
                for convoy in to_archive:
                    commands.archive_convoy(tx, convoy)
                history.save_due_checkpoint(tx)
        return counts if any(counts.values()) else {}

    def _archive_at_once(self, tx: Transaction, name: str) -> None:
        """Archive a complete convoy at once if the settings say so: the keeper may stop when it is complete."""
        convoy = queries.find_convoy(tx.connection, name)
        if self._archive_after_s <= 0 and convoy is not None and convoy.state is ConvoyState.COMPLETE:
            commands.archive_convoy(tx, convoy)

    def _is_old(self, convoy: ConvoyRow) -> bool:
        if convoy.state is not ConvoyState.COMPLETE or convoy.ended_at is None:
            return False
        return self._has_passed(convoy.ended_at, self._archive_after_s)

    def _find_removal(self, runs: Sequence[RunRow]) -> Start | Done | None:
        """Decide what to do about a sandbox: remove it, retry later if that failed, or record that it is gone."""
        if not _is_saved(runs):
            return None
        match decide(removal_sequence(self._settings.reclaim_after_s), runs, Facts(self._boot_id)):
            case Start() | Done() as action:
                return action
            case Later(start, run, wait_s) if self._has_passed(run.ended_at or run.intended_at, wait_s):
                return start
            case _:
                return None

    def _has_passed(self, since: str, wait_s: float) -> bool:
        return has_passed(to_seconds(self._clock.now()), to_seconds(since), wait_s)

    def _remove(self, tx: Transaction, attempt: AttemptRow, runs: Sequence[RunRow], start: Start) -> None:
        task = queries.find_task(tx.connection, attempt.task)
        found = list_patterns(task, runs, self._settings.runners) if task is not None else []
        logs = tuple(dict.fromkeys(pattern for _, pattern in found))
        spec = specify_removal(self._places, attempt.task, attempt.number, logs)
        self._intend(tx, attempt_owner(attempt.task, attempt.number, None), start, spec)


def _list_ended(connection: Connection, convoys: Sequence[ConvoyRow]) -> list[tuple[ConvoyRow, Outcome, str | None]]:
    ended: list[tuple[ConvoyRow, Outcome, str | None]] = []
    for convoy in convoys:
        if convoy.state is ConvoyState.ACTIVE and not queries.has_task_under_way(connection, convoy.name):
            outcome = _decide_outcome(connection, convoy)
            to_try = outcome is Outcome.COMPLETE and convoy.accept is not None  # the acceptor decides
            if outcome is not Outcome.ACTIVE and not to_try:
                ended.append((convoy, outcome, queries.find_last_end(connection, convoy.name)))
    return ended


def _decide_outcome(connection: Connection, convoy: ConvoyRow) -> Outcome:
    counts = queries.count_tasks_by_state(connection, convoy.name)
    return decide_outcome(counts, queries.count_startable(connection, convoy.name))


def _is_saved(runs: Sequence[RunRow]) -> bool:
    """Whether all work of an attempt is in the mirror, or its agent never started."""
    if any(run.is_open for run in runs):
        return False
    agents = [run for run in runs if run.kind == "agent"]
    snapshots = [run for run in runs if run.kind == "snapshot"]
    return not agents or any(run.succeeded or run.exit_status == OUTPUTS_MISSING for run in snapshots)
