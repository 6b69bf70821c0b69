"""State = fold(log): whatever legal history is written, replaying it into empty tables gives the live tables."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hivekeeper.commands import agents, attempts, convoys, leases, mail, merges, plans, queue, runs, sessions, tasks
from hivekeeper.domain.budget import Cap
from hivekeeper.domain.convoy import decide_outcome
from hivekeeper.domain.events import (
    BODIES,
    AttemptFinished,
    AttemptProgressed,
    MailAccepted,
    MailAssigned,
    MailClosed,
    MailDelivered,
    MailDropped,
    MailForwarded,
    MailHandled,
    MailRequeued,
    MailSent,
    MailSettled,
    RepoPinned,
    RepoPublishDue,
    TaskRecommended,
)
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec
from hivekeeper.domain.protocol import PROTOCOL
from hivekeeper.domain.report import Outcome, Report, Usage
from hivekeeper.domain.rows import AttemptRow, ConvoyRow, MergeRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.run import Ending, RunSpec
from hivekeeper.domain.schema import get_table
from hivekeeper.domain.session import Hold
from hivekeeper.domain.states import AttemptState, MergeState, RepoState, RunState, TaskState
from hivekeeper.domain.steps import Start
from hivekeeper.errors import InputError
from hivekeeper.store import agent_queries, queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_events
from hivekeeper.store.replay import rebuilt
from tests.needs import need
from tests.store.ledger_kit import BOOT, COMMON_KINDS, assert_whole, dump, dump_all, dump_tables, rebuild, seize
from tests.store.ledger_situations import CLAIM, bring_task, build_situations
from tests.store.ledger_world import World

T = TypeVar("T")
CONVOYS, IDS = ("red", "green"), ("a", "b", "c", "d", "e", "f")
REPOS = (RepoSpec("r", "/repos/r"), RepoSpec("s", "/repos/s", "next", "make"))
ANY = st.integers(0, 10**6)
NEVER_AGAIN = (TaskState.COMPLETE,)
KINDS: set[str] = set()


def commit(number: int) -> str:
    return f"{number:040x}"


def make_candidate(entry: MergeRow, candidate: str) -> MergeRow:
    return replace(entry, round=entry.round + 1, base=commit(1), candidate=candidate, tree=commit(3))


@st.composite
def plans_in(draw: st.DrawFn) -> PlanSpec:
    """A plan that mostly says of a task what every other says of it; now and then one that is to be refused."""
    specs = []
    for number, task_id in enumerate(IDS[: draw(st.integers(1, len(IDS)))]):
        spec = TaskSpec(
            task_id,
            "täglich\0",
            repo=(None, "r", "s")[number % 3],
            after=IDS[:1] if number == 3 else (),
            priority=draw(st.integers(-2, 2)),
            attempts=1 + number % 2,
        )
        if draw(st.integers(0, 15)) == 0:
            spec = replace(spec, after=(draw(st.sampled_from(IDS)),), verify="make")
        specs.append(spec)
    return PlanSpec(draw(st.sampled_from(CONVOYS)), tuple(specs), REPOS)


class Histories(RuleBasedStateMachine):
    """A hive's life at random: every rule does one legal thing, or finds nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        # In memory where there is such a place: thousands of commits, and none of them about the disk.
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
        self._directory = tempfile.TemporaryDirectory(prefix="hive-replay-", dir=memory)
        self.place = Path(self._directory.name)
        self.world = World(self.place)
        self.ended: dict[str, TaskState] = {}

    def teardown(self) -> None:
        try:
            with self.world.ledger.read() as connection:
                KINDS.update(event.body.kind for event in read_events(connection, 0, 10**6))
            live = dump(self.world.ledger)
            assert rebuild(self.world.ledger) == live
            assert_whole(self.world.path)
        finally:
            self.world.close()
            self._directory.cleanup()

    def find(self, query: Callable[[Connection], Sequence[T]], pick: int) -> T | None:
        """Pick one of the rows a query lists."""
        with self.world.ledger.read() as connection:
            rows = query(connection)
        return rows[pick % len(rows)] if rows else None

    def pick_task(self, pick: int) -> TaskRow | None:
        return self.find(lambda c: [t for v in CONVOYS for t in queries.list_tasks_of_convoy(c, v)], pick)

    def pick_open(self, pick: int, *states: AttemptState) -> tuple[AttemptRow, TaskRow] | None:
        return self.find(lambda c: [p for s in states for p in queries.list_open_attempts(c, s)], pick)

    def pick_merge(self, pick: int, *states: MergeState) -> tuple[MergeRow, TaskRow, AttemptRow] | None:
        entry = self.find(lambda c: [m for m in queries.list_open_merges(c) if m.state in states], pick)
        if entry is None:
            return None
        return entry, self.world.task(entry.task), self.world.attempt(entry.task, entry.attempt)

    def pick_repo(self, pick: int, *states: RepoState) -> RepoRow | None:
        return self.find(lambda c: [r for r in queries.list_repos(c) if r.state in states], pick)

    def pick_run(self, pick: int) -> RunRow | None:
        return self.find(queries.list_open_runs, pick)

    def pick_convoy(self, pick: int) -> ConvoyRow | None:
        return self.find(lambda c: queries.list_convoys(c, archived=True), pick)

    @initialize(plan=plans_in())
    def begin(self, plan: PlanSpec) -> None:
        self.submit(plan)
        while repo := self.pick_repo(0, RepoState.FETCHING):
            self.world.fetch(repo.name)

    @rule(plan=plans_in())
    def submit(self, plan: PlanSpec) -> None:
        before = dump_all(self.world.ledger)
        try:
            with self.world.ask() as tx:
                plans.submit_plan(tx, plan, why="wanted")
        except InputError:
            assert dump_all(self.world.ledger) == before

    @rule(pick=ANY)
    def cancel(self, pick: int) -> None:
        under_way = self.find(lambda c: queries.list_tasks_in_state(c, TaskState.IN_PROGRESS), pick)
        task = under_way if pick % 3 else self.pick_task(pick)
        if task and task.state is not TaskState.COMPLETE:
            with self.world.ask() as tx:
                tasks.cancel_task(tx, task, why="off")

    @rule(pick=ANY)
    def retry(self, pick: int) -> None:
        states = (TaskState.FAILED, TaskState.UNKNOWN)
        if task := self.find(lambda c: [t for s in states for t in queries.list_tasks_in_state(c, s)], pick):
            try:
                with self.world.ask() as tx:
                    tasks.retry_task(tx, task)
            except InputError:
                assert self.world.convoy(task.convoy).state.value == "ARCHIVED"

    @rule(pick=ANY)
    def cancel_convoy(self, pick: int) -> None:
        if pick % 5 == 0 and (convoy := self.pick_convoy(pick)):
            with self.world.ask() as tx:
                convoys.cancel_convoy(tx, convoy)

    @rule(pick=ANY, count=st.integers(1, 3))
    def dispatch(self, pick: int, count: int) -> None:
        with self.world.keep() as tx:
            for task in queries.list_ready_tasks(tx.connection, count):
                owner = attempt_owner(task.key, attempts.dispatch_task(tx, task).number, task.repo)
                spec = RunSpec(("true",), "/", {"N": str(pick)}, {"wall_s": 1.5})
                runs.intend_run(tx, owner, Start("agent"), spec, boot_id=BOOT)

    @rule(pick=ANY, how=st.sampled_from(["start", "exit", "lost", "kill"]))
    def move_run(self, pick: int, how: str) -> None:
        if (run := self.pick_run(pick)) is None:
            return
        with self.world.keep() as tx:
            if how == "start" and run.state is RunState.INTENDED:
                runs.note_started(tx, run, CLAIM)
            elif how == "exit":
                ending = Ending(pick % 3 - 1, "exit", pick, "2026-01-01T00:00:02.000000Z", "said so" * (pick % 2))
                runs.note_ended(tx, run, CLAIM, ending)
                if pick % 2:
                    runs.note_report(tx, run, Report(Outcome.DONE, "well", "s-1", Usage(pick % 99, 7, 11)))
            elif how == "lost":
                runs.note_lost(tx, run, "gone")
            elif how == "kill":
                runs.request_kill(tx, run, "off")

    @rule(pick=ANY, how=st.sampled_from(["succeed", "fail", "unknown", "succeed"]))
    def end_attempt(self, pick: int, how: str) -> None:
        if pick % 3 == 0:
            self.limit(pick)
        if (found := self.pick_open(pick, AttemptState.WORKING)) is None:
            return
        attempt, task = found
        with self.world.keep() as tx:
            if task.state is TaskState.CANCELLING:
                attempts.cancel_attempt(tx, task, attempt)
            elif how == "succeed" and task.repo:
                attempts.submit_attempt(tx, task, attempt, commit(pick), at=tx.now)
            elif how == "succeed":
                attempts.complete_task(tx, task, attempt.number, at=tx.now, output="out.md")
            elif how == "fail":
                attempts.fail_attempt(tx, task, attempt, why="broke", at=tx.now)
            else:
                attempts.leave_unknown(tx, task, attempt, why="who knows")

    def limit(self, pick: int) -> None:
        """A session ran into a limit; what waited goes on, or a person says that it may."""
        name = ("claude", "codex")[pick % 2]
        parked, working = (self.pick_open(pick, state) for state in (AttemptState.PARKED, AttemptState.WORKING))
        with self.world.keep() as tx:
            if parked:
                sessions.resume_attempt(tx, parked[0])
            elif working:
                sessions.place_hold(tx, Hold("runner", name, "rate-limited", 60.0, pick % 4), why="429")
                sessions.park_attempt(tx, working[0], why="429")
        with self.world.ask() as tx:
            sessions.lift_hold(tx, "runner", name)
            if working:
                sessions.raise_budget(tx, "day", "today", Cap(pick, None))
                key, number = working[1].key, working[0].number
                tx.record(
                    MailSent(
                        f"{key}/mail-{tx.head.seq + 1}", "inform", "c.worker-1", key, number, {"text": "stop"}, "t"
                    )
                )
            if repo := self.pick_repo(pick, *RepoState):
                tx.record(RepoPinned(repo.name, f"{pick}", [".mcp.json"]))

    @rule(pick=ANY)
    def verify(self, pick: int) -> None:
        if found := self.pick_merge(pick, MergeState.QUEUED, MergeState.VERIFYING):
            with self.world.keep() as tx:
                merges.begin_verifying(tx, make_candidate(found[0], commit(pick)))

    @rule(pick=ANY, how=st.sampled_from(["land", "requeue", "reject"]))
    def move_merge(self, pick: int, how: str) -> None:
        states = (MergeState.QUEUED, MergeState.VERIFYING, MergeState.LANDING)
        if (found := self.pick_merge(pick, *states)) is None:
            return
        entry, task, attempt = found
        with self.world.keep() as tx:
            if entry.state is MergeState.LANDING and how == "land":
                merges.note_landed(tx, entry, task, at=tx.now)
            elif entry.state is not MergeState.LANDING and task.state is TaskState.CANCELLING:
                merges.withdraw(tx, entry, why=task.reason)
                attempts.cancel_attempt(tx, task, attempt)
            elif entry.state is not MergeState.LANDING and how == "reject":
                merges.reject(tx, entry, task, attempt, why="conflict", body={"mode": "anew"})
            elif entry.state is not MergeState.QUEUED and how == "requeue":
                merges.requeue(tx, entry, why="moved")
            elif entry.state is MergeState.VERIFYING and how == "land":
                merges.begin_landing(tx, entry, at=tx.now)

    @rule(pick=ANY)
    def land_one(self, pick: int) -> None:
        """An attempt goes all the way, with nothing in between: by single steps few come so far."""
        if (found := self.pick_open(pick, AttemptState.WORKING)) is None or found[1].repo is None:
            return
        attempt, task = found
        if task.state is TaskState.CANCELLING:
            return
        with self.world.keep() as tx:
            attempts.submit_attempt(tx, task, attempt, commit(pick), at=tx.now)
        with self.world.keep() as tx:
            merges.begin_verifying(tx, make_candidate(self.world.merge(task.key, attempt.number), commit(pick)))
        with self.world.keep() as tx:
            merges.begin_landing(tx, self.world.merge(task.key, attempt.number), at=tx.now)
        with self.world.keep() as tx:
            merges.note_landed(tx, self.world.merge(task.key, attempt.number), task, at=tx.now)

    @rule(pick=ANY, how=st.sampled_from(["suspect", "clear", "hold", "settle"]))
    def change_merge(self, pick: int, how: str) -> None:
        if (found := self.pick_merge(pick, MergeState.QUEUED, MergeState.VERIFYING)) is None:
            return
        ended = {"id": f"_gates/r/{pick}.1.1.gate", "state": RunState.EXITED, "ended_by": "exit", "exit_status": 1}
        nothing: dict[str, Any] = dict.fromkeys(get_table(RunRow).columns)
        entry, run = found[0], RunRow(**nothing | {"reason": ""} | ended)
        with self.world.keep() as tx:
            if how == "settle":
                merges.note_resolved(tx, entry, commit(pick), "ai", ["a line"])
            elif how == "hold" and entry.held is None:
                merges.hold(tx, entry, why="it changes the gate")
            elif how in ("suspect", "clear"):
                merges.begin_verifying(tx, make_candidate(entry, commit(pick)))
                merges.suspect(tx, entry, run)
                if how == "clear":
                    merges.clear(tx, entry, run)

    @rule(pick=ANY, how=st.sampled_from(["prioritize", "approve"]))
    def ask_of_merge(self, pick: int, how: str) -> None:
        if (found := self.pick_merge(pick, MergeState.QUEUED, MergeState.VERIFYING)) is None:
            return
        entry, task, _ = found
        with self.world.ask() as tx:
            queue.prioritize_entry(tx, task, entry.priority + 1)
            if how == "approve" and entry.held is not None:
                queue.approve_entry(tx, task)

    @rule(pick=ANY, how=st.sampled_from(["pause", "resume", "stop", "recover"]))
    def hold_up_repo(self, pick: int, how: str) -> None:
        if (repo := self.pick_repo(pick, *RepoState)) is None:
            return
        if how in ("pause", "resume"):
            with self.world.ask() as tx:
                (queue.pause_queue if how == "pause" else queue.resume_queue)(tx, repo)
        elif (how == "stop") == (repo.stopped is None):
            with self.world.keep() as tx:
                if how == "stop":
                    merges.stop_queue(tx, repo, why="its gate does not pass")
                else:
                    merges.recover_queue(tx, repo)

    @rule(pick=ANY, how=st.sampled_from(["fetched", "fetched", "failed", "again"]))
    def move_repo(self, pick: int, how: str) -> None:
        if repo := self.pick_repo(pick, RepoState.FETCHING):
            with self.world.keep() as tx:
                if how == "fetched":
                    merges.note_fetched(tx, repo, integration=commit(pick), source=commit(pick // 2))
                elif how == "failed":
                    merges.note_fetch_failed(tx, repo, "no such place")
                else:
                    merges.fetch_again(tx, repo, why="lost")

    @rule(pick=ANY, how=st.sampled_from(["published", "failed"]))
    def publish(self, pick: int, how: str) -> None:
        if repo := self.pick_repo(pick, RepoState.READY):
            with self.world.keep() as tx:
                if repo.publishing is None:
                    merges.begin_publishing(tx, repo, repo.integration or "")
                elif how == "published":
                    merges.note_published(tx, repo, repo.publishing, at=tx.now)
                else:
                    merges.note_publish_failed(tx, repo, "protected", retry_at=tx.now)

    @rule(pick=ANY)
    def push_on(self, pick: int) -> None:
        """Let everything go well for a while; else few histories come to a good end."""
        self.dispatch(pick, 3)
        for number in range(3):
            self.end_attempt(pick + number, "succeed")
            if pick % 2:
                self.verify(pick + number)
                self.move_merge(pick + number, "land")
        self.clean_up()

    @rule()
    def clean_up(self) -> None:
        with self.world.keep() as tx:
            for convoy in queries.list_convoys(tx.connection):
                if convoy.state.value == "ACTIVE":
                    counts = queries.count_tasks_by_state(tx.connection, convoy.name)
                    outcome = decide_outcome(counts, queries.count_startable(tx.connection, convoy.name))
                    convoys.end_convoy(tx, convoy.name, outcome, at=tx.now)
            for swarm in queries.list_closable_swarms(tx.connection):
                convoys.close_swarm(tx, swarm)
            for attempt in queries.list_removable_sandboxes(tx.connection, 2):
                attempts.sweep_attempt(tx, attempt)

    @rule(pick=ANY)
    @precondition(lambda self: self.world.seq() > 30)
    def archive(self, pick: int) -> None:
        ended = ("COMPLETE", "FAILED")
        if convoy := self.find(lambda c: [each for each in queries.list_convoys(c) if each.state.value in ended], pick):
            with self.world.ask() as tx:
                convoys.archive_convoy(tx, convoy, why="done with")

    @rule(release=st.booleans())
    def hand_over(self, *, release: bool) -> None:
        if release:
            with self.world.keep() as tx:
                leases.release_lease(tx, self.world.keeper.who)
        self.world.keeper = seize(self.world.ledger, f"keeper {self.world.seq()} on here")

    @invariant()
    def what_has_ended_stays_ended_and_one_attempt_lives_a_task(self) -> None:
        with self.world.ledger.read() as connection:
            states = {key: TaskState(state) for key, state in connection.rows("SELECT key, state FROM task")}
            live = connection.rows(
                "SELECT task, count(*) FROM attempt WHERE state IN ('WORKING', 'PARKED', 'SUBMITTED') GROUP BY task"
            )
        assert all(states[key] is state for key, state in self.ended.items())
        self.ended |= {key: state for key, state in states.items() if state in NEVER_AGAIN}
        under_way = {key for key, state in states.items() if state in (TaskState.IN_PROGRESS, TaskState.CANCELLING)}
        assert dict(live) == dict.fromkeys(under_way, 1)


TestReplay = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")(Histories.TestCase)
TestReplay = pytest.mark.timeout(600)(TestReplay)  # many, on a machine that others use
TestReplay.settings = settings(max_examples=70, stateful_step_count=60, derandomize=True)


def test_random_histories_come_to_every_common_end() -> None:
    """Runs after the histories above; guards against a machine that finds nothing to do."""
    need(KINDS, "the histories above were not run")
    assert sorted(COMMON_KINDS - KINDS) == []


def write_the_rest(world: World) -> None:
    """Write the kinds of event that no row's situation needs, and a prompt."""
    world.submit("prompted", TaskSpec("p", prompt="Do it.", runner="scripted"))
    with world.keep() as tx:
        merges.requeue(tx, world.merge("m/LANDING"), why="moved")
        runs.request_kill(tx, world.run("run-INTENDED"), "off")
        attempts.sweep_attempt(tx, world.attempt("c/failed"))
    write_the_queue(world)
    write_the_sessions(world)
    for _ in range(2):
        with world.keep() as tx:
            merges.begin_publishing(tx, world.repo(), commit(1))
        with world.keep() as tx:
            merges.note_publish_failed(tx, world.repo(), "protected", retry_at=tx.now)
        with world.keep() as tx:
            merges.begin_publishing(tx, world.repo(), commit(1))
        with world.keep() as tx:
            merges.note_published(tx, world.repo(), commit(1), at=tx.now)
            merges.fetch_again(tx, world.repo(), why="lost")
            merges.delay_fetch(tx, world.repo(), f"run-{tx.head.seq}", "no route to host", retry_at=tx.now)
            tx.record(RepoPublishDue(world.repo().name))
            for swarm in queries.list_closable_swarms(tx.connection):
                convoys.close_swarm(tx, swarm)
    with world.keep() as tx:
        merges.note_fetch_failed(tx, world.repo(), "no such place")
    with world.ask() as tx:
        tasks.retry_task(tx, world.task("c-failed/first"))
        tasks.edit_task(tx, world.task("prompted/p"), prompt="Do it well.")
        tasks.hand_off(tx, PROTOCOL, world.task("prompted/p"), agent="ann", runner="codex")
        plans.submit_plan(tx, PlanSpec("prompted", (), defaults={"attempts": 2}))
    write_the_agents(world)
    with world.keep() as tx:
        leases.release_lease(tx, world.keeper.who)


def write_the_agents(world: World) -> None:
    """Write what happens to agents."""
    with world.ask() as tx:
        bob = agents.create_agent(tx, "bob", role="builder", strengths=["make"])
        agents.describe_agent(tx, bob, "senior builder", ["make", "sh"], why="edited")
        agents.teach(tx, "bob", "patterns", "look first", "person")
        agents.unteach(tx, agent_queries.list_lessons(tx.connection, "bob")[0])
        agents.retire_agent(tx, agents.get_agent(tx.connection, "bob"))
        agents.restore_agent(tx, agents.get_agent(tx.connection, "bob"))
        agents.rename_agent(tx, agents.get_agent(tx.connection, "bob"), "robert")
    with world.keep() as tx:
        tx.record(TaskRecommended("prompted/p", "robert", 9))


def write_the_sessions(world: World) -> None:
    """Write what happens around sessions of agent programs."""
    with world.keep() as tx:
        runs.note_waiting(tx, world.run("run-RUNNING"), tx.now)
        runs.note_report(tx, world.run("run-EXITED"), Report(Outcome.RATE_LIMITED, "429", "s-1", Usage(5, 7, 11), 60.0))
        sessions.place_hold(tx, Hold("runner", "claude", "rate-limited", 60.0, 1), why="429")
        sessions.park_attempt(tx, world.attempt("c/working"), why="429")
        sessions.resume_attempt(tx, world.attempt("c/working"))
        tx.record(RepoPinned(world.repo().name, "digest", [".mcp.json"]))
    with world.ask() as tx:
        sessions.raise_budget(tx, "convoy", "c", Cap(10, None))
        sessions.lift_hold(tx, "runner", "claude")
        tx.record(MailSent("c/working/7", "inform", "c.worker-1", "c/working", 1, {"text": "stop"}, "c/working/7"))
        tx.record(MailSent("c/working/8", "inform", "c.worker-1", "c/working", 1, {"text": "go"}, "c/working/8"))
    with world.keep() as tx:
        rows = {row.id: row for row in queries.list_open_mail(tx.connection)}
        mail.deliver_mail(tx, rows["c/working/7"], world.run("run-RUNNING"))
        mail.return_mail(tx, "c/working", "its task is complete")
        write = partial(MailAccepted, type="inform", sender="c.worker-2", task="c/working", attempt=1, payload={})
        for number in (1, 2, 3):
            tx.record(write(f"m/{number}", receiver="c.worker-1", thread=f"m/{number}"))
            tx.record(MailDelivered(f"m/{number}"))
        tx.record(MailForwarded("m/1"))
        tx.record(MailAssigned("m/1", "c/working", 2))
        tx.record(MailHandled("m/2"))
        tx.record(AttemptProgressed("c/working", 1, "half done"))
        tx.record(AttemptFinished("c/working", 1, commit(1)))
        for number in (4, 5):
            tx.record(
                MailSettled(f"m/{number}", "?", "c.worker-1", "person", None, None, {}, "m/4", outcome="QUARANTINED")
            )
    with world.ask() as tx:
        tx.record(MailClosed("m/3"))
        tx.record(MailDropped("m/4"))
        tx.record(MailRequeued("m/5", "inform", "c.worker-1", "c/working", 1, {}))


def write_the_queue(world: World) -> None:
    """Write what happens to an entry and to a queue without moving either."""
    with world.keep() as tx:
        merges.suspect(tx, world.merge("m/VERIFYING"), world.run("run-EXITED"))
        merges.clear(tx, world.merge("m/VERIFYING"), world.run("run-EXITED"))
        merges.hold(tx, world.merge("m/VERIFYING"), why="it changes the gate")
        merges.note_conflict(tx, world.merge("m/VERIFYING"), ours=commit(1), tree=commit(2), paths=["a"])
        merges.note_resolved(tx, world.merge("m/VERIFYING"), commit(4), "ai", ["a line"])
        merges.stop_queue(tx, world.repo(), why="it does not pass")
        merges.recover_queue(tx, world.repo())
    with world.ask() as tx:
        queue.prioritize_entry(tx, world.task("m/VERIFYING"), 3)
        queue.approve_entry(tx, world.task("m/VERIFYING"))
    with world.ask() as tx:
        queue.pause_queue(tx, world.repo())
    with world.ask() as tx:
        queue.resume_queue(tx, world.repo())


def test_a_ledger_with_every_situation_and_every_kind_of_event_is_rebuilt_row_by_row(tmp_path: Path) -> None:
    world = build_situations(tmp_path)
    try:
        write_the_rest(world)
        live = dump(world.ledger)
        with world.ledger.read() as connection:
            kinds = {event.body.kind for event in read_events(connection, 0, 10**6)}
        assert sorted(set(BODIES) - kinds) == []
        assert all(live[table] for table in live), "a table without a row proves nothing"
        assert rebuild(world.ledger) == live
    finally:
        world.close()


def test_the_history_of_any_moment_can_be_rebuilt(tmp_path: Path) -> None:
    """What the tables were after each write is what the log up to there gives."""
    world = World(tmp_path)
    try:
        moments = []
        for situation in ("complete", "failed", "cancelled", "unknown"):
            bring_task(world, world.add(situation, attempts_allowed=1), situation)
            moments.append((world.seq(), dump(world.ledger)))
        with world.ledger.read() as connection:
            for seq, then in moments:
                with rebuilt(connection, until=seq) as again:
                    assert dump_tables(again) == then
    finally:
        world.close()
