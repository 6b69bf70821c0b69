"""The runs of a merge queue: what each of them is exactly, and what it may touch."""

from dataclasses import asdict, dataclass

from hivekeeper.commands.runs import intend_run
from hivekeeper.commands.sessions import order_session
from hivekeeper.commands.work import make_environment, make_mounts, order_in_sandbox
from hivekeeper.domain.gate import Gate
from hivekeeper.domain.merge import IntendRun, find_regeneration
from hivekeeper.domain.names import attempt_run_id, gate_run_id
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.rows import MergeRow, RepoRow
from hivekeeper.domain.run import Order
from hivekeeper.domain.runner import Runner, make_shell_argv
from hivekeeper.git import orders
from hivekeeper.places import Places
from hivekeeper.store.ledger import Transaction

OUR_WALL_S = 1800.0
Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """One try at a commit's tree, in one of the repository's check-outs."""

    gate: Gate
    commit: str
    tree: str
    number: int
    slot: int
    wall_s: float


def intend_verification(
    tx: Transaction, places: Places, verification: Verification, kind: str, *, boot_id: str
) -> None:
    """Write the intent of the next run that verifies a tree."""
    gate, commit, number, slot = verification.gate, verification.commit, verification.number, verification.slot
    repo, checkout = gate.repo, places.checkout(gate.repo.name, slot)
    run = gate_run_id(repo.name, verification.tree, gate.digest, f"{number}.{slot}.{kind}")
    kept = {"HIVE_SETUP": repo.setup or "", "HIVE_KEEP": "\n".join(repo.keep), "HIVE_LOCK": "\n".join(repo.lock)}
    ours: dict[str, float | int | None] = {"wall_s": OUR_WALL_S, "grace_s": 5.0}
    theirs = {**asdict(Limits()), "wall_s": verification.wall_s, "grace_s": 5.0}
    directory, mounts = str(checkout / "work"), make_mounts(places, checkout, str(checkout / "ready"))
    match kind:
        case "checkout":
            cache = str(places.cache(repo.name)) if repo.setup and repo.keep else ""
            argv = orders.check_out_again(places.mirror(repo.name), commit, checkout, boot_id, cache)
            order = Order(run, kind, argv, str(places.root), {**orders.NO_FSYNC_ENV, **kept}, ours)
        case "stash":
            order = Order(run, kind, (), str(places.root), kept, ours)
            keep = orders.keep_setup(checkout, places.cache(repo.name))
            order = order_in_sandbox(places, order, checkout, keep, repo.name)
        case "setup":
            argv = make_shell_argv(f'[ -e "$HIVE_READY" ] || {{\n{repo.setup}\n}}')
            environment = make_environment(places, checkout, HIVE_READY=str(checkout / "ready"))
            order = Order(run, kind, argv, directory, environment, theirs, mounts)
        case _:
            argv = make_shell_argv("\n".join(map(_as_step, gate.commands)))
            environment = make_environment(places, checkout, HIVE_CANDIDATE=commit)
            order = Order(run, kind, argv, directory, environment, theirs, mounts)
    intend_run(tx, order, boot_id=boot_id, repo=repo.name)


def _as_step(command: str) -> str:
    # Each in a shell of its own: neither can end or change the other, and the first failure is the gate's.
    return f"(\n{command}\n) || exit $?"


def intend_landing(tx: Transaction, places: Places, entry: MergeRow, repo: RepoRow, *, boot_id: str) -> None:
    """Write the intent to move the integration branch to an entry's candidate."""
    mirror, public = places.mirror(repo.name), places.public(repo.name)
    argv = orders.land_commit(mirror, public, repo.branch, str(entry.candidate), str(entry.base))
    run = attempt_run_id(entry.task, entry.attempt, f"land-{entry.round}")
    limits: dict[str, float | int | None] = {"wall_s": OUR_WALL_S, "grace_s": 5.0}
    order = Order(run, "land", argv, str(places.root), dict(orders.CLEAN_ENVIRONMENT), limits)
    intend_run(tx, order, boot_id=boot_id, task=entry.task, attempt=entry.attempt, repo=repo.name)


def resolved_ref(entry: MergeRow, number: int) -> str:
    """Name how a conflict of an entry was settled, in the mirror."""
    return f"refs/hive/resolved/{entry.task}/{entry.attempt}/{number}"


@dataclass(frozen=True, slots=True)
class Settling:
    """A conflict of an entry: `tree` has the markers of merging it with `ours`, in `paths`; `argv` settles it."""

    entry: MergeRow
    repo: RepoRow
    ours: str
    tree: str
    paths: tuple[str, ...]
    argv: Argv = ()
    prompt: str = ""
    runner: Runner | None = None


def intend_settling(tx: Transaction, places: Places, settling: Settling, step: IntendRun, *, boot_id: str) -> None:
    """Write the intent of the next run that settles a conflict."""
    entry, repo = settling.entry, settling.repo
    mirror, directory, root = places.mirror(repo.name), places.gate(entry.task, entry.attempt), str(places.root)
    run = attempt_run_id(entry.task, entry.attempt, f"{step.kind}-{step.number}")
    limits: dict[str, float | int | None] = {"wall_s": OUR_WALL_S, "grace_s": 5.0}
    noted = {"HIVE_OURS": settling.ours, "HIVE_TREE": settling.tree, "HIVE_CONFLICTS": "\n".join(settling.paths)}
    match step.kind:
        case "conflict":
            argv = orders.check_out_tree(mirror, settling.tree, directory)
            order = Order(run, step.kind, argv, root, {**orders.NO_FSYNC_ENV, **noted}, limits)
        case "settle":
            ref = resolved_ref(entry, step.number)
            sides = (settling.ours, entry.commit_id)
            settle = orders.settle_conflict(mirror, places.public(repo.name), directory, ref, settling.tree, *sides)
            order = Order(run, step.kind, (), root, {**orders.CLEAN_ENVIRONMENT, **noted}, limits)
            order = order_in_sandbox(places, order, directory, settle, repo.name)
        case _:
            environment = make_environment(places, directory, HIVE_PROMPT=settling.prompt, **noted)
            mounts = make_mounts(places, directory, *([settling.prompt] if settling.prompt else []))
            limited = {**asdict(Limits()), **limits}
            order = Order(run, step.kind, settling.argv, str(directory / "work"), environment, limited, mounts)
            order = order_session(order, settling.runner) if settling.runner else order
    intend_run(tx, order, boot_id=boot_id, task=entry.task, attempt=entry.attempt, repo=repo.name)


def make_regeneration(repo: RepoRow, paths: tuple[str, ...]) -> Argv | None:
    """Make the command that makes every file anew; None where one of them has none."""
    commands = [find_regeneration(repo, path) for path in paths]
    if not all(commands):
        return None
    return make_shell_argv("\n".join(_as_step(command) for command in dict.fromkeys(commands) if command))
