"""A small hive with secrets in every hidden place, and a way to run a program inside walls of a level."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hivekeeper.sandbox import landlock
from hivekeeper.sandbox.walls import Level, Rooms, Walls
from tests.needs import need

CANARY = "a canary that sings outside"


def get_or_skip(found: dict[Level, Walls], level: Level) -> Walls:
    """Give walls of a level; a test is skipped only where the machine itself cannot have them, and never in CI."""
    walls = found[level]
    if walls.level is not level:
        told = f"There are no walls of level {level} here: {walls.why}"
        assert not _can_have(level), told
        need(condition=False, why=told)
    return walls


def _can_have(level: Level) -> bool:
    """Ask the machine, not our own probe: walls that we broke ourselves must not look like walls that are missing."""
    if level is Level.LANDLOCK:
        return landlock.read_version() >= 3
    plain = ["bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    return shutil.which("bwrap") is not None and subprocess.run([*plain, "true"], check=False).returncode == 0


@dataclass(frozen=True)
class Prison:
    """A home, a hive with two sandboxes, and the walls around the first of them."""

    root: Path
    walls: Walls

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
    def rooms(self) -> Rooms:
        return Rooms(write=(str(self.own),), hide=(str(self.hive), str(self.root / "secret")))

    def enclose(self, argv: Sequence[str], rooms: Rooms | None = None, directory: Path | None = None) -> list[str]:
        environment = self.environment()
        return list(self.walls.enclose(argv, str(directory or self.own), rooms or self.rooms, environment))

    def environment(self) -> dict[str, str]:
        own = str(self.own)
        return {**{name: os.environ[name] for name in os.environ if name != "PWD"}, "HOME": own, "TMPDIR": own}

    def run(
        self, *argv: str, rooms: Rooms | None = None, directory: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.enclose(argv, rooms, directory),
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def say(self, *argv: str, rooms: Rooms | None = None) -> str:
        """Run something that must succeed, and give what it says."""
        done = self.run(*argv, rooms=rooms)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def attempt(self, code: str, *arguments: object) -> str:
        """Run Python inside that may fail as it likes; everything it says, errors too."""
        done = self.run(sys.executable, "-I", "-S", "-c", code, *map(str, arguments))
        return done.stdout + done.stderr
