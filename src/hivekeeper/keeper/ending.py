"""Ending all runs, by a keeper whose loops were not started: it makes passes until everything has ended."""

from hivekeeper.commands.runs import request_kill
from hivekeeper.commands.tasks import rearm_stopped
from hivekeeper.domain.run import DOWN
from hivekeeper.domain.states import RunState
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByPerson

MAX_END_S = 60.0
# Runs that may take long and can be repeated; short ones, such as a landing, are waited for.
ENDED_AT_ONCE = ("agent", "setup", "gate", "resolve", "accept", "fetch")


def end_workers(keeper: Keeper, person: ByPerson, why: str) -> tuple[int, list[str]]:
    """End all runs and save the workers' work; return how many workers there were, and which runs are left.

    Each kill is recorded in the ledger first, so the next keeper continues if this is interrupted. A command whose
    attempt ended this way is retried; a session continues where it was.
    """
    parts, ledger = keeper.close_down(), keeper.hive.ledger
    deadline = keeper.clock.monotonic() + MAX_END_S
    with ledger.read() as connection:
        workers = sum(run.kind == "agent" for run in queries.list_open_runs(connection))
    while True:
        done = [loop.run_once() for loop in parts]
        with ledger.read() as connection:
            left = queries.list_open_runs(connection)
        to_end = [run for run in left if run.kind in ENDED_AT_ONCE and run.state is RunState.RUNNING]
        if to_end:
            with ledger.write(keeper.authority) as tx:
                for run in to_end:
                    request_kill(tx, run, why, DOWN)
        if (not left and not any(done)) or keeper.clock.monotonic() > deadline:
            break
        keeper.changed.wait(0.05)
        keeper.changed.clear()
    with ledger.write(person) as tx:
        rearm_stopped(tx, why=why)
    return workers, [run.id for run in left]
