"""The machine and the settings: disk space, git, the boot, isolation, and hive.toml."""

import os
from collections.abc import Iterator
from pathlib import Path

from hivekeeper.config.settings import load_settings
from hivekeeper.config.values import FILE_NAME
from hivekeeper.doctor.findings import Check, Finding, Level, fail, ok
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import HiveError
from hivekeeper.git.mirror import check_git
from hivekeeper.places import Places
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.sandbox import isolation
from hivekeeper.settings import Settings

LEAST_FREE_BYTES = 1 << 30
LEAST_FREE_SHARE = 0.05


def check_machine(places: Places, settings: Settings) -> Iterator[Finding]:
    """Check the machine."""
    yield from check_directory(places.hive)
    yield from check_disk(places.hive)
    yield from check_git_version()
    boot_id = read_boot_id()
    yield ok(Check.BOOT, f"boot {boot_id}")
    wanted = isolation.Level(settings.level) if settings.level else None
    yield judge_isolation(isolation.find_isolation(places.isolation, boot_id, wanted=wanted), settings.require)


def check_directory(hive: Path) -> Iterator[Finding]:
    """Check whether the hive's directory can be written."""
    if os.access(hive, os.R_OK | os.W_OK | os.X_OK):
        yield ok(Check.DIRECTORY, f"{hive} can be written")
    else:
        advice = f"Check who owns it and whether its disk is mounted read-only: ls -ld {hive}; findmnt -T {hive}"
        yield fail(Check.DIRECTORY, f"{hive} cannot be written.", advice)


def check_disk(hive: Path) -> Iterator[Finding]:
    """Check how much space is left, in bytes and in files."""
    disk = os.statvfs(hive)
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    advice = f"Free some space: du -xsh {hive}/*"
    yield Finding(Check.DISK, decide_space(free, total, LEAST_FREE_BYTES), f"{free >> 20} MiB are free", advice)
    if disk.f_files:  # some file systems do not count them
        level = decide_space(disk.f_favail, disk.f_files, 0)
        yield Finding(Check.DISK, level, f"{say_count(disk.f_favail, 'more file')} can be made", advice)


def decide_space(free: int, total: int, least: int) -> Level:
    """Decide whether what is free is enough: a share of the whole, and not less than `least`."""
    if free <= 0:
        return Level.FAIL
    return Level.OK if free >= max(least, LEAST_FREE_SHARE * total) else Level.WARN


def check_git_version() -> Iterator[Finding]:
    """Check the version of git."""
    try:
        yield ok(Check.GIT, f"git {check_git()}")
    except HiveError as error:
        yield fail(Check.GIT, error.what, error.advice)


def judge_isolation(found: isolation.Isolation, require: str | None) -> Finding:
    """Check how workers are isolated, and whether that is what the settings require."""
    by = f"{found.level} ({found.level.builder})" if found.level.builder else f"{found.level} only"
    what = f"workers are isolated by {by}{found.why and ': '}{found.why}"
    if require is None or isolation.Level(require).rank <= found.level.rank:
        return ok(Check.WORKERS, what)
    advice = f"Do what it says, or ask for less: 'require' in [sandbox] of {FILE_NAME}."
    return fail(Check.WORKERS, f"{FILE_NAME} requires {require}, and {what}.", advice)


def check_settings(root: Path) -> tuple[Settings, Finding]:
    """Check hive.toml, and load it; the defaults where it cannot be used."""
    try:
        settings = load_settings(root)
    except HiveError as error:
        return Settings(), fail(Check.SETTINGS, error.what, error.advice or f"Correct {FILE_NAME}.")
    return settings, ok(Check.SETTINGS, f"{FILE_NAME} can be read: {say_count(settings.workers, 'worker')}")
