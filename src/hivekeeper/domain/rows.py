"""Rows of the projected tables as frozen values: the facts decisions are made from.

Field order is column order: the store builds its SELECT lists from these classes.
"""

import json
from dataclasses import dataclass
from typing import Any

from hivekeeper.domain.report import ENDED_WELL
from hivekeeper.domain.states import AttemptState, ConvoyState, MergeState, RepoState, RunState, SwarmState, TaskState
from hivekeeper.domain.waits import MAX_FETCH_FAILURES, is_waiting


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task."""

    key: str
    convoy: str
    id: str
    title: str
    command: str
    repo: str | None
    verify: str | None
    priority: int
    attempts: int
    attempts_planned: int
    attempts_allowed: int
    output: str | None
    idempotent: int
    limits: str
    state: TaskState
    position: int
    reason: str
    added_at: str
    dispatched_at: str | None
    completed_at: str | None
    commit_id: str | None
    output_path: str | None
    details: str = "{}"

    def get_limits(self) -> dict[str, Any]:
        """Read the limits of its runs."""
        return dict(json.loads(self.limits))

    def get_details(self) -> dict[str, Any]:
        """Read what only some tasks have: runner, agent, strengths, paths, budget."""
        return dict(json.loads(self.details))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The files it promises; one a line, since no name may hold a line's end."""
        return tuple(self.output.split("\n")) if self.output else ()

    @property
    def has_room(self) -> bool:
        """Tell whether its workers have a place of their own; the others work where the hive lies."""
        return bool(self.repo or self.output) and self.branch is None

    @property
    def branch(self) -> str | None:
        """The branch a person made and handed to the queue, in place of something for a worker to do."""
        return self.get_details().get("branch")

    @property
    def runners(self) -> tuple[str, ...]:
        """Who may take its prompt, best first."""
        said = self.get_details().get("runner") or ()
        return (said,) if isinstance(said, str) else tuple(said)

    @property
    def author(self) -> str:
        """Who it is for, if that was said."""
        return str(self.get_details().get("agent") or next(iter(self.runners), ""))


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One worker's try at a task."""

    task: str
    number: int
    convoy: str
    swarm: int
    worker: int
    sandbox: str
    state: AttemptState
    reason: str
    started_at: str
    ended_at: str | None
    commit_id: str | None
    start: str | None = None
    parked_at: str | None = None
    parked_seq: int = 0


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run."""

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
    pid: int | None
    start_ticks: int | None
    exit_status: int | None
    ended_by: str | None
    output_bytes: int | None
    reason: str
    intended_at: str
    started_at: str | None
    ended_at: str | None
    kill_requested_at: str | None
    rooms: str | None = None
    runner: str | None = None
    session: str | None = None
    outcome: str | None = None
    words: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    microusd: int = 0
    retry_at: str | None = None
    reported_at: str | None = None
    kill_cause: str | None = None
    waiting_since: str | None = None
    intended_seq: int = 0
    reported_seq: int = 0

    @property
    def is_open(self) -> bool:
        """Tell whether it may still be doing something."""
        return self.state in (RunState.INTENDED, RunState.RUNNING)

    @property
    def succeeded(self) -> bool:
        """Tell whether the command itself ended with 0; no limit, no kill, no failed start."""
        return self.state is RunState.EXITED and self.exit_status == 0 and self.ended_by == "exit"

    @property
    def ended_well(self) -> bool:
        """Tell whether it did what it was for: an agent program by its own word, anything else by its exit code."""
        return self.succeeded if self.outcome is None else self.outcome in ENDED_WELL

    @property
    def is_unread(self) -> bool:
        """Tell whether an agent program has ended and nobody has read yet how."""
        return self.runner is not None and self.outcome is None and not self.is_open


@dataclass(frozen=True, slots=True)
class MergeRow:
    """An attempt's way to the integration branch."""

    task: str
    attempt: int
    repo: str
    commit_id: str
    priority: int
    position: int
    state: MergeState
    round: int
    base: str | None
    candidate: str | None
    tree: str | None
    reason: str
    queued_at: str
    ended_at: str | None
    tier: str = "clean"
    failures: int = 0
    failed_run: str | None = None
    flakes: int = 0
    resolved: str | None = None
    held: str | None = None
    approved: int = 0

    @property
    def key(self) -> str:
        """Name the entry."""
        return f"{self.task}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class RepoRow:
    """A repository."""

    name: str
    path: str
    branch: str
    verify: str | None
    state: RepoState
    fetches: int
    integration: str | None
    problem: str | None
    publishing: str | None
    published: str | None
    publications: int
    publish_problem: str | None
    publish_retry_at: str | None
    details: str = "{}"
    paused: int = 0
    resumptions: int = 0
    stopped: str | None = None
    pinned: str | None = None
    pinned_files: str = "[]"
    publish_failed_at: str | None = None
    fetch_problem: str | None = None
    fetch_failures: int = 0
    fetch_failed_at: str | None = None
    fetch_retry_at: str | None = None

    @property
    def is_away(self) -> bool:
        """Tell whether it could not be read for so long that a person should look."""
        return self.state is RepoState.FETCHING and self.fetch_failures >= MAX_FETCH_FAILURES

    @property
    def awaits_publishing(self) -> bool:
        """Tell whether something landed that the person's repository has not taken."""
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
        """Directories that `setup` makes and that can be made again."""
        return tuple(self.get_details().get("keep", ()))

    @property
    def lock(self) -> tuple[str, ...]:
        """Files that say whether what `setup` made still fits."""
        return tuple(self.get_details().get("lock", ()))

    @property
    def backup(self) -> str | None:
        """Where else what workers made is kept."""
        return self.get_details().get("backup")

    @property
    def publish(self) -> str:
        """How what landed comes into the person's repository: `branch`, `push` or `checkout`."""
        return str(self.get_details().get("publish", "branch"))

    @property
    def published_as(self) -> str:
        """The branch of the person's repository that what landed comes to."""
        return f"hive/{self.branch}" if self.publish == "branch" else self.branch

    @property
    def gate(self) -> tuple[str, ...]:
        """Files that only a person may change, because they say what passes."""
        return tuple(self.get_details().get("gate", ()))

    @property
    def regenerate(self) -> dict[str, str]:
        """Commands that make a file anew when two changes to it conflict."""
        return dict(self.get_details().get("regenerate", {}))


@dataclass(frozen=True, slots=True)
class MessageRow:
    """What the hive has to say to whoever works on a task."""

    id: str
    kind: str
    task: str
    attempt: int
    body: str
    sent_at: str
    seq: int = 0

    def get_body(self) -> dict[str, Any]:
        """Read what it says."""
        return dict(json.loads(self.body))


@dataclass(frozen=True, slots=True)
class ConvoyRow:
    """A convoy."""

    name: str
    pipeline: str
    state: ConvoyState
    submitted_at: str
    ended_at: str | None
    archived_at: str | None
    workers: int
    swarms: int
    accept: str | None = None
    opened_at: str | None = None
    budget: str = "{}"
    defaults: str = "{}"
    opened_seq: int = 0

    def get_defaults(self) -> dict[str, Any]:
        """Read what its plan says for tasks that do not say it themselves."""
        return dict(json.loads(self.defaults))


@dataclass(frozen=True, slots=True)
class HoldRow:
    """What keeps something from going on; `until` None waits for a person. `strikes` counts those in a row."""

    scope: str
    name: str
    cause: str
    until: str | None
    strikes: int
    why: str
    placed_at: str
    lifted: int
    placed_seq: int = 0

    def holds(self, now: str) -> bool:
        """Tell whether it does at this moment."""
        return not self.lifted and (self.until is None or is_waiting(now, self.placed_at, self.until))


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """What a person allows, in place of what was planned."""

    scope: str
    name: str
    tokens: int | None
    microusd: int | None


@dataclass(frozen=True, slots=True)
class SwarmRow:
    """A batch of attempts."""

    convoy: str
    number: int
    state: SwarmState
    opened_at: str
    closed_at: str | None


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """The coordinator's lease."""

    id: int
    holder: str
    epoch: int
    pid: int
    start_ticks: int
    boot_id: str
    taken_at: str
    released_at: str | None


@dataclass(frozen=True, slots=True)
class HeartbeatRow:
    """When the keeper was last known alive."""

    id: int
    epoch: int
    at: str
    boot_id: str
    monotonic_ms: int
