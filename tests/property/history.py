"""What must be true of any log, told from its events alone: a second opinion beside the projection."""

from collections import Counter
from dataclasses import dataclass, field

from hivekeeper.domain import events as e
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_events

LIVE = ("IN_PROGRESS", "CANCELLING")
NEVER_AGAIN = ("COMPLETE",)


@dataclass
class History:
    """Reads on where it stopped; everything that must never happen is an assertion."""

    seq: int = 0
    epoch: int = 0
    states: dict[str, str] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)
    convoys: dict[str, str] = field(default_factory=dict)
    allowed: dict[str, int] = field(default_factory=dict)
    archived: set[str] = field(default_factory=set)
    dispatched: Counter[str] = field(default_factory=Counter)
    working: dict[str, int] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)

    def read_on(self, connection: Connection) -> None:
        """Read every event that is new and hold the tables against all of them."""
        for event in read_events(connection, self.seq, 10**6):
            assert event.seq == self.seq + 1, "an event is missing"
            self.seq = event.seq
            self.kinds.add(event.body.kind)
            self._follow_epoch(event)
            self._follow_task(event.body)
            self._follow_run(event.body)
        self._compare(connection)

    def _follow_epoch(self, event: e.Event) -> None:
        expected = self.epoch + 1 if isinstance(event.body, e.LeaseTaken) else self.epoch
        assert event.epoch == expected, "S7: the epoch is raised by one, by who takes the lease, and never else"
        self.epoch = expected

    def _follow_task(self, body: e.Body) -> None:
        match body:
            case e.TaskAdded():
                assert body.task not in self.states, "S12: an id is taken once"
                assert body.convoy not in self.archived, "S12: an archived convoy takes nothing new"
                self.states[body.task], self.after[body.task] = "PENDING", body.after
                self.convoys[body.task], self.allowed[body.task] = body.convoy, body.attempts_allowed
            case e.TaskDispatched():
                self._dispatch(body)
            case e.TaskCompleted():
                self._settle(body.task, body.attempt, "COMPLETE")
            case e.AttemptFailed():
                assert body.final == (body.attempt >= self.allowed[body.task]), "R2: tries are neither lost nor given"
                self._settle(body.task, body.attempt, "FAILED" if body.final else "PENDING")
            case e.AttemptUnknown():
                self._settle(body.task, body.attempt, "UNKNOWN")
            case e.AttemptCancelled():
                self._settle(body.task, body.attempt, "CANCELLING")
            case e.TaskCancelled():
                assert body.task not in self.working, "what runs is ended first"
                self.states[body.task] = "CANCELLED"
            case e.TaskCancelRequested():
                self.states[body.task] = "CANCELLING"
            case e.TaskRetryRequested():
                self.states[body.task], self.allowed[body.task] = "PENDING", body.attempts_allowed
            case e.ConvoyArchived():
                self.archived.add(body.convoy)
            case _:
                pass

    def _dispatch(self, body: e.TaskDispatched) -> None:
        task = body.task
        assert self.states[task] not in NEVER_AGAIN, "S2: what is over never runs again"
        assert self.states[task] == "PENDING"
        assert task not in self.working, "S3: one live attempt a task"
        assert all(self.states.get(other) == "COMPLETE" for other in self.after[task]), "S5: in order"
        assert self.convoys[task] not in self.archived, "S12: what is archived never runs again"
        self.dispatched[task] += 1
        assert body.attempt == self.dispatched[task], "S15: every attempt has the next number"
        self.working[task], self.states[task] = body.attempt, "IN_PROGRESS"

    def _settle(self, task: str, attempt: int, state: str) -> None:
        assert self.working.pop(task, None) == attempt, "S3: a report of an older attempt changes nothing"
        assert self.states[task] in LIVE
        self.states[task] = state

    def _follow_run(self, body: e.Body) -> None:
        match body:
            case e.RunIntended():
                assert body.run not in self.runs, "S1: one intent a run"
                self.runs[body.run] = "INTENDED"
            case e.RunStarted():
                assert self.runs[body.run] == "INTENDED"
                self.runs[body.run] = "RUNNING"
            case e.RunExited():
                assert self.runs[body.run] == "RUNNING"
                self.runs[body.run] = "EXITED"
            case e.RunLost():
                assert self.runs[body.run] in ("INTENDED", "RUNNING")
                self.runs[body.run] = "LOST"
            case _:
                pass

    def _compare(self, connection: Connection) -> None:
        """S10, S12, S15: the tables say what the log says, no row has vanished, and every attempt is counted."""
        rows = connection.rows("SELECT key, state, attempts, attempts_allowed FROM task")
        assert {key: (state, attempts, allowed) for key, state, attempts, allowed in rows} == {
            task: (state, self.dispatched[task], self.allowed[task]) for task, state in self.states.items()
        }
        counted = connection.rows("SELECT task, count(*) FROM attempt GROUP BY task")
        assert dict(counted) == dict(self.dispatched)
        live = connection.rows("SELECT task, number FROM attempt WHERE ended_at IS NULL")
        assert sorted(live) == sorted(self.working.items()), "S3: one live attempt a task"
        assert dict(connection.rows("SELECT id, state FROM run")) == self.runs
