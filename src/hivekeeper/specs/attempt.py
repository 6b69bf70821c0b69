"""Specifies the runs of an attempt."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hivekeeper.domain.agents import Choice
from hivekeeper.domain.owners import Owner, attempt_owner
from hivekeeper.domain.rows import AttemptRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.runner import Runner, make_shell_argv
from hivekeeper.domain.sequences import attempt_sequence
from hivekeeper.domain.session import StartSession
from hivekeeper.domain.steps import Start, StepSequence
from hivekeeper.git import orders
from hivekeeper.places import Places
from hivekeeper.sandbox.orders import collect_outputs, make_sandbox_dir, remove_sandbox
from hivekeeper.specs.sandboxed import (
    describe_setup,
    hive_limits,
    make_environment,
    make_mounts,
    read_in_sandbox,
    specify_setup,
)
from hivekeeper.specs.session import start_program

MAIL_SERVER = "hive"  # the name of the MCP server that is a worker's mailbox
# A login shell sets the PATH anew, and reads the first that there is of these last.
_PROFILES = (".profile", ".zprofile")
_PROFILE = 'PATH="$HIVE_BIN:$PATH"\n'
OUR_WALL_S, REMOVE_WALL_S = 3600.0, 600.0


@dataclass(frozen=True, slots=True)
class Work:
    """An attempt and the facts that its runs depend on; `ignore` are files that its runners leave in the repository.

    `choice` is the agent of one that has not begun; `runners` are all that the hive knows.
    """

    task: TaskRow
    number: int
    start: str | None
    repo: RepoRow | None
    runs: Sequence[RunRow] = ()
    ignore: tuple[str, ...] = ()
    row: AttemptRow | None = None
    has_mailbox: bool = False
    choice: Choice | None = None
    runners: Mapping[str, Runner] = field(default_factory=dict)

    def choosing(self, choice: Choice | None) -> "Work":
        """Return it with an agent that was chosen for it."""
        return replace(self, choice=choice)

    @property
    def owner(self) -> Owner:
        """The owner of its runs."""
        return attempt_owner(self.task.key, self.number, self.task.repo)

    @property
    def sequence(self) -> StepSequence:
        """The sequence of its runs."""
        return attempt_sequence(self.task, self.repo, self.start)

    @property
    def agents(self) -> list[RunRow]:
        """Its sessions, or its command's run."""
        return [run for run in self.runs if run.kind == "agent"]

    @property
    def agent(self) -> RunRow | None:
        """The last of them."""
        return next(reversed(self.agents), None)

    @property
    def is_finished(self) -> bool:
        """Whether its worker has said that the work is finished."""
        return self.row is not None and self.row.finished_at is not None

    @property
    def needs_prompt(self) -> bool:
        """Whether its task is a prompt for a runner, and not a command."""
        return not self.task.command and self.task.branch is None

    def count(self, kind: str) -> int:
        """Count its runs of a kind."""
        return sum(run.kind == kind for run in self.runs)


@dataclass(frozen=True, slots=True)
class Told:
    """The files an agent reads: its prompt, and why the previous attempt did not land."""

    prompt: Path | None = None
    feedback: Path | None = None


def specify_agent(
    places: Places,
    work: Work,
    start: Start,
    told: Told,
    session: StartSession | None = None,
    runner: Runner | None = None,
) -> RunSpec:
    """Specify the agent of an attempt: its command, or a session of a runner."""
    task, repo = work.task, work.repo
    if task.branch is not None and repo is not None:
        ref = orders.attempt_ref(task.key, work.number)
        argv = orders.fetch_branch(places.mirror(repo.name), repo.path, task.get_details()["commit"], ref)
        return RunSpec(argv, str(places.root), dict(orders.CLEAN_ENVIRONMENT), hive_limits(OUR_WALL_S))
    sandbox = places.sandbox(task.key, work.number) if task.has_sandbox else None
    read = [str(places.public(task.repo))] if task.repo else [str(places.root)]
    files = {"HIVE_PROMPT": str(told.prompt)} if told.prompt else {}
    files |= {"HIVE_FEEDBACK": str(told.feedback)} if told.feedback else {}
    mailbox = str(places.mailbox(task.key, work.number)) if work.has_mailbox else ""
    environment = make_environment(
        places,
        sandbox,
        HIVE_CONVOY=task.convoy,
        HIVE_TASK=task.id,
        HIVE_ATTEMPT=str(work.number),
        **(_describe_mailbox(places, work, mailbox) if mailbox else {}),
        GIT_AUTHOR_NAME="hive worker",
        GIT_AUTHOR_EMAIL="worker@localhost",
        GIT_COMMITTER_NAME="hive worker",
        GIT_COMMITTER_EMAIL="worker@localhost",
        **files,
    )
    mounts = make_mounts(places, sandbox, *read, *files.values())
    mounts["write"] += [mailbox] if mailbox else []
    directory = places.root if sandbox is None else sandbox / "work"
    argv = () if runner else make_shell_argv(task.command)
    spec = RunSpec(argv, str(directory), environment, task.get_limits(), mounts)
    if runner is None or session is None:
        return spec
    runner = _give_mailbox(runner) if mailbox else runner
    return start_program(spec, runner, work.owner.name_run(start), session.session, resume=session.resume)


def _give_mailbox(runner: Runner) -> Runner:
    """Have a program start `hive` as an MCP server, and its shells find it."""
    runner = runner.with_server(MAIL_SERVER, ("hive", "mcp"))
    return replace(runner, home={**dict.fromkeys(_PROFILES, _PROFILE), **runner.home})


def _describe_mailbox(places: Places, work: Work, mailbox: str) -> dict[str, str]:
    """Return the variables by which a worker finds its mailbox, and `hive` itself."""
    start = {"HIVE_START": work.start} if work.start else {}
    own = {"HIVE_BIN": str(places.worker_bin), "HIVE_PYTHON": sys.executable}
    return {"HIVE_MAILBOX": mailbox, **own, **start}


def specify_step(places: Places, work: Work, start: Start) -> RunSpec:
    """Specify any other run of an attempt: the repository's setup, or one of the hive's scripts."""
    task, number, repo = work.task, work.number, work.repo
    sandbox, environment = places.sandbox(task.key, number), dict(orders.CLEAN_ENVIRONMENT)
    command: orders.Argv | orders.InSandbox
    if repo is None:
        if start.kind == "sandbox":
            command = make_sandbox_dir(sandbox)
        else:
            is_done = work.agent is not None and (work.agent.ended_well or work.is_finished)
            target = places.root if is_done else None
            command = collect_outputs(sandbox / "work", places.kept(task.key, number), target, task.outputs)
        return RunSpec(command, str(places.root), {}, hive_limits(OUR_WALL_S))
    mirror, public = places.mirror(repo.name), places.public(repo.name)
    ignored = {"HIVE_EXCLUDE": "\n".join(work.ignore)} if work.ignore else {}
    ref = orders.attempt_ref(task.key, number)
    match start.kind:
        case "setup":
            return specify_setup(places, repo, sandbox, OUR_WALL_S, str(public))
        case "sandbox":
            cache = str(places.cache(repo.name)) if repo.setup and repo.keep else ""
            command = orders.make_sandbox(sandbox, public, repo.branch, mirror, work.start or "", cache)
            environment = {**orders.NO_FSYNC_ENV, **describe_setup(repo), **ignored}
        case "stash":
            command, environment = orders.cache_setup(sandbox, places.cache(repo.name)), describe_setup(repo)
        case "save":
            saved = orders.save_ref(task.key, number, start.number)
            command = orders.save_attempt(mirror, public, sandbox, saved, repo.backup, repo.keep)
            environment |= ignored
        case "backup":
            command = orders.push_backup(mirror, str(repo.backup), ref)
        case _:
            rest = orders.rest_ref(task.key, number)
            command = orders.snapshot_attempt(mirror, public, sandbox, ref, rest, repo.keep)
            environment |= ignored
    spec = RunSpec((), str(places.root), environment, hive_limits(OUR_WALL_S))
    return read_in_sandbox(places, spec, sandbox, command, repo.name)


def specify_removal(places: Places, task: str, number: int, logs: Sequence[str]) -> RunSpec:
    """Specify the removal of a sandbox, after its session logs are saved."""
    sandbox, gate = places.sandbox(task, number), places.gate(task, number)
    argv = remove_sandbox(sandbox, gate, places.session(task, number), logs)
    return RunSpec(argv, str(places.root), {}, hive_limits(REMOVE_WALL_S))
