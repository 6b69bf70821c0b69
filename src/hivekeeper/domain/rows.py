"""Rows of the projected tables as frozen values: the facts that decisions are made from.

Field order is column order: the store builds its SELECT lists from these classes.
"""

import json
from typing import Any

from hivekeeper.domain.report import ENDED_WELL, NOT_STARTED
from hivekeeper.domain.schema import table
from hivekeeper.domain.states import (
    OPEN_ATTEMPTS,
    OPEN_MERGES,
    OPEN_RUNS,
    AttemptState,
    ConvoyState,
    MergeState,
    RepoState,
    RunState,
    SwarmState,
    TaskState,
    is_in,
)
from hivekeeper.domain.waits import MAX_FETCH_FAILURES


@table(
    "repo",
    key={"name": "repo"},
    of_convoy=False,
    constraints=(
        "CHECK (state <> 'READY' OR integration IS NOT NULL)",
        "CHECK ((state = 'FAILED') = (problem IS NOT NULL))",
    ),
)
class RepoRow:
    """A repository."""

    name: str
    path: str
    branch: str
    verify: str | None
    state: RepoState
    fetches: int
    details: str = "{}"
    integration: str | None = None
    problem: str | None = None
    publishing: str | None = None
    published: str | None = None
    published_seq: int = 0
    publish_problem: str | None = None
    publish_retry_at: str | None = None
    publish_failed_at: str | None = None
    paused: int = 0
    resumptions: int = 0
    stopped: str | None = None
    pinned: str | None = None
    pinned_files: str = "[]"
    fetch_problem: str | None = None
    fetch_failures: int = 0
    fetch_failed_at: str | None = None
    fetch_retry_at: str | None = None
    fetch_failed_run: str | None = None

    @property
    def is_unreachable(self) -> bool:
        """Whether it could not be read for so long that the user should know."""
        return self.state is RepoState.FETCHING and self.fetch_failures >= MAX_FETCH_FAILURES

    @property
    def awaits_publishing(self) -> bool:
        """Whether something landed that is not in the user's repository yet."""
        return self.integration is not None and self.integration != self.published

    def get_details(self) -> dict[str, Any]:
        """Read what only some repositories have."""
        return dict(json.loads(self.details))

    @property
    def setup(self) -> str | None:
        """The command that makes a clone ready to work in."""
        return self.get_details().get("setup")

    @property
    def keep(self) -> tuple[str, ...]:
        """Directories that `setup` creates and that can be recreated."""
        return tuple(self.get_details().get("keep", ()))

    @property
    def lock(self) -> tuple[str, ...]:
        """Files that decide whether a cached setup can be reused."""
        return tuple(self.get_details().get("lock", ()))

    @property
    def backup(self) -> str | None:
        """A second repository that workers' work is pushed to."""
        return self.get_details().get("backup")

    @property
    def publish(self) -> str:
        """How what landed is published in the user's repository: `branch`, `push` or `checkout`."""
        return str(self.get_details().get("publish", "branch"))

    @property
    def published_as(self) -> str:
        """The branch of the user's repository that what landed is published on."""
        return f"hive/{self.branch}" if self.publish == "branch" else self.branch

    @property
    def gate(self) -> tuple[str, ...]:
        """Files whose changes need a person's approval, because they decide what passes."""
        return tuple(self.get_details().get("gate", ()))

    @property
    def regenerate(self) -> dict[str, str]:
        """Commands that regenerate a file when two changes to it conflict."""
        return dict(self.get_details().get("regenerate", {}))


@table(
    "convoy",
    key={"name": "convoy"},
    constraints=(
        "UNIQUE (pipeline)",
        "CHECK ((state = 'ACTIVE') = (ended_at IS NULL))",
        "CHECK ((state = 'ARCHIVED') = (archived_at IS NOT NULL))",
    ),
    indexes=("convoy_by_state ON convoy (state)",),
)
class ConvoyRow:
    """A convoy."""

    name: str
    pipeline: str
    state: ConvoyState
    submitted_at: str
    accept: str | None = None
    budget: str = "{}"
    defaults: str = "{}"
    workers: int = 0
    swarms: int = 0
    opened_at: str | None = None
    opened_seq: int = 0
    ended_at: str | None = None
    archived_at: str | None = None

    def get_defaults(self) -> dict[str, Any]:
        """Read the plan's defaults for tasks."""
        return dict(json.loads(self.defaults))


@table(
    "swarm",
    key={"convoy": "convoy", "number": "number"},
    references={"convoy": "convoy"},
    constraints=("CHECK ((state = 'CLOSED') = (closed_at IS NOT NULL))",),
    indexes=("swarm_open ON swarm (convoy, number) WHERE state = 'OPEN'",),
)
class SwarmRow:
    """A batch of attempts."""

    convoy: str
    number: int
    state: SwarmState
    opened_at: str
    closed_at: str | None = None


@table(
    "task",
    key={"key": "task"},
    references={"convoy": "convoy", "repo": "repo"},
    constraints=(
        "CHECK (idempotent IN (0, 1))",
        "CHECK (attempts <= attempts_allowed)",
        "CHECK ((state = 'COMPLETE') = (completed_at IS NOT NULL))",
        "CHECK (state IN ('PENDING', 'CANCELLED') OR dispatched_at IS NOT NULL)",
    ),
    indexes=(
        "task_by_state ON task (state, priority DESC, position)",
        "task_by_convoy ON task (convoy, state)",
        # Few tasks are user branches, and they need no worker.
        "task_branch ON task (state) WHERE branch IS NOT NULL",
        "task_by_agent ON task (agent) WHERE agent IS NOT NULL",
    ),
)
class TaskRow:
    """A task; `branch` is a user's branch that was submitted to the queue, instead of work for a worker.

    `remakes` is the task whose landed commit was replaced and lands again.
    """

    key: str
    convoy: str
    id: str
    title: str
    command: str
    repo: str | None
    verify: str | None
    priority: int
    attempts_planned: int
    attempts_allowed: int
    output: str | None
    idempotent: int
    limits: str
    state: TaskState
    position: int
    added_at: str
    details: str = "{}"
    branch: str | None = None
    remakes: str | None = None
    agent: str | None = None
    attempts: int = 0
    reason: str = ""
    dispatched_at: str | None = None
    completed_at: str | None = None
    commit_id: str | None = None
    output_path: str | None = None
    recommended: str | None = None

    def get_limits(self) -> dict[str, Any]:
        """Read the limits of its runs."""
        return dict(json.loads(self.limits))

    def get_details(self) -> dict[str, Any]:
        """Read what only some tasks have: runner, agent, strengths, paths, budget."""
        return dict(json.loads(self.details))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The files it promises, one per line: a name cannot contain a line break."""
        return tuple(self.output.split("\n")) if self.output else ()

    @property
    def has_sandbox(self) -> bool:
        """Whether its workers have a sandbox; the others work in the hive's root directory."""
        return bool(self.repo or self.output) and self.branch is None

    @property
    def runners(self) -> tuple[str, ...]:
        """The runners that may take its prompt, the preferred one first."""
        said = self.get_details().get("runner") or ()
        return (said,) if isinstance(said, str) else tuple(said)

    @property
    def strengths(self) -> tuple[str, ...]:
        """What its agent should be good at."""
        return tuple(self.get_details().get("strengths", ()))

    @property
    def author(self) -> str:
        """The agent it is assigned to, or else its first runner."""
        return self.agent or next(iter(self.runners), "")


@table(
    "task_after",
    key={"task": "task", "after": "after"},
    references={"task": "task"},
    indexes=("task_after_by_after ON task_after (after)",),
)
class TaskAfterRow:
    """A task that must be COMPLETE before another."""

    task: str
    after: str


@table("task_prompt", key={"task": "task"}, references={"task": "task"})
class TaskPromptRow:
    """The prompt of a task."""

    task: str
    text: str


@table("task_runner", key={"task": "task", "rank": "rank"}, references={"task": "task"})
class TaskRunnerRow:
    """A runner that may take a task's prompt; the preferred one has the lowest rank."""

    task: str
    rank: int
    runner: str


@table(
    "attempt",
    key={"task": "task", "number": "attempt"},
    references={"task": "task"},
    constraints=(
        "CHECK (sandbox IN ('NONE', 'PRESENT', 'REMOVED'))",
        f"CHECK (({is_in(OPEN_ATTEMPTS)}) = (ended_at IS NULL))",
    ),
    indexes=(
        f"attempt_open ON attempt (state) WHERE {is_in(OPEN_ATTEMPTS)}",
        "attempt_unswept ON attempt (ended_at) WHERE sandbox = 'PRESENT'",
        "attempt_by_swarm ON attempt (convoy, swarm, state)",
        "attempt_by_worker ON attempt (convoy, worker)",
        "attempt_by_agent ON attempt (agent, state) WHERE agent IS NOT NULL",
    ),
)
class AttemptRow:
    """One worker's try at a task.

    It is the `session`th of its agent, if that has an identity; `chosen` says why that agent. `verdict` is what a
    failed one says about its agent: rejected, stalled or failed; nothing if it is not to blame.
    """

    task: str
    number: int
    convoy: str
    swarm: int
    worker: int
    sandbox: str
    state: AttemptState
    started_at: str
    start: str | None = None
    reason: str = ""
    ended_at: str | None = None
    commit_id: str | None = None
    parked_at: str | None = None
    parked_seq: int = 0
    progress: str = ""
    finished_at: str | None = None
    unchanged: int = 0
    pinned: str | None = None
    agent: str | None = None
    session: int = 0
    chosen: str = ""
    verdict: str = ""


@table(
    "merge_entry",
    key={"task": "task", "attempt": "attempt"},
    references={"repo": "repo"},
    constraints=(
        "CHECK (state NOT IN ('VERIFYING', 'LANDING', 'LANDED') OR (base IS NOT NULL AND candidate IS NOT NULL))",
        f"CHECK (({is_in(OPEN_MERGES)}) = (ended_at IS NULL))",
    ),
    indexes=(f"merge_entry_open ON merge_entry (repo, priority DESC, position) WHERE {is_in(OPEN_MERGES)}",),
)
class MergeRow:
    """An attempt's way to the integration branch."""

    task: str
    attempt: int
    repo: str
    commit_id: str
    priority: int
    position: int
    state: MergeState
    queued_at: str
    round: int = 0
    base: str | None = None
    candidate: str | None = None
    tree: str | None = None
    reason: str = ""
    ended_at: str | None = None
    tier: str = "clean"
    failures: int = 0
    failed_run: str | None = None
    flakes: int = 0
    resolved: str | None = None
    held: str | None = None
    approved: int = 0
    conflict_ours: str | None = None
    conflict_tree: str | None = None
    conflict_paths: str = "[]"

    @property
    def key(self) -> str:
        """Name the entry."""
        return f"{self.task}.{self.attempt}"

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The paths of the conflict that is being resolved."""
        return tuple(json.loads(self.conflict_paths))


@table(
    "run",
    key={"id": "run"},
    constraints=(
        "CHECK (state <> 'RUNNING' OR pid IS NOT NULL)",
        "CHECK ((state = 'EXITED') = (exit_status IS NOT NULL))",
        f"CHECK (({is_in(OPEN_RUNS)}) = (ended_at IS NULL))",
    ),
    indexes=(
        # Only open runs: the index stays small however long the history, and an ended run leaves it.
        f"run_open ON run (state) WHERE {is_in(OPEN_RUNS)}",
        "run_by_attempt ON run (task, attempt)",
        "run_of_owner ON run (owner_kind, owner, round, kind, number)",
        "run_unread ON run (id) WHERE runner IS NOT NULL AND outcome IS NULL",
        "run_paid ON run (ended_at) WHERE runner IS NOT NULL",
    ),
)
class RunRow:
    """A run, the `number`th of its kind in this round of its owner; `slot` is the number of its checkout."""

    id: str
    kind: str
    task: str | None
    attempt: int | None
    repo: str | None
    argv: str
    directory: str
    environment: str
    limits: str
    boot_id: str
    state: RunState
    intended_at: str
    intended_seq: int = 0
    mounts: str | None = None
    runner: str | None = None
    session: str | None = None
    pid: int | None = None
    start_ticks: int | None = None
    started_at: str | None = None
    exit_status: int | None = None
    ended_by: str | None = None
    output_bytes: int | None = None
    reason: str = ""
    ended_at: str | None = None
    kill_requested_at: str | None = None
    kill_cause: str | None = None
    waiting_since: str | None = None
    outcome: str | None = None
    words: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    microusd: int = 0
    retry_at: str | None = None
    reported_at: str | None = None
    reported_seq: int = 0
    owner_kind: str = ""
    owner: str = ""
    round: int = 0
    number: int = 1
    try_number: int = 1
    slot: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state in (RunState.INTENDED, RunState.RUNNING)

    @property
    def succeeded(self) -> bool:
        """Whether the command exited with 0 by itself: no limit, no kill, no failed start."""
        return self.state is RunState.EXITED and self.exit_status == 0 and self.ended_by == "exit"

    @property
    def ended_well(self) -> bool:
        """Whether it succeeded: by its report if it is an agent program, else by its exit code."""
        return self.succeeded if self.outcome is None else self.outcome in ENDED_WELL

    @property
    def was_not_found(self) -> bool:
        """Whether its command could not be started: it is not there, or not executable."""
        return self.exit_status in NOT_STARTED and self.ended_by in ("exit", "could-not-start")

    @property
    def is_unread(self) -> bool:
        """Whether an agent program has ended and its output was not read to the end yet."""
        return self.runner is not None and self.outcome is None and not self.is_open
