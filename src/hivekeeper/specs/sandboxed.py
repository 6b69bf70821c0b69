"""The mounts, environment and limits of commands that run in a sandbox."""

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
    """Return the limits of one of the hive's own commands: time only."""
    return {"wall_s": wall_s, "grace_s": GRACE_S}


def user_limits(wall_s: float) -> dict[str, object]:
    """Return the limits of a user's or a worker's command: all of the defaults, and its time."""
    return {**asdict(Limits()), "wall_s": wall_s}


def make_mounts(places: Places, sandbox: Path | None, *read: str) -> dict[str, list[str]]:
    """Return the mounts of a worker's run: its sandbox, or else the hive's root; `.hive` is always hidden."""
    if sandbox is None:
        settings = str(places.root / "hive.toml")  # it sets the isolation level
        return {"write": [str(places.root)], "read": [settings, *read], "hide": [str(places.hive)], "own": []}
    write = [str(sandbox / name) for name in ("work", "home", "tmp")]
    return {"write": write, "read": list(read), "hide": [str(places.hive)], "own": [str(sandbox)]}


def make_environment(places: Places, sandbox: Path | None, **more: str) -> dict[str, str]:
    """Return the environment of a worker's run, without what every run inherits."""
    own = {} if sandbox is None else {"HOME": str(sandbox / "home"), "TMPDIR": str(sandbox / "tmp")}
    return {**own, "HIVE_ROOT": str(places.root), **more}


def read_in_sandbox(places: Places, spec: RunSpec, sandbox: Path, command: Argv | InSandbox, repo: str) -> RunSpec:
    """Add a command to a spec; its part that reads a worker's tree runs in a sandbox with that tree."""
    if not isinstance(command, InSandbox):
        return replace(spec, argv=command)
    mounts = make_mounts(places, sandbox, str(sandbox / "work"), str(places.public(repo)))
    mounts |= {"write": [*map(str, command.write)], "own": [], "outside": [str(len(command.outside))]}
    return replace(spec, argv=(*command.outside, *command.inside), mounts=mounts)


def specify_setup(places: Places, repo: RepoRow, sandbox: Path, wall_s: float, *read: str) -> RunSpec:
    """Specify the setup of a clone or checkout; it does nothing if a cached setup was restored."""
    ready = str(sandbox / "ready")
    argv = make_shell_argv(f'[ -e "$HIVE_READY" ] || {{\n{repo.setup}\n}}')
    environment = make_environment(places, sandbox, HIVE_READY=ready)
    mounts = make_mounts(places, sandbox, *read, ready)
    return RunSpec(argv, str(sandbox / "work"), environment, user_limits(wall_s), mounts)


def describe_setup(repo: RepoRow) -> dict[str, str]:
    """Return the variables that tell the hive's scripts what a setup creates and when its cache is valid."""
    return {"HIVE_SETUP": repo.setup or "", "HIVE_KEEP": "\n".join(repo.keep), "HIVE_LOCK": "\n".join(repo.lock)}
