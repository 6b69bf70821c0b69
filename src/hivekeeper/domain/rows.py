"""Rows of the projected tables as frozen values: the facts decisions are made from.

Field order is column order: the store builds its SELECT lists from these classes.
"""

import json
from dataclasses import dataclass
from typing import Any

from hivekeeper.domain.states import AttemptState, ConvoyState, MergeState, RepoState, RunState, SwarmState, TaskState


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
        return bool(self.repo or self.output)


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

    @property
    def is_open(self) -> bool:
        """Tell whether it may still be doing something."""
        return self.state in (RunState.INTENDED, RunState.RUNNING)

    @property
    def succeeded(self) -> bool:
        """Tell whether the command itself ended with 0; no limit, no kill, no failed start."""
        return self.state is RunState.EXITED and self.exit_status == 0 and self.ended_by == "exit"


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
