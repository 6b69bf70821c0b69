"""One ledger with a task, an attempt, a run, a merge and a convoy in every situation there is."""

from dataclasses import replace
from pathlib import Path

from hivekeeper.commands import attempts, convoys, merges, runs
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.run import Claim, Ending
from tests.store.ledger_kit import BOOT, COMMIT
from tests.store.ledger_world import World

# A task and its attempt move together; these are the pairs that can come about.
TASKS = (
    "pending",
    "working",
    "submitted",
    "stopping",
    "withdrawing",
    "complete",
    "failed",
    "again",
    "unknown",
    "cancelled",
)
RUNS = ("INTENDED", "RUNNING", "EXITED", "LOST")
MERGES = ("QUEUED", "VERIFYING", "LANDING", "LANDED", "REJECTED", "WITHDRAWN")
CONVOYS = ("ACTIVE", "COMPLETE", "FAILED", "ARCHIVED")
CLAIM = Claim(7, 8, BOOT, "2026-01-01T00:00:01.000000Z")


def build_situations(directory: Path) -> World:
    """Bring a row into every situation: tasks `c/…`, runs `run-…`, merges `m/…`, convoys `c-…`."""
    world = World(directory)
    for situation in TASKS:
        allowed = 1 if situation == "failed" else 3
        bring_task(world, world.add(situation, attempts_allowed=allowed), situation)
    for state in RUNS:
        bring_run(world, f"run-{state}", state)
    for state in MERGES:
        bring_merge(world, world.add(state, convoy="m", attempts_allowed=3), state)
    for state in CONVOYS:
        bring_convoy(world, f"c-{state.lower()}", state)
    return world


def bring_task(world: World, key: str, situation: str) -> None:
    """Bring a PENDING task into a situation."""
    if situation == "pending":
        return
    world.dispatch(key)
    if situation in ("submitted", "withdrawing"):
        world.hand_in(key)
    if situation in ("stopping", "withdrawing", "cancelled"):
        world.cancel(key)
    if situation == "complete":
        world.complete(key)
    if situation in ("again", "failed"):
        world.fail(key)
    with world.keep() as tx:
        if situation == "unknown":
            attempts.leave_unknown(tx, world.task(key), world.attempt(key), why="who knows")
        elif situation == "cancelled":
            attempts.cancel_attempt(tx, world.task(key), world.attempt(key))


def bring_run(world: World, run: str, state: str) -> None:
    """Intend a run and bring it into a state."""
    world.intend(run)
    with world.keep() as tx:
        if state == "RUNNING":
            runs.note_started(tx, world.run(run), CLAIM)
        elif state == "EXITED":
            ending = Ending(0, "exit", 12, "2026-01-01T00:00:02.000000Z")
            runs.note_ended(tx, world.run(run), CLAIM, ending)
        elif state == "LOST":
            runs.note_lost(tx, world.run(run), "its wrapper was killed")


def bring_merge(world: World, key: str, state: str) -> None:
    """Hand in a PENDING task's change and bring its entry into a state."""
    world.dispatch(key)
    world.hand_in(key)
    if state in ("VERIFYING", "LANDING", "LANDED"):
        with world.keep() as tx:
            made = replace(world.merge(key), round=1, base=COMMIT, candidate="c" * 40, tree="d" * 40)
            merges.begin_verifying(tx, made)
    if state in ("LANDING", "LANDED"):
        with world.keep() as tx:
            merges.begin_landing(tx, world.merge(key), at=tx.now)
    if state == "WITHDRAWN":
        world.cancel(key)
    with world.keep() as tx:
        entry, task, attempt = world.merge(key), world.task(key), world.attempt(key)
        if state == "LANDED":
            merges.note_landed(tx, entry, task, at=tx.now)
        elif state == "REJECTED":
            merges.reject(tx, entry, task, attempt, why="conflict", body={})
        elif state == "WITHDRAWN":
            merges.withdraw(tx, entry, why=task.reason)
            attempts.cancel_attempt(tx, task, attempt)


def bring_convoy(world: World, name: str, state: str) -> None:
    """Submit a convoy of two tasks, one waiting for the other, and bring it into a state."""
    world.submit(name, TaskSpec("first", "true", attempts=1), TaskSpec("waiting", "true", after=("first",)))
    if state == "ACTIVE":
        return
    world.dispatch(f"{name}/first")
    if state == "COMPLETE":
        for task in ("first", "waiting"):
            if task == "waiting":
                world.dispatch(f"{name}/{task}")
            world.complete(f"{name}/{task}")
    else:
        world.fail(f"{name}/first")
    assert world.settle(name)
    if state == "ARCHIVED":
        with world.ask() as tx:
            convoys.archive_convoy(tx, world.convoy(name))
