"""What this machine offers a hive's workers: how well they are isolated, and which programs can be started."""

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hivekeeper.domain.runner import Runner
from hivekeeper.domain.shell import BUILTINS, KEYWORDS, find_script, is_operator, is_wrapper, skip_prefixes
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.hive import Hive
from hivekeeper.places import Places
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.sandbox.isolation import Isolation, Level, find_isolation
from hivekeeper.sandbox.layout import is_within, trace
from hivekeeper.sandbox.toolchain import find_secret
from hivekeeper.settings import BUILT_IN_RUNNERS, Settings

_PLAIN = re.compile(r"[\w.+/~-]+")
_UNKNOWN = re.compile(r"[\s$`*?\[\]{}\"'\\:,]")  # a shell replaces it, or it is no single path
_SERVER = "mcp."  # how keys of MCP servers begin
_OWN_PROGRAM = "hive"  # every worker has it, wherever it is installed


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
    """Find why a runner or one of its MCP servers cannot be started in a sandbox, and what to do; None if they can."""
    return next(_find_problems(runner, isolation), None)


def _find_problems(runner: Runner, isolation: Isolation) -> Iterator[str]:
    conditional = set[str]()  # whether what they name is needed is known to the shell only
    for key, words in runner.list_commands():
        end = next((at for at, word in enumerate(words) if is_operator(word)), len(words))
        is_compound = bool(KEYWORDS.intersection(words[:1]))
        if is_compound or end < len(words):
            conditional.add(key)
        if not is_compound:
            yield from _Named(runner, isolation, key).find_command_problems(words[:end])
    for key, path in runner.list_paths():
        yield from _Named(runner, isolation, key).find_path_problems(path, is_needed=key not in conditional)


@dataclass(frozen=True, slots=True)
class _Named:
    """What a key of a runner's table names; of what only the shell in the sandbox knows, nothing is said."""

    runner: Runner
    isolation: Isolation
    key: str

    def find_command_problems(self, words: Sequence[str]) -> Iterator[str]:
        """Find the programs of a command that cannot be started: its wrappers, itself, and an interpreter's script."""
        rest = skip_prefixes(words)
        before = words[: len(words) - len(rest)]
        sets_path = any(word.startswith("PATH=") for word in before)
        for program in filter(_PLAIN.fullmatch, (*filter(is_wrapper, before), *rest[:1])):
            if program.startswith("~"):
                yield self._say_home(program)
            elif program.startswith("/") or ("/" not in program and not sets_path):
                yield from self._find_program_problems(program)
        script = find_script(rest)
        if script.startswith("~/"):
            yield self._say_home(script)
        elif script.startswith("/") and _PLAIN.fullmatch(script) and not _exists(script):
            yield self._say_missing(script)

    def _find_program_problems(self, program: str) -> Iterator[str]:
        if program in BUILTINS or program == _OWN_PROGRAM:
            return
        is_path, found = "/" in program, shutil.which(program, path=self.runner.environment.get("PATH"))
        if found is None and is_path and _exists(program) and Path(program).is_file():
            yield self._say(program, f"is not executable; type: chmod +x {shlex.quote(program)}")
        elif found is None:
            where = "is not there" if is_path else "is not installed, or not on the PATH"
            yield self._say(program, f"{where}; install it, or write its full path as {self._place}")
        elif not is_path and not self.isolation.sees(found, self.runner.environment):
            yield self._say(program, f"is hidden in the sandbox; write {found} as {self._place}")

    def find_path_problems(self, path: str, *, is_needed: bool) -> Iterator[str]:
        """Find whether a path is missing, unless the program itself may create it, or is hidden."""
        if _exists(path):
            if not self.isolation.sees(path, self.runner.environment):
                directory = path if Path(path).is_dir() else str(Path(path).parent)
                line = f'read = ["{directory}"] in [sandbox] of hive.toml'
                yield self._say(path, f"is hidden in the sandbox; write {line}")
            return
        # A word such as /review may be a command of the program's own.
        is_path = path.count("/") > 1 or self.key.startswith(_SERVER)
        if is_needed and is_path and not _UNKNOWN.search(path) and not self.isolation.may_create(path):
            yield self._say_missing(path)

    @property
    def _place(self) -> str:
        return f"`{self.key}` in [runners.{self.runner.name}] of hive.toml"

    def _say(self, word: str, problem: str) -> str:
        server = f"MCP server '{self.key.removeprefix(_SERVER)}' of " if self.key.startswith(_SERVER) else ""
        return f"'{word}' of {server}runner '{self.runner.name}' {problem}"

    def _say_missing(self, path: str) -> str:
        return self._say(path, f"is not there; create it, or write the right path in {self._place}")

    def _say_home(self, program: str) -> str:
        whole = os.path.expanduser(program)  # noqa: PTH111 - that of Path raises when there is no such user
        return self._say(program, f"would be in the worker's own home; write {whole} in {self._place}")


def _exists(path: str) -> bool:
    try:
        Path(path).stat()
    except OSError:  # it is not there, or not for this user
        return False
    return True
