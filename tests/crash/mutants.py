"""Planted bugs, by name: each breaks one promise, and some tier must notice."""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hivekeeper.commands import work
from hivekeeper.domain import attempt
from hivekeeper.domain import events as e
from hivekeeper.domain import project as projection
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.run import Alive, Ending, Unclaimed
from hivekeeper.domain.runner import make_shell_argv
from hivekeeper.domain.states import AttemptState
from hivekeeper.git import orders
from hivekeeper.keeper import lease
from hivekeeper.loops import dispatcher, executor, merger
from hivekeeper.runs import local, wrapper
from hivekeeper.store import ledger, sqlite


@dataclass(frozen=True)
class Mutant:
    """A bug, the promise it breaks, and the scenario in which kills, or power cuts, have to show it."""

    promise: str
    plant: Callable[[], None]
    scenario: str
    shown: str  # in the words of the judge
    power: bool = False


def sync_too_little() -> None:
    """Let SQLite return before a commit is on disk."""
    pragmas = dict(sqlite._WRITE_PRAGMAS)  # noqa: SLF001 - planted where it would be written
    sqlite._WRITE_PRAGMAS = {**pragmas, "synchronous": 1}  # type: ignore[misc]  # noqa: SLF001


def act_before_intent() -> None:
    """Start a task's agent before anything about it is committed."""
    dispatch = dispatcher.Dispatcher.run_once

    def run_once(self: dispatcher.Dispatcher) -> dict[str, int]:
        from hivekeeper.store import queries  # noqa: PLC0415

        with self._ledger.read() as connection:
            ready = [task for task in queries.list_ready_tasks(connection, 2) if not task.has_room]
        for task in ready:
            number, states = task.attempts + 1, AttemptState.WORKING
            row = AttemptRow(task.key, number, task.convoy, 1, 1, "NONE", states, "", "", None, None)
            argv = make_shell_argv(task.command)
            order = work._order_agent(self._places, work.Work(task, row, None, argv), f"{task.key}.{number}.agent")  # noqa: SLF001
            runs = local.LocalRuns(self._places.runs, "early")
            runs.start(order)
            while isinstance(runs.look(order.run), Unclaimed | Alive):
                pass
            runs.close()
        return dispatch(self)

    dispatcher.Dispatcher.run_once = run_once  # type: ignore[method-assign]


def forget_epochs() -> None:
    """Let a keeper write whose epoch is over."""
    write = ledger.Ledger.write

    @contextmanager
    def careless(self: ledger.Ledger, authority: ledger.Authority) -> Iterator[ledger.Transaction]:
        if isinstance(authority, ledger.ByKeeper):
            with self.read() as connection:
                authority = ledger.ByKeeper(authority.who, ledger.read_head(connection).epoch)
        with write(self, authority) as transaction:
            yield transaction

    ledger.Ledger.write = careless  # type: ignore[method-assign]


def claim_without_excluding() -> None:
    """Let a second claim replace the first: the wrapper's file, with the one flag left out."""
    source = Path(wrapper.__file__).read_text()
    mutated = source.replace("_AT_FDCWD, os.fsencode(name), _RENAME_NOREPLACE)", "_AT_FDCWD, os.fsencode(name), 0)")
    assert mutated != source
    copy = Path(tempfile.mkdtemp(prefix="hive-mutant-")) / "wrapper.py"
    copy.write_text(mutated)
    shutil.copy(Path(wrapper.__file__).with_name("nursery.py"), copy.with_name("nursery.py"))
    atexit.register(shutil.rmtree, copy.parent, ignore_errors=True)
    wrapper.__file__ = str(copy)
    executor_start = executor.Executor._start  # noqa: SLF001

    def start_twice(self: executor.Executor, row: RunRow) -> int:
        started = executor_start(self, row)
        self._asked.clear()
        return started and executor_start(self, row)

    executor.Executor._start = start_twice  # type: ignore[method-assign]  # noqa: SLF001


def release_anybodys() -> None:
    """Give a lease back whoever holds it: a loser's clean-up ends the winner's lease."""
    release = lease.Lease.release

    def careless(self: lease.Lease) -> None:
        with self._ledger.read() as connection:
            epoch = ledger.read_head(connection).epoch
            holder = connection.rows("SELECT holder FROM lease")[0][0]
        if self.authority.epoch != epoch:
            with self._ledger.write(ledger.ByKeeper(holder, epoch)) as tx:
                tx.record(e.LeaseReleased(holder))
        release(self)

    lease.Lease.release = careless  # type: ignore[method-assign]


def believe_exit_codes() -> None:
    """Take exit code 0 for success, without a look at what was made."""

    def believe(task: TaskRow, runs: Sequence[RunRow], kinds: Sequence[str], *, boot_id: str) -> attempt.Step:
        agents, step = [run for run in runs if run.kind == "agent"], decide(task, runs, kinds, boot_id=boot_id)
        return attempt.Judge() if agents and agents[-1].succeeded and isinstance(step, attempt.Fail) else step

    decide = attempt.decide_step
    attempt.decide_step = believe
    dispatcher.Dispatcher._look_at_work = lambda self, work: dispatcher.Proven(output=work.task.output)  # type: ignore[method-assign]  # noqa: ARG005, SLF001


def move_refs_unsynced() -> None:
    """Let git write objects and refs without a sync of its own, and the scripts without one after it."""
    orders.CLEAN_ENVIRONMENT["GIT_CONFIG_VALUE_0"] = "none"
    scripts = Path(tempfile.mkdtemp(prefix="hive-mutant-")) / "scripts"
    shutil.copytree(orders._SCRIPTS, scripts)  # noqa: SLF001 - planted where it would be written
    shutil.copy(orders._SCRIPTS.parent / "rest.py", scripts.parent)  # noqa: SLF001 - see above
    settle = scripts / "settle.sh"
    settle.write_text(settle.read_text().replace("sync ", ": "))
    orders._SCRIPTS = scripts  # noqa: SLF001 - see above
    atexit.register(shutil.rmtree, scripts.parent, ignore_errors=True)


def trust_old_boots() -> None:
    """Judge what an agent made before the machine restarted, as if it had been kept at once."""
    decide = attempt.decide_step

    def careless(task: TaskRow, runs: Sequence[RunRow], kinds: Sequence[str], *, boot_id: str) -> attempt.Step:
        return decide(task, [replace(run, boot_id=boot_id) for run in runs], kinds, boot_id=boot_id)

    attempt.decide_step = careless


def project_differently() -> None:
    """Let the live tables show what a replay would not."""

    def live(event: e.Event) -> tuple[projection.Change, ...]:
        changes = projection.project(event)
        return changes[:-1] if isinstance(event.body, e.TaskDispatched) else changes  # the convoy's count of workers

    ledger.project = live  # type: ignore[attr-defined]


def skip_gates() -> None:
    """Land what no gate has seen."""
    merger.Facts.gate = property(lambda _facts: ())  # type: ignore[assignment, method-assign]


def publish_nothing() -> None:
    """Believe that a push happened because its run ended well."""
    orders.publish_commit = lambda *_arguments: ("true",)


def keep_nothing() -> None:
    """Believe that a snapshot was kept because its run ended well."""
    orders.snapshot_attempt = lambda *_arguments: ("true",)


def believe_no_record() -> None:
    """Take a run whose keeper was dead for lost, whatever its exit record says."""

    def believe_nothing(text: str | None) -> Ending | None:
        return believe("" if text else text)

    believe = local._to_ending  # noqa: SLF001 - planted where it would be written
    local._to_ending = believe_nothing  # noqa: SLF001 - planted where it would be written


MUTANTS: dict[str, Mutant] = {
    "`synchronous=NORMAL`": Mutant(
        "what was acknowledged is durable", sync_too_little, "submit", "the ledger forgot", power=True
    ),
    "effect before intent": Mutant(
        "no effect without an earlier durable intent", act_before_intent, "dispatch", "it began before it was intended"
    ),
    "no epoch check": Mutant(
        "a keeper of an older epoch writes nothing", forget_epochs, "two-keepers", "THE-WOKEN-KEEPER-WAS-LET-IN"
    ),
    "start without the exclusive claim": Mutant("a run starts once", claim_without_excluding, "start", "began 2 times"),
    "release by a non-owner": Mutant(
        "only the holder gives the lease back", release_anybodys, "two-keepers", "without the lease"
    ),
    "outcome from an exit code alone": Mutant(
        "done is what is there, not what was said", believe_exit_codes, "lie", "lost"
    ),
    "projection differing from replay": Mutant("state = fold(log)", project_differently, "dispatch", "replay differs"),
    "ref moved before its objects are synced": Mutant(
        "what has landed is whole", move_refs_unsynced, "land", "is not on the branch", power=True
    ),
    "torn sandbox believed after a restart": Mutant(
        "what nobody synced is not believed", trust_old_boots, "agent", "is not what it wrote", power=True
    ),
    "gate skipped": Mutant("every landed tree was verified", skip_gates, "land", "nobody verified its tree"),
    "publishing believed unseen": Mutant(
        "published is what the person's repository has", publish_nothing, "publish", "its branch is elsewhere"
    ),
    "snapshot believed unseen": Mutant(
        "a sandbox goes only when its work is kept", keep_nothing, "cancel", "nothing of it is kept"
    ),
    "exit records not believed": Mutant(
        "the end of a run is found whoever was dead", believe_no_record, "takeover", "UNKNOWN"
    ),
}
