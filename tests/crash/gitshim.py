"""A git that can be struck: every git of a run is counted, and a chosen one is traced, killed, or made to fail.

Runs find git by their PATH; a small script there counts, and hands on to the real one. A struck git dies alone, or,
named with a `!`, takes the wrapper of its run along, as the end of a whole process tree would.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.crash.tracing import MUTATING, Fault

_SCRIPT = """#!/bin/sh
verb= skip=
for word; do
  if [ -n "$skip" ]; then skip=; continue; fi
  case $word in -C|-c|--git-dir|--work-tree) skip=1 ;; -*) ;; *) verb=$word; break ;; esac
done
# Counting is one mkdir: of several gits at once, each gets a number of its own. What each is for comes first: under
# load runs take another order, and a number alone would be another git each time.
number=1
while ! mkdir "{place}/count/$verb.$number" 2> /dev/null; do number=$((number + 1)); done
name=$verb.$number
options=$(cat "{place}/$name.options" "{place}/all.options" 2> /dev/null) || [ -n "$options" ] || exec "{git}" "$@"
strace -f -qq -o "{place}/$name.log" $options "{git}" "$@"
status=$?
if [ $status -gt 128 ] && [ -e "{place}/whole-tree" ]; then
  read -r _ _ _ parent _ < /proc/$PPID/stat
  [ "$(cat "/proc/$parent/comm")" != hive-run ] || kill -9 "$parent" "$PPID"
fi
exit $status
"""


class GitShim:
    """The directory that stands first in the PATH."""

    def __init__(self, place: Path) -> None:
        self._place = place

    @contextlib.contextmanager
    def installed(self, *, record: bool = False, strike: str = "", fault: Fault | None = None) -> Iterator[None]:
        """Stand in for git: tracing every one of them, or striking one."""
        shutil.rmtree(self._place, ignore_errors=True)
        (self._place / "count").mkdir(parents=True)
        (self._place / "bin").mkdir()
        script = self._place / "bin" / "git"
        script.write_text(_SCRIPT.format(place=self._place, git=shutil.which("git")))
        script.chmod(0o755)
        if record:
            (self._place / "all.options").write_text(f"-e trace={','.join(MUTATING)}")
        if fault is not None:
            (self._place / f"{strike.removesuffix('!')}.options").write_text(" ".join(fault.inject()))
            if strike.endswith("!"):
                (self._place / "whole-tree").touch()
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{self._place / 'bin'}:{before}"
        try:
            yield
        finally:
            os.environ["PATH"] = before

    def read_logs(self) -> list[tuple[str, str]]:
        """Give what every git did, by its name; of several processes of one git only the first one's calls."""
        logs = sorted((path.stem, path) for path in self._place.glob("*.log"))
        return [(name, _first_process(path.read_text())) for name, path in logs]

    def read_every_log(self) -> list[tuple[str, str]]:
        """Give what every process of every git did, by the git's name."""
        logs = sorted((path.stem, path) for path in self._place.glob("*.log"))
        return [(name, log) for name, path in logs for log in _split_processes(path.read_text())]

    def has_fired(self, fault: Fault) -> bool:
        """Tell whether the struck git died, or its call failed."""
        text = "".join(path.read_text() for path in self._place.glob("*.log"))
        return "(INJECTED)" in text if fault.error else "+++ killed by SIGKILL +++" in text


def _first_process(log: str) -> str:
    """Keep one process's lines: calls are counted for each process apart, and the same number strikes them all."""
    return max(_split_processes(log), key=lambda lines: lines.count("\n"), default="")


def _split_processes(log: str) -> list[str]:
    by_process: dict[str, list[str]] = {}
    for line in log.splitlines():
        by_process.setdefault(line.split(" ", 1)[0], []).append(line)
    return ["\n".join(lines) for lines in by_process.values()]
