"""Isolation is believed only after somebody tried to get out; what is wrong with it is said, and what to type."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from hivekeeper.sandbox import landlock
from hivekeeper.sandbox.isolation import Isolation, Level, find_isolation
from tests.needs import need_root
from tests.sandbox.prison import get_or_skip

# Stands before the real one in the search path and leaves something out.
LEAKY = """#!{python}
import os, sys
argv, leave_out, put = sys.argv[1:], {leave_out}, {put}
for at in range(len(argv) - len(leave_out) + 1):
    if leave_out and argv[at : at + len(leave_out)] == leave_out:
        argv[at : at + len(leave_out)] = put
        break
if "all" in put:
    os.execvp(argv[argv.index("--") + 1], argv[argv.index("--") + 1 :])
os.execv("{bwrap}", ["bwrap", *argv])
"""
# ruff: noqa: S108 - where things are hidden, and tried
LEAKS = {
    "no isolation at all": (["--new-session"], ["all"], "could read a hidden file"),
    "nothing hidden": (["--tmpfs", "/tmp"], [], "could read a hidden file"),
    "all writable": (["--ro-bind", "/", "/"], ["--bind", "/", "/"], "could open a file of others for writing"),
    "others are seen": (["--unshare-pid"], [], "could look into a process outside"),
    "left alive": (["--die-with-parent"], [], "outlived the end of its run"),
    "does not start": (["--new-session"], ["--no-such-option"], "--no-such-option"),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_isolation_with_a_hole_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[Level, Isolation], leak: str
) -> None:
    bwrap = get_or_skip(found, Level.NAMESPACES).bubblewrap
    if leak == "all writable":
        need_root("whoever owns nothing outside of what is hidden can write nothing there, sandbox or not")
    leave_out, put, told = LEAKS[leak]
    script = LEAKY.format(python=sys.executable, leave_out=leave_out, put=put, bwrap=bwrap)
    _put_first(tmp_path, monkeypatch, script)
    isolation = find_isolation(tmp_path / "cache", "boot", wanted=None)
    assert isolation.level is not Level.NAMESPACES
    assert told in isolation.why


def test_landlock_that_restricts_nothing_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[Level, Isolation]
) -> None:
    script = tmp_path / "nothing.py"
    script.write_text("import os, sys; argv = sys.argv[sys.argv.index('--') + 1 :]; os.execvp(argv[0], argv)")
    monkeypatch.setattr(landlock, "__file__", str(script))
    isolation = find_isolation(tmp_path / "cache", "boot", wanted=Level.LANDLOCK)
    assert isolation.level is Level.LIMITS
    assert "Landlock does not hold here: a program inside could read a hidden file" in isolation.why


def test_a_machine_without_bubblewrap_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to(shutil.which("sh") or "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    isolation = find_isolation(tmp_path / "cache", "boot", wanted=None)
    assert isolation.level is not Level.NAMESPACES
    assert isolation.why.startswith("bubblewrap is not installed; type: apt install bubblewrap")


def test_no_more_is_taken_than_is_wanted(tmp_path: Path) -> None:
    isolation = find_isolation(tmp_path / "cache", "boot", wanted=Level.LIMITS)
    assert (isolation.level, isolation.why) == (Level.LIMITS, "limits is as much as the settings ask for")
    assert not (tmp_path / "cache").exists()


def test_levels_are_ordered_by_strength() -> None:
    assert sorted(Level, key=lambda level: level.rank) == [Level.LIMITS, Level.LANDLOCK, Level.NAMESPACES]


def test_what_held_is_remembered_until_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[Level, Isolation]
) -> None:
    tries, cache = tmp_path / "tries", tmp_path / "cache"
    bwrap = get_or_skip(found, Level.NAMESPACES).bubblewrap
    program = _put_first(tmp_path, monkeypatch, f'#!/bin/sh\necho >> {tries}\nexec {bwrap} "$@"\n')

    def count_tries(boot: str = "boot") -> int:
        assert find_isolation(cache, boot, wanted=None).level is Level.NAMESPACES
        return len(tries.read_text().splitlines())

    assert (count_tries(), count_tries()) == (1, 1)
    assert (count_tries("another boot"), count_tries("another boot")) == (2, 2)
    os.utime(program, (1, 1))
    assert count_tries("another boot") == 3
    for torn in ("", "{", "[]", '{"key": 1}', '{"key": 1, "held": ["namespaces"]}', "[" * 100_000, '{"held": 1}'):
        cache.write_text(torn)
        before = count_tries("another boot")
        assert count_tries("another boot") == before, torn
    assert count_tries("another boot") == 10
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("cache")] == ["cache"]
    assert json.loads(cache.read_text())["held"] == ["namespaces"]


def test_a_cache_that_cannot_be_written_is_no_hindrance(tmp_path: Path) -> None:
    highest = find_isolation(tmp_path / "cache", "boot", wanted=None).level
    assert find_isolation(tmp_path / "missing" / "cache", "boot", wanted=None).level is highest


def test_what_the_settings_bind_does_not_weaken_the_isolation(tmp_path: Path) -> None:
    highest = find_isolation(tmp_path / "cache", "boot", wanted=None)
    missing = str(tmp_path / "missing")
    isolation = find_isolation(tmp_path / "other", "boot", wanted=None, extra_read=["/tmp"], extra_write=[missing])
    assert (isolation.level, isolation.why) == (highest.level, highest.why)
    assert (isolation.read, isolation.write) == (("/tmp",), (missing,))


def _put_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    program = tmp_path / "first" / "bwrap"
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program
