"""The executor: starts and stops open runs, and records what became of them.

Rules:
1. An unclaimed intended run is requested; a second request has no effect, so a crash in between is harmless.
2. A run is RUNNING when its claim is there, EXITED when its exit record is there, and LOST when its wrapper died
   without one and none of its processes is alive.
3. A run whose stop was requested is stopped; one that never started is claimed without a wrapper.
"""

import json
import re
from typing import assert_never

from hivekeeper.clock import to_seconds
from hivekeeper.commands import runs as commands
from hivekeeper.domain import run as r
from hivekeeper.domain.events import RunIntended, RunKillRequested
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.states import RunState
from hivekeeper.domain.waits import has_passed
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.sandbox.isolation import Mounts
from hivekeeper.specs.names import resolve_places
from hivekeeper.store import queries
from hivekeeper.store.ledger import Transaction

# How long a requested run may stay unclaimed, and how long a wrapper may take to stop its processes.
ASK_AGAIN_S, HARD_AFTER_S = 5.0, 30.0


class Executor(Loop):
    """Starts, watches and ends runs."""

    name = "executor"
    order = 20
    wakes = Wakes((RunIntended, RunKillRequested), run_changed=True)
    saves_work = True

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.interval_s = self._settings.poll_s
        self._asked: dict[str, float] = {}
        self._orders: dict[str, r.Order] = {}  # intents never change

    def run_once(self) -> Counts:
        """Inspect every open run, record what changed, then start and stop runs."""
        with self._ledger.read() as connection:
            rows = queries.list_open_runs(connection)
        verdicts = [(row, self._decide(row)) for row in rows]
        notes = [pair for pair in verdicts if isinstance(pair[1], r.NoteStarted | r.NoteEnded | r.NoteLost)]
        if notes:
            with self._ledger.write(self._authority) as tx:
                for row, verdict in notes:
                    self._record(tx, row, verdict)
        acted = sum(self._act(row, verdict) for row, verdict in verdicts)
        open_ids = {row.id for row in rows}
        self._asked = {run: at for run, at in self._asked.items() if run in open_ids}
        self._orders = {run: order for run, order in self._orders.items() if run in open_ids}
        return {"recorded": len(notes), "acted": acted} if notes or acted else {}

    def _decide(self, row: RunRow) -> r.Verdict:
        intended_here = row.boot_id == self._runs.boot_id
        known, order = None, self._read_order(row)
        if row.state is RunState.RUNNING:
            known = r.Claim(row.pid or 0, row.start_ticks or 0, row.boot_id, row.started_at or row.intended_at)
        look = self._runs.look(row.id, known)
        if row.state is RunState.RUNNING:
            look = _look_from_afar(look, order.digest)
        kill = row.kill_requested_at is not None
        return r.decide_run(row.state, look, intended_here=intended_here, kill=kill, order=order.digest)

    def _read_order(self, row: RunRow) -> r.Order:
        """Return the order of a run, with this machine's paths."""
        if row.id in self._orders:
            return self._orders[row.id]
        mounts = None if row.mounts is None else json.loads(row.mounts)
        named = r.RunSpec(tuple(json.loads(row.argv)), row.directory, json.loads(row.environment), {}, mounts)
        spec = resolve_places(self._places, named)
        limits = json.loads(row.limits)
        # By names and the hive's place: another interpreter or release runs the same order, a moved hive does not.
        identity = r.digest_order(row.argv, f"{self._places.root}\0{row.directory}", row.environment)
        order = r.Order(row.id, row.kind, spec.argv, spec.directory, spec.environment, limits, spec.mounts, identity)
        return self._orders.setdefault(row.id, order)

    def _act(self, row: RunRow, verdict: r.Verdict) -> int:
        match verdict:
            case r.Start():
                return self._start(row)
            case r.Stop():
                asked_s = to_seconds(row.kill_requested_at or row.intended_at)
                grace_s = float(json.loads(row.limits).get("grace_s") or 0.0)
                is_late = has_passed(to_seconds(self._clock.now()), asked_s, grace_s + HARD_AFTER_S)
                self._runs.stop(row.id, hard=is_late)
            case r.Forbid():
                self._runs.forbid(row.id)
            case r.KillLeftovers(pids):
                self._runs.kill_leftovers(pids)
            case r.Wait() | r.NoteStarted() | r.NoteEnded() | r.NoteLost():
                return 0
            case _:
                assert_never(verdict)
        return 1

    def _start(self, row: RunRow) -> int:
        now = self._clock.monotonic()
        if now - self._asked.get(row.id, -ASK_AGAIN_S) < ASK_AGAIN_S:
            return 0
        self._asked[row.id] = now
        order = self._read_order(row)
        self._runs.start(order, None if order.mounts is None else self._isolate(order, order.mounts))
        return 1

    def _isolate(self, order: r.Order, mounts: dict[str, list[str]]) -> tuple[str, ...]:
        """Wrap a worker's command in its sandbox: the ledger has the command, this machine the isolation."""
        allowed = Mounts(tuple(mounts["write"]), tuple(mounts["read"]), tuple(mounts["hide"]))
        largest = None if (disk := order.limits.get("disk_bytes")) is None else int(disk)
        ours, theirs = order.argv[: order.outside], order.argv[order.outside :]
        return (*ours, *self._parts.find_isolation().wrap(theirs, order.directory, allowed, order.environment, largest))

    def _record(self, tx: Transaction, row: RunRow, verdict: r.Verdict) -> None:
        match verdict:
            case r.NoteStarted(claim):
                commands.note_started(tx, row, claim)
            case r.NoteEnded(claim, ending):
                # A snapshot prints what it could not save.
                silent = ending.status == 0 and row.kind != "snapshot"
                last_words = "" if silent else _last_line(self._runs.read_output(row.id))
                commands.note_ended(tx, row, claim, ending, last_words=last_words)
            case r.NoteLost(why):
                commands.note_lost(tx, row, why)
            case _:
                pass


_MOVED = "the hive was moved while it ran"


def _look_from_afar(look: r.Look, order: str) -> r.Look:
    """Treat a run as lost if it started before the hive was moved: its files are not the hive's any more."""
    match look:
        case r.Alive(claim) if claim.order not in ("", order):
            return r.Gone(claim, (claim.pid,), _MOVED)
        case r.Gone(r.Claim() as claim, leftovers) if claim.order not in ("", order):
            return r.Gone(claim, leftovers, _MOVED)
        case _:
            return look


# Lines in which git only says that it failed, or gives advice; the reason is on a line before.
_EMPTY_WORDS = re.compile(
    r"$|To |and the repository exists|Please make sure you have|fatal: Could not read from remote|error: failed to push"
    r"|! \[remote rejected\].*failed to update ref"
)


def _last_line(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if not _EMPTY_WORDS.match(line.strip())]
    text = lines[-1] if lines else ""
    return "".join(character if character.isprintable() else " " for character in text)[:300].rstrip(".")
