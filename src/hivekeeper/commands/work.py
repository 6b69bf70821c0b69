"""The runs of an attempt: what each of them is exactly, and what it may touch."""

import hashlib
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hivekeeper.commands.runs import intend_run
from hivekeeper.commands.sessions import order_session
from hivekeeper.domain.attempt import Intend
from hivekeeper.domain.names import attempt_run_id
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.rows import AttemptRow, RepoRow, RunRow, TaskRow
from hivekeeper.domain.run import Order
from hivekeeper.domain.runner import Runner, make_shell_argv
from hivekeeper.git import orders
from hivekeeper.places import Places
from hivekeeper.sandbox.orders import collect_outputs, make_sandbox_dir
from hivekeeper.store.ledger import Transaction

INFRASTRUCTURE_WALL_S = 3600.0


@dataclass(frozen=True, slots=True)
class Work:
    """An attempt, and everything its runs follow from; `argv` starts its agent, or else a `runner` does.

    `session` is the conversation it goes on with, where it is to `resume` one. `ignore` is what its runners leave in
    the repository.
    """

    task: TaskRow
    attempt: AttemptRow
    repo: RepoRow | None
    argv: tuple[str, ...]
    prompt: Path | None = None
    feedback: Path | None = None
    agent: RunRow | None = None
    runner: Runner | None = None
    session: str = ""
    resume: bool = False
    ignore: tuple[str, ...] = ()


def intend_step(tx: Transaction, places: Places, work: Work, step: Intend, *, boot_id: str) -> None:
    """Write the intent of an attempt's next run."""
    task, attempt = work.task, work.attempt.number
    suffix = step.kind if step.number == 1 else f"{step.kind}-{step.number}"
    run = attempt_run_id(task.key, attempt, suffix)
    if task.branch is not None and work.repo is not None:
        mirror, ref = places.mirror(work.repo.name), orders.attempt_ref(task.key, attempt)
        argv = orders.bring_branch(mirror, work.repo.path, task.get_details()["commit"], ref)
        wall: dict[str, float | int | None] = {"wall_s": INFRASTRUCTURE_WALL_S, "grace_s": 5.0}
        order = Order(run, step.kind, argv, str(places.root), dict(orders.CLEAN_ENVIRONMENT), wall)
    elif step.kind == "agent":
        order = _order_agent(places, work, run)
    elif step.kind == "setup":
        order = _order_setup(places, work, run)
    else:
        command, environment = _order_ours(places, work, step)
        limits: dict[str, float | int | None] = {"wall_s": INFRASTRUCTURE_WALL_S, "grace_s": 5.0}
        order = Order(run, step.kind, (), str(places.root), environment, limits)
        order = order_in_sandbox(places, order, places.sandbox(task.key, attempt), command, str(task.repo))
    intend_run(tx, order, boot_id=boot_id, task=task.key, attempt=attempt, repo=task.repo)


def write_prompt(places: Places, words: str) -> Path:
    """Put what a worker is told where it can read it: the same words make the same file, so this is no effect."""
    data = words.encode("utf-8", "surrogateescape")
    path = places.prompt(hashlib.sha256(data).hexdigest())
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{threading.get_native_id()}")
        draft.write_bytes(data)
        draft.replace(path)
    return path


def make_mounts(places: Places, sandbox: Path | None, *read: str) -> dict[str, list[str]]:
    """Say what a worker's run may touch: its own sandbox, or else where the hive lies; never what the hive keeps."""
    if sandbox is None:
        settings = str(places.root / "hive.toml")  # says how strong the isolation is
        return {"write": [str(places.root)], "read": [settings, *read], "hide": [str(places.hive)], "own": []}
    write = [str(sandbox / name) for name in ("work", "home", "tmp")]
    return {"write": write, "read": list(read), "hide": [str(places.hive)], "own": [str(sandbox)]}


def order_in_sandbox(
    places: Places, order: Order, sandbox: Path, command: orders.Argv | orders.InSandbox, repo: str
) -> Order:
    """Give an order its command; the part that reads a worker's tree gets a sandbox of that tree and what it writes."""
    if not isinstance(command, orders.InSandbox):
        return replace(order, argv=command)
    mounts = make_mounts(places, sandbox, str(sandbox / "work"), str(places.public(repo)))
    mounts |= {"write": [*map(str, command.write)], "own": [], "outside": [str(len(command.outside))]}
    return replace(order, argv=(*command.outside, *command.inside), mounts=mounts)


def make_environment(places: Places, sandbox: Path | None, **more: str) -> dict[str, str]:
    """Say what a worker's run finds in its environment, beside what every run inherits."""
    own = {} if sandbox is None else {"HOME": str(sandbox / "home"), "TMPDIR": str(sandbox / "tmp")}
    return {**own, "HIVE_ROOT": str(places.root), **more}


def _order_agent(places: Places, work: Work, run: str) -> Order:
    task, sandbox = work.task, _find_sandbox(places, work)
    read = [str(places.public(task.repo))] if task.repo else [str(places.root)]
    told = {"HIVE_PROMPT": str(work.prompt)} if work.prompt else {}
    told |= {"HIVE_FEEDBACK": str(work.feedback)} if work.feedback else {}
    environment = make_environment(
        places,
        sandbox,
        HIVE_CONVOY=task.convoy,
        HIVE_TASK=task.id,
        HIVE_ATTEMPT=str(work.attempt.number),
        GIT_AUTHOR_NAME="hive worker",
        GIT_AUTHOR_EMAIL="worker@localhost",
        GIT_COMMITTER_NAME="hive worker",
        GIT_COMMITTER_EMAIL="worker@localhost",
        **told,
    )
    mounts = make_mounts(places, sandbox, *read, *told.values())
    directory = places.root if sandbox is None else sandbox / "work"
    order = Order(run, "agent", work.argv, str(directory), environment, task.get_limits(), mounts)
    return order_session(order, work.runner, work.session, resume=work.resume) if work.runner else order


def _order_setup(places: Places, work: Work, run: str) -> Order:
    sandbox, repo = places.sandbox(work.task.key, work.attempt.number), work.repo
    assert repo is not None
    # What was brought from an earlier clone with the same lock files is not made again.
    argv = make_shell_argv(f'[ -e "$HIVE_READY" ] || {{\n{repo.setup}\n}}')
    environment = make_environment(places, sandbox, HIVE_READY=str(sandbox / "ready"))
    mounts = make_mounts(places, sandbox, str(places.public(repo.name)), str(sandbox / "ready"))
    limits = {**asdict(Limits()), "wall_s": INFRASTRUCTURE_WALL_S}  # a task's own are for its agent
    return Order(run, "setup", argv, str(sandbox / "work"), environment, limits, mounts)


def _order_ours(places: Places, work: Work, step: Intend) -> tuple[orders.Argv | orders.InSandbox, dict[str, str]]:
    """Say what a run of the hive's own is: a script, and its environment."""
    task, number, repo = work.task, work.attempt.number, work.repo
    sandbox, lasting = places.sandbox(task.key, number), dict(orders.CLEAN_ENVIRONMENT)
    if repo is None:
        if step.kind == "sandbox":
            return make_sandbox_dir(sandbox), {}
        target = places.root if work.agent is not None and work.agent.ended_well else None
        return collect_outputs(sandbox / "work", places.kept(task.key, number), target, task.outputs), {}
    mirror, public = places.mirror(repo.name), places.public(repo.name)
    ignored = {"HIVE_EXCLUDE": "\n".join(work.ignore)} if work.ignore else {}
    kept = {"HIVE_SETUP": repo.setup or "", "HIVE_KEEP": "\n".join(repo.keep), "HIVE_LOCK": "\n".join(repo.lock)}
    match step.kind:
        case "sandbox":
            cache = str(places.cache(repo.name)) if repo.setup and repo.keep else ""
            argv = orders.make_sandbox(sandbox, public, repo.branch, mirror, work.attempt.start or "", cache)
            return argv, {**orders.NO_FSYNC_ENV, **kept, **ignored}
        case "stash":
            return orders.keep_setup(sandbox, places.cache(repo.name)), kept
        case "save":
            ref = orders.save_ref(task.key, number, step.number)
            return orders.save_attempt(mirror, public, sandbox, ref, repo.backup, repo.keep), lasting | ignored
        case "backup":
            ref = orders.attempt_ref(task.key, number)
            return orders.push_backup(mirror, str(repo.backup), ref), lasting
        case _:
            ref, rest = orders.attempt_ref(task.key, number), orders.rest_ref(task.key, number)
            return orders.snapshot_attempt(mirror, public, sandbox, ref, rest, repo.keep), lasting | ignored


def _find_sandbox(places: Places, work: Work) -> Path | None:
    return places.sandbox(work.task.key, work.attempt.number) if work.task.has_sandbox else None
