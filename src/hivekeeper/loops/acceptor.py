"""The acceptor: tries a convoy as a whole when all its tasks are complete, if its plan says how.

The integration branches of its repositories are laid out side by side (`trees`), the plan's command runs on them in a
sandbox (`accept`), and they are removed (`sweep`). Only a convoy whose command ended with 0 is COMPLETE; another one
has FAILED and is tried again when it is handed in again.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import assert_never

from hivekeeper.commands import convoys as commands
from hivekeeper.commands.runs import intend_run
from hivekeeper.commands.work import make_environment, make_mounts
from hivekeeper.domain import convoy as c
from hivekeeper.domain import events as e
from hivekeeper.domain.names import convoy_run_id
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.rows import ConvoyRow, RepoRow, RunRow
from hivekeeper.domain.run import Order
from hivekeeper.domain.runner import make_shell_argv
from hivekeeper.domain.states import ConvoyState
from hivekeeper.git import orders
from hivekeeper.loops import Counts, Loop, Wakes
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction

ACCEPT_WALL_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Facts:
    convoy: ConvoyRow
    repos: Sequence[RepoRow]
    runs: Sequence[RunRow]


class Acceptor(Loop):
    """Tries convoys."""

    name = "acceptor"
    order = 90
    wakes = Wakes((e.TaskCompleted, e.ConvoyExtended), ends_of=("trees", "accept", "sweep"))
    interval_s = 30.0

    def run_once(self) -> Counts:
        """Take every convoy that waits for it one step further."""
        with self._ledger.read() as connection:
            found = [convoy for convoy in queries.list_convoys(connection) if _is_due(connection, convoy)]
            facts = [_gather(connection, convoy) for convoy in found]
        steps = [(fact, c.decide_acceptance(fact.runs, boot_id=self._boot_id)) for fact in facts]
        todo = [(fact, step) for fact, step in steps if not isinstance(step, c.Wait)]
        if todo:
            with self._ledger.write(self._authority) as tx:
                for fact, step in todo:
                    if _is_due(tx.connection, fact.convoy):  # a person may have added a task since
                        self._record(tx, fact, step)
        return {"moved": len(todo)} if todo else {}

    def _record(self, tx: Transaction, fact: _Facts, step: c.Acceptance) -> None:
        match step:
            case c.Intend(kind):
                self._intend(tx, fact, kind)
            case c.Accept(at):
                commands.settle_convoy(tx, fact.convoy.name, c.Outcome.COMPLETE, at=at)
            case c.Refuse(why, at):
                commands.settle_convoy(tx, fact.convoy.name, c.Outcome.FAILED, at=at, why=why)
            case c.Wait():
                pass
            case _:
                assert_never(step)

    def _intend(self, tx: Transaction, fact: _Facts, kind: str) -> None:
        name, root = fact.convoy.name, str(self._places.root)
        directory = self._places.gate(f"{name}/_accept", 1)
        limits: dict[str, float | int | None] = {"wall_s": ACCEPT_WALL_S, "grace_s": 5.0}
        run = convoy_run_id(name, kind, tx.head.seq + 1)
        match kind:
            case "accept":
                argv, environment = make_shell_argv(str(fact.convoy.accept)), make_environment(self._places, directory)
                limits, mounts = {**asdict(Limits()), **limits}, make_mounts(self._places, directory)
                order = Order(run, kind, argv, str(directory / "work"), environment, limits, mounts)
            case "trees":
                trees = [(self._places.mirror(repo.name), str(repo.integration), repo.name) for repo in fact.repos]
                argv = orders.check_out_trees(directory, trees)
                order = Order(run, kind, argv, root, dict(orders.NO_FSYNC_ENV), limits)
            case _:
                order = Order(run, kind, orders.remove_directory(directory), root, {}, limits)
        intend_run(tx, order, boot_id=self._boot_id)


def _is_due(connection: Connection, convoy: ConvoyRow) -> bool:
    if convoy.state is not ConvoyState.ACTIVE or not convoy.accept:
        return False
    counts = queries.count_tasks_by_state(connection, convoy.name)
    return c.decide_outcome(counts, queries.count_startable(connection, convoy.name)) is c.Outcome.COMPLETE


def _gather(connection: Connection, convoy: ConvoyRow) -> _Facts:
    used = {task.repo for task in queries.list_tasks_of_convoy(connection, convoy.name)}
    repos = [repo for repo in queries.list_repos(connection) if repo.name in used]
    runs = [run for run in queries.list_runs_of_convoy(connection, convoy.name) if run.intended_seq > convoy.opened_seq]
    return _Facts(convoy, repos, runs)
