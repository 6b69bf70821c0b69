"""What the doctor may find, and what may be done about it."""

from collections.abc import Callable, Iterable
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
    """What was looked at."""

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
    """Remove a file that nobody reads or waits for any more."""

    path: Path


@dataclass(frozen=True, slots=True)
class RemoveTree:
    """Remove a directory whose content is kept elsewhere."""

    path: Path


@dataclass(frozen=True, slots=True)
class KillProcesses:
    """Kill what an ended run left alive."""

    run: str
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    """Throw away a state put by, which is a cache of the log."""

    seq: int


WorldFix = RemoveFile | RemoveTree | KillProcesses
Fix = WorldFix | DropCheckpoint


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look showed; `advice` says what to do, and `fix` is there only when doing it is provably safe."""

    check: Check
    level: Level
    what: str
    advice: str = ""
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything found, what was mended, and what could not be mended, each in a sentence."""

    findings: tuple[Finding, ...]
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


MEND = "Type: hive doctor --fix"
_LEDGER_ITSELF = (Check.LEDGER, Check.LOG, Check.TABLES, Check.FILE)
_NEEDED = (Check.DIRECTORY, Check.DISK, Check.GIT, Check.WORKERS)


def is_distrusted(findings: Iterable[Finding]) -> bool:
    """Tell whether the ledger must not be believed."""
    return any(finding.level is Level.FAIL and finding.check in _LEDGER_ITSELF for finding in findings)


def decide_exit_code(findings: Iterable[Finding]) -> int:
    """Decide what `hive doctor` ends with: the worst that was found, as errors.py numbers it."""
    wrong = [finding for finding in findings if finding.level is not Level.OK]
    if is_distrusted(wrong):
        return 4
    if any(finding.level is Level.FAIL and finding.check in _NEEDED for finding in wrong):
        return 5
    return 1 if wrong else 0
