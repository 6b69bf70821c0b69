"""The machine and the settings: space on the disk, git, the boot, what keeps workers apart, and hive.toml."""

import os
from collections.abc import Iterator
from pathlib import Path

from hivekeeper.config.settings import load_settings
from hivekeeper.config.values import FILE_NAME
from hivekeeper.doctor.findings import Check, Finding, Level
from hivekeeper.errors import HiveError
from hivekeeper.git.mirror import check_git
from hivekeeper.places import Places
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.sandbox import isolation
from hivekeeper.settings import Settings

LEAST_FREE_BYTES = 1 << 30
LEAST_FREE_SHARE = 0.05


def check_machine(places: Places, settings: Settings) -> Iterator[Finding]:
    """Look at what the hive stands on."""
    yield from check_directory(places.hive)
    yield from check_disk(places.hive)
    yield from check_git_version()
    boot_id = read_boot_id()
    yield Finding(Check.BOOT, Level.OK, f"boot {boot_id}")
    wanted = isolation.Level(settings.level) if settings.level else None
    yield judge_isolation(isolation.find_isolation(places.isolation, boot_id, wanted=wanted), settings.require)


def check_directory(hive: Path) -> Iterator[Finding]:
    """Tell whether the hive's directory can be written."""
    if os.access(hive, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(Check.DIRECTORY, Level.OK, f"{hive} can be written")
    else:
        advice = f"Check who owns it and whether its disk is mounted read-only: ls -ld {hive}; findmnt -T {hive}"
        yield Finding(Check.DIRECTORY, Level.FAIL, f"{hive} cannot be written.", advice)


def check_disk(hive: Path) -> Iterator[Finding]:
    """Tell how much space is left, in bytes and in files."""
    disk = os.statvfs(hive)
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    advice = f"Free some space: du -xsh {hive}/*"
    yield Finding(Check.DISK, decide_space(free, total, LEAST_FREE_BYTES), f"{free >> 20} MiB are free", advice)
    if disk.f_files:  # some file systems do not count them
        level = decide_space(disk.f_favail, disk.f_files, 0)
        yield Finding(Check.DISK, level, f"{disk.f_favail} more files can be made", advice)


def decide_space(free: int, total: int, least: int) -> Level:
    """Decide whether what is free is enough: a share of the whole, and not less than `least`."""
    if free <= 0:
        return Level.FAIL
    return Level.OK if free >= max(least, LEAST_FREE_SHARE * total) else Level.WARN


def check_git_version() -> Iterator[Finding]:
    """Tell which git there is."""
    try:
        yield Finding(Check.GIT, Level.OK, f"git {check_git()}")
    except HiveError as error:
        yield Finding(Check.GIT, Level.FAIL, error.what, error.advice)


def judge_isolation(found: isolation.Isolation, require: str | None) -> Finding:
    """Tell what keeps workers apart, and whether that is as much as the settings ask for."""
    by = f"{found.level} ({found.level.builder})" if found.level.builder else f"{found.level} only"
    what = f"workers are kept apart by {by}{found.why and ': '}{found.why}"
    if require is None or isolation.Level(require).rank <= found.level.rank:
        return Finding(Check.WORKERS, Level.OK, what)
    advice = f"Do what it says, or ask for less: 'require' in [sandbox] of {FILE_NAME}."
    return Finding(Check.WORKERS, Level.FAIL, f"{FILE_NAME} requires {require}, and {what}.", advice)


def check_settings(root: Path) -> Iterator[Finding]:
    """Tell whether hive.toml says something that can be followed."""
    try:
        settings = load_settings(root)
    except HiveError as error:
        yield Finding(Check.SETTINGS, Level.FAIL, error.what, error.advice or f"Correct {FILE_NAME}.")
    else:
        yield Finding(Check.SETTINGS, Level.OK, f"{FILE_NAME} can be read: {settings.workers} workers")
