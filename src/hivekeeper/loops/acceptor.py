"""The acceptor: runs a convoy's `accept` command when all its tasks are complete.

The integration branches of its repositories are checked out side by side (`trees`), the plan's command runs on them in
a sandbox (`accept`), and they are removed (`sweep`). The convoy is COMPLETE if the command exits with 0. Otherwise it
has FAILED, and is accepted again when its plan is submitted again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hivekeeper.commands import convoys as commands
from hivekeeper.domain import convoy as c
from hivekeeper.domain import events as e
from hivekeeper.domain.attempt import describe_ending
from hivekeeper.domain.owners import convoy_owner
from hivekeeper.domain.rows import ConvoyRow, RepoRow, RunRow
from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.runner import make_shell_argv
from hivekeeper.domain.sequences import ACCEPT
from hivekeeper.domain.states import ConvoyState
from hivekeeper.domain.steps import Action, Done, Facts, Failed, Start, Wait, decide
from hivekeeper.git import orders
from hivekeeper.loops import Counts, Loop, Wakes
from hivekeeper.specs.sandboxed import hive_limits, make_environment, make_mounts, user_limits
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

ACCEPT_WALL_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Case:
    """A convoy whose tasks are complete, its repositories, and its acceptance runs."""

    convoy: ConvoyRow
    repos: Sequence[RepoRow]
    runs: Sequence[RunRow]


class Acceptor(Loop):
    """Accepts convoys."""

    name = "acceptor"
    order = 90
    wakes = Wakes((e.TaskCompleted, e.ConvoyExtended), ends_of=ACCEPT.kinds)
    interval_s = 30.0

    def run_once(self) -> Counts:
        """Advance every convoy that waits for acceptance."""
        with self._ledger.read() as connection:
            found = [convoy for convoy in queries.list_convoys(connection) if _is_due(connection, convoy)]
            cases = [_gather(connection, convoy) for convoy in found]
        steps = [(case, decide(ACCEPT, case.runs, Facts(self._boot_id))) for case in cases]
        todo = [(case, action) for case, action in steps if not isinstance(action, Wait)]
        if todo:
            with self._ledger.write(self._authority) as tx:
                for case, action in todo:
                    if _is_due(tx.connection, case.convoy):  # a person may have added a task since
                        self._record(tx, case, action)
        return {"moved": len(todo)} if todo else {}

    def _record(self, tx: Transaction, case: _Case, action: Action) -> None:
        match action:
            case Start() as start:
                spec = self._specify(case, start.kind)
                self._intend(tx, convoy_owner(case.convoy), start, spec)
            case Done():
                accept = [run for run in case.runs if run.kind == "accept"][-1]
                self._end_convoy(tx, case, accept, "its accept command failed")
            case Failed(run):
                self._end_convoy(tx, case, run, "its accept command could not be run")
            case _:
                pass

    def _end_convoy(self, tx: Transaction, case: _Case, run: RunRow, words: str) -> None:
        """Complete or fail a convoy, by the run that decided: only its accept command can complete it."""
        name, at = case.convoy.name, run.ended_at or run.intended_at
        if run.kind == "accept" and run.succeeded:
            commands.end_convoy(tx, name, c.Outcome.COMPLETE, at=at)
        else:
            commands.end_convoy(tx, name, c.Outcome.FAILED, at=at, why=f"{words}: {describe_ending(run)}")

    def _specify(self, case: _Case, kind: str) -> RunSpec:
        places, root, ours = self._places, str(self._places.root), hive_limits(ACCEPT_WALL_S)
        directory = places.gate(f"{case.convoy.name}/_accept", 1)
        match kind:
            case "accept":
                # With the time of its trees: no acceptance from before a restore of the ledger is taken for this one.
                trees_at = max(run.intended_at for run in case.runs if run.kind == "trees")
                environment = make_environment(places, directory, HIVE_TREES_AT=trees_at)
                mounts, limits = make_mounts(places, directory), user_limits(ACCEPT_WALL_S)
                argv = make_shell_argv(str(case.convoy.accept))
                return RunSpec(argv, str(directory / "work"), environment, limits, mounts)
            case "trees":
                trees = [(places.mirror(repo.name), str(repo.integration), repo.name) for repo in case.repos]
                return RunSpec(orders.check_out_trees(directory, trees), root, dict(orders.NO_FSYNC_ENV), ours)
            case _:
                return RunSpec(orders.remove_directory(directory), root, {}, ours)


def _is_due(connection: Connection, convoy: ConvoyRow) -> bool:
    if convoy.state is not ConvoyState.ACTIVE or not convoy.accept:
        return False
    counts = queries.count_tasks_by_state(connection, convoy.name)
    return c.decide_outcome(counts, queries.count_startable(connection, convoy.name)) is c.Outcome.COMPLETE


def _gather(connection: Connection, convoy: ConvoyRow) -> _Case:
    used = {task.repo for task in queries.list_tasks_of_convoy(connection, convoy.name)}
    repos = [repo for repo in queries.list_repos(connection) if repo.name in used]
    return _Case(convoy, repos, queries.list_runs_of(connection, convoy_owner(convoy)))
