"""The effects on git, each an argv for a run: one short script a verb, repeatable, with no text of an agent in it."""

from pathlib import Path

_SCRIPTS = Path(__file__).parent / "scripts"

# Nobody's configuration but ours: no hook, filter or helper named in a user's or worker's files may run here.
# Every object is synced before it has its name: a torn one would be taken for whole when it is made again. Batched
# syncs promise that only on some file systems. The scripts sync names and refs (docs/adr/0006).
CLEAN_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C.UTF-8",
    "GIT_AUTHOR_NAME": "Hivekeeper",
    "GIT_AUTHOR_EMAIL": "hive@localhost",
    "GIT_COMMITTER_NAME": "Hivekeeper",
    "GIT_COMMITTER_EMAIL": "hive@localhost",
    "GIT_CONFIG_COUNT": "6",
    "GIT_CONFIG_KEY_0": "core.fsync",
    "GIT_CONFIG_VALUE_0": "all",
    "GIT_CONFIG_KEY_1": "core.fsyncMethod",
    "GIT_CONFIG_VALUE_1": "fsync",
    "GIT_CONFIG_KEY_2": "gc.auto",
    "GIT_CONFIG_VALUE_2": "0",
    "GIT_CONFIG_KEY_3": "core.hooksPath",
    "GIT_CONFIG_VALUE_3": "/dev/null",
    # The path comes from the person's own plan, so who owns it is no surprise.
    "GIT_CONFIG_KEY_4": "safe.directory",
    "GIT_CONFIG_VALUE_4": "*",
    # Nothing of git goes on in the background: it would hold our locks, and outlive its run.
    "GIT_CONFIG_KEY_5": "maintenance.auto",
    "GIT_CONFIG_VALUE_5": "false",
}

Argv = tuple[str, ...]


def integration_ref(branch: str) -> str:
    """Name the integration branch in the mirror; workers see it under the name they know."""
    return f"refs/heads/{branch}"


def attempt_ref(task: str, attempt: int) -> str:
    """Name what an attempt made, in the mirror."""
    return f"refs/hive/attempts/{task}/{attempt}"


def source_ref(branch: str) -> str:
    """Name the person's own branch, in the mirror."""
    return f"refs/hive/source/{branch}"


def published_ref(branch: str) -> str:
    """Name the integration branch in the person's repository."""
    return f"refs/heads/hive/{branch}"


def fetch_repository(mirror: Path, source: str, branch: str) -> Argv:
    """Bring the person's branch into the mirror and the integration branch up to it."""
    return _script("fetch_repository", mirror, source, branch)


def make_sandbox(mirror: Path, branch: str, directory: Path) -> Argv:
    """Make a worker's own clone."""
    return _script("make_sandbox", mirror, branch, directory)


def snapshot_attempt(mirror: Path, clone: Path, ref: str, index: Path) -> Argv:
    """Keep what a worker made, committed or not, under a ref of the mirror."""
    return _script("snapshot_attempt", mirror, clone, ref, index)


def check_out_tree(mirror: Path, commit: str, directory: Path) -> Argv:
    """Lay out exactly a commit's tree for the gate."""
    return _script("check_out_tree", mirror, commit, directory)


def land_commit(mirror: Path, ref: str, new: str, old: str) -> Argv:
    """Move the integration branch from old to new, or not at all."""
    return _script("land_commit", mirror, ref, new, old)


def publish_commit(mirror: Path, source: str, commit: str, ref: str) -> Argv:
    """Bring what landed into the person's repository, forward only."""
    return _script("publish_commit", mirror, source, commit, ref)


def remove_directory(directory: Path) -> Argv:
    """Remove a directory of ours."""
    return ("rm", "-rf", "--", str(directory))


def _script(name: str, *arguments: str | Path) -> Argv:
    return ("sh", "-eu", str(_SCRIPTS / f"{name}.sh"), *map(str, arguments))
