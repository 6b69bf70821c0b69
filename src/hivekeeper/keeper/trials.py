"""A runner asked something while a person waits, in a sandbox like a worker's: `hive runner test` and `hive plan`.

It is no run: nothing of it is in the ledger, and nothing of it outlives the command that asked.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hivekeeper.clock import to_seconds
from hivekeeper.domain.report import Report
from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.runner import Runner
from hivekeeper.git.orders import Argv, remove_directory
from hivekeeper.hive import Hive
from hivekeeper.keeper.programs import find_hive_isolation
from hivekeeper.runners import make_reader
from hivekeeper.runners.reading import Lines
from hivekeeper.runs.trial import Tried, try_out
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.sandbox.isolation import Mounts
from hivekeeper.specs.sandboxed import make_environment, make_mounts
from hivekeeper.specs.session import find_environment, start_program

_SETTLING_S = 60.0  # a directory younger than this may not be locked yet
_REMOVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class Said:
    """What a runner said in the end, and how its session went."""

    words: str
    report: Report
    tried: Tried


class Trial:
    """A sandbox for questions: `work` is where they are asked."""

    def __init__(self, hive: Hive, directory: Path) -> None:
        self._hive, self._directory, self._asked = hive, directory, 0
        self.work = directory / "work"

    def ask(
        self, runner: Runner, prompt: str, *, at_most_s: float, most: int | None = None, may_write: bool = True
    ) -> Said:
        """Ask a runner; of what it says in the end, so many characters are kept. It `may_write` to `work` or not."""
        self._asked += 1
        places, sandbox = self._hive.places, self._directory
        file = sandbox / f"prompt.{self._asked}.md"
        file.write_bytes(prompt.encode("utf-8", "surrogateescape"))
        mounts = make_mounts(places, sandbox, str(file))
        if not may_write:
            mounts["write"].remove(str(self.work))
            mounts["read"].append(str(self.work))
        environment = make_environment(places, sandbox, HIVE_PROMPT=str(file))
        spec = RunSpec((), str(self.work), environment, {}, mounts)
        spec = start_program(spec, runner, f"_trials/{sandbox.name}.{self._asked}")
        reader, lines = make_reader(runner, self._hive.settings.prices, runner.find_model(os.environ)), Lines()
        reader.max_said = most or reader.max_said

        def take(chunk: bytes) -> bool:
            for line in lines.feed(chunk):
                reader.take(line)
            limit = reader.limited  # who waits for it in vain need not be waited for
            return limit is not None and (reader.hopeless or (limit.retry_s or 0.0) > at_most_s)

        argv = self._isolate(spec)
        tried = try_out(argv, spec.directory, find_environment(spec, os.environ), at_most_s=at_most_s, take=take)
        for line in lines.end():
            reader.take(line)
        report = reader.report(tried.status, tried.ended_by, must_act=False)
        return Said(reader.said, report, tried)

    def _isolate(self, spec: RunSpec) -> Argv:
        allowed = Mounts(*(tuple((spec.mounts or {})[name]) for name in ("write", "read", "hide")))
        isolation = find_hive_isolation(self._hive, read_boot_id())
        return isolation.wrap(spec.argv, spec.directory, allowed, spec.environment)


@contextmanager
def open_trial(hive: Hive) -> Iterator[Trial]:
    """Make a sandbox for questions, and remove it at the end; a lock on it shows that it is in use."""
    _sweep(hive)
    directory = Path(tempfile.mkdtemp(prefix="trial-", dir=hive.places.hive))
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for part in ("work", "home", "tmp"):
            (directory / part).mkdir()
        yield Trial(hive, directory)
    finally:
        _remove(directory)
        os.close(descriptor)


def _sweep(hive: Hive) -> None:
    """Remove what was left by those that were killed: there are sign-in files in it."""
    now = to_seconds(hive.ledger.clock.now())
    for left in hive.places.hive.glob("trial-*"):
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # else it is in use
                if now - os.fstat(descriptor).st_mtime > _SETTLING_S:
                    _remove(left)
            finally:
                os.close(descriptor)


def _remove(directory: Path) -> None:
    try_out(remove_directory(directory), "/", {}, at_most_s=_REMOVAL_S)
