"""Planted bugs, by name: each breaks one promise, and some tier must notice."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from hivekeeper.commands.mail import deliver_mail
from hivekeeper.domain import attempt, gate, steps, train
from hivekeeper.domain import events as e
from hivekeeper.domain import schema as projection
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.owners import Owner, OwnerKind
from hivekeeper.domain.rows import RunRow, TaskRow
from hivekeeper.domain.run import Alive, Claim, Gone, Look, Order, Unclaimed, digest_order
from hivekeeper.domain.steps import Facts, Start
from hivekeeper.git import orders
from hivekeeper.keeper import lease
from hivekeeper.loops import dispatcher, executor, router
from hivekeeper.mailbox import boxes
from hivekeeper.merging import entries
from hivekeeper.runs import local, wrapper
from hivekeeper.specs.attempt import Told, Work, specify_agent
from hivekeeper.specs.names import name_places
from hivekeeper.store import ledger, queries, sqlite
from hivekeeper.store.database import Connection
from hivekeeper.working import evidence

Verdict = attempt.Judge | attempt.Fail | attempt.LeaveUnknown


class Tier(StrEnum):
    """What it takes to show a bug; whatever takes more shows nothing before that."""

    UNDISTURBED = "the judge, undisturbed"
    KILLS = "kills alone"
    POWER_CUTS = "power cuts alone"


@dataclass(frozen=True)
class Mutant:
    """A bug, the promise it breaks, how it is planted, and what it takes to show it in its scenario."""

    name: str
    promise: str
    plant: Callable[[], None]
    shown: str  # in the words of the judge
    tier: Tier = Tier.UNDISTURBED
    at_the_end: bool = False  # nothing is wrong with what a power cut leaves, only with what becomes of it
    calls: str = ""  # at which kills show it, where that is known
    scenario: str = ""  # in which it is shown: the one that declares it


def sync_too_little() -> None:
    """Let SQLite return before a commit is on disk."""
    pragmas = dict(sqlite._WRITE_PRAGMAS)  # noqa: SLF001 - planted where it would be written
    sqlite._WRITE_PRAGMAS = {**pragmas, "synchronous": 1}  # type: ignore[misc]  # noqa: SLF001


def act_before_intent() -> None:
    """Start a task's agent before anything about it is committed."""
    dispatch = dispatcher.Dispatcher.run_once

    def run_once(self: dispatcher.Dispatcher) -> dict[str, int]:
        with self._ledger.read() as connection:
            ready = [task for task in queries.list_ready_tasks(connection, 2) if not task.has_sandbox]
        for task in ready:
            work, start = Work(task, task.attempts + 1, None, None), Start("agent")
            spec = specify_agent(self._places, work, start, Told())
            name, mounts, named = work.owner.name_run(start), spec.mounts, name_places(self._places, spec)
            argv, environment = e.encode_json(named.argv), e.encode_json(named.environment)
            identity = digest_order(argv, f"{self._places.root}\0{named.directory}", environment)
            order = Order(name, "agent", spec.argv, spec.directory, spec.environment, spec.limits, mounts, identity)
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
    for beside in ("nursery.py", "disk.py"):
        shutil.copy(Path(wrapper.__file__).with_name(beside), copy.with_name(beside))
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

    def believe(task: TaskRow, runs: Sequence[RunRow], boot_id: str, *, is_finished: bool = False) -> Verdict:
        verdict = judge(task, runs, boot_id, is_finished=is_finished)
        agents = [run for run in runs if run.kind == "agent"]
        return attempt.Judge() if agents[-1].succeeded and isinstance(verdict, attempt.Fail) else verdict

    judge = attempt.judge_attempt
    attempt.judge_attempt = believe
    dispatcher.check_work = lambda places, work, repo: evidence.Succeeded(output=work.task.output)  # type: ignore[attr-defined]  # noqa: ARG005


def move_refs_unsynced() -> None:
    """Let git write objects and refs without a sync of its own, and the scripts without one after it."""
    orders.CLEAN_ENVIRONMENT["GIT_CONFIG_VALUE_0"] = "none"
    change_script("settle.sh", "sync ", ": ")


def change_script(name: str, old: str, new: str) -> None:
    """Have the runs use scripts in one of which something is written differently."""
    scripts = Path(tempfile.mkdtemp(prefix="hive-mutant-")) / "scripts"
    shutil.copytree(orders._SCRIPTS, scripts)  # noqa: SLF001 - planted where it would be written
    shutil.copy(orders._SCRIPTS.parent / "rest.py", scripts.parent)  # noqa: SLF001 - see above
    text = (scripts / name).read_text()
    assert old in text
    (scripts / name).write_text(text.replace(old, new))
    orders._SCRIPTS = scripts  # noqa: SLF001 - see above
    atexit.register(shutil.rmtree, scripts.parent, ignore_errors=True)


def trust_old_boots() -> None:
    """Judge what an agent made before the machine restarted, as if it had been kept at once."""
    judge, decide = attempt.judge_attempt, steps.decide

    def judge_carelessly(task: TaskRow, runs: Sequence[RunRow], boot_id: str, *, is_finished: bool = False) -> Verdict:
        return judge(task, [replace(run, boot_id=boot_id) for run in runs], boot_id, is_finished=is_finished)

    def decide_carelessly(sequence: steps.StepSequence, runs: Sequence[RunRow], facts: Facts) -> steps.Action:
        return decide(sequence, [replace(run, boot_id=facts.boot_id) for run in runs], facts)

    attempt.judge_attempt, steps.decide = judge_carelessly, decide_carelessly


def project_differently() -> None:
    """Let the live tables show what a replay would not."""

    def live(event: e.Event) -> tuple[projection.Change, ...]:
        changes = projection.project(event)
        return changes[:-1] if isinstance(event.body, e.TaskDispatched) else changes  # the convoy's count of workers

    ledger.project = live  # type: ignore[attr-defined]


def skip_gates() -> None:
    """Land what no gate has seen."""
    entries.Entry.gate = property(lambda entry: gate.Gate(replace(entry.repo, verify=None)))  # type: ignore[assignment, method-assign]


def pass_the_failed() -> None:
    """Take a tree that failed its gate for one that passed."""

    def careless(gate: gate.Gate, runs: Sequence[RunRow], facts: Facts) -> gate.Found:
        found = judge(gate, runs, facts)
        return replace(found, verdict=train.Verdict.PASSED) if found.verdict is train.Verdict.FAILED else found

    judge = gate.judge
    gate.judge = careless


def reuse_verdicts() -> None:
    """Take what is known of another tree under the same gate for what is known of this one."""

    def of_any(connection: Connection, owner: Owner) -> list[RunRow]:
        if owner.kind is not OwnerKind.TREE:
            return of_owner(connection, owner)
        passed = queries.list_rows(connection, RunRow, "intended_at", kind="gate", exit_status=0, repo=owner.repo)
        same_gate = [run for run in passed if run.owner.rpartition("-")[2] == owner.name.rpartition("-")[2]]
        return of_owner(connection, replace(owner, name=same_gate[0].owner) if same_gate else owner)

    of_owner = queries.list_runs_of
    queries.list_runs_of = of_any


def land_out_of_order() -> None:
    """Land what has passed, whatever became of the one it was made on: in the plan, and in the branch's own move."""

    def land(car: train.Car, parent: str, now: train.Snapshot, slots: int) -> train.Action | None:
        passed = car.verdict is train.Verdict.PASSED
        return train.Land(car.key) if passed else plan_car(car, parent, now, slots)

    plan_car = train._plan_car  # noqa: SLF001 - planted where it would be written
    train._plan_car = land  # noqa: SLF001 - see above
    change_script("land_commit.sh", 'move_ref "$ref" "$new" "$old"', 'move_ref "$ref" "$new"')


def publish_nothing() -> None:
    """Believe that a push happened because its run ended well."""
    orders.publish_commit = lambda *_arguments: ("true",)


def keep_nothing() -> None:
    """Believe that a snapshot was kept because its run ended well."""
    orders.snapshot_attempt = lambda *_arguments: orders.InSandbox(("true",), (), ())


def commit_every_event() -> None:
    """Make a transaction of every event, where one was to hold several."""
    record = ledger.Transaction.record

    def record_and_commit(self: ledger.Transaction, body: e.Body, **more: Any) -> e.Event:  # noqa: ANN401 - handed on
        event = record(self, body, **more)
        self.seal()
        self.connection.run("COMMIT")
        self.connection.run("BEGIN IMMEDIATE")
        return event

    ledger.Transaction.record = record_and_commit  # type: ignore[method-assign]


def look_at_strangers(change: Callable[[local.LocalRuns, str, Look], Look]) -> None:
    """Have a keeper see something else when it looks at a run that another one has started."""
    start, look = local.LocalRuns.start, local.LocalRuns.look
    own: set[str] = set()

    def start_own(self: local.LocalRuns, order: Order, isolated: tuple[str, ...] | None = None) -> None:
        own.add(order.run)
        start(self, order, isolated)

    def look_at(self: local.LocalRuns, run: str, known: Claim | None = None) -> Look:
        seen = look(self, run, known)
        return seen if run in own or isinstance(seen, Unclaimed) else change(self, run, seen)

    local.LocalRuns.start = start_own  # type: ignore[method-assign]
    local.LocalRuns.look = look_at  # type: ignore[method-assign]


def disown_runs() -> None:
    """Take for lost what another keeper has started, whatever its exit record says."""
    look_at_strangers(lambda _runs, _run, _seen: Gone(None))


def start_over() -> None:
    """Clear away what another keeper has started and not noted, and start it again."""

    def clear(runs: local.LocalRuns, run: str, _seen: Look) -> Look:
        shutil.rmtree(f"{runs._root}/{run}", ignore_errors=True)  # noqa: SLF001 - planted where it would be written
        return Unclaimed()

    look_at_strangers(clear)


def move_before_record() -> None:
    """Move a worker's file out of its outbox, and record only then what it came to."""
    record = router.Router._record  # noqa: SLF001 - planted where it would be written

    def move_and_record(
        self: router.Router,
        found: Sequence[router.Found],
        to_people: Sequence[MailRow],
        stale: Sequence[MailRow],
    ) -> None:
        for each in found:
            each.reasons = [""] * len(each.batch.files)
            each.clear()
            each.reasons = []
        record(self, found, to_people, stale)

    router.Router._record = move_and_record  # type: ignore[method-assign]  # noqa: SLF001 - see above


def move_by_name() -> None:
    """Move whatever has the name of a file that was read."""
    finish = boxes.Mailbox.finish

    def finish_any(self: boxes.Mailbox, listed: boxes.Listed, reason: str = "") -> None:
        named = [each for each in self.list_outbox() or () if each.name == listed.name]
        finish(self, named[0] if named else listed, reason)

    boxes.Mailbox.finish = finish_any  # type: ignore[method-assign]


def record_before_delivery() -> None:
    """Record that messages lie in an inbox, and put them there only then."""
    deliver, find = router.Router._deliver, queries.list_deliverable_mail  # noqa: SLF001 - planted where it would be written

    def record_and_deliver(self: router.Router) -> int:
        with self._ledger.read() as connection:
            waiting = find(connection, (), router.MAX_DELIVERED)
        with self._ledger.write(self._authority) as tx:
            for mail, _ in waiting:
                deliver_mail(tx, mail)
        queries.list_deliverable_mail = lambda *_: waiting
        return deliver(self)

    router.Router._deliver = record_and_deliver  # type: ignore[method-assign]  # noqa: SLF001 - see above


def sync_no_inbox() -> None:
    """Put messages into inboxes without a sync, and take them for delivered."""
    os.fsync = lambda _descriptor: None  # type: ignore[assignment]
