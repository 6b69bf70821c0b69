"""A small hive with secrets in every hidden place, and a way to run a program at an isolation level."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hivekeeper.sandbox import landlock
from hivekeeper.sandbox.isolation import Isolation, Level, Mounts
from tests.needs import need

CANARY = "a canary that sings outside"


def get_or_skip(found: dict[Level, Isolation], level: Level) -> Isolation:
    """Give isolation at a level; a test is skipped only where the machine itself cannot have it, and never in CI."""
    isolation = found[level]
    if isolation.level is not level:
        told = f"There is no isolation at level {level} here: {isolation.why}"
        assert not _can_have(level), told
        need(condition=False, why=told)
    return isolation


def _can_have(level: Level) -> bool:
    """Ask the machine, not our own probe: isolation that we broke must not look like isolation that is missing."""
    if level is Level.LANDLOCK:
        return landlock.read_version() >= 3
    plain = ["bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    return shutil.which("bwrap") is not None and subprocess.run([*plain, "true"], check=False).returncode == 0


@dataclass(frozen=True)
class Prison:
    """A home, a hive with two sandboxes, and the isolation of the first of them."""

    root: Path
    isolation: Isolation

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def hive(self) -> Path:
        return self.root / "hive"

    @property
    def own(self) -> Path:
        return self.hive / "sandboxes" / "own"

    @property
    def other(self) -> Path:
        return self.hive / "sandboxes" / "other"

    @property
    def secrets(self) -> list[Path]:
        return [directory / "secret" for directory in (self.home, self.hive, self.other, self.root)]

    def build(self) -> "Prison":
        for secret in self.secrets:
            secret.parent.mkdir(parents=True, exist_ok=True)
            secret.write_text(CANARY)
        self.own.mkdir()
        return self

    @property
    def mounts(self) -> Mounts:
        return Mounts(write=(str(self.own),), hide=(str(self.hive), str(self.root / "secret")))

    def wrap(self, argv: Sequence[str], mounts: Mounts | None = None, directory: Path | None = None) -> list[str]:
        environment = self.environment()
        return list(self.isolation.wrap(argv, str(directory or self.own), mounts or self.mounts, environment))

    def environment(self) -> dict[str, str]:
        own = str(self.own)
        return {**{name: os.environ[name] for name in os.environ if name != "PWD"}, "HOME": own, "TMPDIR": own}

    def run(
        self, *argv: str, mounts: Mounts | None = None, directory: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.wrap(argv, mounts, directory),
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def say(self, *argv: str, mounts: Mounts | None = None) -> str:
        """Run something that must succeed, and give what it says."""
        done = self.run(*argv, mounts=mounts)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def attempt(self, code: str, *arguments: object) -> str:
        """Run Python inside that may fail as it likes; everything it says, errors too."""
        done = self.run(sys.executable, "-I", "-S", "-c", code, *map(str, arguments))
        return done.stdout + done.stderr
