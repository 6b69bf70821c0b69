"""What commands of workers, setups and gates are given: mounts, environment, limits."""

from dataclasses import asdict, replace
from pathlib import Path

from hivekeeper.domain.plan import Limits
from hivekeeper.domain.rows import RepoRow
from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.runner import make_shell_argv
from hivekeeper.git.orders import Argv, InSandbox
from hivekeeper.places import Places

GRACE_S = Limits().grace_s


def hive_limits(wall_s: float) -> dict[str, object]:
    """Limit a command of the hive's own, which needs nothing but an end."""
    return {"wall_s": wall_s, "grace_s": GRACE_S}


def user_limits(wall_s: float) -> dict[str, object]:
    """Limit a command of a person's or a worker's in everything there is a limit for."""
    return {**asdict(Limits()), "wall_s": wall_s}


def make_mounts(places: Places, sandbox: Path | None, *read: str) -> dict[str, list[str]]:
    """Say what a worker's run may touch: its sandbox, or else where the hive lies; never what the hive keeps."""
    if sandbox is None:
        settings = str(places.root / "hive.toml")  # says how strong the isolation is
        return {"write": [str(places.root)], "read": [settings, *read], "hide": [str(places.hive)], "own": []}
    write = [str(sandbox / name) for name in ("work", "home", "tmp")]
    return {"write": write, "read": list(read), "hide": [str(places.hive)], "own": [str(sandbox)]}


def make_environment(places: Places, sandbox: Path | None, **more: str) -> dict[str, str]:
    """Say what a worker's run finds in its environment, beside what every run inherits."""
    own = {} if sandbox is None else {"HOME": str(sandbox / "home"), "TMPDIR": str(sandbox / "tmp")}
    return {**own, "HIVE_ROOT": str(places.root), **more}


def read_in_sandbox(places: Places, spec: RunSpec, sandbox: Path, command: Argv | InSandbox, repo: str) -> RunSpec:
    """Give a spec its command; the part that reads a worker's tree runs in a sandbox that has it and what it writes."""
    if not isinstance(command, InSandbox):
        return replace(spec, argv=command)
    mounts = make_mounts(places, sandbox, str(sandbox / "work"), str(places.public(repo)))
    mounts |= {"write": [*map(str, command.write)], "own": [], "outside": [str(len(command.outside))]}
    return replace(spec, argv=(*command.outside, *command.inside), mounts=mounts)


def specify_setup(places: Places, repo: RepoRow, sandbox: Path, wall_s: float, *read: str) -> RunSpec:
    """Make a clone or a check-out ready; what was brought from one with the same lock files is not made again."""
    ready = str(sandbox / "ready")
    argv = make_shell_argv(f'[ -e "$HIVE_READY" ] || {{\n{repo.setup}\n}}')
    environment = make_environment(places, sandbox, HIVE_READY=ready)
    mounts = make_mounts(places, sandbox, *read, ready)
    return RunSpec(argv, str(sandbox / "work"), environment, user_limits(wall_s), mounts)


def describe_setup(repo: RepoRow) -> dict[str, str]:
    """Say to a script of ours what a setup makes and when that still fits."""
    return {"HIVE_SETUP": repo.setup or "", "HIVE_KEEP": "\n".join(repo.keep), "HIVE_LOCK": "\n".join(repo.lock)}
