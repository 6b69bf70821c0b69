"""Gathers the facts that an attempt's runs depend on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hivekeeper.domain import events as e
from hivekeeper.domain.rows import AttemptRow, RepoRow, RunRow, TaskRow
from hivekeeper.settings import Settings
from hivekeeper.specs.attempt import Work


def gather_work(  # noqa: PLR0913, PLR0917 - one a fact
    settings: Settings,
    task: TaskRow,
    number: int,
    start: str | None,
    repos: Mapping[str, RepoRow],
    runs: Sequence[RunRow],
    row: AttemptRow | None = None,
) -> Work:
    """Gather them; `row` is that of an attempt which has begun."""
    repo = repos[task.repo] if task.repo else None
    if repo is not None and not settings.queue and repo.backup is None:
        repo = replace(repo, details=e.encode_json({**json.loads(repo.details), "backup": repo.path}))
    known = (settings.runners[name] for name in task.runners if name in settings.runners)
    ignore = tuple(dict.fromkeys(pattern for runner in known for pattern in runner.ignore))
    # An agent that was given a mailbox keeps it, whatever hive.toml says since.
    has_mailbox = settings.mail or any("HIVE_MAILBOX" in run.environment for run in runs if run.kind == "agent")
    has_mailbox = task.has_sandbox and has_mailbox
    return Work(task, number, start, repo, runs, ignore, row, has_mailbox=has_mailbox, runners=settings.runners)
