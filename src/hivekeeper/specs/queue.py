"""Specifies the runs of a merge queue."""

from dataclasses import dataclass

from hivekeeper.domain.gate import Gate
from hivekeeper.domain.merge import find_regeneration
from hivekeeper.domain.owners import attempt_owner
from hivekeeper.domain.rows import MergeRow, RepoRow
from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.runner import Runner, make_shell_argv
from hivekeeper.domain.steps import Start
from hivekeeper.git import orders
from hivekeeper.places import Places
from hivekeeper.specs.sandboxed import (
    describe_setup,
    hive_limits,
    make_environment,
    make_mounts,
    read_in_sandbox,
    specify_setup,
    user_limits,
)
from hivekeeper.specs.session import start_program

OUR_WALL_S = 1800.0
Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """The verification of a commit's tree, in one of the repository's checkouts."""

    gate: Gate
    commit: str
    slot: int
    wall_s: float


def specify_verification(places: Places, verification: Verification, kind: str, boot_id: str) -> RunSpec:
    """Specify a run that verifies a tree."""
    gate, commit = verification.gate, verification.commit
    repo, checkout = gate.repo, places.checkout(gate.repo.name, verification.slot)
    match kind:
        case "checkout":
            cache = str(places.cache(repo.name)) if repo.setup and repo.keep else ""
            argv = orders.reuse_checkout(places.mirror(repo.name), commit, checkout, boot_id, cache)
            environment = {**orders.NO_FSYNC_ENV, **describe_setup(repo)}
            return RunSpec(argv, str(places.root), environment, hive_limits(OUR_WALL_S))
        case "stash":
            spec = RunSpec((), str(places.root), describe_setup(repo), hive_limits(OUR_WALL_S))
            return read_in_sandbox(
                places, spec, checkout, orders.cache_setup(checkout, places.cache(repo.name)), repo.name
            )
        case "setup":
            return specify_setup(places, repo, checkout, verification.wall_s)
        case _:
            argv = make_shell_argv("\n".join(map(_as_step, gate.commands)))
            environment = make_environment(places, checkout, HIVE_CANDIDATE=commit)
            mounts = make_mounts(places, checkout, str(checkout / "ready"))
            return RunSpec(argv, str(checkout / "work"), environment, user_limits(verification.wall_s), mounts)


def _as_step(command: str) -> str:
    # Each in its own shell, so that they cannot affect each other; the first failure is the gate's.
    return f"(\n{command}\n) || exit $?"


def specify_landing(places: Places, entry: MergeRow, repo: RepoRow) -> RunSpec:
    """Specify the landing of an entry's candidate."""
    mirror, public = places.mirror(repo.name), places.public(repo.name)
    argv = orders.land_commit(mirror, public, repo.branch, str(entry.candidate), str(entry.base))
    return RunSpec(argv, str(places.root), dict(orders.CLEAN_ENVIRONMENT), hive_limits(OUR_WALL_S))


def resolved_ref(entry: MergeRow, number: int) -> str:
    """Name the ref of a resolution of an entry's conflict, in the mirror."""
    return f"refs/hive/resolved/{entry.task}/{entry.attempt}/{number}"


def specify_conflict(places: Places, entry: MergeRow, repo: RepoRow, tree: str) -> RunSpec:
    """Specify the checkout of a tree with conflict markers."""
    argv = orders.check_out_tree(places.mirror(repo.name), tree, places.gate(entry.task, entry.attempt))
    return RunSpec(argv, str(places.root), dict(orders.NO_FSYNC_ENV), hive_limits(OUR_WALL_S))


def specify_resolution(
    places: Places, entry: MergeRow, start: Start, prompt: str, argv: Argv, runner: Runner | None
) -> RunSpec:
    """Specify the run that resolves a conflict: a command, or an agent program with a prompt."""
    directory = places.gate(entry.task, entry.attempt)
    environment = make_environment(places, directory, HIVE_PROMPT=prompt, HIVE_CONFLICTS="\n".join(entry.conflicts))
    mounts = make_mounts(places, directory, prompt)
    spec = RunSpec(argv, str(directory / "work"), environment, user_limits(OUR_WALL_S), mounts)
    run = attempt_owner(entry.task, entry.attempt, entry.repo).name_run(start)
    return start_program(spec, runner, run) if runner else spec


def specify_settle(places: Places, entry: MergeRow, repo: RepoRow, number: int) -> RunSpec:
    """Specify the run that saves the resolved files in the mirror."""
    mirror, directory = places.mirror(repo.name), places.gate(entry.task, entry.attempt)
    ref, sides = resolved_ref(entry, number), (str(entry.conflict_ours), entry.commit_id)
    settle = orders.save_resolution(mirror, places.public(repo.name), directory, ref, str(entry.conflict_tree), *sides)
    spec = RunSpec((), str(places.root), dict(orders.CLEAN_ENVIRONMENT), hive_limits(OUR_WALL_S))
    return read_in_sandbox(places, spec, directory, settle, repo.name)


def make_regeneration(repo: RepoRow, paths: tuple[str, ...]) -> Argv | None:
    """Return the command that regenerates every file; None if one of them has none."""
    commands = [find_regeneration(repo, path) for path in paths]
    if not all(commands):
        return None
    return make_shell_argv("\n".join(_as_step(command) for command in dict.fromkeys(commands) if command))
