"""What this machine offers a hive's workers: how well they are isolated, and which programs can be started."""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from hivekeeper.domain.runner import Runner
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.hive import Hive
from hivekeeper.places import Places
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.sandbox.isolation import Isolation, Level, find_isolation
from hivekeeper.sandbox.layout import is_within, trace
from hivekeeper.sandbox.toolchain import find_secret
from hivekeeper.settings import BUILT_IN_RUNNERS, Settings

_PLAIN = re.compile(r"[\w.+/~-]+")
# Words of the shell itself, which are not on the PATH.
_SHELL = frozenset(
    {".", "cd", "command", "eval", "export", "for", "if", "set", "test", "trap", "ulimit", "umask", "while"}
)


def find_hive_isolation(hive: Hive, boot_id: str) -> Isolation:
    """Find how this machine isolates a hive's workers, as its settings want it."""
    settings, kept = hive.settings, str(hive.places.hive)
    paths = (path for runner in settings.runners.values() for _, path in runner.list_paths())
    wanted = Level(settings.level) if settings.level else None
    return find_isolation(
        hive.places.isolation,
        boot_id,
        wanted=wanted,
        extra_read=settings.read,
        extra_write=settings.write,
        named=[path for path in paths if not is_within(trace(path).real, kept)],
    )


def refuse_secrets(settings: Settings, places: Places) -> None:
    """Refuse a hive.toml that names what no worker may see: mounting it would show it to all of them."""
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises for a user nobody gave a home
    for runner in settings.runners.values():
        for key, path in runner.list_paths():
            if secret := find_secret(path, home, str(places.hive)):
                what = f"[runners.{runner.name}] {key} in hive.toml names {path}, and no worker may see {secret}."
                advice = "Put the program and what it reads into a directory of its own, such as ~/tools."
                raise InputError(what, advice=advice)


def refuse_weak_isolation(hive: Hive, boot_id: str) -> None:
    """Refuse to run a hive whose workers would be isolated less than its settings require."""
    required = Level(hive.settings.require) if hive.settings.require else Level.LIMITS
    if required is not Level.LIMITS and (found := find_hive_isolation(hive, boot_id)).level.rank < required.rank:
        what = f"This hive requires {required} for its workers, and this machine has {found.level}: {found.why}."
        raise UnavailableError(what, advice="Fix that, or lower `require` in [sandbox] of hive.toml.")


def refuse_loosened(old: Settings, new: Settings) -> None:
    """Refuse to isolate workers less than when the keeper started: it may be a worker that changed hive.toml."""
    keys = [key for key in ("read", "write") if not {*getattr(new, key)} <= {*getattr(old, key)}]
    strongest = Level.NAMESPACES
    if Level(new.level or strongest).rank < Level(old.level or strongest).rank:
        keys.append("level")
    if Level(new.require or Level.LIMITS).rank < Level(old.require or Level.LIMITS).rank:
        keys.append("require")
    if keys:
        what = f"[sandbox] {' and '.join(keys)} in hive.toml would isolate workers less than when the keeper started."
        raise InputError(what, advice="If you changed it, type: hive down && hive up.")


def refuse_missing(hive: Hive, tasks: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """Refuse tasks of which no runner can be started on this machine."""
    isolation: Isolation | None = None
    for task, names in tasks:
        problems: list[str] = []
        for name in names:
            if name in BUILT_IN_RUNNERS or name not in hive.settings.runners:
                break
            isolation = isolation or find_hive_isolation(hive, read_boot_id())
            if (problem := find_problem(hive.settings.runners[name], isolation)) is None:
                break
            problems.append(problem)
        else:
            if problems:
                what = f"Task '{task}' cannot start: {'; '.join(problems)}."
                raise InputError(what, advice="Nothing was submitted. To see what is installed: hive runner ls")


def find_problem(runner: Runner, isolation: Isolation) -> str | None:
    """Find why a runner's program cannot be started in a sandbox, and what to do; None if it can."""
    program, table = runner.program, f"[runners.{runner.name}] of hive.toml"
    if not _PLAIN.fullmatch(program) or program in _SHELL:
        return None  # only the shell that starts it knows
    if program.startswith("~"):
        whole = os.path.expanduser(program)  # noqa: PTH111 - that of Path raises when there is no such user
        return f"{program} of runner '{runner.name}' would be in the worker's own home; write {whole} in {table}"
    if "/" in program and not program.startswith("/"):
        return None  # relative to the worker's own directory
    path = runner.environment.get("PATH")
    if (found := shutil.which(program, path=path)) is None:
        where = "is not there" if "/" in program else "is not installed, or not on the PATH"
        return (
            f"'{program}' of runner '{runner.name}' {where}; install it, or write its full path as `command` in {table}"
        )
    if not isolation.sees(found, runner.environment):
        line = f'read = ["{Path(found).resolve().parent}"]'
        return f"{found} of runner '{runner.name}' is hidden in the sandbox; write {line} in [sandbox] of hive.toml"
    return None
