"""The isolation of a run: the strongest this machine can build, and the argv that runs a command in it."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from hivekeeper.sandbox import landlock, probe
from hivekeeper.sandbox.layout import ALWAYS_HIDDEN, Layout, Mode, is_within, lay_out, trace
from hivekeeper.sandbox.toolchain import find_toolchain

_PROBE_VERSION = 2  # raised with every change of what is tried or built, so that no older verdict is believed
_SCRATCH = ("/tmp", "/var/tmp")  # noqa: S108 - hidden, but something empty to write to: programs expect them
_EMPTY = str(Path(__file__).with_name("empty"))
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
)
_SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0", "type: sysctl user.max_user_namespaces=10000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "type: sysctl kernel.unprivileged_userns_clone=1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "Ubuntu: an AppArmor profile for bwrap is missing, docs/explain/sandbox.md says what to type",
    ),
)


class Level(StrEnum):
    """How strong isolation is, weakest first."""

    LIMITS = "limits"
    LANDLOCK = "landlock"
    NAMESPACES = "namespaces"

    @property
    def rank(self) -> int:
        """The place in the order; comparing the names themselves would compare letters."""
        return list(Level).index(self)

    @property
    def builder(self) -> str:
        """What builds it, by the name a person can look up."""
        return {Level.LIMITS: "", Level.LANDLOCK: "Landlock", Level.NAMESPACES: "bubblewrap"}[self]


@dataclass(frozen=True, slots=True)
class Mounts:
    """What one run may touch beside the toolchain."""

    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Isolation:
    """Isolation at a level that was tried out; `why` says why it is not a higher one.

    `read`, `write` and the installations of the `named` paths are for every run.
    """

    level: Level
    why: str
    home: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    bubblewrap: str = "bwrap"
    named: tuple[str, ...] = ()

    def wrap(
        self,
        argv: Sequence[str],
        directory: str,
        mounts: Mounts,
        environment: Mapping[str, str],
        largest: int | None = None,
    ) -> tuple[str, ...]:
        """Write the argv that runs `argv` in `directory` in a sandbox; its files in memory are up to `largest`."""
        match self.level:
            case Level.LIMITS:
                return tuple(argv)
            case Level.LANDLOCK:
                layout = self._lay_out(mounts, environment, hide=("/dev",), write=_DEVICES)
                named = [part for path, mode in layout.places.items() for part in (mode.name.lower(), path)]
                start = (sys.executable, "-I", "-S", landlock.__file__, directory)
                return (*start, *named, "--", *argv)
            case Level.NAMESPACES:
                size = largest if largest is not None and probe.knows_size(self.bubblewrap) else None
                bindings = _bind(self._lay_out(mounts, environment), size)
                inside = ("--chdir", trace(directory).real, "--", *argv)
                return (self.bubblewrap, *_NAMESPACES, *bindings, *inside)
            case _:
                assert_never(self.level)

    def sees(self, path: str, environment: Mapping[str, str]) -> bool:
        """Tell whether a run in the sandbox can see a file."""
        if self.level is Level.LIMITS:
            return True
        real = trace(path).real
        is_own = self.level is Level.NAMESPACES and real in _SCRATCH  # each run has one
        return is_own or self._lay_out(Mounts(), environment).mode_at(real) is not Mode.HIDE

    def may_create(self, path: str) -> bool:
        """Tell whether a run in a sandbox may create a file outside of its own directories."""
        real = trace(path).real
        return any(is_within(real, trace(place).real) for place in (*_SCRATCH, "/dev", "/proc", *self.write))

    def _lay_out(
        self, mounts: Mounts, environment: Mapping[str, str], hide: tuple[str, ...] = (), write: tuple[str, ...] = ()
    ) -> Layout:
        return lay_out(
            hide=(self.home, *ALWAYS_HIDDEN, *hide, *mounts.hide),
            read=(*self.read, *mounts.read),
            write=(*self.write, *write, *mounts.write),
            toolchain=find_toolchain(find_search_path(environment), self.home, self.named),
        )


def find_isolation(
    cache: Path,
    boot_id: str,
    *,
    wanted: Level | None,
    extra_read: Sequence[str] = (),
    extra_write: Sequence[str] = (),
    named: Sequence[str] = (),
) -> Isolation:
    """Find the strongest isolation that holds when escape is really tried, none stronger than wanted."""
    highest = wanted or Level.NAMESPACES
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises for a user nobody gave a home
    bubblewrap = shutil.which("bwrap") or ""
    key = _key(boot_id, bubblewrap)
    proven = _read_cache(cache, key)
    problems = [] if highest is Level.NAMESPACES else [f"{highest} is as much as the settings ask for"]
    for level in sorted(Level, key=lambda level: -level.rank):
        if level.rank > highest.rank:
            continue
        told = "; ".join(problems)
        isolation = Isolation(level, told, home, tuple(extra_read), tuple(extra_write), bubblewrap, tuple(named))
        if level in proven:
            return isolation
        problem = "" if level is Level.LIMITS else _try(isolation)
        if not problem:
            if highest is not Level.LIMITS:  # else nothing was tried
                _write_cache(cache, key, [*proven, level])
            return isolation
        problems.append(problem)
    raise AssertionError("limits are always there")


def find_search_path(environment: Mapping[str, str]) -> str:
    """Find where a run looks for programs."""
    return environment.get("PATH") or os.environ.get("PATH", os.defpath)


def _bind(layout: Layout, largest: int | None) -> list[str]:
    """Write bindings for bubblewrap, a place after those above it: what comes later covers what came before."""
    # What is written to memory is out of sight of who measures a sandbox: no more of it than of the sandbox itself.
    size = () if largest is None else ("--size", str(largest))
    arguments, closed = [*size, "--tmpfs", "/dev/shm"], ["--remount-ro", "/dev"]  # noqa: S108 - the run's own
    for path in sorted(layout.places, key=lambda path: path.count("/")):
        mode = layout.places[path]
        if mode is layout.mode_above(path):
            continue
        match mode:
            case Mode.WRITE:
                arguments += ("--bind", path, path)
            case Mode.READ:
                arguments += ("--ro-bind", path, path)
            case Mode.HIDE if Path(path).is_dir():
                arguments += (*size, "--tmpfs", path)
                closed += () if path in _SCRATCH else ("--remount-ro", path)
            case Mode.HIDE:
                arguments += ("--ro-bind", _EMPTY, path)
            case _:
                assert_never(mode)
    for link, target in layout.links.items():
        if layout.mode_at(link) is Mode.HIDE:
            arguments += ("--symlink", target, link)
    return arguments + closed


def _try(isolation: Isolation) -> str:
    """Tell what is wrong with the isolation; nothing when it holds."""
    if isolation.level is Level.NAMESPACES and not isolation.bubblewrap:
        return "bubblewrap is not installed; type: apt install bubblewrap"

    def wrap(argv: list[str], world: probe.World, environment: dict[str, str]) -> tuple[str, ...]:
        mounts = Mounts(write=(str(world.sandbox),), hide=(str(world.hive),))
        # What the settings bind is left out: it may be missing, or meant to be open, and says nothing of the isolation.
        bare = replace(isolation, home=str(world.home), read=(), write=(), named=())
        return bare.wrap(argv, str(world.sandbox), mounts, environment)

    is_alone = isolation.level is Level.NAMESPACES
    try:
        hole = probe.find_hole(
            wrap, is_alone=is_alone, keeps_signals_in=is_alone or landlock.read_version() >= landlock.WITH_SCOPES
        )
    except OSError as error:  # no scratch space, no more processes: not tried is not there
        hole = f"it could not be tried out: {error}"
    return f"{isolation.level.builder} does not hold here: {hole}{_advise(isolation.level)}" if hole else ""


def _advise(level: Level) -> str:
    """Say which switch of this machine may be in the way."""
    for path, forbids, advice in _SWITCHES if level is Level.NAMESPACES else ():
        with contextlib.suppress(OSError):
            if Path(path).read_text("ascii").strip() == forbids:
                return f" (user namespaces are not allowed here: {advice})"
    return ""


def _key(boot_id: str, bubblewrap: str) -> list[object]:
    changed_at = Path(bubblewrap).stat().st_mtime_ns if bubblewrap else 0
    return [_PROBE_VERSION, boot_id, os.geteuid(), sys.executable, bubblewrap, changed_at]


def _read_cache(cache: Path, key: list[object]) -> list[str]:
    """Read which levels have held in this boot; a torn or foreign file says of none."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        match json.loads(cache.read_bytes()):
            case {"key": found, "held": [*levels]} if found == key:
                return [level for level in levels if level in set(Level)]
    return []


def _write_cache(cache: Path, key: list[object], held: list[str]) -> None:
    draft = cache.with_name(f"{cache.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # a full disk costs a tenth of a second at the next start, nothing more
        draft.write_text(json.dumps({"key": key, "held": held}), "utf-8")
        draft.replace(cache)
