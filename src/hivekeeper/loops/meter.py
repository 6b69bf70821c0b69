"""The meter: reads the output of agent programs, records reports, and stops sessions that are over budget.

Rules:
1. Output is read as it comes, in bounded memory; only the report is stored. A new keeper reads it from the start.
2. Once a run has ended and its output was read to the end, its report is recorded, once; only then is it judged.
3. Usage counts while a session runs: over its budget it is stopped, and the budget's scope is put on hold.
4. A program that waits long for a usage limit is stopped, to free its worker. One that prints nothing after a request
   waits for its model: that is shown after a minute, and in the end treated as a limit.
5. A session with a message waiting is stopped between two turns, and resumes with the message.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.commands import runs as commands
from hivekeeper.commands.sessions import Budgets, lift_hold, place_hold
from hivekeeper.domain import events as e
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.protocol import PRIORITY_MERGE
from hivekeeper.domain.report import Outcome, Report, Usage
from hivekeeper.domain.rows import RunRow
from hivekeeper.domain.run import BUDGET, LIMIT, MESSAGE
from hivekeeper.domain.runner import Reach, Runner
from hivekeeper.domain.session import Hold, decide_hold
from hivekeeper.domain.states import RunState
from hivekeeper.domain.waits import has_passed
from hivekeeper.domain.wording import say_count
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.mailbox.boxes import was_read
from hivekeeper.runners import make_reader
from hivekeeper.runners.reading import Lines, Reader
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction
from hivekeeper.working.telling import is_for_worker

CHUNK = 1 << 20
SHOW_WAIT_AFTER_S = 60.0
METERED = ("agent", "resolve")
INTERVAL_S, BUSY_INTERVAL_S = 5.0, 1.0  # the second while a program runs, to notice soon that it is over budget
PATIENCE_S = 60.0  # how long a program may wait for a limit
MAX_TURN_WAIT_S = 60.0  # how long a message waits for the end of a turn
MAX_BYTES = 32 << 20  # read of one run in one pass
Act = Callable[[Transaction], object]


@dataclass(slots=True)
class Track:
    """A run as far as it was read; `limited_at` is since when it has waited for a limit.

    `turns` is its number of turns when a message came, and `said_at` when it last printed something.
    """

    reader: Reader
    lines: Lines = field(default_factory=Lines)
    offset: int = 0
    limited_at: float | None = None
    turns: int | None = None
    said_at: float | None = None


class Meter(Loop):
    """Reads output and enforces budgets."""

    name = "meter"
    order = 60
    wakes = Wakes((e.MailSent, e.MailAccepted), ends_of=METERED)
    rest_s = 0.2
    saves_work = True

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._tracks: dict[str, Track] = {}

    def run_once(self) -> Counts:
        """Read new output, record reports of ended runs, stop runs that must not continue."""
        with self._ledger.read() as connection:
            rows = queries.list_unread_runs(connection)
            self._tracks = {row.id: self._tracks.get(row.id) or self._track(row) for row in rows}
            whole = {row.id: self._read(row) for row in rows}  # the rows were read before the output
            ended = [row for row in rows if not row.is_open and whole[row.id]]
            acts = [act for row in ended for act in self._report(connection, row)]
            running = [row for row in rows if row.state is RunState.RUNNING and row.kill_requested_at is None]
            acts += self._enforce_budgets(connection, running)
            acts += [act for row in running for act in self._stop_waiting(connection, row)]
        self.interval_s = BUSY_INTERVAL_S if running else INTERVAL_S
        if acts:
            with self._ledger.write(self._authority) as tx:
                for act in acts:
                    act(tx)
        left = sum(not done for done in whole.values())
        return {"recorded": len(acts), "unread": left} if acts or left else {}

    def _track(self, row: RunRow) -> Track:
        runner = self._get_runner(row)
        return Track(make_reader(runner, self._settings.prices, runner.find_model(self._parts.environment)))

    def _get_runner(self, row: RunRow) -> Runner:
        known = self._settings.runners.get(str(row.runner))
        return known or Runner(str(row.runner), "")  # one that was removed from hive.toml is read like a command

    def _read(self, row: RunRow) -> bool:
        """Read new output of a run; return whether all of it was read."""
        track = self._tracks[row.id]
        file = self._runs.open_output(row.id)
        if file is None:
            return True
        with file:
            if track.said_at is None:  # another keeper may have read it before
                silent_s = to_seconds(self._clock.now()) - os.fstat(file.fileno()).st_mtime
                track.said_at = self._clock.monotonic() - max(0.0, silent_s)
            elif os.fstat(file.fileno()).st_size > track.offset:
                track.said_at = self._clock.monotonic()
            file.seek(track.offset)
            for _ in range(math.ceil(MAX_BYTES / CHUNK)):
                words = file.read(CHUNK)
                track.offset += len(words)
                for line in track.lines.feed(words):
                    track.reader.take(line)
                if len(words) < CHUNK:
                    return True
        return False

    def _report(self, connection: Connection, row: RunRow) -> Sequence[Act]:
        track, runner = self._tracks[row.id], self._get_runner(row)
        for line in track.lines.end():
            track.reader.take(line)
        ended_by = row.ended_by if row.state is RunState.EXITED else None
        if ended_by == "killed" and row.kill_cause == LIMIT:
            ended_by = LIMIT
        # A later session may find that everything is done already: the tree decides.
        must_act = row.kind == "agent" and row.number == 1
        report = track.reader.report(row.exit_status, ended_by, must_act=must_act)
        session = row.session if runner.chooses_session else report.session
        used = self._count(connection, row, session)
        words = report.words or (row.reason if report.outcome is Outcome.SETUP else "")
        told = Report(report.outcome, words, session or "", used, report.retry_s, report.retry_epoch)
        return (lambda tx: _note_report(tx, row, told),)

    def _count(self, connection: Connection, row: RunRow, session: str | None) -> Usage:
        """Return what a run itself has used so far."""
        reader = self._tracks[row.id].reader
        used = reader.count()
        if reader.tells_totals and session:
            before = queries.list_runs_of_attempt(connection, str(row.task), row.attempt or 0)
            same = (run for run in before if run.session == session and run.id != row.id)
            used -= sum((Usage(run.tokens_in, run.tokens_out, run.microusd) for run in same), Usage())
        return used

    def _enforce_budgets(self, connection: Connection, running: Sequence[RunRow]) -> list[Act]:
        live: dict[str, Usage] = {}
        for row in running:
            used = self._count(connection, row, row.session or self._tracks[row.id].reader.session)
            live[str(row.task)] = live.get(str(row.task), Usage()) + used
        budgets, acts = Budgets(connection, self._settings.day, live, now=self._clock.now()), list[Act]()
        for row in running:
            task = queries.find_task(connection, str(row.task))
            if task is not None and (reached := budgets.find_exhausted(task)):
                acts.append(_stop_over_budget(row, *reached))
        return acts

    def _stop_waiting(self, connection: Connection, row: RunRow) -> Sequence[Act]:
        track, now = self._tracks[row.id], self._clock.monotonic()
        if track.reader.limited is None:
            track.limited_at = None
        elif track.limited_at is None:
            track.limited_at = now
        limit = track.reader.limited
        if limit is not None and track.limited_at is not None:
            waited_s, patience_s = now - track.limited_at, PATIENCE_S
            if waited_s > patience_s or (limit.retry_s or 0.0) > patience_s:
                return (lambda tx: commands.request_kill(tx, row, f"it waits for a usage limit: {limit.words}", LIMIT),)
        if track.reader.hopeless and limit is not None:
            return (lambda tx: commands.request_kill(tx, row, f"it cannot continue: {limit.words}", LIMIT),)
        if row.kind == "agent" and (acts := self._check_silence(row, track)):
            return acts
        if self._has_message(connection, row, track):
            return (lambda tx: commands.request_kill(tx, row, "a message came for it", MESSAGE),)
        return ()

    def _check_silence(self, row: RunRow, track: Track) -> Sequence[Act]:
        """Record that a program waits long for its model; stop it when that must be a limit."""
        silent_s = self._clock.monotonic() - track.said_at if track.said_at is not None else 0.0
        waits = track.reader.awaits_model and silent_s > SHOW_WAIT_AFTER_S
        if waits and self._settings.no_answer_s is not None and silent_s > self._settings.no_answer_s:
            why = f"the model has not answered for {say_count(round(silent_s / 60), 'minute')}, which may be a limit"
            return (lambda tx: commands.request_kill(tx, row, why, LIMIT),)
        if waits == (row.waiting_since is not None):
            return ()
        since = to_text(to_seconds(self._clock.now()) - silent_s) if waits else None
        return (lambda tx: commands.note_waiting(tx, row, since),)

    def _has_message(self, connection: Connection, row: RunRow, track: Track) -> bool:
        """Whether a message has come for a session that has ended a turn since, or did not for long."""
        if row.kind != "agent":
            return False
        ours = (
            m for m in queries.list_open_mail_of_task(connection, str(row.task)) if is_for_worker(m, row.attempt or 0)
        )
        told = [m for m in ours if m.seq > row.intended_seq and not m.is_rejection]
        if not told or self._get_runner(row).reach is not Reach.INTERRUPT:
            return False
        mailbox = self._places.mailbox(str(row.task), row.attempt or 0)
        told = [mail for mail in told if not was_read(mailbox, mail.inbox_name)]
        if not told:
            return False
        if any(self._is_urgent(mail) for mail in told):
            return True
        if track.turns is None:
            track.turns = track.reader.turns
        is_late = has_passed(to_seconds(self._clock.now()), to_seconds(told[0].sent_at), MAX_TURN_WAIT_S)
        return track.reader.turns > track.turns or is_late

    def _is_urgent(self, mail: MailRow) -> bool:
        """Whether a message interrupts a turn; a hotfix does only where it has to be rebased onto."""
        type_ = self._settings.protocol.get(mail.type)
        return type_ is not None and type_.is_urgent and (mail.type != PRIORITY_MERGE or mail.must_rebase)


def _note_report(tx: Transaction, row: RunRow, report: Report) -> None:
    """Record a report together with the holds that follow from it, so that nothing can start in between."""
    retry_at = commands.note_report(tx, row, report)
    if report.outcome is Outcome.DONE:
        _lift_obsolete_holds(tx, row)
        return
    scope, name = ("task", row.task) if report.outcome is Outcome.SERVER_ERROR else ("runner", row.runner)
    before = next(
        (h for h in queries.list_holds(tx.connection) if (h.scope, h.name, h.cause) == (scope, name, report.outcome)),
        None,
    )
    runs = queries.list_runs_of_attempt(tx.connection, str(row.task), row.attempt or 0)
    earlier = sum(run.kind == row.kind and run.id != row.id and run.outcome == report.outcome for run in runs)
    hold = decide_hold(row, report.outcome, before, earlier, tx.now)
    if hold is not None:
        place_hold(tx, hold, why=report.words or hold.cause, retry_at=retry_at)


def _lift_obsolete_holds(tx: Transaction, row: RunRow) -> None:
    """Lift the holds of a runner that were placed before this successful session started."""
    for hold in queries.list_holds(tx.connection):
        if (hold.scope, hold.name) == ("runner", row.runner) and row.intended_seq > hold.placed_seq:
            lift_hold(tx, "runner", hold.name, cause=hold.cause, why="it works again")


def _stop_over_budget(row: RunRow, hold: Hold, why: str) -> Act:
    def end(tx: Transaction) -> None:
        if commands.request_kill(tx, row, why, BUDGET):
            key = (hold.scope, hold.name, hold.cause)
            held = (h for h in queries.list_holds(tx.connection) if (h.scope, h.name, h.cause) == key)
            if not any(h.is_active(tx.now) for h in held):
                place_hold(tx, hold, why=why)

    return end
