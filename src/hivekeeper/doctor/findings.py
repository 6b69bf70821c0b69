"""What the doctor finds, and how it can be repaired."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

Say = Callable[[str], None]


class Level(StrEnum):
    """How bad it is."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Check(StrEnum):
    """What was checked."""

    LEDGER = "ledger"
    LOG = "log"
    TABLES = "tables"
    FILE = "file"
    PRAGMAS = "pragmas"
    WAL = "wal"
    LEASE = "lease"
    RUNS = "runs"
    PROCESSES = "processes"
    SANDBOXES = "sandboxes"
    MIRRORS = "mirrors"
    PUBLIC = "public"
    ARCHIVE = "archive"
    SEANCE = "seance"
    REPOS = "repositories"
    WAITS = "waits"
    LOCKS = "locks"
    SETTINGS = "settings"
    DIRECTORY = "directory"
    DISK = "disk"
    GIT = "git"
    BOOT = "boot"
    WORKERS = "workers"


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Remove a file that is no longer used."""

    path: Path


@dataclass(frozen=True, slots=True)
class RemoveTree:
    """Remove a directory whose content is saved elsewhere."""

    path: Path


@dataclass(frozen=True, slots=True)
class KillProcesses:
    """Kill processes that outlived their run."""

    run: str
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RebuildArchive:
    """Write every file of the archive again, which has nothing that the ledger has not."""


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    """Collect what agents did, all of it into a new index if it `is_new`."""

    is_new: bool


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    """Delete a checkpoint, which is a cache of the log."""

    seq: int


WorldFix = RemoveFile | RemoveTree | KillProcesses | RebuildArchive | RebuildIndex
Fix = WorldFix | DropCheckpoint


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `advice` says what to do, and `fix` is there only if doing it is safe."""

    check: Check
    level: Level
    what: str
    advice: str = ""
    fix: Fix | None = None


def ok(check: Check, what: str) -> Finding:
    """Report that something is as it should be."""
    return Finding(check, Level.OK, what)


def warn(check: Check, what: str, advice: str, fix: Fix | None = None) -> Finding:
    """Report what should be put right."""
    return Finding(check, Level.WARN, what, advice, fix)


def fail(check: Check, what: str, advice: str, fix: Fix | None = None) -> Finding:
    """Report what must be put right."""
    return Finding(check, Level.FAIL, what, advice, fix)


def or_ok(found: Iterable[Finding], check: Check, what: str) -> Iterator[Finding]:
    """Report what was found; if nothing, that all is well."""
    found = list(found)
    yield from found or [ok(check, what)]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything found, what was repaired, and what could not be repaired, each in a sentence."""

    findings: tuple[Finding, ...]
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


REPAIR = "Type: hive doctor --fix"
_LEDGER_ITSELF = (Check.LEDGER, Check.LOG, Check.TABLES, Check.FILE)
_NEEDED = (Check.DIRECTORY, Check.DISK, Check.GIT, Check.WORKERS)


def is_distrusted(findings: Iterable[Finding]) -> bool:
    """Tell whether the ledger must not be believed."""
    return any(finding.level is Level.FAIL and finding.check in _LEDGER_ITSELF for finding in findings)


def decide_exit_code(findings: Iterable[Finding]) -> int:
    """Decide the exit code of `hive doctor`: that of the worst finding, as errors.py numbers them."""
    wrong = [finding for finding in findings if finding.level is not Level.OK]
    if is_distrusted(wrong):
        return 4
    if any(finding.level is Level.FAIL and finding.check in _NEEDED for finding in wrong):
        return 5
    return 1 if wrong else 0
