"""The effects on git, each an argv for a run: one short script a verb, repeatable, with no text of an agent in it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SCRIPTS = Path(__file__).parent / "scripts"
# Of what git leaves out no more than this is kept; what is larger is named instead.
MAX_REST = 64 * 1024 * 1024

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

REPLACED = "refs/hive/replaced"  # what had landed when the integration branch began anew elsewhere

REPO_UNUSABLE = 65  # how a fetch ends that read the repository and can never use it as it is

# For what need not outlive the machine's boot.
NO_FSYNC_ENV = {**CLEAN_ENVIRONMENT, "GIT_CONFIG_VALUE_0": "none"}

Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InSandbox:
    """A command of ours, and one it is given as its last arguments to start `inside` a sandbox, where that may write.

    Whatever reads what a worker may still change is inside: there a link leads to nothing the worker could not read.
    """

    outside: Argv
    inside: Argv
    write: tuple[Path, ...]


def integration_ref(branch: str) -> str:
    """Name the integration branch in the mirror; workers see it under the name they know."""
    return f"refs/heads/{branch}"


def attempt_ref(task: str, attempt: int) -> str:
    """Name what an attempt made, in the mirror."""
    return f"refs/hive/attempts/{task}/{attempt}"


def save_ref(task: str, attempt: int, number: int | None = None) -> str:
    """Name what was kept of an attempt while it worked, in the mirror: one time, or all of them."""
    return f"refs/hive/saves/{task}/{attempt}" + (f"/{number:06}" if number else "")


def rest_ref(task: str, attempt: int) -> str:
    """Name what git would leave out of what an attempt made (ignored files, nested repositories), in the mirror."""
    return f"refs/hive/rest/{task}/{attempt}"


def source_ref(branch: str) -> str:
    """Name the person's own branch, in the mirror."""
    return f"refs/hive/source/{branch}"


def published_ref(branch: str) -> str:
    """Name the integration branch in the person's repository."""
    return f"refs/heads/hive/{branch}"


def fetch_repository(mirror: Path, public: Path, source: str, branch: str, publish: str = "branch") -> Argv:
    """Bring the person's branch into the mirror and the integration branch up to it, or anew where both have moved."""
    return _script("fetch_repository", mirror, public, source, branch, publish)


def make_sandbox(sandbox: Path, public: Path, branch: str, mirror: Path, start: str, cache: str) -> Argv:
    """Make a worker's sandbox with a clone: of what has landed, or of what a predecessor left; `cache` may be none."""
    return _script("make_sandbox", sandbox, public, branch, mirror, start, cache)


def cache_setup(sandbox: Path, cache: Path) -> InSandbox:
    """Keep what a setup made for later clones."""
    return InSandbox(_script("cache_setup", sandbox, cache), _script("copy_setup", sandbox / "work"), (cache,))


def snapshot_attempt(
    mirror: Path, public: Path, sandbox: Path, ref: str, rest: str, keep: tuple[str, ...] = ()
) -> InSandbox:
    """Keep what a worker made, committed or not, under a ref of the mirror, and what git leaves out under another."""
    draft, work = sandbox / "end.draft", sandbox / "work"
    outside = _script("snapshot_attempt", mirror, public, sandbox, draft, ref, rest)
    return InSandbox(outside, _script("read_work", work, sys.executable, str(MAX_REST), *keep), (draft, work))


def save_attempt(
    mirror: Path, public: Path, sandbox: Path, ref: str, backup: str | None, keep: tuple[str, ...] = ()
) -> InSandbox:
    """Keep what a worker has made so far, if that is more than last time, here and in a second repository."""
    draft, work = sandbox / "save.draft", sandbox / "work"
    outside = _script("save_attempt", mirror, public, sandbox, draft, *ref.rsplit("/", 1), backup or "")
    return InSandbox(outside, _script("read_work", work, sys.executable, "0", *keep), (draft, work))


def push_backup(mirror: Path, backup: str, ref: str) -> Argv:
    """Push what is kept of an attempt to a second repository."""
    return _script("push_backup", mirror, backup, ref)


def copy_source(source: str, branch: str, directory: Path) -> Argv:
    """Lay out a branch of a person's repository, as it is committed, for somebody who only reads it."""
    return _script("copy_source", source, branch, directory)


def check_out_tree(mirror: Path, commit: str, directory: Path) -> Argv:
    """Lay out exactly a commit's tree for the gate."""
    return _script("check_out_tree", mirror, commit, directory)


def reuse_checkout(mirror: Path, commit: str, checkout: Path, boot_id: str, cache: str) -> Argv:
    """Lay out exactly a commit's tree for the gate, where another was before; `cache` may be none."""
    return _script("reuse_checkout", mirror, commit, checkout, boot_id, cache)


def fetch_branch(mirror: Path, source: str, commit: str, ref: str) -> Argv:
    """Bring a commit of a person's own into the mirror, under a ref."""
    return _script("fetch_branch", mirror, source, commit, ref)


def save_resolution(  # noqa: PLR0913, PLR0917 - one argument of the script each
    mirror: Path, public: Path, directory: Path, ref: str, tree: str, ours: str, theirs: str
) -> InSandbox:
    """Keep how a conflict was settled in a directory, under a ref of the mirror, as a merge of both sides."""
    draft = directory / "settled.draft"
    outside = _script("save_resolution", mirror, public, draft, ref, tree, ours, theirs)
    return InSandbox(outside, _script("read_resolution", directory / "work", tree), (draft,))


def check_out_trees(directory: Path, trees: Sequence[tuple[Path, str, str]]) -> Argv:
    """Lay out several commits' trees side by side, each of a mirror and under a name."""
    return _script("check_out_trees", directory, *(part for tree in trees for part in tree))


def land_commit(mirror: Path, public: Path, branch: str, new: str, old: str) -> Argv:
    """Move the integration branch from old to new, or not at all."""
    return _script("land_commit", mirror, public, branch, new, old)


def publish_commit(mirror: Path, source: str, commit: str, branch: str, how: str) -> Argv:
    """Bring what landed into the person's repository, forward only: a branch of ours, theirs, or their check-out."""
    if how == "checkout":
        script = Path(__file__).parent / "forward.py"
        return (sys.executable, "-I", "-S", str(script), source, str(mirror), commit, branch)
    ref = published_ref(branch) if how == "branch" else integration_ref(branch)
    return _script("publish_commit", mirror, source, commit, ref)


def remove_directory(directory: Path) -> Argv:
    """Remove a directory of ours, whatever a worker has made of its permissions; more may be named behind it."""
    script = 'rm -rf -- "$@" 2>/dev/null || { chmod -R u+rwX -- "$@" 2>/dev/null; rm -rf -- "$@"; }'
    return ("sh", "-c", script, "sh", str(directory))


def _script(name: str, *arguments: str | Path) -> Argv:
    return ("sh", "-eu", str(_SCRIPTS / f"{name}.sh"), *map(str, arguments))
